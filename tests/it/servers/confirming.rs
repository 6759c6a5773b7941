//! The first test of an imported server asks; and how often others may test.

use serde_json::{Value, json};
use tests::{
    peer::{Peer, Setup},
    world::World,
};

use super::{Role, StatusCode, acme, create, form, path, with};

async fn imported(world: &World, root: &str, peer: &Peer) -> Value {
    let body = json!({ "mcpServers": { "Imported": { "url": peer.url(), "headers": { "X-Key": "s3cret" } } } });
    let (status, imported) = world.post(root, "/api/mcp/servers/import", body).await;
    assert_eq!(status, StatusCode::CREATED, "{imported}");
    imported["items"][0].clone()
}

#[tokio::test]
async fn the_first_test_of_an_imported_server_asks_once() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let server = imported(&world, &root, &peer).await;
    let test = format!("{}/test", path(&server));
    for body in [json!({}), json!({ "confirm": false })] {
        let (status, problem) = world.post(&root, &test, body).await;
        assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("CONFLICT")));
        let confirm = &problem["details"]["confirm"];
        assert_eq!(confirm["url"], peer.url().as_str());
        assert_eq!(
            (&confirm["host"], &confirm["headers"]),
            (&json!("127.0.0.1"), &json!(["X-Key"]))
        );
        assert!(!problem.to_string().contains("s3cret"));
    }
    assert!(peer.journal().is_empty());
    let (status, checked) = world.post(&root, &test, json!({ "confirm": true })).await;
    assert_eq!((status, &checked["status"]), (StatusCode::OK, &json!("ready")), "{checked}");
    assert_eq!(world.get(&root, &path(&server)).await.1["unconfirmed"], false);
    // Not again; and no body is as good as an empty one.
    assert_eq!(world.post(&root, &test, json!({})).await.0, StatusCode::OK);
    let (status, _) = world.request(http::Method::POST, &root, &test, None).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = world.post(&root, &test, json!({ "confirm": "yes" })).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn who_calls_tools_confirms_nothing() {
    let (world, acme, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let server = imported(&world, &root, &peer).await;
    let person = world.user(&acme, "second@acme.test", Role::Superadmin).await;
    let agent = world.token(&person, "mcp:call,api:read,api:write,admin").await;
    let test = format!("{}/test", path(&server));
    assert_eq!(world.post(&agent, &test, json!({})).await.0, StatusCode::CONFLICT);
    let (status, problem) = world.post(&agent, &test, json!({ "confirm": true })).await;
    assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("DENIED")));
    assert!(peer.journal().is_empty());
    assert_eq!(world.get(&root, &path(&server)).await.1["unconfirmed"], true);
}

#[tokio::test]
async fn nobody_is_asked_about_a_server_that_was_switched_on() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let server = imported(&world, &root, &peer).await;
    world.put(&root, &format!("{}/status", path(&server)), json!({ "enabled": true })).await;
    let (status, _) = world.post(&root, &format!("{}/test", path(&server)), json!({})).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_member_tests_a_server_now_and_then() {
    let (world, acme, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let on = json!({ "enabled": true });
    let one = create(&world, &root, with(&form("One", peer.url().as_str()), on.clone())).await;
    let two = create(&world, &root, with(&form("Two", peer.url().as_str()), on)).await;
    let mut members = Vec::new();
    for name in ["pat", "kim"] {
        let member = world.user(&acme, &format!("{name}@acme.test"), Role::Member).await;
        members.push(world.token(&member, "api:read,api:write").await);
    }
    let test = async |token: &str, server: &Value| {
        world.post(token, &format!("{}/test", path(server)), json!({})).await
    };
    assert_eq!(test(&members[0], &one).await.0, StatusCode::OK);
    let (status, problem) = test(&members[0], &one).await;
    assert_eq!((status, &problem["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("LIMITED")));
    // Each person and each server by itself; superadmins as they like.
    assert_eq!(test(&members[0], &two).await.0, StatusCode::OK);
    assert_eq!(test(&members[1], &one).await.0, StatusCode::OK);
    for _ in 0..3 {
        assert_eq!(test(&root, &one).await.0, StatusCode::OK);
    }
    let (_, checked) = test(&members[1], &two).await;
    assert!(checked.get("contacted").is_none(), "what is sent is for superadmins: {checked}");
}
