//! Headers that repeat the body (MCP 2026-07-28: Streamable HTTP, "Request Metadata").

use serde_json::{Value, json};
use tests::peer::Setup;

use super::{Gateway, Through, modern};

const TOOL: &str = r#"{"name":"where","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;

/// Status and code of a refusal, 0 for none.
async fn sent(
    through: &Through,
    path: &str,
    name: &str,
    arguments: Value,
    header: Option<&str>,
) -> (u16, i64) {
    let params = json!({"name": name, "arguments": arguments});
    let (headers, body) = modern("tools/call", &params, &json!({}), &json!({}));
    let mut headers = super::as_pairs(&headers);
    headers.extend(header.map(|value| ("mcp-param-region", value)));
    let reply = through.post_as(&through.token, path, &headers, body).await;
    (reply.status, reply.json()["error"]["code"].as_i64().unwrap_or(0))
}

#[tokio::test]
async fn an_argument_that_a_tool_marks_must_be_repeated_in_its_header() {
    let through = Through::new(Setup { tools: vec![TOOL.to_owned()], ..Setup::modern() }).await;
    for (path, name) in [(through.path(), "where"), (Gateway::path(&through), "mcp__demo__where")] {
        let eu = json!({"region": "eu"});
        let sent = async |arguments: &Value, header| {
            sent(&through, &path, name, arguments.clone(), header).await
        };
        assert_eq!(sent(&eu, Some("eu")).await, (200, 0));
        assert_eq!(sent(&eu, Some("=?base64?ZXU=?=")).await, (200, 0));
        assert_eq!(sent(&json!({}), None).await, (200, 0));
        assert_eq!(sent(&json!({"region": null}), None).await.1, 0);
        assert_eq!(sent(&eu, None).await, (400, -32020), "missing");
        assert_eq!(sent(&eu, Some("us")).await, (400, -32020));
        assert_eq!(sent(&eu, Some("=?base64?ZXU?=")).await, (400, -32020), "no base64");
        assert_eq!(sent(&json!({}), Some("eu")).await, (400, -32020), "no such argument");
    }
    assert!(through.peer.calls().iter().all(|call| {
        let region = call.arguments.as_deref().unwrap().contains("eu");
        call.header("mcp-param-region") == if region { "eu" } else { "" }
    }));
}

#[tokio::test]
async fn every_method_repeats_its_name() {
    let through = Through::new(Setup::modern()).await;
    for (method, params) in [
        ("resources/read", json!({"uri": "demo://a"})),
        ("prompts/get", json!({"name": "p"})),
        ("tools/call", json!({"name": "echo"})),
    ] {
        let (mut headers, body) = modern(method, &params, &json!({}), &json!({}));
        headers.retain(|(name, _)| name != "mcp-name");
        let reply = through.post(&super::as_pairs(&headers), body.clone()).await;
        assert_eq!((reply.status, reply.fault()), (400, -32020), "{method}");
        headers.retain(|(name, _)| name != "mcp-method");
        let reply = through.post(&super::as_pairs(&headers), body).await;
        assert_eq!((reply.status, reply.fault()), (400, -32020), "{method}");
    }
    assert!(through.peer.received("resources/read").is_empty());
}
