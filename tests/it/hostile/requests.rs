//! Paths, bodies and headers that no honest client sends.

use domain::Role;
use http::Method;
use serde_json::{Value, json};
use tests::{peer::Setup, world::World};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::refused;
use crate::gateway::Gateway;

async fn stage() -> (World, String) {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let ann = world.user(&acme, "ann@acme.test", Role::Superadmin).await;
    let token = world.full_token(&ann).await;
    (world, token)
}

#[tokio::test]
async fn odd_paths_name_nothing() {
    let (world, token) = stage().await;
    let id = "019a0000-0000-7000-8000-000000000000";
    let long = "a".repeat(20_000);
    for path in [
        "/api/mcp/servers/%00",
        "/api/mcp/servers/a%00b",
        "/api/mcp/servers/%ff%fe",
        "/api/mcp/servers/%F0%9F%98%80",
        "/api/mcp/servers/..%2F..%2Fme",
        "/api/mcp/servers/%2e%2e",
        "/api/mcp/servers/a%0d%0aX-Evil:1",
        "/api/mcp/servers/'%20OR%201=1--",
        "/api/mcp/servers/%25",
        "/api/mcp/servers/x/tools/%00",
        "/api//me",
        "/api/me/",
        "/API/me",
        "/api/me%2F",
        "/api/sessions/%7b019a0000-0000-7000-8000-000000000000%7d",
        &format!("/api/sessions/{id}%20"),
        &format!("/api/sessions/{id}/../.."),
        &format!("/api/sessions/{id}/events?after=%00"),
        &format!("/api/sessions/{id}/mcp/invocations/{id}"),
        &format!("/api/sessions/{long}"),
        &format!("/api/mcp/servers/{long}"),
        "/api/sessions?limit=1e3",
        "/api/sessions?limit=-1",
        "/api/sessions?limit=99999999999999999999",
        "/api/sessions?after=%00",
        "/api/mcp/servers?after=%00",
        "/api/mcp/servers?after=custom-x",
        "/api/users?after=0",
        "/api/permission-requests?state=%00",
        "/api/tokens?userId=%00",
    ] {
        for method in [Method::GET, Method::DELETE] {
            let (status, answer) = world.request(method.clone(), &token, path, None).await;
            refused(&world, &format!("{method} {path}"), status.as_u16(), &answer).await;
        }
    }
}

#[tokio::test]
async fn text_that_no_database_takes_is_refused() {
    let (world, token) = stage().await;
    let nul = "a\0b";
    let server = |member: &str, value: Value| {
        let mut form = json!({ "name": "n", "transport": "http", "url": "http://127.0.0.1:9/", "authMode": "shared_headers" });
        form[member] = value;
        ("/api/mcp/servers", form)
    };
    for (path, body) in [
        ("/api/sessions", json!({ "title": nul })),
        ("/api/sessions", json!({ "enabledSourceIds": [nul] })),
        ("/api/projects", json!({ "title": nul })),
        ("/api/projects", json!({ "title": "t", "enabledSourceIds": [nul] })),
        ("/api/users", json!({ "email": "a\0@acme.test", "role": "member" })),
        ("/api/tokens", json!({ "name": nul, "scopes": ["api:read"] })),
        ("/api/tokens", json!({ "name": "n", "scopes": ["api:read"], "tools": [nul] })),
        ("/api/tokens", json!({ "name": "n", "scopes": ["api:read"], "sources": [nul] })),
        server("name", json!(nul)),
        server("slug", json!(nul)),
        server("description", json!(nul)),
        server("icon", json!(nul)),
        server("tags", json!([nul])),
        server("url", json!("http://127.0.0.1:9/\0")),
        server("headers", json!({ "X": nul })),
        server("headers", json!({ nul: "x" })),
        server("governance", json!({ nul: 1 })),
    ] {
        let (status, answer) = world.post(&token, path, body.clone()).await;
        refused(&world, &body.to_string(), status.as_u16(), &answer).await;
    }
    // What is not used by this transport is blanked, whatever it holds.
    for (member, value) in
        [("command", json!(nul)), ("args", json!([nul])), ("env", json!({ nul: nul }))]
    {
        let (path, mut form) = server(member, value);
        form["name"] = json!(member);
        let (status, answer) = world.post(&token, path, form).await;
        assert!(status == 201 || status == 422, "{member}: {status} {answer}");
    }
    for (path, body) in [
        ("/api/tenant", json!({ "enabledSourceIds": [nul] })),
        ("/api/tenant", json!({ "enabledSourceIds": ["x".repeat(1_000_000)] })),
    ] {
        let (status, answer) = world.patch(&token, path, body).await;
        refused(&world, path, status.as_u16(), &answer).await;
    }
}

