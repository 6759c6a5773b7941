//! 2026-07-28 by hand.

use domain::invocation::Status;
use serde_json::json;
use tests::peer::{Answer, Setup, tool};

use super::{Gateway, Reply, as_pairs, members, modern};

#[tokio::test]
async fn discover_says_versions_and_tools_alone() {
    let gateway = Gateway::new(Setup::modern()).await;
    let reply = gateway.modern("server/discover", "{}").await;
    assert_eq!(reply.status, 200);
    let result = &reply.json()["result"];
    assert_eq!(
        result["supportedVersions"],
        json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"])
    );
    assert_eq!(result["capabilities"], json!({"tools": {"listChanged": false}}));
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["cacheScope"], "private");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "bailiwick");
    assert!(reply.headers.get("mcp-session-id").is_none());
}

#[tokio::test]
async fn the_list_is_the_same_each_time_and_says_how_long_it_is_good() {
    let tools = vec![tool("zebra"), tool("ant"), tool("echo")];
    let gateway = Gateway::new(Setup { tools, ..Setup::modern() }).await;
    let reply = gateway.modern("tools/list", "{}").await;
    let result = &reply.json()["result"];
    let names: Vec<_> =
        result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["mcp__demo__ant", "mcp__demo__echo", "mcp__demo__zebra", "result_read"]);
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(30_000), &json!("private")));
    assert_eq!(result["resultType"], "complete");
    assert_eq!(gateway.modern("tools/list", "{}").await.message(), reply.message());
}

