//! What happens to a credential while it is used.

use std::time::Duration;

use domain::{Code, Role};
use reqwest::StatusCode;
use serde_json::json;
use tests::{
    authorization_server::{AuthorizationServer, Fault, ProtectedPeer},
    peer::Answer,
};

use super::{Scene, Someone};

async fn connected() -> Scene {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    scene
}

#[tokio::test]
async fn a_token_that_is_refused_is_refreshed_once_and_the_request_sent_once_more() {
    let scene = connected().await;
    scene.peer.set(|door| door.reject_next = 1);
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
    assert_eq!(scene.provider.grants("refresh_token").len(), 1);
    // Refused for good: the person has to connect again.
    scene.peer.set(|door| door.reject_next = 100);
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::ReconnectRequired));
    let connection = scene.connection(&scene.root).await;
    assert_eq!(
        (&connection["state"], &connection["reason"]),
        (&json!("reconnect_required"), &json!("refused"))
    );
    assert_eq!(scene.provider.grants("refresh_token").len(), 2);
}

#[tokio::test]
async fn a_grant_that_its_provider_ended_is_to_be_made_anew() {
    let scene = connected().await;
    scene.provider.revoke_all_of("root");
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::ReconnectRequired));
    assert_eq!(scene.connection(&scene.root).await["reason"], "refresh_refused");
    scene.connect(&scene.root, "root").await;
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
}

#[tokio::test]
async fn a_provider_that_fails_costs_the_call_and_not_the_grant() {
    let scene = connected().await;
    for fault in [Fault::json(503, json!({})), Fault::CutBefore] {
        scene.peer.set(|door| door.reject_next = 1);
        scene.provider.set(|knobs| knobs.fail_grant("refresh_token", fault));
        assert_eq!(scene.whoami(&scene.root).await, Err(Code::UpstreamUnavailable));
        assert_eq!(scene.state(&scene.root).await, "connected");
        scene.end_pause(&scene.root).await;
    }
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
}

#[tokio::test]
async fn without_a_new_refresh_token_the_old_one_stays() {
    let scene = connected().await;
    scene.provider.set(|knobs| knobs.rotate = false);
    for _ in 0..2 {
        scene.peer.set(|door| door.reject_next = 1);
        let without = Fault::patch(json!({ "refresh_token": null }));
        scene.provider.set(|knobs| knobs.fail_grant("refresh_token", without));
        assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
    }
}

#[tokio::test]
async fn a_forgotten_client_is_dropped_with_the_grant_that_stood_on_it() {
    let scene = connected().await;
    scene.provider.forget_clients();
    scene.peer.set(|door| door.reject_next = 1);
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::ReconnectRequired));
    assert_eq!(scene.connection(&scene.root).await["reason"], "registration_lost");
    scene.connect(&scene.root, "root").await;
    assert_eq!(scene.provider.asked("/register").len(), 2);
}

#[tokio::test]
async fn every_form_of_a_life_is_understood() {
    for (life, known) in [
        (json!(null), false),
        (json!("60"), true),
        (json!(0), false),
        (json!(-1), false),
        (json!(99_999_999_999_i64), true),
    ] {
        let scene = Scene::new().await;
        let fault = Fault::patch(json!({ "expires_in": life }));
        scene.provider.set(|knobs| knobs.fail_grant("authorization_code", fault));
        scene.connect(&scene.root, "root").await;
        let connection = scene.connection(&scene.root).await;
        assert_eq!(connection["expiresAt"].is_string(), known, "{life}: {connection}");
        scene.discover().await;
        assert!(scene.whoami(&scene.root).await.is_ok(), "{life}");
    }
}

