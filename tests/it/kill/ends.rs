//! SIGTERM.

use std::{net::TcpListener, time::Duration};

use tokio::time::Instant;

use super::{
    house::Up,
    scene::{Scene, until_state},
    until_question,
    verdict::{end_of, settled},
};

/// Interfaces: "SIGTERM ends `up` and its Postgres within 10 s".
const END: Duration = Duration::from_secs(10);

/// It ended in good order and left nothing that runs.
async fn ended(scene: &Scene, up: Up, since: Instant) {
    let address = up.address();
    let status = up.ended().await;
    let took = since.elapsed();
    assert_eq!(status.code(), Some(0), "{}", scene.house.log());
    assert!(took < END, "it took {took:?}");
    assert_eq!(scene.house.everything(), []);
    TcpListener::bind(address).expect("the port is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_lets_running_calls_end_and_interrupts_those_that_do_not() {
    let (scene, up) = Scene::new().await;
    let pool = scene.house.superuser().await;
    let waiting = scene.older_call(&up, "mcp__wide__echo", "waiting").await;
    until_question(&pool).await;
    let sent = scene.call(&up, "mcp__wide__echo", "sent");
    let occupying = scene.call(&up, "mcp__narrow__echo", "occupying");
    scene.still.until("both are there", |peer| peer.held() == 2).await;
    let queued = scene.call(&up, "mcp__narrow__echo", "queued");
    until_state(&pool, "queued", "queued").await;
    pool.close().await;

    let since = Instant::now();
    up.terminate();
    let told = waiting.await.unwrap().unwrap();
    assert_eq!(told["_meta"]["bailiwick/error"]["error"]["code"], "INTERRUPTED", "{told}");
    // It drains; the servers answer now.
    scene.still.release();
    for (label, call) in [("sent", sent), ("occupying", occupying), ("queued", queued)] {
        let result = call.await.unwrap().unwrap();
        assert_eq!(result["structuredContent"]["label"], label, "{result}");
    }
    ended(&scene, up, since).await;

    let up = scene.house.up().await;
    let pool = scene.house.superuser().await;
    let records = settled(&scene, &pool).await;
    assert_eq!(end_of(&records, "waiting"), "INTERRUPTED");
    for label in ["sent", "occupying", "queued"] {
        assert_eq!(end_of(&records, label), "succeeded", "{label}");
    }

    // Now the server never answers.
    scene.still.hold();
    let calls = ["stuck", "behind"].map(|label| scene.call(&up, "mcp__narrow__echo", label));
    scene.still.until("one is there", |peer| peer.held() == 1).await;
    tests::world::eventually("the other waits for it", async || {
        let queued = "SELECT count(*) = 1 FROM tool_calls WHERE state = 'queued'";
        sqlx::query_scalar(queued).fetch_one(&pool).await.unwrap_or(false).then_some(())
    })
    .await;
    pool.close().await;
    let since = Instant::now();
    up.terminate();
    ended(&scene, up, since).await;
    for call in calls {
        // What it was told, if anything, is that it was interrupted.
        if let Ok(result) = call.await.unwrap() {
            assert_eq!(
                result["_meta"]["bailiwick/error"]["error"]["code"], "INTERRUPTED",
                "{result}"
            );
        }
    }
    let _up = scene.house.up().await;
    let pool = scene.house.superuser().await;
    let records = settled(&scene, &pool).await;
    for label in ["stuck", "behind"] {
        assert_eq!(end_of(&records, label), "INTERRUPTED", "{label}");
    }
}
