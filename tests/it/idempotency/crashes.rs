//! Clients that hang up and nodes that die in the middle: the repetition does what is left to do.

use http::Method;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::PgPool;
use tests::{
    peer::{Answer, Setup},
    world::eventually,
};
use tokio::task::JoinHandle;

use super::Stage;
use crate::{
    gateway::Gateway,
    kill::house::{House, Up},
};

#[tokio::test]
async fn a_client_that_hangs_up_in_the_middle_may_repeat() {
    let stage = Stage::new().await;
    let mut lock = stage.owner.begin().await.unwrap();
    sqlx::query("LOCK TABLE sessions IN SHARE MODE").execute(&mut *lock).await.unwrap();
    let first =
        stage.request(Method::POST, "/api/sessions", "key").json(&json!({ "title": "cut" }));
    let first = tokio::spawn(first.send());
    eventually("the request runs", async || (stage.keys().await.len() == 1).then_some(())).await;
    first.abort();
    lock.rollback().await.unwrap();
    let done = eventually("the key is free", async || {
        let answer = stage.make_session("key", "cut").await;
        (answer.status != StatusCode::CONFLICT).then_some(answer)
    });
    let done = done.await;
    assert_eq!(done.status, StatusCode::CREATED);
    assert_eq!(stage.sessions("cut").await, 1);
}

#[tokio::test]
async fn a_tool_that_was_tried_is_not_called_again() {
    let gateway = Gateway::new(Setup::modern()).await;
    let full = gateway.world.full_token(&gateway.person).await;
    let form = json!({ "sessionId": gateway.session, "toolName": "echo", "input": {} });
    let inspect = |key: &str| {
        let url = gateway.world.url.join("/api/mcp/servers/demo/inspect").unwrap();
        let request = gateway.world.client().post(url).bearer_auth(&full);
        request.header("idempotency-key", key).json(&form).send()
    };
    let first: Value = inspect("whole").await.unwrap().json().await.unwrap();
    let again: Value = inspect("whole").await.unwrap().json().await.unwrap();
    assert_eq!((&first["ok"], &first), (&json!(true), &again));
    assert_eq!(gateway.peer.calls().len(), 1);

    // Whoever hangs up cancels the call; that it was made stays known.
    gateway.peer.answer("echo", Answer::Echo.held());
    let cut = tokio::spawn(inspect("cut"));
    gateway.peer.until("the call is there", |peer| peer.held() == 1).await;
    cut.abort();
    let refusal = eventually("the cut is seen", async || {
        let answer = inspect("cut").await.unwrap();
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        let problem: Value = answer.json().await.unwrap();
        problem["detail"].as_str().unwrap().contains("cut off").then_some(problem)
    });
    assert_eq!(refusal.await["code"], "CONFLICT");
    assert_eq!(gateway.peer.calls().len(), 2);
}

/// Each key is sent until it is answered, whatever dies meanwhile; then there is one session of each.
#[tokio::test]
async fn after_kill_9_every_repeated_request_was_done_once() {
    let house = House::new();
    let mut answered = Vec::new();
    for round in 0..3 {
        let up = house.up().await;
        let before = house.superuser().await;
        let clients: Vec<_> =
            (0..4).map(|client| Client::start(&house, &up, round, client)).collect();
        eventually("there are answers", async || {
            (sessions(&before).await >= 20 * (round + 1)).then_some(())
        })
        .await;
        up.kill().await;
        let mut cut = Vec::new();
        for client in clients {
            let (mut done, last) = client.await.unwrap();
            answered.append(&mut done);
            cut.push(last);
        }

        let up = house.up().await;
        for key in cut {
            // At most until the dead node's claim runs out.
            let id = eventually("the repeated request is done", async || {
                let answer = post(&house.file("admin-token"), &up.url, &key).await.unwrap();
                assert!(matches!(answer.0.as_u16(), 201 | 409), "{key}: {answer:?}");
                (answer.0 == StatusCode::CREATED).then_some(answer.1)
            });
            answered.push((key.clone(), id.await));
        }
        up.terminate();
        assert!(up.ended().await.success());
    }

    let up = house.up().await;
    let made = sessions(&house.superuser().await).await;
    assert_eq!(made, i64::try_from(answered.len()).unwrap(), "each was made, and made once");
    for (key, id) in answered {
        let (status, again) = post(&house.file("admin-token"), &up.url, &key).await.unwrap();
        assert_eq!((status, again), (StatusCode::CREATED, id), "{key}");
    }
}

struct Client;

impl Client {
    /// Makes sessions until the line breaks: what was answered, and the key of what was not.
    fn start(
        house: &House,
        up: &Up,
        round: i64,
        client: u32,
    ) -> JoinHandle<(Vec<(String, String)>, String)> {
        let (token, url) = (house.file("admin-token"), up.url.clone());
        tokio::spawn(async move {
            let mut answered = Vec::new();
            loop {
                let key = format!("{round}-{client}-{}", answered.len());
                match post(&token, &url, &key).await {
                    Ok((StatusCode::CREATED, id)) => answered.push((key, id)),
                    Ok(other) => panic!("{key}: {other:?}"),
                    Err(_) => return (answered, key),
                }
            }
        })
    }
}

/// Makes a session with this key as its title: status and id.
async fn post(token: &str, url: &str, key: &str) -> reqwest::Result<(StatusCode, String)> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{url}/api/sessions")).bearer_auth(token);
    let request = request.header("idempotency-key", key).json(&json!({ "title": key }));
    let response = request.send().await?;
    let status = response.status();
    let body: Value = response.json().await?;
    Ok((status, body["id"].as_str().unwrap_or_default().to_owned()))
}

async fn sessions(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM sessions").fetch_one(pool).await.unwrap()
}
