//! The older eras by hand.

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use tests::{peer::Setup, world::World};

use super::{Gateway, Reply, caller, initialize, members};

#[tokio::test]
async fn initialize_agrees_on_a_version_and_gives_a_session() {
    let gateway = Gateway::new(Setup::older()).await;
    for (wished, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("next year", "2025-11-25"),
    ] {
        for headers in [&[][..], &[("mcp-protocol-version", wished)][..]] {
            let reply = gateway.post(headers, initialize(wished)).await;
            assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
            let result = &reply.json()["result"];
            assert_eq!(result["protocolVersion"], agreed);
            assert_eq!(result["capabilities"], json!({"tools": {"listChanged": false}}));
            assert_eq!(result["serverInfo"]["name"], "bailiwick");
            let id = reply.header("mcp-session-id");
            assert!(!id.is_empty() && id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id}");
        }
    }
}

#[tokio::test]
async fn an_older_session_lists_and_calls() {
    let gateway = Gateway::new(Setup::older()).await;
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let session = gateway.initialize(version).await;
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let reply = gateway.legacy(&session, initialized).await;
        assert_eq!((reply.status, reply.body.as_str()), (202, ""));

        let ping = gateway.legacy(&session, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
        assert_eq!(ping.message(), r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);

        let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}"#;
        let listed = gateway.legacy(&session, list).await.result();
        assert_eq!(listed.keys().collect::<Vec<_>>(), ["tools"]);

        let call = r#"{"jsonrpc":"2.0","id":18446744073709551617,"method":"tools/call","params":{"name":"mcp__demo__echo","arguments":{"a": 1}}}"#;
        let called = gateway.legacy(&session, call).await;
        assert_eq!(members(&called.message())["id"].get(), "18446744073709551617");
        assert!(!called.result().contains_key("resultType"));
        assert_eq!(called.json()["result"]["structuredContent"], json!({"a": 1}));

        let unknown = r#"{"jsonrpc":"2.0","id":3,"method":"resources/list"}"#;
        let unknown = gateway.legacy(&session, unknown).await;
        assert_eq!((unknown.status, unknown.fault()), (200, -32601));
    }
    assert_eq!(gateway.peer.calls()[0].arguments.as_deref(), Some(r#"{"a": 1}"#));
}

#[tokio::test]
async fn without_its_session_an_older_request_is_refused() {
    let gateway = Gateway::new(Setup::older()).await;
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let reply = gateway.post(&[], list).await;
    assert_eq!((reply.status, reply.fault()), (400, -32600));
    assert_eq!(gateway.legacy("made-up", list).await.status, 404);

    let session = gateway.initialize("2025-11-25").await;
    let headers = [("mcp-session-id", &*session), ("mcp-protocol-version", "1999-01-01")];
    let reply = gateway.post(&headers, list).await;
    assert_eq!((reply.status, reply.fault()), (400, -32022));
}

#[tokio::test]
async fn a_session_id_is_good_for_its_own_caller_and_endpoint_alone() {
    let gateway = Gateway::new(Setup::older()).await;
    let session = gateway.initialize("2025-11-25").await;
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let headers = [("mcp-session-id", &*session)];
    assert_eq!(gateway.legacy(&session, list).await.status, 200);

    let second = gateway.world.token(&gateway.person, "mcp:call").await;
    assert_eq!(gateway.post_as(&second, &gateway.path(), &headers, list).await.status, 404);
    let bob =
        gateway.world.user(&gateway.person.tenant, "bob@acme.test", domain::Role::Member).await;
    let bobs = gateway.world.token(&bob, "mcp:call").await;
    assert_eq!(gateway.post_as(&bobs, &gateway.path(), &headers, list).await.status, 404);
    assert_eq!(gateway.post_as(&bobs, "/mcp", &headers, list).await.status, 404);

    let owner = &gateway.owner;
    let mode = domain::permission::ApprovalMode::AskForDangerous;
    let other = super::session(&gateway.world, owner, &gateway.server, mode).await;
    let path = format!("/mcp/{other}");
    assert_eq!(gateway.post_as(&gateway.token, &path, &headers, list).await.status, 404);
}

#[tokio::test]
async fn a_session_id_ends_after_a_day() {
    let noon = "2026-11-30T12:00:00Z".parse().unwrap();
    let gateway = Gateway::in_world(Setup::older(), World::with_fixed_clock(noon).await).await;
    let session = gateway.initialize("2025-11-25").await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    gateway.world.ctx.clock.advance(TimeDelta::hours(24));
    assert_eq!(gateway.legacy(&session, ping).await.status, 200);
    gateway.world.ctx.clock.advance(TimeDelta::seconds(1));
    assert_eq!(gateway.legacy(&session, ping).await.status, 404);
}

#[tokio::test]
async fn the_default_session_is_made_once_and_remembered_in_the_id() {
    let gateway = Gateway::new(Setup::older()).await;
    for _ in 0..3 {
        let reply = gateway.post_as(&gateway.token, "/mcp", &[], initialize("2025-11-25")).await;
        assert_eq!(reply.status, 200);
    }
    assert_eq!(sessions(&gateway.world).await, 2);
}

/// All sessions of the world.
async fn sessions(world: &World) -> i64 {
    let owner = world.owner().await;
    sqlx::query_scalar("SELECT count(*) FROM sessions").fetch_one(&owner).await.unwrap()
}

#[tokio::test]
async fn an_archived_default_session_makes_the_client_begin_anew() {
    let gateway = Gateway::new(Setup::older()).await;
    let ctx = &gateway.world.ctx;
    let begin = async || {
        let reply = gateway.post_as(&gateway.token, "/mcp", &[], initialize("2025-11-25")).await;
        reply.header("mcp-session-id").to_owned()
    };
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#;
    let called = async |id: &str| {
        gateway.post_as(&gateway.token, "/mcp", &[("mcp-session-id", id)], call).await.status
    };
    let first = begin().await;
    assert_eq!(called(&first).await, 200);
    let agent = caller(&gateway.world, &gateway.token).await;
    let session = app::sessions::default_for(ctx, &agent).await.unwrap();
    app::sessions::archive(ctx, &gateway.owner, session).await.unwrap();
    assert_eq!(called(&first).await, 404);
    assert_eq!(called(&begin().await).await, 200);
}

#[tokio::test]
async fn an_archived_session_is_told_by_its_code() {
    let gateway = Gateway::new(Setup::older()).await;
    app::sessions::archive(&gateway.world.ctx, &gateway.owner, gateway.session).await.unwrap();
    let reply = gateway.modern("tools/call", r#"{"name":"mcp__demo__echo"}"#).await;
    assert_eq!((reply.status, reply.fault()), (200, -32600));
    assert_eq!(reply.json()["error"]["data"]["code"], "SESSION_ARCHIVED");
}

#[tokio::test]
async fn delete_ends_a_session_and_get_offers_no_stream() {
    let gateway = Gateway::new(Setup::older()).await;
    let session = gateway.initialize("2025-11-25").await;
    let path = gateway.path();
    let sent = async |method: Method, headers: &[(&str, &str)]| {
        gateway.send(method, &gateway.token, &path, headers, "").await
    };
    assert_eq!(sent(Method::DELETE, &[("mcp-session-id", &session)]).await.status, 204);
    assert_eq!(sent(Method::DELETE, &[("mcp-session-id", "made-up")]).await.status, 404);
    assert_eq!(sent(Method::DELETE, &[]).await.status, 400);
    let modern = sent(Method::DELETE, &[("mcp-protocol-version", "2026-07-28")]).await;
    assert_eq!((modern.status, modern.header("allow")), (405, "POST"));
    let stream = sent(Method::GET, &[("mcp-session-id", &session)]).await;
    assert_eq!((stream.status, stream.header("allow")), (405, "POST, DELETE"));
}

#[tokio::test]
async fn batches_belong_to_2025_03_26_alone() {
    let gateway = Gateway::new(Setup::older()).await;
    let batch = r#"[
        {"jsonrpc":"2.0","id":1,"method":"ping"},
        {"jsonrpc":"2.0","method":"notifications/initialized"},
        {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"mcp__demo__echo"}},
        {"jsonrpc":"2.0","id":3,"method":"initialize","params":{}},
        7
    ]"#;
    let session = gateway.initialize("2025-03-26").await;
    let reply = gateway.legacy(&session, batch).await;
    assert_eq!(reply.status, 200);
    let mut answers: Vec<(String, bool)> = batch_answers(&reply)
        .iter()
        .map(|answer| (answer["id"].to_string(), answer["result"].is_object()))
        .collect();
    answers.sort();
    let expected = [("1", true), ("2", true), ("3", false), ("null", false)];
    assert_eq!(answers, expected.map(|(id, result)| (id.to_owned(), result)));

    let notifications = r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#;
    assert_eq!(gateway.legacy(&session, notifications).await.status, 202);

    for version in ["2025-06-18", "2025-11-25"] {
        let session = gateway.initialize(version).await;
        let reply = gateway.legacy(&session, batch).await;
        assert_eq!((reply.status, reply.fault()), (400, -32600), "{version}");
    }
    let reply = gateway.post(&[("mcp-protocol-version", "2026-07-28")], batch).await;
    assert_eq!((reply.status, reply.fault()), (400, -32600));
}

/// One array, or an event for each.
fn batch_answers(reply: &Reply) -> Vec<Value> {
    let messages = reply.messages().into_iter();
    let messages = messages.map(|message| serde_json::from_str::<Value>(&message).unwrap());
    messages
        .flat_map(|message| match message {
            Value::Array(answers) => answers,
            answer => vec![answer],
        })
        .collect()
}
