//! What is asked of the server beside calls, and what is called beside tools.

use domain::invocation::Status;
use serde_json::{Value, json};
use tests::peer::{Answer, Setup, tool};

use super::Through;

const PAGE: &str = r#"{"resources":[{"uri":"demo://a","name":"a","size":12345678901234567890123}],"nextCursor":"2","cacheScope":"public","ttlMs":60000}"#;

fn scripted(through: &Through) {
    for (method, result) in [
        ("resources/list", PAGE),
        ("resources/templates/list", r#"{"resourceTemplates":[]}"#),
        ("prompts/list", r#"{"prompts":[]}"#),
        ("resources/read", r#"{"contents":[{"uri":"demo://a","text":"A"}]}"#),
        ("prompts/get", r#"{"messages":[]}"#),
        ("completion/complete", r#"{"completion":{"values":["x"]}}"#),
        ("logging/setLevel", "{}"),
        ("resources/subscribe", "{}"),
        ("resources/unsubscribe", "{}"),
    ] {
        through.peer.script_method(method, [Answer::Result(result.to_owned())]);
    }
}

/// What of the request's params reached the server, but for `_meta`.
fn params(through: &Through, method: &str) -> Value {
    let body: Value = serde_json::from_str(&through.peer.received(method)[0].body).unwrap();
    let mut params = body["params"].clone();
    if let Some(members) = params.as_object_mut() {
        members.remove("_meta");
    }
    params
}

#[tokio::test]
async fn lists_are_the_servers_and_leave_no_record() {
    for setup in [Setup::older(), Setup::modern()] {
        let through = Through::new(setup).await;
        scripted(&through);
        let list = through.modern("resources/list", json!({"cursor": "1"})).await;
        let result = list.result();
        assert_eq!(result["resultType"].get(), r#""complete""#);
        assert_eq!((result["ttlMs"].get(), result["cacheScope"].get()), ("60000", r#""private""#));
        assert!(result["resources"].get().contains("12345678901234567890123"), "digits stay");
        assert_eq!(params(&through, "resources/list"), json!({"cursor": "1"}));

        let session = through.initialize(&json!({})).await;
        let list = through.older(&session, "resources/list", &json!({})).await;
        assert_eq!(super::super::gateway::members(&list.message())["result"].get(), PAGE);
        for method in ["resources/templates/list", "prompts/list"] {
            assert!(through.modern(method, json!({})).await.json()["result"]["ttlMs"].is_u64());
        }
        assert!(through.invocations().await.is_empty());
    }
}

#[tokio::test]
async fn one_bad_entry_costs_a_list_nothing_else() {
    let through = Through::new(Setup::older()).await;
    let bad =
        r#"{"resources":[{"uri":"demo://a","name":"a","mimeType":null},{"uri":"demo://b"},7]}"#;
    through.peer.script_method("resources/list", [Answer::Result(bad.to_owned())]);
    let session = through.initialize(&json!({})).await;
    for reply in [
        through.older(&session, "resources/list", &json!({})).await,
        through.modern("resources/list", json!({})).await,
    ] {
        let listed = &reply.json()["result"]["resources"];
        assert_eq!(*listed, json!([{ "uri": "demo://a", "name": "a" }]));
    }
}

#[tokio::test]
async fn an_older_session_speaks_to_its_own_upstream_session() {
    let through = Through::new(Setup::older()).await;
    scripted(&through);
    let session = through.initialize(&json!({})).await;
    for (method, params) in [
        ("logging/setLevel", json!({"level": "debug"})),
        ("resources/subscribe", json!({"uri": "demo://a"})),
        ("resources/unsubscribe", json!({"uri": "demo://a"})),
    ] {
        let reply = through.older(&session, method, &params).await;
        assert_eq!(reply.json()["result"], json!({}), "{method}");
        let sent = &through.peer.received(method)[0];
        assert_eq!(sent.header("mcp-session-id"), "s1", "the discovery's was s0");
        let reply = through.modern(method, params).await;
        assert_eq!(
            (reply.status, reply.fault()),
            (404, -32601),
            "the newer version has no {method}"
        );
    }
}

#[tokio::test]
async fn reading_getting_and_completing_are_calls_with_a_record() {
    let through = Through::new(Setup::modern()).await;
    scripted(&through);
    let read = through.modern("resources/read", json!({"uri": "demo://a"})).await;
    let result = read.json()["result"].clone();
    assert_eq!(result["contents"], json!([{"uri": "demo://a", "text": "A"}]));
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
    let invocation = result["_meta"]["bailiwick/invocationId"].as_str().unwrap().to_owned();

    let got = through.modern("prompts/get", json!({"name": "p", "arguments": {"a": "b"}})).await;
    assert_eq!(got.json()["result"]["resultType"], "complete");
    let params_of_completion =
        json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}});
    let completed = through.modern("completion/complete", params_of_completion.clone()).await;
    assert_eq!(completed.json()["result"]["completion"], json!({"values": ["x"]}));
    assert_eq!(params(&through, "completion/complete"), params_of_completion);

    let calls = through.invocations().await;
    let names: Vec<_> = calls.iter().map(|call| call.asked_name.as_str()).collect();
    assert_eq!(names, ["completion", "prompt.get", "resource.read"]);
    assert!(calls.iter().all(|call| call.status == Status::Succeeded));
    assert_eq!(calls[2].id.to_string(), invocation);
}

#[tokio::test]
async fn a_refusal_of_the_server_keeps_its_meaning_in_the_clients_version() {
    for setup in [Setup::older(), Setup::modern()] {
        let through = Through::new(Setup { tools: vec![tool("t")], ..setup }).await;
        let missing = Answer::Error { code: -32_002, message: "no such resource".to_owned() };
        through.peer.script_method("resources/read", [missing]);
        let session = through.initialize(&json!({})).await;
        let params = json!({"uri": "demo://none"});
        let older = through.older(&session, "resources/read", &params).await;
        assert_eq!((older.status, older.fault()), (200, -32002));
        let newer = through.modern("resources/read", params).await;
        assert_eq!((newer.status, newer.fault()), (200, -32602));
        assert_eq!(newer.json()["error"]["message"], "no such resource");

        let newer = through.modern("prompts/list", json!({})).await;
        assert_eq!((newer.status, newer.fault()), (404, -32601), "the server has no prompts");
        let older = through.older(&session, "prompts/list", &json!({})).await;
        assert_eq!((older.status, older.fault()), (200, -32601));

        let refusal = Answer::Error { code: -32_603, message: "broken".to_owned() };
        through.peer.answer("t", refusal);
        let called = through.modern("tools/call", json!({"name": "t"})).await.json();
        assert_eq!(called["error"]["code"], -32603);
        let id = &called["error"]["data"]["bailiwick/invocationId"];
        assert_eq!(id.as_str().unwrap(), through.invocations().await[0].id.to_string());
    }
}

#[tokio::test]
async fn what_a_server_answers_too_much_of_is_refused() {
    let through = Through::new(Setup::modern()).await;
    let large = format!(r#"{{"prompts":["{}"]}}"#, "a".repeat(6_000_000));
    through.peer.script_method("prompts/list", [Answer::Result(large)]);
    let reply = through.modern("prompts/list", json!({})).await.json();
    assert_eq!(reply["error"]["data"]["code"], "RESPONSE_TOO_LARGE");
}
