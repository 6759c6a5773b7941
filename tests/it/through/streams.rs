//! What a server says by itself.

use http::Method;
use serde_json::{Value, json};
use tests::peer::{Answer, Setup, Step, tool};

use super::{Stream, Through, as_pairs, everything, modern};

const UPDATED: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"demo://a"}}"#;
const PROMPTS: &str = r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#;
const TOOLS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn setup(begin: Setup) -> Setup {
    let capabilities = vec![
        r#""prompts":{"listChanged":true}"#,
        r#""resources":{"subscribe":true,"listChanged":true}"#,
    ];
    Setup { capabilities, tells_changes: true, ..begin }
}

#[tokio::test]
async fn the_standing_stream_of_an_older_session_is_the_servers() {
    let through = Through::new(setup(Setup::older())).await;
    let asked = r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"Well?","requestedSchema":{"type":"object","properties":{}}}}"#;
    let steps = vec![
        Step::say(UPDATED),
        Step::say(asked),
        Step::Reply("7"),
        Step::say(PROMPTS),
        Step::Release,
    ];
    let session = through.initialize(&everything()).await;
    through.peer.script_method("LISTEN", [Answer::Talk(steps)]);
    let mut stream = through.get(&session).await;
    assert_eq!(stream.next().await["params"]["uri"], "demo://a");
    let question = stream.next().await;
    assert_eq!(question["params"]["message"], "demo: Well?");
    through.answer(&session, &question["id"], &json!({"action": "decline"})).await;
    assert_eq!(stream.next().await["method"], "notifications/prompts/list_changed");
    let gets = through.peer.requests(&Method::GET);
    assert!(gets.iter().any(|get| get.header("mcp-session-id") == "s1"), "its own session's");
    drop(stream);
}

#[tokio::test]
async fn without_a_stream_of_the_server_there_is_none() {
    let through = Through::new(Setup::older()).await;
    let session = through.initialize(&everything()).await;
    let reply = through.http(Method::GET, &session).await;
    assert_eq!((reply.status, reply.header("allow")), (405, "POST, DELETE"));
    assert_eq!(through.http(Method::GET, "made-up").await.status, 404);
    let headers = [("mcp-session-id", session.as_str()), ("accept", "application/json")];
    let reply = through.send(Method::GET, &through.token, &through.path(), &headers, "").await;
    assert_eq!(reply.status, 406);
    let headers = [("mcp-protocol-version", "2026-07-28")];
    let reply = through.send(Method::GET, &through.token, &through.path(), &headers, "").await;
    assert_eq!(reply.status, 405);
}

#[tokio::test]
async fn a_newer_client_hears_what_it_subscribed_to() {
    let through = Through::new(setup(Setup::modern())).await;
    let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$ID},"notifications":{"promptsListChanged":true,"resourceSubscriptions":["demo://a"]}}}"#;
    let steps = [
        ack,
        PROMPTS,
        UPDATED,
        r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#,
    ];
    let steps = steps.map(Step::say).into_iter().chain([Step::Release]).collect();
    through.peer.script_method("subscriptions/listen", [Answer::Talk(steps)]);
    let mut stream = through
        .subscribe(json!({"promptsListChanged": true, "resourceSubscriptions": ["demo://a"]}))
        .await;
    let ours =
        |message: &Value| message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1;
    let first = stream.next().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        first["params"]["notifications"],
        json!({"promptsListChanged": true, "resourceSubscriptions": ["demo://a"]})
    );
    for method in ["notifications/prompts/list_changed", "notifications/resources/updated"] {
        let message = stream.next().await;
        assert_eq!(message["method"], method);
        assert!(ours(&first) && ours(&message), "{message}");
    }
    through.world.ctx.draining.cancel();
    let end = stream.next().await;
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!(1), &json!("complete")));
    assert!(stream.maybe_next().await.is_none());
}

#[tokio::test]
async fn an_older_server_is_subscribed_to_in_a_session_for_that_alone() {
    let through = Through::new(setup(Setup::older())).await;
    through.peer.script_method(
        "LISTEN",
        [Answer::Talk(vec![Step::Release, Step::say(UPDATED), Step::Release])],
    );
    through.peer.script_method("resources/subscribe", [Answer::Result("{}".to_owned())]);
    let before = through.peer.sessions();
    let mut stream = through.subscribe(json!({"resourceSubscriptions": ["demo://a"]})).await;
    assert_eq!(
        stream.next().await["params"]["notifications"],
        json!({"resourceSubscriptions": ["demo://a"]})
    );
    assert_eq!(through.peer.received("resources/subscribe").len(), 1);
    through.peer.release();
    assert_eq!(stream.next().await["method"], "notifications/resources/updated");
    assert_eq!(through.peer.sessions(), before + 1);
    drop(stream);
    through.peer.until("it is ended", |peer| peer.sessions() == before).await;
}

