//! A question in protocol: clients of 2026-07-28 that can show a page are told which, and come back.

mod bound;
mod nodes;

use domain::{
    ids::PermissionRequestId,
    permission::{ApprovalMode, Decision},
};
use serde_json::{Value, json, value::RawValue};
use tests::{
    peer::{Answer, Setup},
    world::eventually,
};

use crate::gateway::{Gateway, Reply};

/// A session that asks, and an agent whose client shows pages.
pub(crate) struct Asking {
    pub(crate) gateway: Gateway,
}

/// What the client was told.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) state: String,
    pub(crate) url: Option<String>,
    pub(crate) invocation: String,
}

/// The client's own words about the page.
pub(crate) fn says(action: &str) -> Value {
    json!({ "bailiwick.permission": { "action": action } })
}

impl Asking {
    pub(crate) async fn new() -> Self {
        let gateway = Gateway::new(Setup::modern()).await;
        gateway.ask_first().await;
        Self { gateway }
    }

    /// A call of `echo` with `n`; with a state it is made again.
    pub(crate) fn params(n: u32, state: Option<&str>, responses: Option<Value>) -> Value {
        let mut params = json!({ "name": "mcp__demo__echo", "arguments": { "n": n } });
        if let Some(state) = state {
            params["requestState"] = json!(state);
        }
        if let Some(responses) = responses {
            params["inputResponses"] = responses;
        }
        params
    }

    /// A request of a client that declares URL mode.
    pub(crate) fn request(
        &self,
        token: &str,
        url: &url::Url,
        params: &Value,
    ) -> reqwest::RequestBuilder {
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "url": {} } },
        });
        let name = params["name"].as_str().unwrap().to_owned();
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let client = self.gateway.world.client().post(url.clone()).bearer_auth(token);
        client
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", name)
            .json(&body)
    }

    pub(crate) fn url(&self) -> url::Url {
        self.gateway.world.url.join(&self.gateway.path()).unwrap()
    }

    pub(crate) async fn send(&self, params: &Value) -> Reply {
        let request = self.request(&self.gateway.token, &self.url(), params);
        Reply::of(request.send().await.unwrap()).await
    }

    /// The first request: nothing is held.
    pub(crate) async fn begin(&self, n: u32) -> Told {
        told(&self.send(&Self::params(n, None, None)).await)
    }

    pub(crate) async fn again(&self, n: u32, told: &Told, action: &str) -> Value {
        let params = Self::params(n, Some(&told.state), Some(says(action)));
        self.send(&params).await.json()
    }

    pub(crate) async fn decide(&self, told: &Told, decision: Decision) {
        let (ctx, owner) = (&self.gateway.world.ctx, &self.gateway.owner);
        app::permissions::decide(ctx, owner, question(told), decision).await.unwrap();
    }

    /// The state that the only question of the session is in.
    pub(crate) async fn question_state(&self) -> String {
        let token = self.gateway.world.full_token(&self.gateway.person).await;
        let path = format!("/api/permission-requests?sessionId={}", self.gateway.session);
        let (_, page) = self.gateway.world.get(&token, &path).await;
        let items = page["items"].as_array().unwrap();
        assert_eq!(items.len(), 1, "{items:#?}");
        items[0]["state"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn told(reply: &Reply) -> Told {
    let result = &reply.json()["result"];
    assert_eq!(result["resultType"], "input_required", "{reply:?}");
    let invocation = result["_meta"]["bailiwick/invocationId"].as_str().unwrap().to_owned();
    Told {
        state: result["requestState"].as_str().unwrap().to_owned(),
        url: result["inputRequests"]["bailiwick.permission"]["params"]["url"]
            .as_str()
            .map(str::to_owned),
        invocation,
    }
}

/// The question that the page is about.
pub(crate) fn question(told: &Told) -> PermissionRequestId {
    let url = told.url.as_ref().expect("it was told of a page");
    url.rsplit('/').next().unwrap().parse().unwrap()
}

/// `error.code` of a call that ended without a result.
pub(crate) fn refusal(answer: &Value) -> &str {
    let error = &answer["result"]["_meta"]["bailiwick/error"]["error"]["code"];
    error.as_str().unwrap_or_else(|| panic!("no refusal: {answer}"))
}

#[tokio::test]
async fn a_client_that_shows_pages_is_told_which_at_once() {
    let asking = Asking::new().await;
    let reply = asking.send(&Asking::params(1, None, None)).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
    let result = &reply.json()["result"];
    assert!(result.get("content").is_none() && result.get("isError").is_none(), "{result}");
    let request = &result["inputRequests"]["bailiwick.permission"];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["mode"], "url");
    let told = told(&reply);
    let page = format!("{}questions/{}", asking.gateway.world.url, question(&told));
    assert_eq!(request["params"]["url"], page);
    let words = request["params"]["message"].as_str().unwrap();
    assert!(words.contains("echo") && words.contains("demo"), "{words}");

    let [record] = &asking.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!((record.status.as_str(), record.id.to_string()), ("waiting", told.invocation));
    assert_eq!(asking.question_state().await, "pending");
    assert!(asking.gateway.peer.calls().is_empty());
}

#[tokio::test]
async fn an_answer_given_meanwhile_lets_the_call_go_on_once() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    asking.decide(&first, Decision::AllowOnce).await;
    let answer = asking.again(1, &first, "accept").await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
    assert_eq!(answer["result"]["_meta"]["bailiwick/invocationId"], first.invocation);

    let [record] = &asking.gateway.invocations().await[..] else { panic!("one row for all of it") };
    assert_eq!(record.status.as_str(), "succeeded");
    assert!(record.authorization.is_some());
    assert_eq!(record.attempts.as_array().map(Vec::len), Some(1));

    let used = asking.again(1, &first, "accept").await;
    assert_eq!(used["error"]["code"], -32602, "{used}");
    assert_eq!(used["error"]["data"]["code"], "INVALID_INPUT");
    assert_eq!(asking.gateway.peer.calls().len(), 1);
    let records = asking.gateway.invocations().await;
    let codes: Vec<_> = records.iter().map(|record| record.error_code.as_deref()).collect();
    assert_eq!(codes, [Some("INVALID_INPUT"), None], "the last one is a call of its own");
}

