//! Upstream sessions of programs: each is a program of its own, and there are not many.

use domain::{Role, limits, permission::ApprovalMode};
use serde_json::json;
use tests::{
    children::{marker, programs},
    world::eventually,
};

use super::{
    Through, everything, request,
    transports::{form, program},
};
use crate::gateway::{caller, session};

const PERSON: usize = limits::STDIO_OWN_PERSON.size();

/// Waits until so many programs run.
async fn until_running(marker: &str, count: usize) {
    let words = format!("{count} programs run");
    eventually(&words, async || (programs(marker) == count).then_some(())).await;
}

#[tokio::test]
async fn one_session_too_many_ends_the_one_that_was_used_least() {
    let (world, _dir, command) = program().await;
    let marker = marker();
    let through = Through::to(world, form(&command, &[&marker, "more"])).await;
    let mut sessions = Vec::new();
    for _ in 0..PERSON {
        sessions.push(through.initialize(&everything()).await);
    }
    let status = async |session: &str| {
        through.older(session, "tools/call", &json!({"name": "echo", "arguments": {}})).await.status
    };
    assert_eq!(status(&sessions[0]).await, 200);
    let mut listening = through.get(&sessions[1]).await;
    let last = through.initialize(&everything()).await;
    assert!(listening.maybe_next().await.is_none(), "its stream ends");
    assert_eq!(status(&sessions[1]).await, 404, "its client begins anew");
    for session in [&sessions[0], &last] {
        assert_eq!(status(session).await, 200);
    }
    // What is listened to alone counts too.
    let before = sessions[2].clone();
    let mut subscription = through.subscribe(json!({"toolsListChanged": true})).await;
    subscription.next().await;
    assert_eq!(status(&before).await, 404);
}

#[tokio::test]
async fn one_tenant_never_starves_another() {
    let (world, _dir, command) = program().await;
    let (ours, theirs) = (marker(), marker());
    let through = Through::to(world, form(&command, &[&ours, "more"])).await;
    let world = &through.world;

    // Everybody of the first tenant begins as many sessions as they like, and keeps calling.
    for n in 0..5 {
        let email = format!("greedy{n}@acme.test");
        let person = world.user(&through.person.tenant, &email, Role::Superadmin).await;
        let owner = caller(world, &world.full_token(&person).await).await;
        let mode = ApprovalMode::AlwaysAllow;
        let place = session(world, &owner, &through.server, mode).await;
        let token = world.token(&person, "mcp:call").await;
        let path = format!("/mcp/{place}?prefix=off&sources=other");
        for _ in 0..=PERSON {
            let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            }});
            let reply = through.post_as(&token, &path, &[], body.to_string()).await;
            if reply.status == 200 {
                let headers = [("mcp-session-id", reply.header("mcp-session-id"))];
                let call = request("tools/call", &json!({"name": "echo", "arguments": {}}));
                assert_eq!(through.post_as(&token, &path, &headers, call).await.status, 200);
            }
        }
    }
    // And the client that they share.
    until_running(&ours, limits::STDIO_OWN_TENANT.size() + 1).await;

    let globex = world.tenant("globex").await;
    let gus = world.user(&globex, "gus@globex.test", Role::Superadmin).await;
    let owner = caller(world, &world.full_token(&gus).await).await;
    let mut other = form(&command, &[&theirs, "more"]);
    for (name, value) in [
        ("name", json!("theirs")),
        ("slug", json!("theirs")),
        ("authMode", json!("none")),
        ("enabled", json!(true)),
        ("governance", json!({"maxConcurrent": 64})),
    ] {
        other[name] = value;
    }
    let other = serde_json::from_value(other).unwrap();
    let server = app::servers::create(&world.ctx, &owner, other).await.unwrap().server.id;
    app::discovery::run(&world.ctx, owner.tenant, &server, None).await.unwrap();
    let place = session(world, &owner, &server, ApprovalMode::AlwaysAllow).await;
    let token = world.token(&gus, "mcp:call").await;
    let path = format!("/mcp/{place}?prefix=off&sources=theirs");
    for _ in 0..PERSON {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }});
        let reply = through.post_as(&token, &path, &[], body.to_string()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    until_running(&theirs, PERSON + 1).await;
    until_running(&ours, limits::STDIO_OWN_TENANT.size() + 1).await;
}