#[tokio::test]
async fn a_step_up_asks_for_everything_and_never_loops() {
    let scene = Scene::new().await;
    scene.provider.set(|knobs| knobs.grant_scope = Some(vec!["mcp:read".to_owned()]));
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    for _ in 0..2 {
        let called = scene.call(&scene.root, "admin_delete", "{}").await;
        let error = called.outcome.unwrap_err();
        assert_eq!(error.code, Code::InsufficientScope, "{error:?}");
    }
    let connection = scene.connection(&scene.root).await;
    assert_eq!(connection["state"], "connected");
    assert!(connection["needsScopes"].to_string().contains("mcp:admin"), "{connection}");
    scene.provider.set(|knobs| knobs.grant_scope = None);
    let begun = scene.start(&scene.root).await;
    let asked = begun.authorization_url.query_pairs().find(|(name, _)| name == "scope").unwrap().1;
    assert!(asked.contains("mcp:read") && asked.contains("mcp:admin"), "{asked}");
    let result = scene.result(&begun, "root").await;
    assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::OK);
    assert!(scene.call(&scene.root, "admin_delete", "{}").await.outcome.is_ok());
    assert_eq!(scene.connection(&scene.root).await["needsScopes"], json!([]));
}

#[tokio::test]
async fn whoever_asks_without_a_connection_of_their_own_says_nothing_about_the_server() {
    let scene = connected().await;
    let other = Someone::new(&scene.world, &scene.tenant, "two@acme.test", Role::Superadmin).await;
    let (_, before) = scene.world.get(&scene.root.token, &scene.path("")).await;
    let (status, tested) = scene.world.post(&other.token, &scene.path("/test"), json!({})).await;
    assert_eq!((status, &tested["error"]["code"]), (StatusCode::OK, &json!("CONNECTION_REQUIRED")));
    let (status, problem) =
        scene.world.post(&other.token, &scene.path("/tools/refresh"), json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{problem}");
    let (_, after) = scene.world.get(&scene.root.token, &scene.path("")).await;
    for name in ["status", "statusError", "toolCount", "checkedAt"] {
        assert_eq!(before[name], after[name], "{name}");
    }
    assert_eq!(after["status"], "ready");
}

#[tokio::test]
async fn disconnecting_leaves_no_scopes_behind() {
    let scene = connected().await;
    assert_ne!(scene.connection(&scene.root).await["scopes"], json!([]));
    let path = scene.path("/connection");
    let cleared = scene.world.delete(&scene.root.token, &path).await;
    assert_eq!(cleared.0, StatusCode::OK);
    let connection = scene.connection(&scene.root).await;
    assert_eq!((&connection["scopes"], &connection["state"]), (&json!([]), &json!("disconnected")));
}

#[tokio::test]
async fn too_few_rights_for_the_first_question_are_told_as_that() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    let challenge = r#"Bearer error="insufficient_scope", scope="mcp:more""#.to_owned();
    let headers = vec![("www-authenticate", challenge)];
    let refused = Answer::Status { status: 403, headers, body: String::new() };
    scene.peer.peer.script_method("server/discover", [refused]);
    let (status, problem) =
        scene.world.post(&scene.root.token, &scene.path("/tools/refresh"), json!({})).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::FORBIDDEN, &json!("INSUFFICIENT_SCOPE")),
        "{problem}"
    );
    // No other era is tried with the same credential, but for what asked for the challenge.
    assert_eq!(scene.peer.peer.received("initialize").len(), 1);
    assert_eq!(scene.connection(&scene.root).await["needsScopes"], json!(["mcp:more"]));
}

#[tokio::test]
async fn nothing_that_was_given_to_one_configuration_is_good_for_another() {
    let scene = connected().await;
    let other = AuthorizationServer::start().await;
    let elsewhere = ProtectedPeer::start(&other).await;
    scene.configure(json!({ "url": elsewhere.url() })).await;
    let connection = scene.connection(&scene.root).await;
    assert_eq!(connection["reason"], "configuration_changed", "{connection}");
    scene.configure(json!({})).await;
    assert_eq!(
        scene.state(&scene.root).await,
        "reconnect_required",
        "the old value revives nothing"
    );
    assert_eq!(elsewhere.refused(), 0, "no token went there");
}