#[tokio::test]
async fn a_client_that_comes_back_early_is_held_until_the_answer() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    let params = Asking::params(1, Some(&first.state), Some(says("accept")));
    let request = asking.request(&asking.gateway.token, &asking.url(), &params);
    // The head of the answer says that it is held.
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    asking.decide(&first, Decision::AllowMatching).await;
    let answer = Reply::of(response).await.json();
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
    // The grant stands: the next call asks nobody.
    let next = asking.send(&Asking::params(2, None, None)).await.json();
    assert_eq!(next["result"]["structuredContent"], json!({ "n": 2 }), "{next}");
}

#[tokio::test]
async fn a_no_ends_the_call() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    asking.decide(&first, Decision::Deny).await;
    let answer = asking.again(1, &first, "accept").await;
    assert_eq!(refusal(&answer), "PERMISSION_DENIED");
    assert_eq!(answer["result"]["isError"], true);
    let [record] = &asking.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(record.error_code.as_deref(), Some("PERMISSION_DENIED"));
    assert!(record.authorization.is_some());
    assert!(asking.gateway.peer.calls().is_empty());
}

#[tokio::test]
async fn a_client_that_declines_ends_its_own_call_and_decides_nothing() {
    for action in ["decline", "cancel"] {
        let asking = Asking::new().await;
        let first = asking.begin(1).await;
        let answer = asking.again(1, &first, action).await;
        assert_eq!(refusal(&answer), "CANCELLED", "{answer}");
        assert_eq!(asking.question_state().await, "cancelled");
        let [record] = &asking.gateway.invocations().await[..] else { panic!("one row") };
        assert_eq!(record.status.as_str(), "cancelled");
        assert!(record.authorization.is_none(), "nobody decided");
        // Nor does an answer of a moment ago help.
        let late = asking.again(1, &first, "accept").await;
        assert_eq!(late["error"]["code"], -32602);
        assert!(asking.gateway.peer.calls().is_empty());
    }
}

