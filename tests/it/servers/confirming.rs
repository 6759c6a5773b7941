//! The test of an imported server asks until what it contacts was agreed to; and how often others may
//! test.

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

/// What a test that agrees to what was shown sends.
fn agrees(shown: &Value) -> Value {
    json!({ "confirm": true, "configRevision": shown["configRevision"] })
}

/// The test asks; what it shows.
async fn asked(world: &World, root: &str, test: &str) -> Value {
    let (status, problem) = world.post(root, test, json!({})).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("CONFLICT")), "{problem}");
    problem["details"]["confirm"].clone()
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
        assert_eq!(confirm["configRevision"], server["configRevision"]);
        assert!(!problem.to_string().contains("s3cret"));
    }
    let shown = asked(&world, &root, &test).await;
    // Who does not say what they looked at agrees to nothing.
    let (status, problem) = world.post(&root, &test, json!({ "confirm": true })).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["details"]["errors"][0]["path"], "/configRevision");
    assert!(peer.journal().is_empty());
    let (status, checked) = world.post(&root, &test, agrees(&shown)).await;
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
    let agrees = agrees(&asked(&world, &agent, &test).await);
    let (status, problem) = world.post(&agent, &test, agrees).await;
    assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("DENIED")));
    assert!(peer.journal().is_empty());
    assert_eq!(world.get(&root, &path(&server)).await.1["unconfirmed"], true);
}

#[tokio::test]
async fn what_was_changed_after_it_was_shown_is_not_what_was_agreed_to() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let other = Peer::start(Setup::modern()).await;
    let server = imported(&world, &root, &peer).await;
    let test = format!("{}/test", path(&server));
    let shown = asked(&world, &root, &test).await;

    let elsewhere = json!({ "authMode": "shared_headers", "headers": { "X-Other": "s3cret" } });
    let elsewhere = with(&form("Imported", other.url().as_str()), elsewhere);
    assert_eq!(world.put(&root, &path(&server), elsewhere).await.0, StatusCode::OK);
    let (status, problem) = world.post(&root, &test, agrees(&shown)).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("REVISION_CONFLICT")),
        "{problem}"
    );
    let now = &problem["details"]["confirm"];
    assert_eq!((&now["url"], &now["headers"]), (&json!(other.url()), &json!(["X-Other"])));
    assert!(peer.journal().is_empty() && other.journal().is_empty());
    assert_eq!(world.get(&root, &path(&server)).await.1["unconfirmed"], true);
    assert_eq!(world.post(&root, &test, agrees(now)).await.0, StatusCode::OK);
    assert!(peer.journal().is_empty() && !other.journal().is_empty());
}

#[tokio::test]
async fn every_change_of_what_is_contacted_is_shown_anew() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let server = imported(&world, &root, &peer).await;
    let test = format!("{}/test", path(&server));
    let shared = |headers: Value| {
        let shared = json!({ "authMode": "shared_headers", "headers": headers });
        with(&form("Imported", peer.url().as_str()), shared)
    };
    let save = async |form: Value| {
        let (status, saved) = world.put(&root, &path(&server), form).await;
        assert_eq!(status, StatusCode::OK, "{saved}");
        saved["unconfirmed"] == true
    };
    let confirm = async || {
        let shown = asked(&world, &root, &test).await;
        assert_eq!(world.post(&root, &test, agrees(&shown)).await.0, StatusCode::OK);
    };
    confirm().await;
    // Its looks are nothing that is contacted.
    let described = with(&shared(json!({ "X-Key": null })), json!({ "description": "new words" }));
    assert!(!save(described).await);
    let variable = async |value: &str| {
        let variable = json!({ "value": value, "hosts": ["127.0.0.1"] });
        world.put(&root, "/api/tenant/variables/KEY", variable).await;
    };
    variable("one").await;
    let mut other = peer.url();
    other.set_query(Some("another=address"));
    for changed in [
        shared(json!({ "X-Key": "another value" })),
        shared(json!({ "X-Key": null, "X-Other": "one more" })),
        shared(json!({ "X-Key": "$KEY" })),
        form("Imported", peer.url().as_str()),
        with(&form("Imported", other.as_str()), json!({})),
        with(&shared(json!({ "X-Key": "$KEY" })), json!({ "url": other })),
    ] {
        assert!(save(changed.clone()).await, "{changed}");
        confirm().await;
    }
    // Where a variable's value goes, or what it is.
    variable("two").await;
    confirm().await;
    // Whoever leaves it switched on has decided; once it is off, the next change is shown again.
    let on = with(&form("Imported", peer.url().as_str()), json!({ "enabled": true }));
    assert!(!save(on).await);
    assert!(!save(form("Imported", peer.url().as_str())).await);
    assert!(save(form("Imported", other.as_str())).await);
}

#[tokio::test]
async fn a_server_that_a_superadmin_wrote_is_never_asked_about() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let server = create(&world, &root, form("Typed", "https://mcp.example.com/mcp")).await;
    world.put(&root, &path(&server), form("Typed", peer.url().as_str())).await;
    let (status, _) = world.post(&root, &format!("{}/test", path(&server)), json!({})).await;
    assert_eq!(status, StatusCode::OK);
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
