//! What is taken away between two steps: a person, a server, a tool, a way of signing in.

use domain::Code;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    peer::{Answer, Setup},
    world::World,
};

use super::{Scene, Someone};

/// A server that shakes hands, slowly.
struct Slow(Scene);

impl Slow {
    async fn new() -> (Self, Someone) {
        let provider = AuthorizationServer::start().await;
        let setup = Setup { sessions: false, ..Setup::older() };
        let peer = ProtectedPeer::start_as(&provider, setup).await;
        let fields = json!({ "authMode": "oauth" });
        let scene = Scene::with(World::new().await, provider, peer, fields).await;
        scene.connect(&scene.root, "root").await;
        scene.discover().await;
        let ann = scene.member("ann@acme.test").await;
        scene.connect(&ann, "alice").await;
        (Self(scene), ann)
    }

    /// How a call ends in the middle of whose handshake `change` was made. Nothing but the handshake may
    /// have been sent.
    async fn interrupted(&self, by: &Someone, change: impl Future<Output = ()>) -> Code {
        let (scene, peer) = (&self.0, &self.0.peer.peer);
        let shaken = json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "peer", "version": "1" },
        });
        peer.hold();
        peer.script_method("initialize", [Answer::Result(shaken.to_string()).held()]);
        let sent = peer.calls().len();
        let change = async {
            peer.until("holding", |peer| peer.held() == 1).await;
            change.await;
            peer.release();
        };
        let (called, ()) = futures::join!(scene.whoami(by), change);
        assert_eq!(peer.calls().len(), sent, "no call was sent");
        called.unwrap_err()
    }
}

impl Scene {
    async fn set_status(&self, of: &Someone, status: &str) {
        let path = format!("/api/users/{}", of.person.id);
        let body = json!({ "status": status });
        let (code, user) = self.world.patch(&self.root.token, &path, body).await;
        assert_eq!(code, StatusCode::OK, "{user}");
    }

    async fn switch_tool(&self, tool: &str, enabled: bool) {
        let path = self.path(&format!("/tools/{tool}"));
        let body = json!({ "enabled": enabled });
        let (code, tool) = self.world.put(&self.root.token, &path, body).await;
        assert_eq!(code, StatusCode::OK, "{tool}");
    }
}

#[tokio::test]
async fn a_person_who_is_disabled_during_the_handshake_calls_nothing() {
    let (slow, ann) = Slow::new().await;
    let code = slow.interrupted(&ann, slow.0.set_status(&ann, "disabled")).await;
    assert_eq!(code, Code::PermissionDenied);
    // Nobody else is, and the connection is there when they come back.
    slow.0.peer.peer.release();
    assert!(slow.0.whoami(&slow.0.root).await.is_ok());
    slow.0.set_status(&ann, "active").await;
    assert!(slow.0.whoami(&ann).await.unwrap().contains("alice"));
}

#[tokio::test]
async fn a_tool_that_is_switched_off_during_the_handshake_is_not_called() {
    let (slow, ann) = Slow::new().await;
    let code = slow.interrupted(&ann, slow.0.switch_tool("whoami", false)).await;
    assert_eq!(code, Code::SourceDisabled);
    slow.0.switch_tool("whoami", true).await;
    assert!(slow.0.whoami(&ann).await.unwrap().contains("alice"));
}

#[tokio::test]
async fn a_server_that_is_switched_off_during_the_handshake_is_not_called() {
    let (slow, ann) = Slow::new().await;
    let code = slow.interrupted(&ann, slow.0.switch(false)).await;
    assert_eq!(code, Code::SourceDisabled);
    assert_eq!(slow.0.state(&ann).await, "connected");
    slow.0.switch(true).await;
    assert!(slow.0.whoami(&ann).await.unwrap().contains("alice"));
}

#[tokio::test]
async fn a_disabled_person_connects_nothing_at_any_step() {
    let scene = Scene::new().await;
    let ann = scene.member("ann@acme.test").await;
    // Between start and callback: no code is spent for somebody who is not here.
    let begun = scene.start(&ann).await;
    let callback = scene.provider.walk(&begun.authorization_url, "alice").await;
    scene.set_status(&ann, "disabled").await;
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    assert!(scene.provider.grants("authorization_code").is_empty());
    scene.set_status(&ann, "active").await;
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST, "over");
    // Between callback and confirmation.
    let begun = scene.start(&ann).await;
    let result = scene.result(&begun, "alice").await;
    scene.set_status(&ann, "disabled").await;
    assert_eq!(scene.confirm(&ann, &result).await.0, StatusCode::UNAUTHORIZED);
    let start = json!({ "revision": 1 });
    let (status, _) = scene.world.post(&ann.token, &scene.path("/oauth/start"), start).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    scene.set_status(&ann, "active").await;
    assert_eq!(scene.state(&ann).await, "disconnected");
}

