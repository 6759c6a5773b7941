//! A job is done at least once, and does no harm when it is done twice.

use std::time::Duration;

use domain::{ids::TenantId, jobs::DiscoverTools};
use http::Method;
use serde_json::{Value, json};
use sqlx::PgPool;
use store::Db;
use tests::peer::{Answer, tool};
use tokio::time::Instant;
use uuid::Uuid;

use super::scene::Scene;

/// A worker that died is missed after 20 s (`JOB_HEARTBEATS_MISSED`); on a busy machine later.
const DONE: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discovery_survives_kill_9_and_does_no_harm_twice() {
    let (scene, up) = Scene::new().await;
    let pool = scene.house.superuser().await;
    until_done(&scene, &pool).await;

    // The worker is in the middle of it.
    let before = scene.still.received("tools/list").len();
    let list = format!(r#"{{"tools":[{}]}}"#, tool("echo"));
    scene.still.script_method("tools/list", [Answer::Result(list).held()]);
    let form = json!({
        "name": "late", "slug": "late", "transport": "http", "url": scene.still.url(),
        "authMode": "none", "enabled": true,
    });
    scene.ask(&up, Method::POST, "/api/mcp/servers", Some(form)).await;
    let asked = "its tools are asked for";
    scene.still.until(asked, |peer| peer.received("tools/list").len() == before + 1).await;
    up.kill().await;
    // From here on it answers.
    scene.still.script_method("tools/list", []);
    let up = scene.house.up().await;
    until_done(&scene, &pool).await;
    let late = scene.ask(&up, Method::GET, "/api/mcp/servers/late", None).await;
    assert_eq!((&late["status"], &late["toolCount"]), (&json!("ready"), &json!(2)), "{late}");

    // The same job is delivered twice, at the same time.
    let path = "/api/mcp/servers/late/tools";
    let known = scene.ask(&up, Method::GET, path, None).await;
    let asked = scene.still.received("tools/list").len();
    let tenant: Uuid =
        sqlx::query_scalar("SELECT tenant_id FROM tenants").fetch_one(&pool).await.unwrap();
    let tenant_id = TenantId(tenant);
    let server_id = late["id"].as_str().unwrap().into();
    let job = DiscoverTools { tenant_id, server_id, user_id: None, attempt: 0 };
    let db = Db::connect_lazy(&scene.house.address().app_url(), 1).unwrap();
    let mut tx = db.begin(tenant_id).await.unwrap();
    for _ in 0..2 {
        store::jobs::push(&mut tx, &job).await.unwrap();
    }
    tx.commit().await.unwrap();
    db.close().await;
    until_done(&scene, &pool).await;
    assert!(scene.still.received("tools/list").len() > asked, "it was done");
    let tools: Value = scene.ask(&up, Method::GET, path, None).await;
    assert_eq!(tools, known);
    scene.call_works(&up, "new").await;
}

/// Waits until nothing is left to do.
async fn until_done(scene: &Scene, pool: &PgPool) {
    let begin = Instant::now();
    loop {
        let left: Vec<String> = sqlx::query_scalar(
            "SELECT status || ' ' || id FROM apalis.jobs WHERE status <> 'Done'",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        if left.is_empty() {
            return;
        }
        assert!(begin.elapsed() < DONE, "left: {left:?}; {}", scene.house.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
