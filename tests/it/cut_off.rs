//! Work that is cut off anywhere leaves no connection in an odd state.

use std::{pin::pin, task::Poll, time::Duration};

use store::Db;
use tests::world::World;

/// Polls `future` so many times, then drops it.
async fn cut_off<F: Future>(future: F, polls: u32) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let poll = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if poll.is_ready() {
            return;
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

#[tokio::test]
async fn a_begin_that_is_cut_off_leaves_no_transaction_behind() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    // One connection: whoever comes next gets the one that was cut off.
    let db = Db::connect_lazy(&world.database.app_url, 1).unwrap();
    db.ping().await.unwrap();
    for number in 0..200 {
        cut_off(db.begin(acme.id), number % 6).await;
        // Of an open transaction this would be a part, and be gone with it.
        let name = format!("cut-off-{number}");
        store::ticks::ensure(&db, &[name]).await.unwrap();
    }
    db.close().await;
    let written = "SELECT count(*) FROM ticks WHERE name LIKE 'cut-off-%'";
    let written: i64 = sqlx::query_scalar(written).fetch_one(&world.owner().await).await.unwrap();
    assert_eq!(written, 200, "what was written outside of any transaction stands");
}
