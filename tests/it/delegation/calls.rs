//! Calls of `whoami` through gateway and broker, and what stays refused.

use app::{
    builtin,
    discovery::{self, Discovered},
};
use domain::{Code, Role, ids::ServerId};
use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tests::world::World;

use super::{Asker, WHOAMI, asker, listener, tenant};
use crate::gateway::{as_pairs, modern};

#[tokio::test]
async fn everybody_who_calls_at_once_is_told_who_they_are_themselves() {
    let world = World::new().await;
    let (acme, ann) = tenant(&world, "acme").await;
    let pat = asker(&world, &acme, "pat", Role::Member).await;
    let (_, bob) = tenant(&world, "globex").await;
    let again = asker(&world, &acme, "amy", Role::Admin).await;
    let all = [&ann, &pat, &bob, &again];
    let calls = (0..60).map(|number| {
        let asker: &Asker = all[number % all.len()];
        let world = &world;
        async move {
            let answer = asker.call(world).await;
            assert_eq!(answer["result"]["structuredContent"], asker.described(), "{answer}");
        }
    });
    // A server has a queue: not more than it bears, and all of them mixed.
    let mut calls = calls.collect::<Vec<_>>().into_iter();
    loop {
        let some: Vec<_> = calls.by_ref().take(6).collect();
        if some.is_empty() {
            break;
        }
        join_all(some).await;
    }
    let spent = "SELECT count(*) FROM spent_delegation_tokens";
    let spent: i64 = sqlx::query_scalar(spent).fetch_one(&world.owner().await).await.unwrap();
    assert!(spent >= 60, "each request spent a token of its own: {spent}");
}

#[tokio::test]
async fn it_is_usable_right_after_it_was_switched_on_and_selected() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let full = world.full_token(&ann.person).await;
    // Nothing ran but the two requests of `tenant`: no worker, no discovery.
    let answer = ann.call(&world).await;
    assert_eq!(answer["result"]["structuredContent"], ann.described(), "{answer}");
    let (status, tested) =
        world.request(http::Method::POST, &full, &format!("{WHOAMI}/test"), None).await;
    assert_eq!((status, &tested["status"]), (StatusCode::OK, &json!("ready")), "{tested}");
    assert_eq!(tested["tools"][0]["name"], "whoami");
    let (_, server) = world.get(&full, WHOAMI).await;
    assert_eq!(server["status"], "ready");

    let (status, tools) =
        world.request(http::Method::POST, &full, &format!("{WHOAMI}/tools/refresh"), None).await;
    assert_eq!(
        (status, &tools["items"][0]["pin"]),
        (StatusCode::OK, &json!("approved")),
        "{tools}"
    );
    let trial = json!({ "sessionId": ann.session, "toolName": "whoami", "input": {} });
    let (status, tried) = world.post(&full, &format!("{WHOAMI}/inspect"), trial).await;
    assert_eq!(status, StatusCode::OK, "{tried}");
    assert!(tried.to_string().contains("root@acme.test"), "{tried}");
}

#[tokio::test]
async fn a_member_who_tests_it_is_called_as_themselves() {
    let world = World::new().await;
    let (acme, _) = tenant(&world, "acme").await;
    let pat = asker(&world, &acme, "pat", Role::Member).await;
    let token = world.full_token(&pat.person).await;
    let (status, tested) =
        world.request(http::Method::POST, &token, &format!("{WHOAMI}/test"), None).await;
    assert_eq!((status, &tested["status"]), (StatusCode::OK, &json!("ready")), "{tested}");
}

#[tokio::test]
async fn a_discovery_has_nobody_to_act_for_and_asks_nobody() {
    let world = World::new().await;
    let (acme, _) = tenant(&world, "acme").await;
    let whoami = ServerId::from("whoami");
    assert_eq!(
        discovery::run(&world.ctx, acme.id, &whoami, None).await.unwrap(),
        Discovered::Pinned
    );
    let spent = "SELECT count(*) FROM spent_delegation_tokens";
    let spent: i64 = sqlx::query_scalar(spent).fetch_one(&world.owner().await).await.unwrap();
    assert_eq!(spent, 0, "no request was made");
}

