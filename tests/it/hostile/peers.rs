//! Upstream servers that lie.

use app::invocations::Invocation;
use domain::invocation::Status;
use serde_json::{Value, json};
use tests::peer::{Answer, Setup, tool};

use crate::gateway::Gateway;

/// Definitions that are meant to break whoever reads or stores them; one good tool among them.
#[tokio::test]
async fn bad_definitions_hide_themselves_and_nothing_else() {
    let schema = r#""inputSchema":{"type":"object"}"#;
    let described =
        |words: &str| format!(r#"{{"name":"d{}","description":{words},{schema}}}"#, words.len());
    let nul = r#""a\u0000b""#;
    let tools = vec![
        tool("good"),
        tool("__proto__"),
        tool("constructor"),
        format!(r#"{{"name":{nul},{schema}}}"#),
        format!(r#"{{"name":"\ud800",{schema}}}"#),
        format!(r#"{{"name":"twice","name":"once",{schema}}}"#),
        format!(r#"{{"name":"bidi\u202e","description":"x",{schema}}}"#),
        format!(r#"{{"name":"g\u043e\u043ed",{schema}}}"#),
        format!(r#"{{"name":"{}",{schema}}}"#, "n".repeat(100_000)),
        described(nul),
        described(r#""\ud800""#),
        described(&format!("\"{}\"", "x".repeat(1_200_000))),
        format!(
            r#"{{"name":"nul_in_schema","inputSchema":{{"type":"object","properties":{{{nul}:{{"pattern":{nul},"enum":[{nul}],"description":{nul}}}}},"required":[{nul}],"patternProperties":{{"(\u0000":{{}}}}}}}}"#
        ),
        format!(r#"{{"name":"nul_ref","inputSchema":{{"type":"object","$ref":{nul}}}}}"#),
        format!(r#"{{"name":"nul_type","inputSchema":{{"type":{nul}}}}}"#),
        format!(
            r#"{{"name":"nul_meta","title":{nul},"_meta":{{{nul}:{nul}}},"annotations":{{{nul}:{nul}}},{schema}}}"#
        ),
        format!(
            r#"{{"name":"deep","inputSchema":{{"type":"object","x":{}1{}}}}}"#,
            "[".repeat(5_000),
            "]".repeat(5_000)
        ),
        r#"{"name":"number","inputSchema":{"type":"object","maximum":1e999}}"#.to_owned(),
        "7".to_owned(),
        "null".to_owned(),
    ];
    let gateway = Gateway::new(Setup { tools, ..Setup::modern() }).await;
    let token = gateway.world.full_token(&gateway.person).await;
    let (status, list) = gateway.world.get(&token, "/api/mcp/servers/demo/tools?limit=200").await;
    assert_eq!(status, 200, "{list}");
    let reply = gateway.modern("tools/call", r#"{"name":"mcp__demo__good"}"#).await;
    assert_eq!(reply.json()["result"]["isError"], false, "{reply:?}");
    let reply = gateway.modern("tools/list", "{}").await;
    let listed = reply.json();
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    for hidden in ["bidi", "twice", "nul_type", "deep"] {
        assert!(!names.iter().any(|name| name.contains(hidden)), "{hidden}: {names:?}");
    }
    for name in names {
        let params = json!({ "name": name, "arguments": { "a\0b": "x" } });
        let reply = gateway.modern("tools/call", &params.to_string()).await;
        assert_eq!(reply.status, 200, "{name}: {reply:?}");
    }
    assert!(gateway.invocations().await.iter().all(|call| call.status.is_final()));
}

/// Whatever a server answers: the call ends, its record is closed, and the next call works.
#[tokio::test]
async fn odd_answers_end_as_records() {
    let output = r#"{"name":"typed","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}}"#;
    let tools = vec![tool("echo"), output.to_owned()];
    let gateway = Gateway::new(Setup { tools, ..Setup::modern() }).await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for result in [
        r#"{"content":[],"structuredContent":{"\u0000":1,"a":"\u0000"}}"#.to_owned(),
        r#"{"content":[{"type":"text","text":"\ud800\u0000"}]}"#.to_owned(),
        r#"{"content":[],"content":[],"isError":true,"isError":false}"#.to_owned(),
        r#"{"isError":"yes"}"#.to_owned(),
        r#"{"content":7,"structuredContent":[1]}"#.to_owned(),
        r#"{"_meta":"x","resultType":"\u0000"}"#.to_owned(),
        format!(r#"{{"content":[],"structuredContent":{deep}}}"#),
        format!(r#"{{"content":{deep}}}"#),
        "[]".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
    ] {
        for tool in ["echo", "typed"] {
            gateway.peer.answer(tool, Answer::Result(result.clone()));
            let reply =
                gateway.modern("tools/call", &format!(r#"{{"name":"mcp__demo__{tool}"}}"#)).await;
            assert_eq!(reply.status, 200, "{tool} {result:.200}: {reply:?}");
            let calls: Vec<Invocation> = gateway.invocations().await;
            assert!(calls.iter().all(|call| call.status.is_final()), "{tool} {result:.200}");
        }
    }
    for message in ["\0", "\u{202e}\u{1b}[2J", &"x".repeat(50_000)] {
        gateway.peer.answer("echo", Answer::Error { code: i64::MIN, message: message.to_owned() });
        let reply = gateway.modern("tools/call", r#"{"name":"mcp__demo__echo"}"#).await;
        let error: &Value = &reply.json()["result"]["_meta"]["bailiwick/error"]["error"];
        let words = error["untrusted"].as_str().unwrap_or_default();
        assert!(!words.chars().any(char::is_control) && words.len() <= 4_000, "{error}");
    }
    gateway.peer.answer("echo", Answer::Echo);
    let reply = gateway.modern("tools/call", r#"{"name":"mcp__demo__echo"}"#).await;
    assert_eq!(reply.json()["result"]["isError"], false);
    let last = &gateway.invocations().await[0];
    assert_eq!(last.status, Status::Succeeded);
}
