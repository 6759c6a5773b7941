//! Tries and servers that end while somebody works with them.

use std::time::Duration;

use app::housekeeping::forget_attempts;
use chrono::TimeDelta;
use domain::{Code, Timestamp, limits};
use reqwest::StatusCode;
use serde_json::json;
use sqlx::PgPool;
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    world::{World, eventually},
};

use super::{
    Scene,
    lab::{holding, run, waiting},
};

/// Where the clock stands until it is told otherwise.
async fn at_fixed_time() -> Scene {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    let world = World::with_fixed_clock(Timestamp::from_timestamp(1_790_000_000, 0).unwrap()).await;
    Scene::with(world, provider, peer, json!({ "authMode": "oauth" })).await
}

fn pass(scene: &Scene, limit: limits::Limit) {
    let seconds = i64::try_from(limit.default).unwrap();
    scene.world.ctx.clock.advance(TimeDelta::seconds(seconds));
}

async fn count(owner: &PgPool, what: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {what}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(owner).await.unwrap()
}

const ATTEMPTS: &str = "SELECT 1 FROM mcp_oauth_attempts FOR UPDATE";

#[tokio::test]
async fn a_start_does_not_wait_for_what_somebody_still_works_on() {
    let scene = at_fixed_time().await;
    let owner = scene.world.owner().await;
    scene.start(&scene.root).await;
    pass(&scene, limits::OAUTH_ATTEMPT_SECONDS);
    // Another's start, so that it ends nothing of the same person's.
    let ann = scene.member("ann@acme.test").await;
    let held = holding(&owner, ATTEMPTS).await;
    let started = tokio::time::timeout(Duration::from_secs(10), scene.start(&ann)).await;
    assert!(started.is_ok(), "the cleanup passes over what is held");
    assert_eq!(count(&owner, "mcp_oauth_attempts").await, 2);
    drop(held);
    scene.start(&ann).await;
    assert_eq!(count(&owner, "mcp_oauth_attempts").await, 2, "it went at the next start");
}