#[tokio::test]
async fn changes_of_tools_are_told_when_the_server_says_so_and_when_our_pins_change() {
    let through = Through::new(Setup::older()).await;
    let mut stream = through.subscribe(json!({"toolsListChanged": true})).await;
    let honoured = stream.next().await["params"]["notifications"].clone();
    assert_eq!(honoured, json!({"toolsListChanged": true}), "our pins are looked at");

    let through = Through::new(setup(Setup::modern())).await;
    let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$ID},"notifications":{"toolsListChanged":true}}}"#;
    let steps = vec![Step::say(ack), Step::Release, Step::say(TOOLS), Step::Release];
    through.peer.script_method("subscriptions/listen", [Answer::Talk(steps)]);
    let mut stream = through.subscribe(json!({"toolsListChanged": true})).await;
    stream.next().await;
    through.peer.release();
    assert_eq!(stream.next().await["method"], "notifications/tools/list_changed");
    through.peer.change(|setup| setup.tools.clear());
    app::discovery::run(&through.world.ctx, through.owner.tenant, &through.server, None)
        .await
        .unwrap();
    assert_eq!(stream.next().await["method"], "notifications/tools/list_changed", "once more");
}

#[tokio::test]
async fn one_person_has_so_many_streams_and_no_more() {
    let through = Through::new(Setup { tools: vec![tool("t")], ..Setup::modern() }).await;
    let most = domain::limits::STREAMS_OPEN.size();
    let mut streams = Vec::new();
    for _ in 0..most {
        streams.push(through.subscribe(json!({"toolsListChanged": true})).await);
    }
    let params = json!({"notifications": {}});
    let reply = through.modern("subscriptions/listen", params).await.json();
    assert_eq!(reply["error"]["data"]["code"], "RATE_LIMIT_QUEUE_FULL");
    streams.pop();
    tests::world::eventually("a place is free", async || {
        let params = json!({ "notifications": {"toolsListChanged": true} });
        let (headers, body) = modern("subscriptions/listen", &params, &json!({}), &json!({}));
        let mut stream = through.open(&as_pairs(&headers), body).await;
        let first = stream.next().await;
        (first["method"] == "notifications/subscriptions/acknowledged").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_malformed_filter_is_refused() {
    let through = Through::new(Setup::modern()).await;
    for params in [
        json!({}),
        json!({"notifications": 7}),
        json!({"notifications": {"toolsListChanged": "yes"}}),
        json!({"notifications": {"resourceSubscriptions": [7]}}),
    ] {
        let reply = through.modern("subscriptions/listen", params.clone()).await;
        assert_eq!(reply.fault(), -32602, "{params}");
    }
}

/// Open streams of either era, with nothing said in them.
async fn open_streams() -> (Through, Vec<Stream>) {
    let through = Through::new(setup(Setup::older())).await;
    let session = through.initialize(&everything()).await;
    let held = || Answer::Talk(vec![Step::Release]);
    through.peer.script_method("LISTEN", [held(), held()]);
    let older = through.get(&session).await;
    let mut newer = through.subscribe(json!({"promptsListChanged": true})).await;
    newer.next().await;
    through.peer.until("both are open", |peer| peer.held() >= 2).await;
    (through, vec![older, newer])
}

/// What comes until the end of a stream; panics where it does not end when its caller is looked at.
async fn ended(mut stream: Stream) {
    while stream.maybe_next().await.is_some() {}
}

#[tokio::test]
async fn open_streams_of_a_revoked_token_end_when_they_are_looked_at() {
    let (through, streams) = open_streams().await;
    through.sql("UPDATE api_tokens SET revoked_at = now() WHERE scopes = '{mcp:call}'").await;
    futures::future::join_all(streams.into_iter().map(ended)).await;
}

#[tokio::test]
async fn open_streams_of_a_disabled_person_end_when_they_are_looked_at() {
    let (through, streams) = open_streams().await;
    through.sql("UPDATE users SET status = 'disabled'").await;
    futures::future::join_all(streams.into_iter().map(ended)).await;
}

#[tokio::test]
async fn open_streams_of_whoever_still_may_stay_open() {
    let (_through, streams) = open_streams().await;
    let look = domain::limits::SSE_COMMENT_MS.millis() + std::time::Duration::from_secs(2);
    let ends = futures::future::join_all(streams.into_iter().map(ended));
    assert!(tokio::time::timeout(look, ends).await.is_err());
}