#[tokio::test]
async fn a_switched_off_server_keeps_connections_and_lets_them_be_cleared() {
    let scene = connected().await;
    let ann = scene.member("ann@acme.test").await;
    scene.connect(&ann, "alice").await;
    let off = json!({ "enabled": false });
    scene.world.put(&scene.root.token, &scene.path("/status"), off).await;
    assert_eq!(scene.whoami(&ann).await, Err(Code::SourceDisabled));
    assert_eq!(scene.state(&ann).await, "connected", "listed as long as something is left");
    let path = scene.path("/connection");
    assert_eq!(scene.world.delete(&ann.token, &path).await.0, StatusCode::OK);
    assert_eq!(scene.world.get(&ann.token, &path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_superadmin_ends_every_connection_and_sees_no_credential() {
    let scene = connected().await;
    let ann = scene.member("ann@acme.test").await;
    scene.connect(&ann, "alice").await;
    let path = scene.path("/disconnect-everyone");
    assert_eq!(scene.world.post(&ann.token, &path, json!({})).await.0, StatusCode::FORBIDDEN);
    let (status, ended) = scene.world.post(&scene.root.token, &path, json!({})).await;
    assert_eq!((status, &ended["disconnected"]), (StatusCode::OK, &json!(2)), "{ended}");
    assert_eq!(scene.whoami(&ann).await, Err(Code::ReconnectRequired));
    assert_eq!(scene.connection(&ann).await["reason"], "ended_for_everyone");
}

#[tokio::test]
async fn a_refresh_that_a_disconnect_overtakes_brings_nothing_back() {
    let scene = connected().await;
    scene.provider.set(|knobs| knobs.token_delay = Duration::from_millis(700));
    scene.peer.set(|door| door.reject_next = 1);
    let path = scene.path("/connection");
    let call = scene.whoami(&scene.root);
    let clear = async {
        let asked = || (!scene.provider.grants("refresh_token").is_empty()).then_some(());
        tests::world::eventually("it is refreshed", async || asked()).await;
        scene.world.delete(&scene.root.token, &path).await.0
    };
    let (called, cleared) = futures::join!(call, clear);
    assert_eq!(cleared, StatusCode::OK);
    assert!(called.is_err(), "{called:?}");
    assert_eq!(scene.state(&scene.root).await, "disconnected");
}

#[tokio::test]
async fn a_refusal_that_only_the_person_can_mend_asks_for_the_person() {
    for code in ["interaction_required", "access_denied", "invalid_target"] {
        let scene = connected().await;
        scene.peer.set(|door| door.reject_next = 1);
        scene.provider.set(|knobs| knobs.fail_grant("refresh_token", Fault::error(code)));
        assert_eq!(scene.whoami(&scene.root).await, Err(Code::ReconnectRequired), "{code}");
        assert_eq!(scene.connection(&scene.root).await["reason"], "refresh_refused", "{code}");
    }
}

#[tokio::test]
async fn what_a_changed_mode_left_can_be_cleared() {
    let scene = connected().await;
    scene.configure(json!({ "authMode": "none" })).await;
    let path = scene.path("/connection");
    let (status, shown) = scene.world.delete(&scene.root.token, &path).await;
    assert_eq!((status, &shown["state"]), (StatusCode::OK, &json!("not_required")), "{shown}");
    scene.configure(json!({ "authMode": "oauth" })).await;
    assert_eq!(scene.state(&scene.root).await, "disconnected");
}

/// A server is silent when it does not answer, and not when its provider takes long.
#[tokio::test]
async fn a_slow_refresh_within_a_handshake_is_no_silence_of_the_server() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.peer.set(|door| door.reject_next = 1);
    let longer = domain::limits::PROBE_TIMEOUT_MS.millis() + Duration::from_millis(300);
    scene.provider.set(|knobs| knobs.token_delay = longer);
    scene.discover().await;
    assert_eq!(scene.provider.renewals().len(), 1);
    let older = scene.peer.peer.received("initialize").into_iter();
    // Finding the provider asks so too, without a token.
    assert_eq!(older.filter(|one| !one.header("authorization").is_empty()).count(), 0);
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
}
