//! kill -9 while somebody connects or a token is refreshed, at each request to the server and to its provider: when
//! it came, and when it was done and nobody knows the answer. Afterwards the person is connected or told to connect
//! again, what is stored is worth something, and nothing waits longer than a lease.

mod scene;

use http::Method;
use serde_json::json;
use tests::stops::Moment::{Done, Received};

use super::scene::until_blocked;
use scene::{Connecting, refused};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_that_kill_9_ends_anywhere_is_begun_again() {
    let (scene, mut up) = Connecting::new().await;
    for (request, moment) in [
        ("probe", Received),
        ("resource_metadata", Received),
        ("metadata", Received),
        ("register", Received),
        ("register", Done),
    ] {
        scene.provider.stop(request, moment);
        let starting = scene.begin(&up, Method::POST, "/oauth/start", &scene.revision(&up).await);
        up = scene.killed(up).await;
        assert!(starting.await.unwrap().is_err(), "{request}: nobody could answer");
        let connection = scene.connection(&up).await;
        assert_eq!(connection["state"], "disconnected", "{request}: {connection}");
        assert_eq!(connection["pendingAttempt"], json!(null), "{request}: {connection}");
        assert_eq!(refused(&scene.call(&up).await), "CONNECTION_REQUIRED", "{request}");
    }
    for moment in [Received, Done] {
        up = scene.killed_in_callback(up, moment).await;
        assert_eq!(scene.connection(&up).await["state"], "disconnected");
    }
    scene.connect(&up).await;
    scene.works(&up).await;

    // Whoever is connected stays so while they connect anew.
    let before = scene.provider.grants("authorization_code").len();
    for moment in [Received, Done] {
        up = scene.killed_in_callback(up, moment).await;
        assert_eq!(scene.connection(&up).await["state"], "connected");
        scene.works(&up).await;
    }
    assert_eq!(scene.provider.grants("authorization_code").len(), before + 2, "none twice");
    assert_eq!(scene.provider.families_lost_to_reuse(), 0);

    // The answer came, and was not stored yet.
    let pool = scene.house.superuser().await;
    let begun = scene.start(&up).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    scene.provider.stop("authorization_code", Received);
    let returning = scene.return_with(&callback, &begun.cookie);
    scene.provider.stopped().await;
    let mut lock = pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM mcp_oauth_attempts FOR UPDATE").execute(&mut *lock).await.unwrap();
    scene.provider.go_on();
    until_blocked(&pool, "UPDATE mcp_oauth_attempts", 1).await;
    up.kill().await;
    super::cut_connections(&pool).await;
    lock.rollback().await.unwrap();
    assert!(returning.await.unwrap().is_err());
    let up = scene.up().await;
    assert_eq!(scene.connection(&up).await["state"], "connected");
    scene.works(&up).await;
    scene.connect(&up).await;
    scene.works(&up).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_that_kill_9_ends_anywhere_loses_no_grant_that_can_be_kept() {
    let (scene, mut up) = Connecting::new().await;
    let pool = scene.house.superuser().await;
    scene.connect(&up).await;
    scene.works(&up).await;

    // The provider did nothing: whoever comes next takes the dead one's lease over.
    up = scene.killed_in_call(up, "refresh_token", Received).await;
    assert_eq!(scene.connection(&up).await["state"], "connected");
    scene.works(&up).await;
    scene.peer.set(|door| door.reject_next = 1);
    scene.works(&up).await;
    assert_eq!(scene.provider.renewals().len(), 1);
    assert_eq!(scene.provider.families_lost_to_reuse(), 0);

    // The new tokens are stored already: nothing is lost with the request that was sent again.
    for moment in [Received, Done] {
        let renewals = scene.provider.renewals().len();
        up = scene.killed_in_call(up, "call", moment).await;
        assert_eq!(scene.connection(&up).await["state"], "connected");
        scene.works(&up).await;
        assert_eq!(scene.provider.renewals().len(), renewals + 1, "refreshed once");
    }
    assert_eq!(scene.provider.families_lost_to_reuse(), 0);

    // The provider gave new tokens, and only the dead one knew: nobody can have them.
    up = scene.killed_in_call(up, "refresh_token", Done).await;
    up = scene.must_connect_again(up, &pool).await;

    // The same, where the answer came and was not stored yet.
    scene.works(&up).await;
    scene.peer.set(|door| door.reject_next = 1);
    scene.provider.stop("refresh_token", Received);
    let calling = scene.begin_call(&up);
    scene.provider.stopped().await;
    let mut lock = pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM mcp_connections FOR UPDATE").execute(&mut *lock).await.unwrap();
    scene.provider.go_on();
    until_blocked(&pool, "version = version + 1", 1).await;
    up.kill().await;
    super::cut_connections(&pool).await;
    lock.rollback().await.unwrap();
    assert!(calling.await.unwrap().is_err());
    up = scene.must_connect_again(scene.up().await, &pool).await;

    // What is stored is gone before the provider hears of it.
    for moment in [Received, Done] {
        scene.provider.stop("revoke", moment);
        let clearing = scene.begin(&up, Method::POST, "/oauth/clear", &json!({ "revoke": true }));
        up = scene.killed(up).await;
        assert!(clearing.await.unwrap().is_err());
        let connection = scene.connection(&up).await;
        assert_eq!(connection["state"], "disconnected", "{connection}");
        assert_eq!(refused(&scene.call(&up).await), "CONNECTION_REQUIRED");
        scene.connect(&up).await;
        scene.works(&up).await;
    }
    scene.all_calls_are_closed(&pool).await;
}