#[tokio::test]
async fn declining_after_a_yes_sends_nothing() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    asking.decide(&first, Decision::AllowOnce).await;
    assert_eq!(refusal(&asking.again(1, &first, "decline").await), "CANCELLED");
    assert!(asking.gateway.peer.calls().is_empty());
}

#[tokio::test]
async fn switching_to_always_allow_answers_it_too() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    let (ctx, owner) = (&asking.gateway.world.ctx, &asking.gateway.owner);
    let mode = ApprovalMode::AlwaysAllow;
    app::sessions::set_mode(ctx, owner, asking.gateway.session, mode).await.unwrap();
    let answer = asking.again(1, &first, "accept").await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
}

#[tokio::test]
async fn hanging_up_while_held_leaves_the_call_to_come_back_to() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    let params = Asking::params(1, Some(&first.state), Some(says("accept")));
    let response =
        asking.request(&asking.gateway.token, &asking.url(), &params).send().await.unwrap();
    drop(response);
    let owner = asking.gateway.world.owner().await;
    eventually("it is parked again", async || {
        let parked = sqlx::query_scalar("SELECT parked FROM tool_calls");
        parked.fetch_one(&owner).await.ok().filter(|parked: &bool| *parked)
    })
    .await;
    asking.decide(&first, Decision::AllowOnce).await;
    let answer = asking.again(1, &first, "accept").await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
}

#[tokio::test]
async fn cancelling_after_the_yes_cancels_the_call_at_the_server() {
    let asking = Asking::new().await;
    asking.gateway.peer.answer("echo", Answer::Echo.held());
    let first = asking.begin(1).await;
    asking.decide(&first, Decision::AllowOnce).await;
    let params = Asking::params(1, Some(&first.state), Some(says("accept")));
    let request = asking.request(&asking.gateway.token, &asking.url(), &params);
    let response = request.send().await.unwrap();
    asking.gateway.peer.until("it is there", |peer| peer.held() == 1).await;
    drop(response);
    asking.gateway.until(domain::invocation::Status::Cancelled).await;
    let late = asking.again(1, &first, "accept").await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
}

#[tokio::test]
async fn a_client_that_shows_no_pages_is_held_as_ever() {
    let asking = Asking::new().await;
    for capabilities in
        [json!({}), json!({ "elicitation": {} }), json!({ "elicitation": { "form": {} } })]
    {
        let mut params = Asking::params(1, None, None);
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "mcp__demo__echo"),
        ];
        let gateway = &asking.gateway;
        let path = gateway.path();
        let request =
            gateway.request(http::Method::POST, &gateway.token, &path, &headers, body.to_string());
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream", "{capabilities}");
    }
}

#[tokio::test]
async fn a_client_that_says_nothing_is_told_of_the_page_again() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    // A node that holds nobody for long.
    let node = nodes::Node::start(&asking, std::time::Duration::from_millis(50)).await;
    for (responses, shown) in [(None, true), (Some(says("accept")), false), (Some(json!({})), true)]
    {
        let params = Asking::params(1, Some(&first.state), responses);
        let reply = node.send(&asking, &params).await;
        let again = told(&reply);
        assert_eq!(again.url.is_some(), shown, "{reply:?}");
        assert_eq!(again.invocation, first.invocation);
    }
    assert_eq!(asking.question_state().await, "pending");
    assert_eq!(asking.gateway.invocations().await.len(), 1);
}

#[tokio::test]
async fn the_arguments_go_out_as_the_last_request_wrote_them() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    asking.decide(&first, Decision::AllowOnce).await;
    let mut params = Asking::params(1, Some(&first.state), None);
    params["arguments"] = Value::Null;
    let text = params.to_string().replace("\"arguments\":null", "\"arguments\":{ \"n\" : 1 }");
    let params: Box<RawValue> = RawValue::from_string(text).unwrap();
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}},{}"#,
        &params.get()[1..]
    ) + "}";
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "mcp__demo__echo"),
    ];
    let reply = asking.gateway.post(&headers, body).await;
    assert_eq!(reply.json()["result"]["structuredContent"], json!({ "n": 1 }), "{reply:?}");
    let sent = asking.gateway.peer.calls()[0].arguments.clone();
    assert_eq!(sent.as_deref(), Some(r#"{ "n" : 1 }"#));
}
