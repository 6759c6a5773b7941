//! kill -9 and SIGTERM, of `up` and of its Postgres, while calls are in every state; compared with the
//! journal of the servers that they went to.

mod connecting;
mod ends;
mod first_start;
pub(crate) mod house;
mod jobs;
mod parked;
mod postgres;
mod scene;
mod taken;
mod verdict;

use std::collections::BTreeMap;

use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::task::JoinHandle;

use house::Up;
use scene::{Ended, Scene, lock_live_row, lock_record, until_blocked, until_state};
use verdict::{end_of, settled};

/// Calls in every state, held there by the servers, a person who is not there, and a lock.
struct Caught {
    lock: Transaction<'static, Postgres>,
    calls: BTreeMap<&'static str, JoinHandle<Ended>>,
}

impl Caught {
    async fn catch(scene: &Scene, up: &Up, pool: &PgPool) -> Self {
        let mut calls = BTreeMap::new();
        calls.insert("waiting", scene.older_call(up, "mcp__wide__echo", "waiting").await);
        until_question(pool).await;
        calls.insert("sent", scene.call(up, "mcp__wide__echo", "sent"));
        calls.insert("occupying", scene.call(up, "mcp__narrow__echo", "occupying"));
        scene.still.until("both are there", |peer| peer.held() == 2).await;
        calls.insert("queued", scene.call(up, "mcp__narrow__echo", "queued"));
        calls.insert("answered", scene.call(up, "mcp__prompt__echo", "answered"));
        calls.insert("stored", scene.call(up, "mcp__prompt__large", "stored"));
        calls.insert("ended", scene.call(up, "mcp__single__echo", "ended"));
        scene.prompt.until("all three are there", |peer| peer.held() == 3).await;
        calls.insert("starting", scene.call(up, "mcp__single__echo", "starting"));
        for label in ["queued", "starting"] {
            until_state(pool, label, "queued").await;
        }

        let mut lock = pool.begin().await.unwrap();
        lock_records(&mut lock).await;
        lock_live_row(&mut lock, "starting").await;
        scene.prompt.release();
        until_blocked(pool, "close_call", 3).await;
        until_blocked(pool, "start_call", 1).await;
        calls.insert("opening", scene.call(up, "mcp__wide__echo", "opening"));
        until_blocked(pool, "open_call", 1).await;
        Self { lock, calls }
    }
}

/// From here on no call can be opened or closed.
async fn lock_records(lock: &mut PgConnection) {
    sqlx::query("LOCK TABLE invocations IN SHARE MODE").execute(lock).await.unwrap();
}

async fn until_question(pool: &PgPool) {
    tests::world::eventually("a person is asked", async || {
        let open = "SELECT EXISTS (SELECT FROM permission_requests WHERE state = 'pending')";
        let open: bool = sqlx::query_scalar(open).fetch_one(pool).await.unwrap();
        open.then_some(())
    })
    .await;
}

/// What a process that dies leaves half written on its connections comes to nothing.
async fn cut_connections(pool: &PgPool) {
    let cut = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'bailiwick_app'";
    sqlx::query(cut).execute(pool).await.unwrap();
}

