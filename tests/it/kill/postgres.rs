//! kill -9 of the private Postgres under a running `up`.

use std::time::Duration;

use serde_json::Value;

use super::{
    Caught,
    scene::{Ended, Scene},
    verdict::{end_of, settled},
};

/// A call's answer as its record has it: `succeeded` or an error code.
fn told(ended: &Ended) -> String {
    let Ok(result) = ended else { return format!("{ended:?}") };
    let code = &result["_meta"]["bailiwick/error"]["error"]["code"];
    match code {
        Value::String(code) => code.clone(),
        _ => "succeeded".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_postgres_is_killed_calls_end_as_recorded_and_new_ones_work() {
    let (scene, mut up) = Scene::new().await;
    let pool = scene.house.superuser().await;
    let Caught { lock, calls } = Caught::catch(&scene, &up, &pool).await;

    scene.house.kill_postgres().await;
    drop((lock, pool));
    let pool = scene.house.superuser().await;
    // The held caller waited through it.
    scene.allow(&up).await;
    scene.still.release();
    let mut told_as = Vec::new();
    for (label, call) in calls {
        let ended = tokio::time::timeout(Duration::from_secs(90), call).await;
        let ended = ended.unwrap_or_else(|_| panic!("{label} does not end")).unwrap();
        told_as.push((label, told(&ended)));
    }
    let records = settled(&scene, &pool).await;
    for (label, told) in &told_as {
        assert_eq!(&end_of(&records, label), told, "{label}: the record and the answer");
    }
    // The answers were there before; their records were closed when Postgres was back.
    for label in ["answered", "stored", "ended"] {
        assert_eq!(end_of(&records, label), "succeeded", "{label}");
    }
    // Cut off before it was sent, it may not be sent.
    for label in ["opening", "starting"] {
        assert_eq!(end_of(&records, label), "UNAVAILABLE", "{label}");
    }
    for label in ["waiting", "sent", "occupying", "queued"] {
        let end = end_of(&records, label);
        assert!(["succeeded", "UNAVAILABLE"].contains(&&*end), "{label}: {end}");
    }
    scene.call_works(&up, "new").await;
    settled(&scene, &pool).await;
    assert!(up.lives());
}
