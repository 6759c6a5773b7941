//! kill -9 during the very first start.

use std::time::Duration;

use tokio::time::Instant;

use super::house::House;

const MADE: [&str; 5] =
    ["admin-password", "admin-token", "agent-token", "encryption-keys", "seal-key"];

/// A sequence of its own, the same each time (Knuth, MMIX).
struct Seeded(u64);

impl Seeded {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_is_killed_at_any_moment_is_completed_by_the_next() {
    const SEED: u64 = 0x0BA1_1115;
    let mut seeded = Seeded(SEED);
    // How long a first start takes here and now.
    let begin = Instant::now();
    drop(House::new().up().await);
    let whole = begin.elapsed();

    for round in 0..3 {
        let house = House::new();
        // The second time it is killed while it takes over from the first.
        let pauses = [whole.mul_f64(seeded.next()), whole.mul_f64(seeded.next() / 2.0)];
        for pause in pauses {
            let mut child = house.begin();
            // Killed at a moment, not when something is seen: that is the point.
            let ended = tokio::time::timeout(pause, child.wait()).await;
            assert!(ended.is_err(), "it ended by itself: {}", house.log());
            child.kill().await.unwrap();
        }
        let up = house.up().await;
        let said = format!("seed {SEED}, round {round}, killed after {pauses:?}");
        for name in MADE {
            assert!(house.file(name).len() > 20, "{said}: {name}");
        }
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        for token in ["admin-token", "agent-token"] {
            let me = http.get(format!("{}/api/me", up.url)).bearer_auth(house.file(token));
            let me = me.timeout(Duration::from_secs(20)).send().await.unwrap();
            assert_eq!(me.status(), 200, "{said}: {token}");
        }
        let pool = house.superuser().await;
        let people: i64 =
            sqlx::query_scalar("SELECT count(*) FROM users").fetch_one(&pool).await.unwrap();
        assert_eq!(people, 1, "{said}");
    }
}
