//! HTTP+SSE of MCP 2024-11-05 as a client, against a hand-written server.

use std::time::Duration;

use domain::Code;
use outbound::mcp::{McpClients, Ran, Reach, Target};
use tests::{
    children::said,
    sse_peer::{Habits, SsePeer},
    upstream::{call, clients, soon, target, tool_call},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn target_at(peer: &SsePeer, path: &str) -> Target {
    let url = peer.url(path);
    let headers = vec![("x-api-key".parse().unwrap(), "s3cret-key".to_owned().into())];
    Target { reach: Reach::Sse { url: url.clone(), headers }, ..target(&url) }
}

async fn started(habits: Habits) -> (SsePeer, McpClients, Target) {
    let peer = SsePeer::start(habits).await;
    let target = target_at(&peer, "/sse");
    (peer, clients(), target)
}

async fn until(what: &str, reached: impl Fn() -> bool) {
    let waiting = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout_at(soon(), waiting).await.is_ok(), "not reached: {what}");
}

#[tokio::test]
async fn a_server_is_called_whatever_its_habits() {
    let absolute = |peer: &SsePeer| peer.url("/messages?session=$SESSION").to_string();
    for (name, change) in [
        ("plain", (|_: &mut Habits| {}) as fn(&mut Habits)),
        ("CRLF", |habits| habits.line_end = "\r\n"),
        ("CR", |habits| habits.line_end = "\r"),
        ("relative", |habits| habits.endpoint = "messages?session=$SESSION".to_owned()),
        ("in the response", |habits| habits.answers_in_post = true),
        ("late responses", |habits| habits.posts_late = true),
    ] {
        let (peer, clients, target) = started(Habits::default()).await;
        peer.change(change);
        for n in 0..3 {
            let arguments = format!(r#"{{"n":{n}}}"#);
            let answer = call(&clients, &target, tool_call("echo", &arguments)).await.unwrap();
            assert_eq!(said(&answer), arguments, "{name}");
        }
        assert_eq!(peer.begun(), 1, "{name}");
        assert!(peer.received("server/discover").is_empty());
        let headers = peer.headers();
        assert!(headers.iter().all(|(_, headers)| headers["x-api-key"] == "s3cret-key"));
        assert!(headers.iter().any(|(method, _)| method == "POST"));
    }
    let (peer, clients, target) = started(Habits::default()).await;
    let endpoint = absolute(&peer);
    peer.change(|habits| habits.endpoint = endpoint);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
}

#[tokio::test]
async fn messages_are_never_sent_to_another_origin() {
    let elsewhere = SsePeer::start(Habits::default()).await;
    for endpoint in [
        elsewhere.url("/messages?session=s0").to_string(),
        "//localhost/messages?session=s0".to_owned(),
        "ftp://127.0.0.1/x".to_owned(),
        "http://".to_owned(),
    ] {
        let habits = Habits { endpoint: endpoint.clone(), ..Habits::default() };
        let (peer, clients, target) = started(habits).await;
        let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
        let outcome = (failure.error.code, failure.ran);
        assert_eq!(outcome, (Code::UpstreamFormat, Ran::No), "{endpoint}");
        assert!(peer.headers().iter().all(|(method, _)| method == "GET"));
    }
    assert!(elsewhere.headers().is_empty());
}

#[tokio::test]
async fn a_redirect_of_the_stream_stays_within_the_origin() {
    let elsewhere = SsePeer::start(Habits::default()).await;
    let (peer, clients, _) = started(Habits::default()).await;
    let moved = target_at(&peer, "/moved");
    call(&clients, &moved, tool_call("echo", "{}")).await.unwrap();
    let away = elsewhere.url("/sse").to_string();
    peer.change(|habits| habits.moved_to = away);
    clients.forget(moved.key.tenant, &moved.key.server).await;
    let failure = call(&clients, &moved, tool_call("echo", "{}")).await.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::UpstreamFormat, Ran::No));
    assert!(elsewhere.headers().is_empty());
}

#[tokio::test]
async fn the_end_of_the_stream_ends_what_waited_and_the_next_call_connects_again() {
    let (peer, clients, target) = started(Habits::default()).await;
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    let (waiting, cut) = tokio::join!(
        call(&clients, &target, tool_call("never", "{}")),
        call(&clients, &target, tool_call("cut", "{}"))
    );
    for failure in [waiting.unwrap_err(), cut.unwrap_err()] {
        assert_eq!((failure.error.code, failure.ran), (Code::UpstreamUnavailable, Ran::Unknown));
    }
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    assert_eq!((peer.begun(), peer.received("tools/call").len()), (2, 4));
}

#[tokio::test]
async fn a_call_past_its_deadline_is_taken_back() {
    let (peer, clients, target) = started(Habits::default()).await;
    let deadline = Instant::now() + Duration::from_millis(300);
    let work = clients.call(&target, tool_call("never", "{}"), deadline, CancellationToken::new());
    let failure = work.await.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::Timeout, Ran::Unknown));
    until("told", || !peer.received("notifications/cancelled").is_empty()).await;
    let told = &peer.received("notifications/cancelled")[0];
    assert_eq!(told["params"]["requestId"], peer.received("tools/call")[0]["id"]);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    assert_eq!(peer.begun(), 1);
}

#[tokio::test]
async fn an_answer_over_its_limit_fails_its_own_call_alone() {
    let (peer, clients, target) = started(Habits::default()).await;
    let mut long = tool_call("long", "{}");
    long.response_limit = 1_000;
    let failure = call(&clients, &target, long).await.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::ResponseTooLarge, Ran::Unknown));
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    assert_eq!(peer.begun(), 1);
}

#[tokio::test]
async fn a_message_that_is_refused_fails_by_its_status() {
    let (peer, clients, target) = started(Habits::default()).await;
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    for (status, code, ran) in [
        (401, Code::Unauthorized, Ran::No),
        (429, Code::RateLimited, Ran::Unknown),
        (500, Code::UpstreamUnavailable, Ran::Unknown),
        // The session is gone: what was posted reached nobody, and the next call connects.
        (404, Code::UpstreamUnavailable, Ran::No),
    ] {
        peer.change(|habits| habits.post_status = Some(status));
        let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
        assert_eq!((failure.error.code, failure.ran), (code, ran), "{status}");
    }
    assert_eq!(peer.begun(), 1);
    peer.change(|habits| habits.post_status = None);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    assert_eq!(peer.begun(), 2);
}

#[tokio::test]
async fn a_server_that_offers_no_stream_fails_the_connect() {
    let (peer, clients, target) = started(Habits::default()).await;
    for (status, code) in
        [(401, Code::Unauthorized), (404, Code::NotFound), (503, Code::UpstreamUnavailable)]
    {
        peer.change(|habits| habits.get_status = Some(status));
        let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
        assert_eq!((failure.error.code, failure.ran), (code, Ran::No), "{status}");
    }
    peer.change(|habits| (habits.get_status, habits.endpoint) = (None, String::new()));
    let deadline = Instant::now() + Duration::from_millis(300);
    let work = clients.call(&target, tool_call("echo", "{}"), deadline, CancellationToken::new());
    let failure = work.await.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::Timeout, Ran::No));
}

#[tokio::test]
async fn a_ping_is_answered_and_closing_ends_the_stream() {
    let (peer, clients, target) = started(Habits::default()).await;
    call(&clients, &target, tool_call("ask", "{}")).await.unwrap();
    until("a pong", || !peer.replies().is_empty()).await;
    assert_eq!(peer.replies()[0]["result"], serde_json::json!({}));
    clients.close_all(soon()).await;
    assert_eq!(clients.open_clients(), 0);
}