#[tokio::test]
async fn a_result_is_what_the_server_sent_but_for_the_invocation() {
    let gateway = Gateway::new(Setup::modern()).await;
    gateway.peer.answer("echo", Answer::Result(Answer::odd_result()));
    let arguments = r#"{"n":12345678901234567890123,"m": 1.50, "s":"\u00e9","k":1}"#;
    let params = format!(r#"{{"name":"mcp__demo__echo","arguments":{arguments}}}"#);
    let reply = gateway.modern("tools/call", &params).await;
    assert_eq!(reply.status, 200);

    let mut result = reply.result();
    let mut sent = members(&Answer::odd_result());
    let mut meta = members(result.remove("_meta").unwrap().get());
    let invocation: String =
        serde_json::from_str(meta.remove("bailiwick/invocationId").unwrap().get()).unwrap();
    assert_eq!(texts(meta), texts(members(sent.remove("_meta").unwrap().get())));
    assert_eq!(result.remove("resultType").unwrap().get(), "\"complete\"");
    sent.remove("resultType");
    assert_eq!(texts(result), texts(sent));

    assert_eq!(gateway.peer.calls()[0].arguments.as_deref(), Some(arguments));
    assert_eq!(gateway.until(Status::Succeeded).await.to_string(), invocation);
}

fn texts(
    members: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>,
) -> Vec<(String, String)> {
    members.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect()
}

#[tokio::test]
async fn ids_come_back_as_they_were_written() {
    let gateway = Gateway::new(Setup::modern()).await;
    for id in ["0", "-5", "123456789012345678901234567890", r#""a\u0062\/""#, r#""""#] {
        let (headers, body) = modern("tools/call", r#"{"name":"mcp__demo__echo"}"#);
        let body = body.replacen("\"id\":1", &format!("\"id\":{id}"), 1);
        let reply = gateway.post(&as_pairs(&headers), body).await;
        assert_eq!(members(&reply.message())["id"].get(), id);
        assert!(reply.json()["result"].is_object(), "{reply:?}");
    }
}

#[tokio::test]
async fn an_unknown_tool_is_a_fault_of_the_protocol_with_a_record() {
    let gateway = Gateway::new(Setup::modern()).await;
    let reply = gateway.modern("tools/call", r#"{"name":"mcp__demo__nothing"}"#).await;
    assert_eq!((reply.status, reply.fault()), (200, -32602));
    let data = &reply.json()["error"]["data"];
    assert_eq!(data["code"], "NOT_FOUND");
    assert_eq!(data["invocationId"], gateway.until(Status::Failed).await.to_string());
}

#[tokio::test]
async fn what_we_refuse_is_a_result_that_an_agent_can_read() {
    let strict = r#"{"name":"echo","inputSchema":{"type":"object","required":["n"]}}"#;
    let gateway = Gateway::new(Setup { tools: vec![strict.into()], ..Setup::modern() }).await;
    let reply = gateway.modern("tools/call", r#"{"name":"mcp__demo__echo"}"#).await;
    let result = &reply.json()["result"];
    assert_eq!((&result["isError"], &result["resultType"]), (&json!(true), &json!("complete")));
    let structured = &result["structuredContent"];
    assert_eq!(
        (&structured["ok"], &structured["error"]["code"]),
        (&json!(false), &json!("INVALID_INPUT"))
    );
    assert_eq!(structured["error"]["retryable"], false);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(&serde_json::from_str::<serde_json::Value>(text).unwrap(), structured);
    assert_eq!(&result["_meta"]["bailiwick/error"], structured);
    let invocation = gateway.until(Status::Failed).await.to_string();
    assert_eq!(structured["invocationId"], invocation);
    assert_eq!(result["_meta"]["bailiwick/invocationId"], invocation);
    assert!(gateway.peer.calls().is_empty());
}

#[tokio::test]
async fn a_tools_own_error_passes_unchanged() {
    let gateway = Gateway::new(Setup::modern()).await;
    let sent = r#"{"isError":true,"content":[{"type":"text","text":"no"}],"why":{"x":1}}"#;
    gateway.peer.answer("echo", Answer::Result(sent.to_owned()));
    let reply = gateway.modern("tools/call", r#"{"name":"mcp__demo__echo"}"#).await;
    let result = reply.result();
    for (name, value) in members(sent) {
        assert_eq!(result[&name].get(), value.get());
    }
}

#[tokio::test]
async fn a_call_that_takes_long_is_answered_by_an_event_stream() {
    let gateway = Gateway::new(Setup::modern()).await;
    gateway.peer.answer("echo", Answer::Result(Answer::odd_result()).held());
    let (headers, body) = modern("tools/call", r#"{"name":"mcp__demo__echo"}"#);
    let headers = as_pairs(&headers);
    let request =
        gateway.request(http::Method::POST, &gateway.token, &gateway.path(), &headers, body);
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    gateway.peer.release();
    let reply = Reply::of(response).await;
    assert!(reply.body.starts_with("event: message\n") && reply.body.ends_with("\n\n"));
    assert_eq!(reply.result()["content"].get(), members(&Answer::odd_result())["content"].get());
}

#[tokio::test]
async fn headers_must_say_what_the_body_says() {
    let gateway = Gateway::new(Setup::modern()).await;
    let call = r#"{"name":"mcp__demo__echo"}"#;
    let (good, body) = modern("tools/call", call);
    for (name, value, code) in [
        ("mcp-method", Some("tools/list"), -32020),
        ("mcp-method", None, -32020),
        ("mcp-name", Some("mcp__demo__other"), -32020),
        ("mcp-name", None, -32020),
        ("mcp-protocol-version", Some("2025-11-25"), -32020),
        ("mcp-protocol-version", Some("1900-01-01"), -32020),
        ("mcp-protocol-version", None, -32020),
    ] {
        let mut headers = good.clone();
        headers.retain(|(header, _)| header != name);
        headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        let reply = gateway.post(&as_pairs(&headers), body.clone()).await;
        assert_eq!((reply.status, reply.fault()), (400, code), "{name}: {value:?}");
        assert_eq!(reply.json()["id"], 1);
    }
    let body = body.replace("2026-07-28", "1900-01-01");
    let headers = [("mcp-protocol-version", "1900-01-01"), ("mcp-method", "tools/call")];
    let reply = gateway.post(&headers, body).await;
    assert_eq!((reply.status, reply.fault()), (400, -32022));
    assert_eq!(reply.json()["error"]["data"]["requested"], "1900-01-01");
    assert_eq!(reply.json()["error"]["data"]["supported"][0], "2026-07-28");
    assert!(gateway.peer.calls().is_empty());
}

#[tokio::test]
async fn a_repeated_argument_must_match_the_body() {
    let region = r#"{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
    let gateway = Gateway::new(Setup { tools: vec![region.into()], ..Setup::modern() }).await;
    let (headers, body) =
        modern("tools/call", r#"{"name":"mcp__demo__echo","arguments":{"region":"eu"}}"#);
    let mut headers = as_pairs(&headers);
    headers.push(("mcp-param-region", "us"));
    let reply = gateway.post(&headers, body.clone()).await;
    assert_eq!((reply.status, reply.fault()), (400, -32020));
    headers.push(("mcp-param-region", "eu"));
    assert!(gateway.post(&headers, body).await.json()["result"].is_object());
}

#[tokio::test]
async fn an_unknown_method_is_404_and_a_notification_is_taken() {
    let gateway = Gateway::new(Setup::modern()).await;
    for method in ["ping", "resources/list", "nothing"] {
        let reply = gateway.modern(method, "{}").await;
        assert_eq!((reply.status, reply.fault()), (404, -32601), "{method}");
    }
    let headers = [("mcp-protocol-version", "2026-07-28")];
    let body = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let reply = gateway.post(&headers, body).await;
    assert_eq!((reply.status, reply.body.as_str()), (202, ""));
}

#[tokio::test]
async fn sources_narrow_what_is_listed_and_what_can_be_called() {
    let gateway = Gateway::new(Setup::modern()).await;
    let asked = async |query: &str, method: &str, params: &str| {
        let (headers, body) = modern(method, params);
        let path = format!("{}?{query}", gateway.path());
        gateway.post_as(&gateway.token, &path, &as_pairs(&headers), body).await
    };
    let call = r#"{"name":"mcp__demo__echo"}"#;
    for (query, tools) in [
        ("sources=demo", 1),
        ("sources=other,demo", 1),
        (&*format!("sources={}", gateway.server), 1),
        ("sources=other", 0),
    ] {
        let list = asked(query, "tools/list", "{}").await;
        assert_eq!(list.json()["result"]["tools"].as_array().unwrap().len(), tools, "{query}");
        let called = asked(query, "tools/call", call).await;
        if tools == 1 {
            assert!(called.json()["result"].is_object(), "{called:?}");
        } else {
            assert_eq!(called.json()["error"]["data"]["code"], "NOT_FOUND");
        }
    }
    for query in ["sources=", "sources=,", "prefix=off", "prefix=off&sources=demo,other"] {
        let reply = asked(query, "tools/list", "{}").await;
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (422, &json!("INVALID_INPUT")),
            "{query}"
        );
    }
}