#[tokio::test]
async fn a_person_who_was_disabled_is_told_nothing() {
    let world = World::new().await;
    let (acme, _) = tenant(&world, "acme").await;
    let pat = asker(&world, &acme, "pat", Role::Member).await;
    assert!(pat.call(&world).await["result"].is_object());
    let token = super::bearer(&world.ctx, pat.subject(), &http::Method::POST, "{}");
    let disable =
        format!("UPDATE users SET status = 'disabled' WHERE user_id = '{}'", pat.person.id);
    sqlx::raw_sql(AssertSqlSafe(disable)).execute(&world.owner().await).await.unwrap();
    let sent = world.client().post(listener(&world.ctx)).header("authorization", token).body("{}");
    assert_eq!(sent.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_row_that_somebody_changed_sends_calls_nowhere_else() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let tamper = "UPDATE mcp_servers SET url = 'https://evil.example/mcp', auth_mode = 'none', transport = 'sse'";
    sqlx::raw_sql(tamper).execute(&world.owner().await).await.unwrap();
    let answer = ann.call(&world).await;
    assert_eq!(answer["result"]["structuredContent"], ann.described(), "{answer}");
    builtin::sync(&world.ctx).await.unwrap();
    let answer = ann.call(&world).await;
    assert_eq!(answer["result"]["structuredContent"], ann.described(), "{answer}");
}

#[tokio::test]
async fn a_custom_server_never_gets_a_token() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let full = world.full_token(&ann.person).await;
    let form = json!({ "name": "x", "slug": "x", "transport": "http", "url": world.url, "authMode": "none" });
    let (status, server) = world.post(&full, "/api/mcp/servers", form).await;
    assert_eq!(status, StatusCode::CREATED, "{server}");
    let tamper = "UPDATE mcp_servers SET auth_mode = 'delegation' WHERE slug = 'x'";
    sqlx::raw_sql(tamper).execute(&world.owner().await).await.unwrap();
    let (_, tested) =
        world.request(http::Method::POST, &full, "/api/mcp/servers/x/test", None).await;
    assert_eq!(tested["error"]["code"], "SERVER_MISCONFIGURED", "{tested}");
    let error = app::delegation::Delegation::new(&world.ctx, &ServerId::from("x")).unwrap_err();
    assert_eq!(error.code, Code::ServerMisconfigured);
}

#[tokio::test]
async fn no_server_can_be_configured_to_reach_the_listener() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let full = world.full_token(&ann.person).await;
    let port = world.ctx.built_in.unwrap().port();
    let mut tried = 0;
    // The operator of this world lets all of loopback through.
    for (number, host) in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"].iter().enumerate() {
        let url = format!("http://{host}:{port}/whoami");
        let form = json!({ "name": host, "slug": format!("s{number}"), "transport": "http", "url": url, "authMode": "none" });
        let (status, server) = world.post(&full, "/api/mcp/servers", form).await;
        if status != StatusCode::CREATED {
            continue;
        }
        tried += 1;
        let test = format!("/api/mcp/servers/s{number}/test");
        let (_, tested) = world.request(http::Method::POST, &full, &test, None).await;
        assert_eq!(tested["error"]["code"], "SERVER_MISCONFIGURED", "{server} {tested}");
        let words = tested["error"]["message"].as_str().unwrap();
        assert!(words.contains("one of our own listeners"), "{words}");
    }
    assert!(tried >= 2, "a form takes the address: {tried}");
}

#[tokio::test]
async fn an_older_client_without_a_session_is_told_the_same() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "whoami", "arguments": {} },
    })
    .to_string();
    let send = async |headers: &[(&str, &str)], body: &str| {
        let token = super::bearer(&world.ctx, ann.subject(), &http::Method::POST, body);
        let mut request = world
            .client()
            .post(listener(&world.ctx))
            .header("authorization", token)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.headers().get("mcp-session-id"), None);
        answer.json::<Value>().await.unwrap()
    };
    let begun = send(&[], &crate::gateway::initialize("2025-11-25")).await;
    assert_eq!(begun["result"]["protocolVersion"], "2025-11-25", "{begun}");
    let answer = send(&[("mcp-protocol-version", "2025-11-25")], &body).await;
    assert_eq!(answer["result"]["structuredContent"], ann.described(), "{answer}");
    let (headers, body) = modern("server/discover", "{}");
    let answer = send(&as_pairs(&headers), &body).await;
    assert!(answer["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{answer}");
}
