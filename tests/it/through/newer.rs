//! Clients of 2026-07-28: what each request says of itself, and what they hear.

use serde_json::{Value, json};
use tests::peer::{Answer, Setup, Step, tool};

use super::{Through, everything, modern};

fn talking() -> Answer {
    let log = |level: &str| {
        Step::Say(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
        ))
    };
    Answer::Talk(vec![
        Step::say(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID,"progress":1}}"#,
        ),
        log("debug"),
        log("error"),
        Step::say(r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#),
    ])
}

/// The methods of what comes, and the level that the server was asked for.
async fn heard(setup: Setup, meta: Value) -> (Vec<String>, Value) {
    let through = Through::new(Setup { tools: vec![tool("work")], ..setup }).await;
    through.peer.answer("work", talking());
    let (headers, body) = modern("tools/call", &json!({"name": "work"}), &json!({}), &meta);
    let reply = through.post(&super::as_pairs(&headers), body).await;
    let messages: Vec<Value> =
        reply.messages().iter().map(|one| serde_json::from_str(one).unwrap()).collect();
    let methods = messages.iter().map(|one| one["method"].as_str().unwrap_or("answer").to_owned());
    let sent: Value = serde_json::from_str(&through.peer.calls()[0].body).unwrap();
    (methods.collect(), sent["params"]["_meta"]["io.modelcontextprotocol/logLevel"].clone())
}

#[tokio::test]
async fn log_messages_come_only_where_the_request_asks_for_them() {
    assert_eq!(heard(Setup::modern(), json!({})).await, (vec!["answer".to_owned()], Value::Null));
    let level = json!({"io.modelcontextprotocol/logLevel": "warning", "progressToken": 9});
    for (setup, told) in [(Setup::modern(), json!("warning")), (Setup::older(), Value::Null)] {
        let (methods, asked) = heard(setup, level.clone()).await;
        assert_eq!(methods, ["notifications/progress", "notifications/message", "answer"]);
        assert_eq!(asked, told);
    }
}

#[tokio::test]
async fn a_level_that_there_is_not_is_refused() {
    let through = Through::new(Setup::modern()).await;
    for meta in [json!({"io.modelcontextprotocol/logLevel": "loud"}), json!({"progressToken": 1.5})]
    {
        let (headers, body) = modern("tools/call", &json!({"name": "echo"}), &json!({}), &meta);
        let reply = through.post(&super::as_pairs(&headers), body).await;
        assert_eq!(reply.fault(), -32602, "{meta}");
    }
    assert!(through.peer.calls().is_empty());
}

#[tokio::test]
async fn a_servers_own_meta_and_the_clients_vendor_keys_pass() {
    let through = Through::new(Setup::modern()).await;
    let meta =
        json!({"traceparent": "00-1", "com.example/k": {"n": 1}, "bailiwick/x": 1, "com.mcp/x": 1});
    let (headers, body) = modern("tools/call", &json!({"name": "echo"}), &everything(), &meta);
    through.post(&super::as_pairs(&headers), body).await;
    let sent: Value = serde_json::from_str(&through.peer.calls()[0].body).unwrap();
    let meta = &sent["params"]["_meta"];
    assert_eq!((&meta["traceparent"], &meta["com.example/k"]), (&json!("00-1"), &json!({"n": 1})));
    assert!(meta.get("bailiwick/x").is_none() && meta.get("com.mcp/x").is_none(), "{meta}");
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({"elicitation": {"form": {}, "url": {}}, "roots": {}}),
        "what the client declares, but for sampling, which nobody switched on"
    );
}

#[tokio::test]
async fn methods_of_older_versions_are_none() {
    let through = Through::new(Setup::modern()).await;
    for method in ["ping", "initialize", "logging/setLevel", "resources/subscribe", "made/up"] {
        let reply = through.modern(method, json!({})).await;
        assert_eq!((reply.status, reply.fault()), (404, -32601), "{method}");
    }
}