#[tokio::test]
async fn a_registration_that_a_cleanup_forgets_still_serves_who_began_with_it() {
    let scene = at_fixed_time().await;
    let owner = scene.world.owner().await;
    scene.start(&scene.root).await;
    pass(&scene, limits::OAUTH_RESULT_SECONDS);
    let ann = scene.member("ann@acme.test").await;
    let begun = scene.start(&ann).await;
    assert_eq!(scene.provider.asked("/register").len(), 1, "one registration serves both");
    // Over for the first, not for the second.
    let rest = limits::OAUTH_ATTEMPT_SECONDS.default - limits::OAUTH_RESULT_SECONDS.default;
    scene.world.ctx.clock.advance(TimeDelta::seconds(rest.cast_signed()));
    forget_attempts(&scene.world.ctx).await.unwrap();
    assert_eq!(count(&owner, "mcp_oauth_clients").await, 0);
    let result = scene.result(&begun, "alice").await;
    assert_eq!(scene.confirm(&ann, &result).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_cleanup_leaves_a_callback_its_time_and_no_more() {
    let scene = at_fixed_time().await;
    let owner = scene.world.owner().await;
    let asked = scene.provider.grants("authorization_code").len();
    for (late, outcome) in [(false, StatusCode::SEE_OTHER), (true, StatusCode::BAD_REQUEST)] {
        let exchanged = scene.provider.grants("authorization_code").len();
        let begun = scene.start(&scene.root).await;
        let callback = scene.provider.walk(&begun.authorization_url, "root").await;
        scene.provider.set(|knobs| knobs.token_delay = Duration::from_millis(700));
        let sweep = async {
            let there =
                || (scene.provider.grants("authorization_code").len() > exchanged).then_some(());
            eventually("the code is exchanged", async || there()).await;
            pass(&scene, limits::OAUTH_ATTEMPT_SECONDS);
            if late {
                pass(&scene, limits::OAUTH_EXCHANGE_GRACE_SECONDS);
            }
            forget_attempts(&scene.world.ctx).await.unwrap();
        };
        let ((status, _), ()) = futures::join!(scene.come_back(&callback, &begun.cookie), sweep);
        assert_eq!(status, outcome);
        run(&owner, "DELETE FROM mcp_oauth_attempts").await;
    }
    assert_eq!(scene.provider.grants("authorization_code").len(), asked + 2);
}

#[tokio::test]
async fn a_cleanup_and_a_confirmation_come_in_either_order() {
    let scene = at_fixed_time().await;
    let owner = scene.world.owner().await;
    // The confirmation has the try: the cleanup passes over it, and does not wait.
    let begun = scene.start(&scene.root).await;
    let result = scene.result(&begun, "root").await;
    let held = holding(&owner, ATTEMPTS).await;
    let confirm = scene.confirm(&scene.root, &result);
    let sweep = async {
        waiting(&scene.world, 1).await;
        pass(&scene, limits::OAUTH_RESULT_SECONDS);
        forget_attempts(&scene.world.ctx).await.unwrap();
        assert_eq!(count(&owner, "mcp_oauth_attempts").await, 1);
        drop(held);
    };
    let ((status, shown), ()) = futures::join!(confirm, sweep);
    assert_eq!(status, StatusCode::OK, "it came in time: {shown}");
    // The cleanup comes first: the confirmation finds nothing.
    let begun = scene.start(&scene.root).await;
    let result = scene.result(&begun, "root").await;
    let held = holding(&owner, "SELECT 1 FROM mcp_connections FOR UPDATE").await;
    let confirm = scene.confirm(&scene.root, &result);
    let sweep = async {
        waiting(&scene.world, 1).await;
        pass(&scene, limits::OAUTH_RESULT_SECONDS);
        forget_attempts(&scene.world.ctx).await.unwrap();
        assert_eq!(count(&owner, "mcp_oauth_attempts WHERE status = 'finished'").await, 0);
        drop(held);
    };
    let ((status, _), ()) = futures::join!(confirm, sweep);
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(scene.state(&scene.root).await, "connected", "as it was before");
}

#[tokio::test]
async fn ending_tries_and_cleaning_up_do_not_lock_each_other_out() {
    let scene = Scene::new().await;
    let owner = scene.world.owner().await;
    scene.start(&scene.root).await;
    scene.start(&scene.root).await;
    // The younger is over. The elder is held, so that cancelling waits in the middle.
    run(
        &owner,
        "UPDATE mcp_oauth_attempts SET expires_at = now() - interval '1 minute'
         WHERE attempt_id = (SELECT attempt_id FROM mcp_oauth_attempts ORDER BY created_at DESC LIMIT 1)",
    )
    .await;
    let elder = "SELECT 1 FROM mcp_oauth_attempts ORDER BY created_at LIMIT 1 FOR UPDATE";
    let held = holding(&owner, elder).await;
    let path = scene.path("/oauth/cancel");
    let cancel = scene.world.post(&scene.root.token, &path, json!({}));
    let sweep = async {
        waiting(&scene.world, 1).await;
        let sweeping = tokio::spawn({
            let ctx = scene.world.ctx.clone();
            async move { forget_attempts(&ctx).await }
        });
        // It is done, or waits as well.
        eventually("the cleanup goes as far as it gets", async || {
            let waits = "pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let stuck = count(&scene.world.superuser().await, waits).await >= 2;
            (stuck || sweeping.is_finished()).then_some(())
        })
        .await;
        drop(held);
        sweeping.await.unwrap()
    };
    let ((status, shown), swept) = futures::join!(cancel, sweep);
    assert_eq!(status, StatusCode::OK, "{shown}");
    assert!(swept.is_ok(), "{swept:?}");
    let live = "mcp_oauth_attempts WHERE status <> 'void'";
    assert_eq!((count(&owner, live).await, count(&owner, "mcp_oauth_clients").await), (0, 0));
}

#[tokio::test]
async fn two_starts_at_the_same_moment_leave_no_more_than_are_allowed() {
    let scene = Scene::new().await;
    let owner = scene.world.owner().await;
    for _ in 0..limits::OAUTH_ATTEMPTS.default {
        scene.start(&scene.root).await;
    }
    // Of servers of their own, so that nothing but the person is the same.
    let starts = async |name: &str| {
        let form = json!({
            "name": name, "slug": name, "transport": "http", "url": scene.peer.url(),
            "authMode": "oauth", "enabled": true,
        });
        let (status, made) = scene.world.post(&scene.root.token, "/api/mcp/servers", form).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        (format!("/api/mcp/servers/{name}/oauth/start"), json!({ "revision": made["revision"] }))
    };
    let ((one, body_of_one), (two, body_of_two)) = (starts("one").await, starts("two").await);
    let eldest =
        "SELECT 1 FROM mcp_oauth_attempts ORDER BY created_at, attempt_id LIMIT 1 FOR UPDATE";
    let held = holding(&owner, eldest).await;
    let first = scene.world.post(&scene.root.token, &one, body_of_one);
    let second = scene.world.post(&scene.root.token, &two, body_of_two);
    let release = async {
        waiting(&scene.world, 2).await;
        drop(held);
    };
    let ((first, _), (second, _), ()) = futures::join!(first, second, release);
    assert_eq!((first, second), (StatusCode::OK, StatusCode::OK));
    let live = count(&owner, "mcp_oauth_attempts WHERE status <> 'void'").await;
    assert_eq!(live, limits::OAUTH_ATTEMPTS.default.cast_signed());
}

#[tokio::test]
async fn a_server_goes_with_everything_that_people_left_with_it() {
    let scene = Scene::new().await;
    let owner = scene.world.owner().await;
    let (ann, bob) = (scene.member("ann@acme.test").await, scene.member("bob@acme.test").await);
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    scene.connect(&ann, "alice").await;
    let begun = scene.start(&bob).await;
    let callback = scene.provider.walk(&begun.authorization_url, "bob").await;
    let brought = scene.start(&ann).await;
    let result = scene.result(&brought, "alice").await;
    let served = scene.peer.served().len();
    assert!(scene.world.delete(&scene.root.token, &scene.path("")).await.0.is_success());

    for table in ["mcp_connections", "mcp_oauth_attempts"] {
        assert_eq!(count(&owner, table).await, 0, "{table}");
    }
    let codes = scene.provider.grants("authorization_code").len();
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(scene.provider.grants("authorization_code").len(), codes);
    assert_eq!(scene.confirm(&ann, &result).await.0, StatusCode::NOT_FOUND);
    let (_, list) = scene.world.get(&ann.token, "/api/mcp/connections").await;
    assert_eq!(list["items"], json!([]));
    assert!(scene.whoami(&ann).await.is_err());
    assert_eq!(scene.peer.served().len(), served, "no call went there");
}

#[tokio::test]
async fn a_call_that_is_about_to_leave_does_not_leave_for_a_deleted_server() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    scene.age(&scene.root, true).await;
    scene.provider.set(|knobs| knobs.token_delay = Duration::from_millis(700));
    let delete = async {
        let asked = || (!scene.provider.grants("refresh_token").is_empty()).then_some(());
        eventually("it is refreshed", async || asked()).await;
        scene.world.delete(&scene.root.token, &scene.path("")).await.0
    };
    let served = scene.peer.served().len();
    let (called, deleted) = futures::join!(scene.whoami(&scene.root), delete);
    assert!(deleted.is_success(), "{deleted}");
    assert_eq!(called, Err(Code::ServerChanged));
    assert_eq!(scene.peer.served().len(), served);
}
