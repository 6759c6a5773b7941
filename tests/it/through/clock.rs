//! The time-out and the slot of a call whose server has its client asked something.

use std::{sync::Arc, time::Duration};

use api::{Api, NodeSettings};
use domain::invocation::Status;
use http::Method;
use serde_json::{Value, json};
use tests::{
    peer::{Answer, Setup, Step, tool},
    world::eventually,
};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{Stream, Through, everything, request};
use crate::nodes::patient;

const FORM: &str = r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}"#;
const ROOTS: &str = r#"{"jsonrpc":"2.0","id":8,"method":"roots/list"}"#;
const DONE: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#;
const CALL: &str = "tools/call";

/// A server with one slot and a time-out of one second: `ask` does these steps, `hang` never answers.
async fn asking(steps: Vec<Step>) -> Through {
    let tools = vec![tool("ask"), tool("hang"), tool("echo")];
    let through = Through::new(Setup { tools, ..Setup::older() }).await;
    through.peer.answer("ask", Answer::Talk(steps));
    through.peer.answer("hang", Answer::Echo.held());
    through.sql("UPDATE mcp_servers SET timeout_seconds = 1").await;
    through
}

fn params(name: &str) -> Value {
    json!({ "name": name, "arguments": {} })
}

fn declined() -> Value {
    json!({ "action": "decline" })
}

fn code(answer: &Value) -> &str {
    answer["result"]["_meta"]["bailiwick/error"]["error"]["code"].as_str().unwrap_or_default()
}

impl Through {
    /// More than the time-out of the server passes, which another client finds out.
    async fn let_a_time_out_pass(&self) {
        let other = self.initialize(&json!({})).await;
        let late = self.older(&other, CALL, &params("hang")).await.json();
        assert_eq!(code(&late), "TIMEOUT", "{late}");
    }

    fn running(&self) -> usize {
        let key = format!("{}/{}", self.owner.tenant, self.server);
        self.world.ctx.admission.running(&key)
    }
}

#[tokio::test]
async fn what_a_client_can_be_asked_prolongs_nothing() {
    let through = asking(Vec::new()).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &params("hang")).await;
    let late = stream.next().await;
    assert_eq!(code(&late), "TIMEOUT", "{late}");
    let echo = through.older(&session, CALL, &params("echo")).await.json();
    assert_eq!(echo["result"]["isError"], false, "its slot is free: {echo}");
}

#[tokio::test]
async fn the_clock_stands_still_and_the_slot_is_free_while_a_question_is_open() {
    let through = asking(vec![Step::say(FORM), Step::Reply("7"), Step::say(DONE)]).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &params("ask")).await;
    let asked = stream.next().await;
    through.let_a_time_out_pass().await;
    assert_eq!(through.running(), 0);
    through.answer(&session, &asked["id"], &declined()).await;
    let done = stream.next().await;
    assert!(done["result"]["content"].is_array(), "{done}");
    assert_eq!(through.running(), 0);
}

#[tokio::test]
async fn it_stands_still_until_the_last_of_several_is_answered() {
    let steps = vec![
        Step::say(FORM),
        Step::say(ROOTS),
        Step::Reply("7"),
        Step::Reply("8"),
        Step::say(DONE),
    ];
    let through = asking(steps).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &params("ask")).await;
    let (form, roots) = (stream.next().await, stream.next().await);
    through.answer(&session, &form["id"], &declined()).await;
    through.let_a_time_out_pass().await;
    through.answer(&session, &roots["id"], &json!({ "roots": [] })).await;
    let done = stream.next().await;
    assert!(done["result"]["content"].is_array(), "{done}");
}

#[tokio::test]
async fn after_the_answer_the_slot_is_taken_again_and_the_rest_of_the_time_runs() {
    let through = asking(vec![Step::say(FORM), Step::Reply("7"), Step::Release]).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &params("ask")).await;
    let asked = stream.next().await;
    eventually("the slot is given back", async || (through.running() == 0).then_some(())).await;
    through.answer(&session, &asked["id"], &declined()).await;
    eventually("it is taken again", async || (through.running() == 1).then_some(())).await;
    let late = stream.next().await;
    assert_eq!(code(&late), "TIMEOUT", "{late}");
    assert_eq!(through.running(), 0);
    assert_eq!(through.calls().await, [(Status::Failed, 1)]);
}

