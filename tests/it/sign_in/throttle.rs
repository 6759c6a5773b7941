//! Who tries in vain waits, longer each time, and is never locked out.

use chrono::TimeDelta;
use domain::{Role, limits};
use tests::{browser::Browser, world::World};
use tokio::task::JoinSet;

use super::{PASSWORD, noon, person};

const FREE: u64 = limits::SIGN_IN_FREE_TRIES.default;

/// A sign-in from `address`: its status, and the seconds to wait.
async fn attempt(world: &World, address: &'static str, email: &str, password: &str) -> (u16, u64) {
    let mut browser = Browser { address, ..Browser::at(&world.url) };
    let seen = browser.sign_in("acme", email, password).await;
    (seen.status.as_u16(), seen.header("retry-after").parse().unwrap_or_default())
}

async fn world() -> World {
    let world = World::with_fixed_clock(noon()).await;
    let acme = world.tenant("acme").await;
    person(&world, &acme, "ann@acme.test", Role::Member).await;
    world
}

fn seconds(world: &World, seconds: i64) {
    world.ctx.clock.advance(TimeDelta::seconds(seconds));
}

#[tokio::test]
async fn the_wait_of_an_account_doubles_up_to_a_minute_whether_or_not_it_exists() {
    let world = world().await;
    for email in ["ann@acme.test", "nobody@acme.test"] {
        for _ in 0..FREE {
            assert_eq!(attempt(&world, "192.0.2.1", email, "wrong").await, (401, 0));
        }
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(attempt(&world, "192.0.2.1", email, PASSWORD).await, (429, wait), "{email}");
            // Hammering prolongs nothing, in whatever case it is written.
            let upper = email.to_uppercase();
            assert_eq!(attempt(&world, "192.0.2.1", &upper, "wrong").await, (429, wait));
            seconds(&world, i64::try_from(wait).unwrap());
            assert_eq!(attempt(&world, "192.0.2.1", email, "wrong").await, (401, 0), "{email}");
        }
    }
    // Others go on.
    assert_eq!(attempt(&world, "192.0.2.1", "other@acme.test", "wrong").await.0, 401);
    // And so does she, when it is her turn.
    seconds(&world, 60);
    assert_eq!(attempt(&world, "192.0.2.1", "ann@acme.test", PASSWORD).await.0, 303);
    assert_eq!(attempt(&world, "192.0.2.1", "ann@acme.test", "wrong").await.0, 401);
}

#[tokio::test]
async fn of_many_attempts_at_once_no_more_get_through_than_one_after_the_other() {
    let world = world().await;
    let attempts = (0..20).map(|_| attempt(&world, "192.0.2.1", "ann@acme.test", "wrong"));
    let outcomes = futures::future::join_all(attempts).await;
    let tried = outcomes.iter().filter(|(status, _)| *status == 401).count();
    assert_eq!(u64::try_from(tried).unwrap(), FREE, "{outcomes:?}");
}

#[tokio::test]
async fn a_pause_is_a_clean_slate_and_its_row_is_forgotten() {
    let world = world().await;
    for _ in 0..FREE {
        attempt(&world, "192.0.2.1", "ann@acme.test", "wrong").await;
    }
    assert_eq!(attempt(&world, "192.0.2.1", "ann@acme.test", "wrong").await.0, 429);
    world.ctx.clock.advance(TimeDelta::hours(1) + TimeDelta::seconds(1));
    let owner = world.owner().await;
    let rows = async || -> i64 {
        app::housekeeping::forget_sign_ins(&world.ctx).await.unwrap();
        let count = sqlx::query_scalar("SELECT count(*) FROM sign_in_throttles");
        count.fetch_one(&owner).await.unwrap()
    };
    for _ in 0..FREE {
        assert_eq!(attempt(&world, "192.0.2.1", "ann@acme.test", "wrong").await.0, 401);
    }
    assert_eq!(rows().await, 2, "the account's and the network's");
    world.ctx.clock.advance(TimeDelta::hours(1) + TimeDelta::seconds(1));
    assert_eq!(rows().await, 0);
}

