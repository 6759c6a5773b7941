//! Nodes, their leases, and what is done by the clock.
#![expect(clippy::unwrap_used, reason = "a test, and what helps it, fails by panicking")]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use app::{
    Clock, Ctx, Parts, Vault, nodes,
    nodes::Kind,
    tick::{self, Tick},
};
use coordination::Admission;
use domain::{Code, Error, limits};
use sqlx::PgPool;
use tests::world::{ENCRYPTION_KEY, World, eventually};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Another process on the same database.
fn another(world: &World) -> Ctx {
    patient(world, world.ctx.permission_wait)
}

/// The same, that holds callers for this long while a person is asked.
pub(crate) fn patient(world: &World, permission_wait: Duration) -> Ctx {
    let ctx = &world.ctx;
    Ctx::from(Parts {
        db: ctx.db.clone(),
        clock: Clock::System,
        vault: Vault::new(&ENCRYPTION_KEY.to_owned().into()).unwrap(),
        mcp: ctx.mcp.clone(),
        oauth: ctx.oauth.clone(),
        built_in: ctx.built_in,
        blobs: ctx.blobs.clone(),
        admission: Admission::local(),
        node: ctx.mint(),
        signals: app::Signals::default(),
        definitions: app::definitions::DefinitionCache::default(),
        url_rules: ctx.url_rules.clone(),
        stdio: ctx.stdio.clone(),
        permission_wait,
        draining: CancellationToken::new(),
        stopping: CancellationToken::new(),
        tasks: TaskTracker::new(),
    })
}

/// Lets a node's lease run out, as a long outage would.
async fn expire(owner: &PgPool, ctx: &Ctx) {
    let sql = "UPDATE nodes SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE node_id = $1";
    sqlx::query(sql).bind(ctx.node.0).execute(owner).await.unwrap();
}

async fn ended(owner: &PgPool, ctx: &Ctx) -> bool {
    let sql = "SELECT ended_at IS NOT NULL FROM nodes WHERE node_id = $1";
    sqlx::query_scalar(sql).bind(ctx.node.0).fetch_one(owner).await.unwrap()
}

async fn lives(owner: &PgPool, ctx: &Ctx) -> bool {
    let sql = "SELECT ended_at IS NULL AND lease_expires_at > clock_timestamp() FROM nodes WHERE node_id = $1";
    sqlx::query_scalar(sql).bind(ctx.node.0).fetch_one(owner).await.unwrap()
}

#[tokio::test]
async fn a_second_node_that_serves_calls_is_refused_with_the_reason() {
    let world = World::new().await;
    let (first, second, worker) = (another(&world), another(&world), another(&world));
    nodes::register(&first, Kind::Api, "one:8080").await.unwrap();
    let refused = nodes::register(&second, Kind::Up, "two:8080").await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
    assert!(refused.public.contains("limits are not shared between nodes yet"), "{refused}");
    // One that makes no calls may come.
    nodes::register(&worker, Kind::Worker, "two:worker:7").await.unwrap();

    nodes::end(&first).await.unwrap();
    nodes::register(&second, Kind::Up, "two:8080").await.unwrap();
}

#[tokio::test]
async fn a_dead_node_is_in_nobodys_way_once_its_lease_has_run_out() {
    let world = World::new().await;
    let owner = world.owner().await;
    let (first, second) = (another(&world), another(&world));
    nodes::register(&first, Kind::Api, "one:8080").await.unwrap();
    expire(&owner, &first).await;
    nodes::register(&second, Kind::Api, "two:8080").await.unwrap();
}

#[tokio::test]
async fn a_start_at_the_same_place_ends_what_stood_there_before() {
    let world = World::new().await;
    let owner = world.owner().await;
    let (first, second) = (another(&world), another(&world));
    nodes::register(&first, Kind::Up, "up").await.unwrap();
    nodes::register(&second, Kind::Up, "up").await.unwrap();
    assert!(ended(&owner, &first).await);
    assert!(lives(&owner, &second).await);
}

#[tokio::test]
async fn of_many_that_start_together_one_serves() {
    let world = World::new().await;
    let starts = (0..8).map(|number| {
        let ctx = another(&world);
        async move { nodes::register(&ctx, Kind::Api, &format!("host{number}:8080")).await.is_ok() }
    });
    let started = futures::future::join_all(starts).await;
    assert_eq!(started.iter().filter(|started| **started).count(), 1, "{started:?}");
}

