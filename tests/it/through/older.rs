//! Older clients: progress and log messages of a call.

use serde_json::{Value, json};
use tests::peer::{Answer, Setup, Step, tool};

use super::{Gateway, Through, everything};

fn working() -> Answer {
    Answer::Talk(vec![
        Step::say(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID,"progress":0.50,"message":"half"}}"#,
        ),
        Step::say(
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"working"}}"#,
        ),
        Step::say(r#"{"jsonrpc":"2.0","method":"notifications/made-up","params":{}}"#),
        Step::say(r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#),
    ])
}

async fn through() -> Through {
    let through = Through::new(Setup { tools: vec![tool("work")], ..Setup::older() }).await;
    through.peer.answer("work", working());
    through
}

fn call(token: Option<Value>) -> Value {
    let mut params = json!({"name": "work", "arguments": {}});
    if let Some(token) = token {
        params["_meta"] = json!({ "progressToken": token });
    }
    params
}

#[tokio::test]
async fn progress_comes_under_the_clients_token_and_log_messages_as_they_are() {
    let through = through().await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, "tools/call", &call(Some(json!("mine")))).await;
    let progress = stream.next().await;
    assert_eq!(
        progress["params"],
        json!({"progressToken": "mine", "progress": 0.5, "message": "half"})
    );
    assert_eq!(stream.next().await["params"]["data"], "working");
    assert_eq!(stream.next().await["id"], 1);
    assert!(stream.maybe_next().await.is_none());
}

#[tokio::test]
async fn without_a_token_there_is_no_progress() {
    let through = through().await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, "tools/call", &call(None)).await;
    assert_eq!(stream.next().await["method"], "notifications/message");
    assert_eq!(stream.next().await["id"], 1);
    let sent: Value = serde_json::from_str(&through.peer.calls()[0].body).unwrap();
    assert!(sent["params"]["_meta"].get("progressToken").is_none(), "{sent}");
}

#[tokio::test]
async fn the_form_with_all_servers_has_progress_and_nothing_else() {
    let through = through().await;
    let session = Gateway::initialize(&through, "2025-11-25").await;
    let mut params = call(Some(json!(5)));
    params["name"] = json!("mcp__demo__work");
    let body = super::request("tools/call", &params);
    let headers = [("mcp-session-id", session.as_str())];
    let path = Gateway::path(&through);
    let reply = through.post_as(&through.token, &path, &headers, body).await;
    let messages: Vec<Value> =
        reply.messages().iter().map(|one| serde_json::from_str(one).unwrap()).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(messages[0]["params"]["progressToken"], 5);
    assert_eq!(messages[1]["id"], 1);
}
