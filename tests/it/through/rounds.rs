//! Servers of 2026-07-28 that ask in rounds (Multi Round-Trip Requests).

use domain::invocation::Status;
use serde_json::{Value, json};
use tests::peer::{Answer, Setup, tool};

use super::{Through, everything};

const ASKS: &str = r#"{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}},"requestState":"the server's own"}"#;
const DONE: &str = r#"{"resultType":"complete","content":[{"type":"text","text":"done"}]}"#;

fn result(text: &str) -> Answer {
    Answer::Result(text.to_owned())
}

async fn asking(answers: &[&str]) -> Through {
    let through =
        Through::new(Setup { tools: vec![tool("ask"), tool("echo")], ..Setup::modern() }).await;
    through.peer.script("ask", answers.iter().map(|text| result(text)));
    through
}

fn call(more: &Value) -> Value {
    let mut params = json!({"name": "ask", "arguments": {"n": 1}});
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    params
}

async fn called(through: &Through, params: &Value) -> Value {
    through.modern_with("tools/call", params, &everything()).await.json()
}

fn sent(through: &Through, call: usize) -> Value {
    let body: Value = serde_json::from_str(&through.peer.calls()[call].body).unwrap();
    body["params"].clone()
}

#[tokio::test]
async fn a_server_asks_and_the_same_call_goes_on() {
    let through = asking(&[ASKS, ASKS, DONE]).await;
    let first = called(&through, &call(&json!({}))).await["result"].clone();
    assert_eq!(first["resultType"], "input_required");
    assert_eq!(first["inputRequests"]["who"]["params"]["message"], "demo: Who?");
    let state = first["requestState"].as_str().unwrap();
    assert!(!state.contains("server"), "the server's state is sealed in ours");
    assert_eq!(through.calls().await, [(Status::Waiting, 0)], "attempts come with its end");

    let responses = json!({"who": {"action": "accept", "content": {"name": "Ann"}}});
    let again = call(&json!({"requestState": state, "inputResponses": responses}));
    let second = called(&through, &again).await["result"].clone();
    assert_eq!(second["resultType"], "input_required");
    assert_eq!(sent(&through, 1)["inputResponses"], responses);
    assert_eq!(sent(&through, 1)["requestState"], "the server's own");
    assert_eq!(sent(&through, 1)["arguments"], json!({"n": 1}));

    let state = second["requestState"].as_str().unwrap();
    let again = call(&json!({"requestState": state, "inputResponses": responses}));
    let third = called(&through, &again).await["result"].clone();
    assert_eq!(third["content"][0]["text"], "done");
    assert_eq!(third["_meta"], first["_meta"], "one invocation");
    assert_eq!(through.calls().await, [(Status::Succeeded, 3)]);
}

#[tokio::test]
async fn a_state_is_good_for_its_call_and_caller_alone_and_once() {
    let through = asking(&[ASKS, DONE]).await;
    let first = called(&through, &call(&json!({}))).await["result"].clone();
    let state = first["requestState"].as_str().unwrap().to_owned();
    let with = |state: &str| {
        call(&json!({"requestState": state, "inputResponses": {"who": {"action": "decline"}}}))
    };

    let tampered = called(&through, &with(&format!("{state}x"))).await;
    assert_eq!(tampered["error"]["code"], -32602, "{tampered}");
    let mut other = with(&state);
    other["arguments"] = json!({"n": 2});
    assert_eq!(called(&through, &other).await["error"]["code"], -32602);
    let mut other = with(&state);
    other["name"] = json!("echo");
    assert_eq!(called(&through, &other).await["error"]["code"], -32602);
    let (headers, body) = super::modern("tools/call", &with(&state), &everything(), &json!({}));
    let token = through.world.token(&through.person, "mcp:call").await;
    let foreign = through.post_as(&token, &through.path(), &super::as_pairs(&headers), body).await;
    assert_eq!(foreign.fault(), -32602);
    assert_eq!(through.peer.calls().len(), 1, "none of them reached the server");

    assert_eq!(called(&through, &with(&state)).await["result"]["resultType"], "complete");
    assert_eq!(called(&through, &with(&state)).await["error"]["code"], -32602, "used up");
}

