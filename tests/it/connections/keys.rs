//! Credentials whose key is missing, or is one of several.

use std::collections::HashMap;

use domain::{Caller, Code};
use reqwest::StatusCode;
use serde_json::json;
use sqlx::PgPool;
use store::vault::Vault;
use tests::world::ENCRYPTION_KEY;

use super::{Scene, lab::node};

/// Of another keyring: 32 bytes in url-safe base64.
const OTHER_KEY: &str = "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItMDE=";

fn vault(keys: &[&str]) -> Vault {
    Vault::new(&keys.join(",").into()).unwrap()
}

/// What stands in the rows.
async fn rows(owner: &PgPool) -> String {
    let sql = "SELECT string_agg(c::text, '|' ORDER BY c.user_id)
               FROM (SELECT user_id, generation, version, state, reason, sealed, key_id, refresh_by,
                            refresh_until, refresh_failures FROM mcp_connections) c";
    sqlx::query_scalar(sql).fetch_one(owner).await.unwrap()
}

async fn connected() -> (Scene, Caller) {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    let root = scene.root.caller(&scene.world).await;
    (scene, root)
}

/// State and reason, as another node's page shows them.
async fn shown(scene: &Scene, node: &app::Ctx, caller: &Caller) -> (String, Option<&'static str>) {
    let server = scene.server.as_str();
    let one = app::connections::one(node, caller, server).await.unwrap();
    let listed = app::connections::list(node, caller).await.unwrap();
    assert_eq!((listed[0].state, listed[0].reason), (one.state, one.reason));
    (one.state.as_str().to_owned(), one.reason.map(domain::connection::ReconnectReason::as_str))
}

#[tokio::test]
async fn a_missing_key_is_said_as_long_as_it_is_missing_and_overwrites_nothing() {
    let (scene, root) = connected().await;
    let owner = scene.world.owner().await;
    let before = rows(&owner).await;
    for vault in [Vault::without_keys(), vault(&[OTHER_KEY])] {
        let other = node(&scene.world, vault);
        let unreadable = ("reconnect_required".to_owned(), Some("unreadable"));
        assert_eq!(shown(&scene, &other, &root).await, unreadable);
        let called = scene.whoami_at(&other, &scene.root).await;
        assert_eq!(called, Err(Code::CredentialsUnreadable));
        assert_eq!(rows(&owner).await, before);
    }
    // With the key it is as it was.
    assert_eq!(shown(&scene, &scene.world.ctx, &root).await, ("connected".to_owned(), None));
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
}

#[tokio::test]
async fn what_cannot_be_opened_is_not_refreshed() {
    let (scene, _) = connected().await;
    let owner = scene.world.owner().await;
    scene.age(&scene.root, true).await;
    let before = rows(&owner).await;
    let other = node(&scene.world, vault(&[OTHER_KEY]));
    let called = scene.whoami_at(&other, &scene.root).await;
    assert_eq!(called, Err(Code::CredentialsUnreadable));
    assert!(scene.provider.grants("refresh_token").is_empty());
    assert_eq!(rows(&owner).await, before, "no lease is left that keeps the others from it");
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
}

#[tokio::test]
async fn a_rotated_keyring_opens_the_old_and_seals_with_the_new() {
    let (scene, root) = connected().await;
    let owner = scene.world.owner().await;
    let both = node(&scene.world, vault(&[OTHER_KEY, ENCRYPTION_KEY]));
    assert_eq!(shown(&scene, &both, &root).await.0, "connected");
    assert!(scene.whoami_at(&both, &scene.root).await.unwrap().contains("root"));
    let key = async || {
        let sql = "SELECT key_id FROM mcp_connections WHERE key_id IS NOT NULL";
        sqlx::query_scalar::<_, String>(sql).fetch_one(&owner).await.unwrap()
    };
    assert_eq!(key().await, vault(&[ENCRYPTION_KEY]).key_ids()[0]);
    // What is refreshed is sealed with the first.
    scene.age(&scene.root, true).await;
    assert!(scene.whoami_at(&both, &scene.root).await.unwrap().contains("root"));
    assert_eq!(key().await, vault(&[OTHER_KEY]).key_ids()[0]);
    // A node that still has the old one alone says so, and the old key may go.
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::CredentialsUnreadable));
    let new = node(&scene.world, vault(&[OTHER_KEY]));
    assert!(scene.whoami_at(&new, &scene.root).await.unwrap().contains("root"));
}

#[tokio::test]
async fn a_person_can_connect_anew_where_the_key_is_gone_for_good() {
    let (scene, root) = connected().await;
    let new = node(&scene.world, vault(&[OTHER_KEY]));
    let cleared = app::connections::clear(&new, &root, scene.server.as_str(), true).await.unwrap();
    assert_eq!(cleared.revocation, Some(app::connections::Revocation::NotOffered));
    assert_eq!(shown(&scene, &new, &root).await, ("disconnected".to_owned(), None));
    assert_eq!(scene.connection(&scene.root).await["revocable"], json!(false));
}

#[tokio::test]
async fn without_a_key_nothing_is_begun_and_a_callback_brings_nothing() {
    let (scene, root) = connected().await;
    let none = node(&scene.world, Vault::without_keys());
    let callback = scene.world.url.join("/api/mcp/oauth/callback/x").unwrap();
    let (server, revision) = (scene.server.as_str(), scene.revision().await);
    let at = |_: &str| Ok(callback.clone());
    let started = app::connections::oauth::start(&none, &root, server, revision, at).await;
    assert_eq!(started.unwrap_err().code, Code::CredentialsUnreadable);
    // What came in the meantime can be taken up once the key is back.
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    let codes = scene.provider.grants("authorization_code").len();
    let query: HashMap<String, String> = callback.query_pairs().into_owned().collect();
    let received = app::connections::oauth::callback(
        &none,
        app::connections::oauth::Callback {
            server: server.to_owned(),
            state: query["state"].clone(),
            code: Some(query["code"].clone().into()),
            error: None,
            iss: query.get("iss").cloned(),
            browser: begun.cookie.split_once('=').map(|(_, value)| value.into()),
        },
    );
    assert_eq!(received.await.unwrap_err().code, Code::CredentialsUnreadable);
    assert_eq!(scene.provider.grants("authorization_code").len(), codes);
    let (status, location) = scene.come_back(&callback, &begun.cookie).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{location}");
    // Nor is a result spent that cannot be read.
    let result = location.split_once("#result=").unwrap().1;
    let secret = result.into();
    let refused = app::connections::oauth::confirm(&none, &root, server, &secret).await;
    assert_eq!(refused.unwrap_err().code, Code::CredentialsUnreadable);
    assert_eq!(scene.confirm(&scene.root, result).await.0, StatusCode::OK);
}