/// The identical call takes over the question that was answered meanwhile, and runs once.
async fn the_question_lives(scene: &Scene, up: &Up, pool: &PgPool) {
    scene.allow(up).await;
    scene.still.release();
    let again = scene.older_call(up, "mcp__wide__echo", "waiting").await.await.unwrap().unwrap();
    assert_eq!(again["structuredContent"]["label"], "waiting", "{again}");
    let records = settled(scene, pool).await;
    let ends: Vec<&str> = records["waiting"].iter().map(|(status, _)| status.as_str()).collect();
    assert_eq!(ends, ["failed", "succeeded"]);
    let asked: i64 = sqlx::query_scalar("SELECT count(*) FROM permission_requests")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(asked, 1, "nobody is asked twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_9_calls_in_every_state_are_final_and_none_runs_twice() {
    let (scene, up) = Scene::new().await;
    let pool = scene.house.superuser().await;
    let caught = Caught::catch(&scene, &up, &pool).await;

    up.kill().await;
    cut_connections(&pool).await;
    caught.lock.rollback().await.unwrap();
    for (label, call) in caught.calls {
        assert!(call.await.unwrap().is_err(), "{label}: nobody could answer");
    }
    let up = scene.house.up().await;
    let records = settled(&scene, &pool).await;
    for label in ["waiting", "sent", "occupying", "queued", "answered", "ended", "starting"] {
        assert_eq!(end_of(&records, label), "INTERRUPTED", "{label}");
    }
    assert_eq!(end_of(&records, "stored"), "succeeded");
    assert_eq!(records.get("opening"), None, "it was never made durable, and never sent");
    assert_eq!((scene.still.calls().len(), scene.prompt.calls().len()), (2, 3));

    the_question_lives(&scene, &up, &pool).await;
    scene.call_works(&up, "new").await;
    settled(&scene, &pool).await;
    assert_eq!(scene.still.calls().len(), 3, "only the answered question's call was sent");
}

/// What was under way on a connection when the process died, Postgres finishes all the same: before
/// the next start looks, or after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_9_each_state_alone_is_final_and_not_repeated() {
    let (scene, mut up) = Scene::new().await;
    let pool = scene.house.superuser().await;

    let _waiting = scene.older_call(&up, "mcp__wide__echo", "waiting").await;
    until_question(&pool).await;
    up = again(&scene, up, None).await;
    assert_eq!(end_of(&settled(&scene, &pool).await, "waiting"), "INTERRUPTED");

    let _occupying = scene.call(&up, "mcp__single__echo", "occupying");
    scene.prompt.until("it is there", |peer| peer.held() == 1).await;
    let _queued = scene.call(&up, "mcp__single__echo", "queued");
    until_state(&pool, "queued", "queued").await;
    up = again(&scene, up, None).await;
    let records = settled(&scene, &pool).await;
    assert_eq!(end_of(&records, "occupying"), "INTERRUPTED");
    assert_eq!(end_of(&records, "queued"), "INTERRUPTED");

    // Opened when its node was dead already.
    let mut lock = pool.begin().await.unwrap();
    lock_records(&mut lock).await;
    let _opening = scene.call(&up, "mcp__wide__echo", "opening");
    until_blocked(&pool, "open_call", 1).await;
    up.kill().await;
    lock.rollback().await.unwrap();
    up = scene.house.up().await;
    assert_eq!(end_of(&settled(&scene, &pool).await, "opening"), "INTERRUPTED");

    // Started when its node was dead already.
    let _ended = scene.call(&up, "mcp__single__echo", "ended");
    scene.prompt.until("it is there", |peer| peer.held() == 1).await;
    let _starting = scene.call(&up, "mcp__single__echo", "starting");
    until_state(&pool, "starting", "queued").await;
    let mut lock = pool.begin().await.unwrap();
    lock_live_row(&mut lock, "starting").await;
    scene.prompt.release();
    until_blocked(&pool, "start_call", 1).await;
    up = again(&scene, up, Some(lock)).await;
    let records = settled(&scene, &pool).await;
    assert_eq!(end_of(&records, "ended"), "succeeded");
    assert_eq!(end_of(&records, "starting"), "INTERRUPTED");

    let _sent = scene.call(&up, "mcp__wide__echo", "sent");
    scene.still.until("it is there", |peer| peer.held() == 1).await;
    up = again(&scene, up, None).await;
    assert_eq!(end_of(&settled(&scene, &pool).await, "sent"), "INTERRUPTED");

    // Closed by the dead node's last statement, while the reaper is after it.
    for (label, tool) in [("answered", "mcp__prompt__echo"), ("stored", "mcp__prompt__large")] {
        scene.prompt.hold();
        let _answered = scene.call(&up, tool, label);
        scene.prompt.until("it is there", |peer| peer.held() == 1).await;
        let mut lock = pool.begin().await.unwrap();
        lock_record(&mut lock, label).await;
        scene.prompt.release();
        until_blocked(&pool, "close_call", 1).await;
        up = again(&scene, up, Some(lock)).await;
        assert_eq!(end_of(&settled(&scene, &pool).await, label), "succeeded");
    }
    // The queued, opening and starting ones never left.
    assert_eq!((scene.still.calls().len(), scene.prompt.calls().len()), (1, 4));
    the_question_lives(&scene, &up, &pool).await;
}

/// kill -9, and the next start; a lock is freed when that one is at work.
async fn again(scene: &Scene, up: Up, lock: Option<Transaction<'static, Postgres>>) -> Up {
    up.kill().await;
    let up = scene.house.up().await;
    if let Some(lock) = lock {
        lock.rollback().await.unwrap();
    }
    up
}
