//! kill -9 while a client of 2026-07-28 that shows pages waits for a person.

use http::Method;
use serde_json::{Value, json};

use super::{
    scene::{Scene, until_state},
    until_question,
    verdict::{end_of, settled},
};

/// The call, from its first request on with the state that came with the last answer.
fn params(label: &str, state: Option<&Value>) -> Value {
    let mut params = json!({ "name": "mcp__prompt__echo", "arguments": { "label": label } });
    if let Some(state) = state {
        params["requestState"] = state.clone();
        params["inputResponses"] = json!({ "bailiwick.permission": { "action": "accept" } });
    }
    params
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_call_and_its_question_outlive_every_process() {
    let (scene, up) = Scene::new().await;
    let pool = scene.house.superuser().await;
    let first = scene.page_call(&up, &params("parked", None)).await.unwrap().unwrap();
    assert_eq!(first["resultType"], "input_required", "{first}");
    until_question(&pool).await;

    // Once while nobody holds it, once while it is held.
    up.kill().await;
    let up = scene.house.up().await;
    until_state(&pool, "parked", "waiting").await;
    let held = scene.page_call(&up, &params("parked", Some(&first["requestState"])));
    tests::world::eventually("it is held", async || {
        let held = "SELECT NOT parked FROM tool_calls WHERE resumable_until IS NOT NULL";
        sqlx::query_scalar(held).fetch_one(&pool).await.unwrap_or(false).then_some(())
    })
    .await;
    up.kill().await;
    assert!(held.await.unwrap().is_err(), "nobody could answer");

    let up = scene.house.up().await;
    scene.allow(&up).await;
    scene.prompt.release();
    let state = &first["requestState"];
    let answer = scene.page_call(&up, &params("parked", Some(state))).await.unwrap().unwrap();
    assert_eq!(answer["structuredContent"]["label"], "parked", "{answer}");
    assert_eq!(answer["_meta"]["bailiwick/invocationId"], first["_meta"]["bailiwick/invocationId"]);
    let records = settled(&scene, &pool).await;
    assert_eq!(end_of(&records, "parked"), "succeeded");
    assert_eq!(scene.prompt.calls().len(), 1);
    let used = scene.page_call(&up, &params("parked", Some(state))).await.unwrap();
    assert!(used.unwrap_err().contains("requestState is not good"), "it is used up");
    let path = "/api/permission-requests?state=pending";
    let open = scene.ask(&up, Method::GET, path, None).await;
    assert_eq!(open["items"], json!([]));
}