#[tokio::test]
async fn an_answer_without_a_state_is_a_new_call_and_goes_nowhere() {
    let through = asking(&[ASKS]).await;
    let responses = json!({"wrong": {"action": "accept", "content": {}}});
    let reply = called(&through, &call(&json!({"inputResponses": responses}))).await;
    assert_eq!(reply["result"]["resultType"], "input_required");
    assert!(sent(&through, 0).get("inputResponses").is_none());
    assert!(sent(&through, 0).get("requestState").is_none());
    for odd in [json!({"who": 7}), json!(null), json!([])] {
        let reply = called(&through, &call(&json!({"inputResponses": odd}))).await;
        assert_eq!(reply["error"]["code"], -32602, "{odd}");
    }
    assert_eq!(through.peer.calls().len(), 1);
}

#[tokio::test]
async fn what_was_not_offered_or_is_a_secret_ends_the_call() {
    let through = asking(&[ASKS]).await;
    let reply = through.modern("tools/call", call(&json!({}))).await.json();
    let code = |reply: &Value| reply["result"]["_meta"]["bailiwick/error"]["error"]["code"].clone();
    assert_eq!(code(&reply), "UPSTREAM_FORMAT", "{reply}");

    let secret = ASKS.replace(r#""name":{"#, r#""password":{"#);
    let through = asking(&[&secret]).await;
    let reply = called(&through, &call(&json!({}))).await;
    assert_eq!(code(&reply), "PERMISSION_DENIED", "{reply}");
    assert_eq!(through.calls().await, [(Status::Failed, 1)]);
}

#[tokio::test]
async fn reading_and_getting_may_take_rounds_too() {
    let through = asking(&[]).await;
    for (method, params, done) in [
        ("resources/read", json!({"uri": "demo://a"}), r#"{"contents":[]}"#),
        ("prompts/get", json!({"name": "p"}), r#"{"messages":[]}"#),
    ] {
        through.peer.script_method(method, [result(ASKS), result(done)]);
        let first = through.modern_with(method, &params, &everything()).await.json();
        assert_eq!(first["result"]["resultType"], "input_required");
        assert!(first["result"].get("ttlMs").is_none());
        let mut again = params.clone();
        again["requestState"] = first["result"]["requestState"].clone();
        again["inputResponses"] = json!({"who": {"action": "cancel"}});
        let second = through.modern_with(method, &again, &everything()).await.json();
        assert_eq!(second["result"]["resultType"], "complete", "{second}");
    }
    assert_eq!(through.calls().await, [(Status::Succeeded, 2), (Status::Succeeded, 2)]);
}

#[tokio::test]
async fn an_older_client_is_asked_on_its_stream() {
    let through = asking(&[ASKS, DONE]).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, "tools/call", &call(&json!({}))).await;
    let asked = stream.next().await;
    assert_eq!(asked["params"]["message"], "demo: Who?");
    let answer = json!({"action": "accept", "content": {"name": "Ann"}});
    assert_eq!(through.answer(&session, &asked["id"], &answer).await, 202);
    let done = stream.next().await;
    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert_eq!(sent(&through, 1)["inputResponses"], json!({"who": answer}));
    assert_eq!(sent(&through, 1)["requestState"], "the server's own");
    assert_eq!(through.calls().await, [(Status::Succeeded, 2)]);
}

#[tokio::test]
async fn an_older_client_that_refuses_the_question_says_no_more_than_that() {
    let through = asking(&[ASKS, DONE]).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, "tools/call", &call(&json!({}))).await;
    let asked = stream.next().await;
    let refusal =
        json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}});
    through.post(&[("mcp-session-id", &session)], refusal.to_string()).await;
    assert_eq!(stream.next().await["result"]["content"][0]["text"], "done");
    assert_eq!(sent(&through, 1)["inputResponses"], json!({"who": {"action": "cancel"}}));
}

#[tokio::test]
async fn a_question_without_an_answer_ends_the_call() {
    let asks = ASKS.replace("elicitation/create", "roots/list");
    let through = asking(&[&asks, DONE]).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, "tools/call", &call(&json!({}))).await;
    let asked = stream.next().await;
    let refusal =
        json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}});
    through.post(&[("mcp-session-id", &session)], refusal.to_string()).await;
    let ended = stream.next().await;
    let error = &ended["result"]["_meta"]["bailiwick/error"]["error"];
    assert_eq!(error["code"], "CANCELLED", "{ended}");
    assert_eq!(through.peer.calls().len(), 1);
    assert_eq!(through.calls().await[0].0, Status::Cancelled);
}
