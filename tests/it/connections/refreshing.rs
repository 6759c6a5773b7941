//! Refreshes that bring nothing, are late, or come from several nodes at once.

use std::time::Duration;

use domain::{Code, Retry, limits};
use futures::future::join_all;
use serde_json::json;
use store::vault::Vault;
use tests::{
    authorization_server::Fault,
    world::{ENCRYPTION_KEY, eventually},
};
use tokio::time::Instant;

use super::{
    Scene,
    lab::{node, run},
};

async fn connected() -> Scene {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    scene
}

fn refreshes(scene: &Scene) -> usize {
    scene.provider.grants("refresh_token").len()
}

#[tokio::test]
async fn a_failed_refresh_is_everybodys_and_is_not_repeated_at_once() {
    let scene = connected().await;
    scene.age(&scene.root, true).await;
    scene.provider.set(|knobs| {
        knobs.token_delay = Duration::from_millis(300);
        knobs.fail_grant("refresh_token", Fault::json(503, json!({})));
    });
    let calls = (0..10).map(|_| scene.call(&scene.root, "whoami", "{}"));
    for called in join_all(calls).await {
        let error = called.outcome.unwrap_err();
        assert_eq!(error.code, Code::UpstreamUnavailable, "{error:?}");
        assert!(matches!(error.retry, Retry::After(_)), "{error:?}");
    }
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::UpstreamUnavailable));
    assert_eq!(refreshes(&scene), 1);
    assert_eq!(scene.state(&scene.root).await, "connected");
    // Each further one is waited for longer.
    let pause = async || {
        let sql = "SELECT (extract(epoch FROM refresh_until - clock_timestamp()) * 1000)::bigint
                   FROM mcp_connections WHERE refresh_by IS NULL";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&scene.world.owner().await).await.unwrap()
    };
    let first = limits::REFRESH_PAUSE_MS.default.cast_signed();
    let left = pause().await;
    assert!(left > 0 && left <= first, "{left}");
    scene.end_pause(&scene.root).await;
    scene.provider.set(|knobs| knobs.fail_grant("refresh_token", Fault::json(503, json!({}))));
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::UpstreamUnavailable));
    let left = pause().await;
    assert!(left > first && left <= 2 * first, "{left}");

    scene.end_pause(&scene.root).await;
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
    assert_eq!((refreshes(&scene), scene.provider.families_lost_to_reuse()), (3, 0));
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_once_more_when_nothing_good_can_be_lost() {
    let scene = connected().await;
    scene.age(&scene.root, false).await;
    scene.provider.set(|knobs| knobs.fail_grant("refresh_token", Fault::CutAfter));
    for _ in 0..5 {
        assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
    }
    assert_eq!((refreshes(&scene), scene.provider.families_lost_to_reuse()), (1, 0));
    // What is good is used to its end; then there is one way left to find out.
    scene.age(&scene.root, true).await;
    scene.end_pause(&scene.root).await;
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::ReconnectRequired));
    assert_eq!(scene.connection(&scene.root).await["reason"], "refresh_refused");
    assert_eq!(refreshes(&scene), 2);
}

#[tokio::test]
async fn what_a_provider_did_not_do_is_asked_again_before_the_end() {
    let scene = connected().await;
    scene.age(&scene.root, false).await;
    scene.provider.set(|knobs| knobs.fail_grant("refresh_token", Fault::json(429, json!({}))));
    assert!(scene.whoami(&scene.root).await.is_ok());
    let soon = "SELECT refresh_at > now() AND refresh_at < now() + interval '10 seconds'
                FROM mcp_connections";
    let owner = scene.world.owner().await;
    assert!(sqlx::query_scalar::<_, bool>(soon).fetch_one(&owner).await.unwrap());
    assert!(scene.whoami(&scene.root).await.is_ok());
    assert_eq!(refreshes(&scene), 1, "nor does a call while the pause lasts");
}

#[tokio::test]
async fn a_provider_that_hangs_costs_nobody_the_whole_wait_twice() {
    let scene = connected().await;
    scene.age(&scene.root, false).await;
    scene.provider.set(|knobs| knobs.token_delay = Duration::from_mins(1));
    let patience = limits::REFRESH_PATIENCE_MS.millis();
    let most = patience + Duration::from_secs(3);
    // The old one is good: both who asks and who waits go on with it.
    let began = Instant::now();
    for called in join_all((0..3).map(|_| scene.whoami(&scene.root))).await {
        assert!(called.unwrap().contains("root"));
    }
    assert!(began.elapsed() < most, "{:?}", began.elapsed());
    // It is over, and the refresh before failed.
    scene.age(&scene.root, true).await;
    let owner = scene.world.owner().await;
    run(&owner, "UPDATE mcp_connections SET refresh_failures = 1").await;
    let began = Instant::now();
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::UpstreamUnavailable));
    assert!(began.elapsed() < most, "{:?}", began.elapsed());
    // The time-out keeps the grant.
    eventually("the request is given up", async || {
        let sql = "SELECT refresh_failures FROM mcp_connections WHERE refresh_by IS NULL";
        let failures: Option<i32> = sqlx::query_scalar(sql).fetch_optional(&owner).await.unwrap();
        (failures == Some(2)).then_some(())
    })
    .await;
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::UpstreamUnavailable));
    assert_eq!((refreshes(&scene), scene.state(&scene.root).await.as_str()), (1, "connected"));
}

#[tokio::test]
async fn a_policy_that_changes_during_the_refresh_refuses_the_call_and_keeps_the_tokens() {
    let scene = connected().await;
    scene.age(&scene.root, true).await;
    scene.provider.set(|knobs| knobs.token_delay = Duration::from_millis(700));
    let off = async {
        let asked = || (refreshes(&scene) == 1).then_some(());
        eventually("it is refreshed", async || asked()).await;
        scene.switch(false).await;
    };
    let (called, ()) = futures::join!(scene.whoami(&scene.root), off);
    assert_eq!(called, Err(Code::SourceDisabled));
    scene.switch(true).await;
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
    assert_eq!((refreshes(&scene), scene.provider.families_lost_to_reuse()), (1, 0));
}

#[tokio::test]
async fn two_nodes_refresh_one_rotating_token_once() {
    let scene = connected().await;
    scene.age(&scene.root, true).await;
    scene.provider.set(|knobs| knobs.token_delay = Duration::from_millis(300));
    let other = node(&scene.world, Vault::new(&ENCRYPTION_KEY.to_owned().into()).unwrap());
    let here = (0..8).map(|_| scene.whoami(&scene.root));
    let there = (0..8).map(|_| scene.whoami_at(&other, &scene.root));
    let (here, there) = futures::join!(join_all(here), join_all(there));
    for called in here.into_iter().chain(there) {
        assert!(called.unwrap().contains("root"));
    }
    assert_eq!((refreshes(&scene), scene.provider.families_lost_to_reuse()), (1, 0));
}
