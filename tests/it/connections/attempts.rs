//! Sign-ins that do not end as they began.

use chrono::TimeDelta;
use domain::{Timestamp, limits};
use reqwest::StatusCode;
use serde_json::json;
use tests::{
    authorization_server::{AuthorizationServer, Fault, ProtectedPeer},
    world::World,
};

use super::Scene;

/// Where the clock stands until it is told otherwise.
async fn at_fixed_time() -> Scene {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    let at = Timestamp::from_timestamp(1_790_000_000, 0).unwrap();
    let world = World::with_fixed_clock(at).await;
    Scene::with(world, provider, peer, json!({ "authMode": "oauth" })).await
}

fn seconds(limit: limits::Limit) -> TimeDelta {
    TimeDelta::seconds(i64::try_from(limit.default).unwrap())
}

#[tokio::test]
async fn an_attempt_is_over_at_five_minutes() {
    let scene = at_fixed_time().await;
    let (late, last) = (scene.start(&scene.root).await, TimeDelta::milliseconds(1));
    let callback = scene.provider.walk(&late.authorization_url, "root").await;
    scene.world.ctx.clock.advance(seconds(limits::OAUTH_ATTEMPT_SECONDS));
    assert_eq!(scene.come_back(&callback, &late.cookie).await.0, StatusCode::BAD_REQUEST);
    assert!(scene.provider.grants("authorization_code").is_empty(), "the code was not used");

    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    scene.world.ctx.clock.advance(seconds(limits::OAUTH_ATTEMPT_SECONDS) - last);
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_result_is_over_after_a_minute() {
    let scene = at_fixed_time().await;
    let begun = scene.start(&scene.root).await;
    let result = scene.result(&begun, "root").await;
    scene.world.ctx.clock.advance(seconds(limits::OAUTH_RESULT_SECONDS));
    assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::CONFLICT);

    let begun = scene.start(&scene.root).await;
    let result = scene.result(&begun, "root").await;
    let last = TimeDelta::milliseconds(1);
    scene.world.ctx.clock.advance(seconds(limits::OAUTH_RESULT_SECONDS) - last);
    assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::OK);
    // And not twice.
    assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::CONFLICT);
    assert_eq!(scene.state(&scene.root).await, "connected");
}

#[tokio::test]
async fn what_changes_on_the_way_ends_the_attempt_also_if_it_is_changed_back() {
    let scene = Scene::new().await;
    let other = json!({ "url": scene.peer.url().join("/other").unwrap() });
    // Before the callback.
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    scene.configure(other.clone()).await;
    scene.configure(json!({})).await;
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    // Before the confirmation.
    let begun = scene.start(&scene.root).await;
    let result = scene.result(&begun, "root").await;
    scene.configure(other).await;
    scene.configure(json!({})).await;
    assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::CONFLICT);
    assert_ne!(scene.state(&scene.root).await, "connected");
    // A name takes no part.
    let begun = scene.start(&scene.root).await;
    scene.configure(json!({ "name": "Tickets of Acme" })).await;
    let result = scene.result(&begun, "root").await;
    assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::OK);
}

#[tokio::test]
async fn cancelling_ends_the_attempt_and_touches_no_credential() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    let cancel = async || {
        let path = scene.path("/oauth/cancel");
        let (status, shown) = scene.world.post(&scene.root.token, &path, json!({})).await;
        assert_eq!((status, &shown["state"]), (StatusCode::OK, &json!("connected")), "{shown}");
        assert_eq!(shown["pendingAttempt"], json!(null), "{shown}");
    };
    // Before the callback, and between callback and confirmation.
    let begun = scene.start(&scene.root).await;
    let pending = scene.connection(&scene.root).await;
    assert!(pending["pendingAttempt"]["expiresAt"].is_string(), "{pending}");
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    cancel().await;
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    let begun = scene.start(&scene.root).await;
    let result = scene.result(&begun, "root").await;
    cancel().await;
    assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::CONFLICT);
    scene.discover().await;
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
}

#[tokio::test]
async fn disconnecting_ends_what_is_under_way() {
    let scene = Scene::new().await;
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    let path = scene.path("/connection");
    assert_eq!(scene.world.delete(&scene.root.token, &path).await.0, StatusCode::OK);
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    // While the provider answers.
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    scene.provider.set(|knobs| knobs.token_delay = std::time::Duration::from_millis(700));
    let back = scene.come_back(&callback, &begun.cookie);
    let clear = async {
        let asked = || (!scene.provider.grants("authorization_code").is_empty()).then_some(());
        tests::world::eventually("the code is exchanged", async || asked()).await;
        scene.world.delete(&scene.root.token, &path).await.0
    };
    let ((status, _), cleared) = futures::join!(back, clear);
    assert_eq!((status, cleared), (StatusCode::BAD_REQUEST, StatusCode::OK));
    assert_eq!(scene.state(&scene.root).await, "disconnected");
}

#[tokio::test]
async fn two_tabs_do_not_end_each_other_and_the_sixth_ends_the_first() {
    let scene = Scene::new().await;
    let (first, second) = (scene.start(&scene.root).await, scene.start(&scene.root).await);
    assert_ne!(first.cookie.split('=').next(), second.cookie.split('=').next());
    let both = format!("{}; {}", first.cookie, second.cookie);
    let callback = scene.provider.walk(&first.authorization_url, "root").await;
    let (status, location) = scene.come_back(&callback, &both).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{location}");

    let eldest = scene.start(&scene.root).await;
    for _ in 0..limits::OAUTH_ATTEMPTS.default {
        scene.start(&scene.root).await;
    }
    let callback = scene.provider.walk(&eldest.authorization_url, "root").await;
    assert_eq!(scene.come_back(&callback, &eldest.cookie).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_page_tells_the_truth_whatever_the_provider_does() {
    let scene = Scene::new().await;
    // Denied.
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.refuse(&begun.authorization_url, "root").await;
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    // The exchange fails, also with an error in a 200.
    for fault in [
        Fault::error("server_error"),
        Fault::json(500, json!({})),
        Fault::json(200, json!({ "error": "bad_verification_code" })),
        Fault::CutAfter,
    ] {
        scene.provider.set(|knobs| knobs.fail_token(fault));
        let begun = scene.start(&scene.root).await;
        let callback = scene.provider.walk(&begun.authorization_url, "root").await;
        assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    }
    // Another issuer's answer, and one that does not say whose it is though that was promised.
    scene.provider.set(|knobs| knobs.wrong_iss = Some("https://evil.example".to_owned()));
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    let codes = scene.provider.grants("authorization_code").len();
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    scene.provider.set(|knobs| {
        knobs.wrong_iss = None;
        knobs.omit_iss = true;
    });
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(scene.provider.grants("authorization_code").len(), codes, "no code was used");
    assert_eq!(scene.state(&scene.root).await, "disconnected");
}

#[tokio::test]
async fn a_provider_that_forgot_us_is_asked_to_know_us_again() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.connect(&scene.root, "root").await;
    assert_eq!(scene.provider.asked("/register").len(), 1, "one registration is used again");
    scene.provider.forget_clients();
    // The person is stuck at the provider, and never comes back.
    let begun = scene.start(&scene.root).await;
    let stuck = scene.provider.try_walk(&begun.authorization_url, "root").await;
    assert!(stuck.is_err(), "{stuck:?}");
    scene.connect(&scene.root, "root").await;
    assert_eq!(scene.provider.asked("/register").len(), 2);
}