#[tokio::test]
async fn a_question_that_nobody_is_asked_stops_no_clock() {
    let secret = FORM.replace(r#""name":{"#, r#""password":{"#);
    let through = asking(vec![Step::Say(secret), Step::Reply("7"), Step::Release]).await;
    let session = through.initialize(&everything()).await;
    let late = through.older(&session, CALL, &params("ask")).await.json();
    assert_eq!(code(&late), "TIMEOUT", "{late}");
}

#[tokio::test]
async fn a_question_on_the_sessions_own_stream_stops_the_clocks_of_its_calls() {
    let through = asking(vec![Step::Reply("7"), Step::say(DONE)]).await;
    let session = through.initialize(&everything()).await;
    through.peer.script_method(
        "LISTEN",
        [Answer::Talk(vec![Step::Release, Step::say(FORM), Step::Reply("never")])],
    );
    let headers = [("mcp-session-id", session.as_str())];
    let get = through.request(Method::GET, &through.token, &through.path(), &headers, "");
    let mut standing = Stream::of(get.send().await.unwrap());
    let mut stream = through.open_older(&session, CALL, &params("ask")).await;
    through.peer.until("it is called", |peer| peer.calls().len() == 1).await;
    through.peer.release();
    let asked = standing.next().await;
    through.peer.hold();
    through.let_a_time_out_pass().await;
    through.answer(&session, &asked["id"], &declined()).await;
    let done = stream.next().await;
    assert!(done["result"]["content"].is_array(), "{done}");
}

#[tokio::test]
async fn what_is_no_call_has_a_clock_of_the_same_kind() {
    let through = asking(Vec::new()).await;
    let listed = r#"{"jsonrpc":"2.0","id":$ID,"result":{"prompts":[]}}"#;
    let steps = vec![Step::say(FORM), Step::Reply("7"), Step::say(listed)];
    through.peer.script_method("prompts/list", [Answer::Talk(steps)]);
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, "prompts/list", &json!({})).await;
    let asked = stream.next().await;
    through.let_a_time_out_pass().await;
    through.answer(&session, &asked["id"], &declined()).await;
    assert_eq!(stream.next().await["result"]["prompts"], json!([]));
}

/// Another process that serves the gateway and waits no longer than this for a person.
struct Impatient {
    url: url::Url,
    stopping: tokio_util::sync::CancellationToken,
    serving: JoinHandle<()>,
}

impl Impatient {
    async fn start(through: &Through, permission_wait: Duration) -> Self {
        let ctx = patient(&through.world, permission_wait);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url::Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let node = NodeSettings {
            public_url: url.clone(),
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
        };
        let stopping = ctx.stopping.clone();
        let api = Api { ctx, node: Arc::new(node) };
        let serving = tokio::spawn(api::serve(listener, api, stopping.clone().cancelled_owned()));
        Self { url, stopping, serving }
    }
}

impl Drop for Impatient {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.serving.abort();
    }
}

#[tokio::test]
async fn all_pauses_together_are_no_longer_than_a_person_is_waited_for() {
    let through = asking(vec![Step::say(FORM), Step::Reply("7")]).await;
    let node = Impatient::start(&through, Duration::from_millis(500)).await;
    let session = through.initialize(&everything()).await;
    let path = node.url.join(&through.path()).unwrap();
    let headers = [("mcp-session-id", session.as_str())];
    let body = request(CALL, &params("ask"));
    let call = through.request(Method::POST, &through.token, path.as_str(), &headers, body);
    let mut stream = Stream::of(call.send().await.unwrap());
    assert_eq!(stream.next().await["method"], "elicitation/create");
    // Nobody answers. The server's time-out is up, and the question is taken back.
    let mut answer = stream.next().await;
    if answer["method"] == "notifications/cancelled" {
        answer = stream.next().await;
    }
    assert_eq!(code(&answer), "TIMEOUT", "{answer}");
    let took = through.invocations().await[0].duration_ms;
    assert!((1_500..5_000).contains(&took), "{took} ms");
}