#[tokio::test]
async fn a_server_that_is_switched_off_connects_nobody_and_spends_the_result() {
    let scene = Scene::new().await;
    let ann = scene.member("ann@acme.test").await;
    let begun = scene.start(&ann).await;
    let callback = scene.provider.walk(&begun.authorization_url, "alice").await;
    scene.switch(false).await;
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    assert!(scene.provider.grants("authorization_code").is_empty());
    scene.switch(true).await;

    let begun = scene.start(&ann).await;
    let result = scene.result(&begun, "alice").await;
    scene.switch(false).await;
    let (status, refused) = scene.confirm(&ann, &result).await;
    assert_eq!((status, &refused["code"]), (StatusCode::CONFLICT, &json!("CONFLICT")));
    scene.switch(true).await;
    assert_eq!(scene.confirm(&ann, &result).await.0, StatusCode::CONFLICT, "it was spent");
    assert_eq!(scene.state(&ann).await, "disconnected");
}

#[tokio::test]
async fn a_caller_who_may_not_reach_the_server_spends_the_result_and_learns_nothing() {
    let scene = Scene::new().await;
    let begun = scene.start(&scene.root).await;
    let result = scene.result(&begun, "root").await;
    let form = json!({
        "name": "other", "transport": "http", "url": scene.peer.url(), "authMode": "none",
    });
    let (status, other) = scene.world.post(&scene.root.token, "/api/mcp/servers", form).await;
    assert_eq!(status, StatusCode::CREATED, "{other}");
    let form = json!({ "name": "elsewhere", "scopes": ["api:read", "api:write", "approve"],
        "sources": [other["id"]] });
    let (status, narrow) = scene.world.post(&scene.root.token, "/api/tokens", form).await;
    assert_eq!(status, StatusCode::CREATED, "{narrow}");
    let narrow = narrow["token"].as_str().unwrap().to_owned();
    let body = json!({ "result": result });
    let (status, _) = scene.world.post(&narrow, &scene.path("/oauth/confirm"), body).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::CONFLICT, "it was spent");
}

#[tokio::test]
async fn nobody_begins_at_a_server_that_is_switched_off_and_what_is_left_can_be_ended() {
    let scene = Scene::new().await;
    let ann = scene.member("ann@acme.test").await;
    scene.connect(&scene.root, "root").await;
    scene.start(&scene.root).await;
    scene.switch(false).await;
    let start = json!({ "revision": scene.revision().await });
    let path = scene.path("/oauth/start");
    let (status, refused) = scene.world.post(&scene.root.token, &path, start.clone()).await;
    assert_eq!((status, &refused["code"]), (StatusCode::CONFLICT, &json!("SOURCE_DISABLED")));
    // For somebody who left nothing with it, it is not there.
    assert_eq!(scene.world.post(&ann.token, &path, start).await.0, StatusCode::NOT_FOUND);
    let cancel = scene.path("/oauth/cancel");
    let (status, shown) = scene.world.post(&scene.root.token, &cancel, json!({})).await;
    assert_eq!((status, &shown["state"]), (StatusCode::OK, &json!("connected")), "{shown}");
    let clear = scene.path("/oauth/clear");
    let (status, shown) = scene.world.post(&scene.root.token, &clear, json!({})).await;
    assert_eq!((status, &shown["state"]), (StatusCode::OK, &json!("disconnected")), "{shown}");
}

#[tokio::test]
async fn an_old_catalog_lets_nobody_call_with_what_was_shared() {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    peer.set(|door| door.open = true);
    let fields = json!({ "authMode": "shared_headers", "headers": { "X-Shared": "sesame" } });
    let scene = Scene::with(World::new().await, provider, peer, fields).await;
    scene.discover().await;
    let ann = scene.member("ann@acme.test").await;
    let add = |by| scene.call(by, "add", r#"{"a":1,"b":2}"#);
    assert!(add(&ann).await.outcome.is_ok());
    let sent = scene.peer.peer.journal().len();

    scene.configure(json!({ "authMode": "oauth" })).await;
    let (_, tools) = scene.world.get(&scene.root.token, &scene.path("/tools")).await;
    assert!(tools.to_string().contains("whoami"), "the catalog is still there: {tools}");
    for by in [&ann, &scene.root] {
        assert_eq!(add(by).await.outcome.unwrap_err().code, Code::ConnectionRequired);
    }
    assert_eq!(scene.peer.peer.journal().len(), sent, "nothing was sent for it");
    // The same tools, each as its own person.
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    scene.connect(&ann, "alice").await;
    assert!(scene.whoami(&ann).await.unwrap().contains("alice"));
    let after = scene.peer.peer.journal().into_iter().skip(sent);
    let shared: Vec<Value> =
        after.filter(|one| !one.header("x-shared").is_empty()).map(|one| json!(one.path)).collect();
    assert!(shared.is_empty(), "{shared:?}");
}
