//! Ending a call from outside.

use chrono::TimeDelta;
use domain::invocation::Status;
use http::Method;
use tests::peer::{Answer, Setup};

use super::{Gateway, Reply, as_pairs, modern};

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"mcp__demo__echo"}}"#;
/// The same id, written otherwise.
const CANCELLED: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0063"}}"#;

/// A call of an older client that was not answered at once.
async fn held(gateway: &Gateway, session: &str) -> reqwest::Response {
    let headers = [("mcp-session-id", session)];
    let request = gateway.request(Method::POST, &gateway.token, &gateway.path(), &headers, CALL);
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response
}

#[tokio::test]
async fn a_cancelled_call_ends_within_a_second_and_without_an_answer() {
    let gateway = Gateway::new(Setup::older()).await;
    gateway.peer.answer("echo", Answer::Echo.held());
    let session = gateway.initialize("2025-11-25").await;
    let response = held(&gateway, &session).await;
    let told_at = gateway.world.ctx.now();
    assert_eq!(gateway.legacy(&session, CANCELLED).await.status, 202);
    assert_eq!(Reply::of(response).await.body, "");
    gateway.until(Status::Cancelled).await;
    let finished_at = gateway.invocations().await[0].finished_at.unwrap();
    assert!(finished_at - told_at < TimeDelta::seconds(1), "{told_at}, {finished_at}");
}

#[tokio::test]
async fn a_call_that_waits_for_a_person_can_be_cancelled() {
    let gateway = Gateway::new(Setup::older()).await;
    gateway.ask_first().await;
    let session = gateway.initialize("2025-06-18").await;
    let response = held(&gateway, &session).await;
    gateway.until(Status::Waiting).await;
    gateway.legacy(&session, CANCELLED).await;
    assert_eq!(Reply::of(response).await.body, "");
    gateway.until(Status::Cancelled).await;
    assert!(gateway.peer.calls().is_empty());
}

#[tokio::test]
async fn only_the_own_session_can_cancel() {
    let gateway = Gateway::new(Setup::older()).await;
    gateway.peer.answer("echo", Answer::Echo.held());
    let (session, other) =
        (gateway.initialize("2025-11-25").await, gateway.initialize("2025-11-25").await);
    let response = held(&gateway, &session).await;
    assert_eq!(gateway.legacy(&other, CANCELLED).await.status, 202);
    gateway.peer.release();
    assert!(Reply::of(response).await.body.contains("\"result\""));
    gateway.until(Status::Succeeded).await;
}

#[tokio::test]
async fn an_older_client_that_hangs_up_leaves_the_call_running() {
    let gateway = Gateway::new(Setup::older()).await;
    gateway.peer.answer("echo", Answer::Echo.held());
    let session = gateway.initialize("2025-11-25").await;
    drop(held(&gateway, &session).await);
    gateway.peer.until("the call is there", |peer| peer.held() == 1).await;
    gateway.peer.release();
    gateway.until(Status::Succeeded).await;
}

#[tokio::test]
async fn an_older_client_that_hung_up_can_still_cancel() {
    let gateway = Gateway::new(Setup::older()).await;
    gateway.peer.answer("echo", Answer::Echo.held());
    let session = gateway.initialize("2025-11-25").await;
    drop(held(&gateway, &session).await);
    gateway.legacy(&session, CANCELLED).await;
    gateway.until(Status::Cancelled).await;
}

#[tokio::test]
async fn closing_the_stream_cancels_a_call_of_2026_07_28() {
    let gateway = Gateway::new(Setup::modern()).await;
    gateway.peer.answer("echo", Answer::Echo.held());
    let (headers, body) = modern("tools/call", r#"{"name":"mcp__demo__echo"}"#);
    let headers = as_pairs(&headers);
    let request = gateway.request(Method::POST, &gateway.token, &gateway.path(), &headers, body);
    let response = request.send().await.unwrap();
    gateway.peer.until("the call is there", |peer| peer.held() == 1).await;
    drop(response);
    gateway.until(Status::Cancelled).await;
}

#[tokio::test]
async fn a_stopping_node_says_how_its_calls_ended() {
    let gateway = Gateway::new(Setup::modern()).await;
    gateway.peer.answer("echo", Answer::Echo.held());
    let (headers, body) = modern("tools/call", r#"{"name":"mcp__demo__echo"}"#);
    let headers = as_pairs(&headers);
    let request = gateway.request(Method::POST, &gateway.token, &gateway.path(), &headers, body);
    let response = request.send().await.unwrap();
    gateway.peer.until("the call is there", |peer| peer.held() == 1).await;
    gateway.world.ctx.stopping.cancel();
    let reply = Reply::of(response).await;
    assert!(reply.body.contains("INTERRUPTED"), "{reply:?}");
}