#[tokio::test]
async fn odd_json_is_refused() {
    let (world, token) = stage().await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for body in [
        "",
        "{",
        "null",
        "[]",
        "\"x\"",
        "7",
        "{}x",
        "\u{feff}{\"title\":\"t\"}",
        r#"{"title":"one","title":"two"}"#,
        r#"{"title":"\ud800"}"#,
        r#"{"title":1e999}"#,
        r#"{"title":"t","__proto__":{"approvalMode":"always_allow"}}"#,
        r#"{"title":"t","approvalMode":["always_allow"]}"#,
        r#"{"title":NaN}"#,
        &deep,
        &format!(r#"{{"title":{deep}}}"#),
    ] {
        let url = world.url.join("/api/projects").unwrap();
        let request = world.client().post(url).bearer_auth(&token);
        let request = request.header("content-type", "application/json").body(body.to_owned());
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let answer = json!(response.text().await.unwrap());
        let what: String = body.chars().take(80).collect();
        refused(&world, &what, status, &answer).await;
    }
    for (member, value) in [
        ("timeoutSeconds", "1e308"),
        ("timeoutSeconds", "-0.0"),
        ("timeoutSeconds", "0.5"),
        ("revision", "9223372036854775808"),
        ("governance", r#"{"maxConcurrent":1e20}"#),
        ("governance", r#"{"maxConcurrent":-1}"#),
        ("governance", r#"{"ratePerSecond":1e-300}"#),
        ("governance", r#"{"ratePerSecond":0}"#),
        ("governance", r#"{"queueTimeoutMs":18446744073709551616}"#),
    ] {
        let body = format!(
            r#"{{"name":"n","transport":"http","url":"http://127.0.0.1:9/","authMode":"none","{member}":{value}}}"#
        );
        let url = world.url.join("/api/mcp/servers").unwrap();
        let request = world.client().post(url).bearer_auth(&token);
        let request = request.header("content-type", "application/json").body(body.clone());
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let answer = json!(response.text().await.unwrap());
        refused(&world, &body, status, &answer).await;
    }
}

/// One connection, one text; all that comes back until the server closes or is done.
async fn exchange(world: &World, text: &str) -> String {
    let address = world.url.socket_addrs(|| None).unwrap()[0];
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may close before it has read all.
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_request_with_two_meanings_is_refused() {
    let (world, token) = stage().await;
    let host = format!("127.0.0.1:{}", world.url.port().unwrap());
    let authorization = format!("Authorization: Bearer {token}\r\n");
    for (heads, expected) in [
        (format!("Host: {host}\r\nHost: evil.test\r\n"), "421"),
        (format!("Host: evil.test\r\nHost: {host}\r\n"), "421"),
        ("Host: evil.test\r\n".to_owned(), "421"),
        (format!("Host: {host}@evil.test\r\n"), "421"),
        (String::new(), "4"),
        (format!("Host: {host}\r\nOrigin: null\r\n"), "403"),
        (format!("Host: {host}\r\nOrigin: http://{host}\r\nOrigin: http://evil.test\r\n"), "403"),
        (format!("Host: {host}\r\nOrigin: http://{host}.evil.test\r\n"), "403"),
        (format!("Host: {host}\r\nOrigin: https://{host}\r\n"), "403"),
        (format!("Host: {host}\r\nContent-Length: 4\r\nContent-Length: 5\r\n"), "400"),
        (format!("Host: {host}\r\nContent-Length: +5\r\n"), "400"),
        (format!("Host: {host}\r\nTransfer-Encoding: identity\r\n"), "4"),
        (format!("Host: {host}\r\nX: a\r\n b\r\n"), "4"),
        (format!("Host : {host}\r\n"), "400"),
    ] {
        let request =
            format!("GET /api/me HTTP/1.1\r\n{heads}{authorization}Connection: close\r\n\r\n");
        let answer = exchange(&world, &request).await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        // No answer at all is a refusal, too.
        assert!(answer.is_empty() || status.starts_with(expected), "{heads}: {answer}");
    }
    let huge =
        format!("GET /api/me HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "x".repeat(2_000_000));
    let answer = exchange(&world, &huge).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    let (status, _) = world.get(&token, "/api/me").await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn two_calls_of_one_id_are_two_calls() {
    let gateway = Gateway::new(Setup::modern()).await;
    let session = gateway.initialize("2025-03-26").await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mcp__demo__echo","arguments":{"n":NUMBER}}}"#;
    let batch = format!("[{},{}]", call.replace("NUMBER", "1"), call.replace("NUMBER", "2"));
    let reply = gateway.legacy(&session, &batch).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let calls = gateway.invocations().await;
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].id, calls[1].id);
    assert_eq!(gateway.peer.calls().len(), 2);
}
