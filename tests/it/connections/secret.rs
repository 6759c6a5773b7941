//! A bearer token or an API key that a person brings along.

use domain::Code;
use reqwest::StatusCode;
use serde_json::json;
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    world::World,
};

use super::Scene;

async fn scene(fields: serde_json::Value) -> Scene {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    Scene::with(World::new().await, provider, peer, fields).await
}

#[tokio::test]
async fn a_secret_goes_out_and_never_comes_back() {
    let scene = scene(json!({ "authMode": "bearer" })).await;
    let body = json!({ "secret": "sesame-of-root", "revision": scene.revision().await });
    let path = scene.path("/connection");
    let (status, shown) = scene.world.put(&scene.root.token, &path, body).await;
    assert_eq!((status, &shown["state"]), (StatusCode::OK, &json!("connected")), "{shown}");
    assert!(!shown.to_string().contains("sesame"), "{shown}");
    let connection = scene.connection(&scene.root).await;
    assert!(!connection.to_string().contains("sesame"), "{connection}");
}

#[tokio::test]
async fn a_secret_that_the_server_refuses_is_cleared() {
    let scene = scene(json!({ "authMode": "bearer" })).await;
    let body = json!({ "secret": "sesame-of-root", "revision": scene.revision().await });
    let path = scene.path("/connection");
    scene.world.put(&scene.root.token, &path, body).await;
    let ended = app::discovery::run(
        &scene.world.ctx,
        scene.tenant.id,
        &scene.server,
        Some(scene.root.person.id),
    )
    .await;
    assert_eq!(ended.unwrap_err().code, Code::ReconnectRequired);
    let connection = scene.connection(&scene.root).await;
    assert_eq!(connection["state"], "reconnect_required", "{connection}");
    assert_eq!(connection["reason"], "refused", "{connection}");
}

#[tokio::test]
async fn a_query_that_disconnecting_does_not_take_is_refused_and_nothing_is_cleared() {
    let scene = scene(json!({ "authMode": "bearer" })).await;
    let body = json!({ "secret": "sesame-of-root", "revision": scene.revision().await });
    let path = scene.path("/connection");
    scene.world.put(&scene.root.token, &path, body).await;
    for query in ["revoke=maybe", "revoke=true&also=1"] {
        let path = format!("{path}?{query}");
        let (status, refused) = scene.world.delete(&scene.root.token, &path).await;
        assert_eq!((status.as_u16(), &refused["code"]), (422, &json!("INVALID_INPUT")), "{query}");
    }
    assert_eq!(scene.connection(&scene.root).await["state"], "connected");
}

#[tokio::test]
async fn a_secret_offers_no_revocation() {
    let scene = scene(json!({ "authMode": "bearer" })).await;
    scene.put_secret(&scene.root, "sesame-of-root").await;
    assert_eq!(scene.connection(&scene.root).await["revocable"], false);
}