#[tokio::test]
async fn counts_are_forgotten_some_at_a_time_and_nobody_is_waited_for() {
    let world = world().await;
    let owner = world.owner().await;
    let many = i64::try_from(3 * limits::REAPER_BATCH.default).unwrap();
    sqlx::query(
        "INSERT INTO sign_in_throttles (subject, kind, failures, tried_at, free_at, expires_at)
         SELECT sha256(n::text::bytea), 'account', 1, $2, $2, $2 - interval '1 minute'
         FROM generate_series(1, $1) n",
    )
    .bind(many)
    .bind(noon())
    .execute(&owner)
    .await
    .unwrap();
    // Somebody tries at this moment.
    let mut trying = owner.begin().await.unwrap();
    sqlx::query("SELECT FROM sign_in_throttles WHERE subject = sha256('7') FOR UPDATE")
        .execute(&mut *trying)
        .await
        .unwrap();
    let forget = app::housekeeping::forget_sign_ins(&world.ctx);
    let forgotten = tokio::time::timeout(std::time::Duration::from_secs(10), forget).await;
    forgotten.expect("it waits for nobody").unwrap();
    let left = "SELECT count(*) FROM sign_in_throttles";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&mut *trying).await.unwrap();
    assert_eq!(left, 1);
}

#[tokio::test]
async fn an_attempt_that_found_no_place_to_be_tried_counts_for_nothing() {
    let world = world().await;
    // More than can wait, each from a network of its own.
    let others = limits::PASSWORD_HASHES_WAITING.default + limits::PASSWORD_HASHES.default + 4;
    let mut waiting: JoinSet<_> = (0..others)
        .map(|number| {
            let address: &'static str = format!("198.51.{number}.1").leak();
            let email = format!("other{number}@acme.test");
            let mut browser = Browser { address, ..Browser::at(&world.url) };
            async move { browser.sign_in("acme", &email, "wrong").await.status.as_u16() }
        })
        .collect();
    // Whoever comes last is refused first: all places are taken.
    while waiting.join_next().await.unwrap().unwrap() != 429 {}
    let attempts = (0..2 * FREE).map(|_| attempt(&world, "192.0.2.1", "ann@acme.test", "wrong"));
    let outcomes = futures::future::join_all(attempts).await;
    let tried = outcomes.iter().filter(|(status, _)| *status == 401).count();
    assert!(u64::try_from(tried).unwrap() < FREE, "{outcomes:?}");
    waiting.shutdown().await;
    assert_eq!(attempt(&world, "192.0.2.1", "ann@acme.test", PASSWORD).await.0, 303);
}

#[tokio::test]
async fn strangers_cannot_keep_a_person_out_of_where_they_signed_in_before() {
    let world = world().await;
    assert_eq!(attempt(&world, "198.51.100.7", "ann@acme.test", PASSWORD).await.0, 303);
    for _ in 0..FREE {
        attempt(&world, "192.0.2.1", "ann@acme.test", "wrong").await;
    }
    assert_eq!(attempt(&world, "192.0.2.1", "ann@acme.test", PASSWORD).await.0, 429);
    assert_eq!(attempt(&world, "203.0.113.5", "ann@acme.test", PASSWORD).await.0, 429);
    // Her neighbour's address is of the same network.
    assert_eq!(attempt(&world, "198.51.100.8", "ann@acme.test", PASSWORD).await.0, 303);
    // That does not free the strangers, and there she has to wait as well after as many in vain.
    assert_eq!(attempt(&world, "192.0.2.1", "ann@acme.test", PASSWORD).await.0, 429);
    for _ in 0..FREE {
        assert_eq!(attempt(&world, "198.51.100.7", "ann@acme.test", "wrong").await.0, 401);
    }
    assert_eq!(attempt(&world, "198.51.100.7", "ann@acme.test", PASSWORD).await, (429, 1));
}

#[tokio::test]
async fn a_network_that_tries_many_accounts_waits_and_others_do_not() {
    let world = world().await;
    for number in 0..limits::SIGN_IN_NETWORK_FREE_TRIES.default {
        let email = format!("guess{number}@acme.test");
        let address = if number % 2 == 0 { "2001:db8:0:100::1" } else { "2001:db8:0:1ff::2" };
        assert_eq!(attempt(&world, address, &email, "wrong").await.0, 401, "{number}");
    }
    let one_more = attempt(&world, "2001:db8:0:100::3", "more@acme.test", "wrong").await;
    assert_eq!(one_more, (429, 1));
    assert_eq!(attempt(&world, "2001:db8:0:200::1", "more@acme.test", "wrong").await.0, 401);
    // Signing in forgives that one attempt, not the others.
    seconds(&world, 1);
    assert_eq!(attempt(&world, "2001:db8:0:100::1", "ann@acme.test", PASSWORD).await.0, 303);
    assert_eq!(attempt(&world, "2001:db8:0:100::1", "guess@acme.test", "wrong").await.0, 401);
    assert_eq!(attempt(&world, "2001:db8:0:100::1", "guess@acme.test", "wrong").await, (429, 2));
    // What the client says of itself is not what the proxy heard.
    let forged = "203.0.113.1, 2001:db8:0:100::1";
    assert_eq!(attempt(&world, forged, "guess@acme.test", "wrong").await.0, 429);
}
