//! The use cases of a request with a key: what is committed when.

use app::idempotency::{self, Answer, Begun, Claimed, Request};
use chrono::TimeDelta;
use domain::{Caller, Code, Error, Timestamp, Via};
use tests::world::{World, eventually};

use super::Stage;

fn noon() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

async fn stage() -> (Stage, Caller) {
    let stage = Stage::of(World::with_fixed_clock(noon()).await).await;
    let caller = app::identity::authenticate(&stage.world.ctx, &stage.token, Via::Token).await;
    (stage, caller.unwrap())
}

async fn begin(stage: &Stage, caller: &Caller) -> Result<Begun, Error> {
    let request = Request { key: "key", method: "POST", path: "/api/sessions", body: b"{}" };
    idempotency::begin(&stage.world.ctx, caller, request).await
}

async fn claim(stage: &Stage, caller: &Caller) -> Claimed {
    match begin(stage, caller).await.unwrap() {
        Begun::First(claimed) => claimed,
        Begun::Again(answer) => panic!("it was answered: {answer:?}"),
    }
}

async fn refused(stage: &Stage, caller: &Caller) -> String {
    let error = begin(stage, caller).await.unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    error.public
}

fn titled(title: &str) -> app::sessions::NewSession {
    app::sessions::NewSession {
        title: Some(title.to_owned()),
        project: None,
        enabled_source_ids: None,
        mode: None,
    }
}

fn answer() -> Answer {
    Answer { status: 201, content_type: None, body: b"made".to_vec() }
}

#[tokio::test]
async fn a_change_becomes_visible_with_its_answer() {
    let (stage, caller) = stage().await;
    let ctx = &stage.world.ctx;
    let claimed = claim(&stage, &caller).await;
    claimed.run(app::sessions::create(ctx, &caller, titled("held"))).await.unwrap();
    assert_eq!(stage.sessions("held").await, 0);
    assert_eq!(stage.keys().await, [("running".to_owned(), false)]);
    claimed.finish(false, Some(answer())).await.unwrap();
    assert_eq!(stage.sessions("held").await, 1);
    assert_eq!(stage.keys().await, [("done".to_owned(), true)]);
    match begin(&stage, &caller).await.unwrap() {
        Begun::Again(again) => assert_eq!(again, answer()),
        Begun::First(_) => panic!("it would be done again"),
    }
}

#[tokio::test]
async fn a_change_whose_answer_is_never_known_is_not_made() {
    let (stage, caller) = stage().await;
    let claimed = claim(&stage, &caller).await;
    let made = app::sessions::create(&stage.world.ctx, &caller, titled("lost"));
    claimed.run(made).await.unwrap();
    drop(claimed);
    eventually("the key is free", async || stage.keys().await.is_empty().then_some(())).await;
    assert_eq!(stage.sessions("lost").await, 0);
    claim(&stage, &caller).await;
}

#[tokio::test]
async fn the_second_transaction_of_a_request_sees_the_first_and_a_cut_is_remembered() {
    let (stage, caller) = stage().await;
    let ctx = &stage.world.ctx;
    let claimed = claim(&stage, &caller).await;
    let both = async {
        let first = app::sessions::create(ctx, &caller, titled("first")).await.unwrap();
        app::sessions::get(ctx, &caller, first.id).await.unwrap();
        app::sessions::create(ctx, &caller, titled("second")).await.unwrap();
    };
    claimed.run(both).await;
    assert_eq!((stage.sessions("first").await, stage.sessions("second").await), (1, 0));
    assert_eq!(stage.keys().await, [("changed".to_owned(), false)]);
    assert!(refused(&stage, &caller).await.contains("still runs"));
    drop(claimed);
    let cut_off = async || refused(&stage, &caller).await.contains("cut off").then_some(());
    eventually("the cut is seen", cut_off).await;
    assert_eq!((stage.sessions("first").await, stage.sessions("second").await), (1, 0));
}

#[tokio::test]
async fn a_failure_after_a_change_is_the_answer_of_the_key() {
    let (stage, caller) = stage().await;
    let claimed = claim(&stage, &caller).await;
    let made = app::sessions::create(&stage.world.ctx, &caller, titled("made"));
    claimed.run(made).await.unwrap();
    let failed = Answer { status: 502, ..answer() };
    claimed.finish(true, Some(failed.clone())).await.unwrap();
    assert_eq!(stage.sessions("made").await, 1);
    match begin(&stage, &caller).await.unwrap() {
        Begun::Again(again) => assert_eq!(again, failed),
        Begun::First(_) => panic!("it would be done again"),
    }
}

#[tokio::test]
async fn changes_do_not_wait_for_what_takes_long() {
    let (stage, caller) = stage().await;
    let ctx = &stage.world.ctx;
    let claimed = claim(&stage, &caller).await;
    let long = async {
        app::sessions::create(ctx, &caller, titled("early")).await.unwrap();
        // As a use case that asks a server meanwhile.
        eventually("it is saved", async || (stage.sessions("early").await == 1).then_some(()))
            .await;
    };
    claimed.run(long).await;
    assert_eq!(stage.keys().await, [("changed".to_owned(), false)]);
    claimed.finish(false, Some(answer())).await.unwrap();
    assert_eq!(stage.keys().await, [("done".to_owned(), true)]);
}

#[tokio::test]
async fn whoever_lost_the_key_saves_nothing() {
    let (stage, caller) = stage().await;
    let ctx = &stage.world.ctx;
    let slow = claim(&stage, &caller).await;
    slow.run(app::sessions::create(ctx, &caller, titled("late"))).await.unwrap();
    // The node was silent for longer than a claim lasts.
    ctx.clock.advance(TimeDelta::seconds(16));
    let next = claim(&stage, &caller).await;
    let late = slow.finish(false, Some(answer())).await.unwrap_err();
    assert_eq!(late.code, Code::Conflict);
    assert_eq!(stage.sessions("late").await, 0);
    next.run(app::sessions::create(ctx, &caller, titled("late"))).await.unwrap();
    next.finish(false, Some(answer())).await.unwrap();
    assert_eq!(stage.sessions("late").await, 1);
}

#[tokio::test]
async fn keys_are_kept_for_a_day() {
    let (stage, caller) = stage().await;
    let ctx = &stage.world.ctx;
    claim(&stage, &caller).await.finish(false, Some(answer())).await.unwrap();
    ctx.clock.advance(TimeDelta::hours(24));
    idempotency::forget_old(ctx).await.unwrap();
    assert!(matches!(begin(&stage, &caller).await.unwrap(), Begun::Again(_)));
    ctx.clock.advance(TimeDelta::seconds(1));
    // Nobody has cleaned up yet.
    claim(&stage, &caller).await.finish(false, Some(answer())).await.unwrap();
    ctx.clock.advance(TimeDelta::hours(25));
    idempotency::forget_old(ctx).await.unwrap();
    assert_eq!(stage.keys().await, []);
}