#[tokio::test]
async fn a_lease_that_ran_out_unnoticed_is_taken_up_again() {
    let world = World::new().await;
    let owner = world.owner().await;
    let node = another(&world);
    nodes::register(&node, Kind::Api, "one:8080").await.unwrap();
    expire(&owner, &node).await;
    let kept = tokio::spawn(nodes::keep(node.clone()));
    eventually("the lease is renewed", async || lives(&owner, &node).await.then_some(())).await;
    assert!(!node.draining.is_cancelled());
    node.stopping.cancel();
    kept.await.unwrap();
}

#[tokio::test]
async fn a_node_that_others_ended_drains_and_does_not_come_back() {
    let world = World::new().await;
    let owner = world.owner().await;
    let (first, second) = (another(&world), another(&world));
    nodes::register(&first, Kind::Api, "one:8080").await.unwrap();
    expire(&owner, &first).await;
    // Its place is free by now, and somebody takes it.
    nodes::register(&second, Kind::Api, "two:8080").await.unwrap();

    nodes::keep(first.clone()).await;
    assert!(first.draining.is_cancelled());
    assert!(ended(&owner, &first).await);
    assert!(lives(&owner, &second).await);
}

static COUNTED: AtomicU32 = AtomicU32::new(0);
static AFTER_FAILURE: AtomicU32 = AtomicU32::new(0);
static AFTER_PANIC: AtomicU32 = AtomicU32::new(0);

const TICKS: &[Tick] = &[
    Tick {
        name: "test-counts",
        period: Duration::from_hours(1),
        work: |_| {
            Box::pin(async {
                COUNTED.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
        },
    },
    Tick {
        name: "test-fails",
        period: limits::TICK_MS.millis(),
        work: |_| {
            Box::pin(async {
                AFTER_FAILURE.fetch_add(1, Ordering::SeqCst);
                Err(Error::new(Code::Internal, "it fails"))
            })
        },
    },
    Tick {
        name: "test-panics",
        period: limits::TICK_MS.millis(),
        work: |_| {
            Box::pin(async {
                AFTER_PANIC.fetch_add(1, Ordering::SeqCst);
                panic!("it panics");
            })
        },
    },
];

#[tokio::test]
async fn one_node_at_a_time_does_a_tick_and_a_bad_one_holds_up_no_other() {
    let world = World::new().await;
    let owner = world.owner().await;
    let (first, second) = (another(&world), another(&world));
    nodes::register(&first, Kind::Worker, "one").await.unwrap();
    nodes::register(&second, Kind::Worker, "two").await.unwrap();
    let loops = [&first, &second].map(|node| tokio::spawn(tick::run(node.clone(), TICKS)));

    eventually("both bad ticks were tried three times", async || {
        let tried = |count: &AtomicU32| count.load(Ordering::SeqCst) >= 3;
        (tried(&AFTER_FAILURE) && tried(&AFTER_PANIC)).then_some(())
    })
    .await;
    for node in [&first, &second] {
        node.draining.cancel();
    }
    for running in loops {
        running.await.unwrap();
    }
    assert_eq!(
        COUNTED.load(Ordering::SeqCst),
        1,
        "two nodes looked many times, and it was due once"
    );

    let done: Vec<(String, bool)> = sqlx::query_as(
        "SELECT name, done_at IS NOT NULL FROM ticks WHERE name LIKE 'test-%' ORDER BY name",
    )
    .fetch_all(&owner)
    .await
    .unwrap();
    let expected = [("test-counts", true), ("test-fails", false), ("test-panics", false)];
    assert_eq!(done, expected.map(|(name, done)| (name.to_owned(), done)));
}

#[tokio::test]
async fn whoever_lost_a_tick_cannot_say_that_it_is_done() {
    let world = World::new().await;
    let (first, second) = (another(&world), another(&world));
    let (lease, name) = (Duration::from_secs(30), "test-fenced");
    nodes::register(&first, Kind::Worker, "one").await.unwrap();
    nodes::register(&second, Kind::Worker, "two").await.unwrap();
    let names = [name.to_owned()];
    store::ticks::ensure(&world.ctx.db, &names).await.unwrap();
    let take = |node: &Ctx| {
        let (db, id) = (world.ctx.db.clone(), node.node);
        async move { store::ticks::take(&db, name, id, lease).await.unwrap() }
    };
    let give_back = |epoch| store::ticks::give_back(&world.ctx.db, name, epoch, lease, true);

    let old = take(&first).await.expect("it is due");
    assert_eq!(take(&second).await, None, "the first has it");
    // The first dies: the lease ends with its node.
    nodes::end(&first).await.unwrap();
    let new = take(&second).await.expect("nobody has it");
    assert!(new > old);
    assert!(!give_back(old).await.unwrap());
    assert!(give_back(new).await.unwrap());
    assert_eq!(take(&second).await, None, "it is not due");
}
