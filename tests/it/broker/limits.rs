//! Slots, queue and what happens to a call while it waits.

use domain::{Code, invocation::Status, permission::ApprovalMode};
use serde_json::json;
use tests::{
    peer::{Answer, Setup},
    world::eventually,
};

use super::{Calls, error};

#[tokio::test]
async fn of_twenty_parallel_calls_nine_run_and_eleven_are_refused() {
    let calls = Calls::new().await;
    calls.peer().answer("echo", Answer::Echo.held());
    let mut running: Vec<_> =
        (0..20).map(|n| calls.start("echo", &format!(r#"{{"n":{n}}}"#))).collect();
    eventually("eleven are refused", async || {
        let calls = calls.gateway.invocations().await;
        let refused = calls.iter().filter(|call| call.status == Status::Failed).count();
        (refused == 11).then_some(())
    })
    .await;
    calls.peer().release();

    let (mut ran, mut refused) = (0, 0);
    for call in &mut running {
        match call.finished().await.unwrap().outcome {
            Ok(_) => ran += 1,
            Err(error) => {
                assert_eq!(error.code, Code::RateLimitQueueFull);
                assert!(error.retryable());
                refused += 1;
            }
        }
    }
    assert_eq!((ran, refused), (9, 11));
    assert_eq!(calls.peer().calls().len(), 9);
    assert_eq!(calls.peer().most_held(), 1);
    assert_eq!(calls.gateway.invocations().await.len(), 20);
}

#[tokio::test]
async fn a_call_that_waited_its_time_is_taken_out_and_never_sent() {
    let calls =
        Calls::with(Setup::modern(), ApprovalMode::AlwaysAllow, json!({ "queueTimeoutMs": 100 }))
            .await;
    calls.peer().answer("echo", Answer::Echo.held());
    let mut first = calls.start("echo", r#"{"n":1}"#);
    calls.peer().until("the first is there", |peer| peer.held() == 1).await;
    let second = calls.call("echo", r#"{"n":2}"#).await;
    assert_eq!(error(second).code, Code::RateLimitQueueTimeout);
    calls.peer().release();
    first.finished().await.unwrap().outcome.unwrap();

    assert_eq!(calls.peer().calls().len(), 1);
    let waited = calls.gateway.invocations().await[0].queue_wait_ms;
    assert!(waited >= 100, "waited {waited} ms");
}

#[tokio::test]
async fn a_queued_call_is_not_sent_to_a_server_that_changed_meanwhile() {
    let calls = Calls::new().await;
    calls.peer().answer("echo", Answer::Echo.held());
    let mut first = calls.start("echo", r#"{"n":1}"#);
    calls.peer().until("the first is there", |peer| peer.held() == 1).await;
    let mut second = calls.start("echo", r#"{"n":2}"#);
    calls.gateway.until(Status::Queued).await;
    calls.configure(json!({ "headers": { "x-new": "1" }, "authMode": "shared_headers" })).await;
    calls.peer().release();

    first.finished().await.unwrap().outcome.unwrap();
    let refused = error(second.finished().await.unwrap());
    assert_eq!(refused.code, Code::ServerChanged);
    assert_eq!(calls.peer().calls().len(), 1);
}

#[tokio::test]
async fn a_call_is_cancelled_while_it_queues_and_while_it_runs() {
    let calls = Calls::new().await;
    calls.peer().answer("echo", Answer::Echo.held());
    let mut first = calls.start("echo", r#"{"n":1}"#);
    calls.peer().until("the first is there", |peer| peer.held() == 1).await;
    let mut second = calls.start("echo", r#"{"n":2}"#);
    calls.gateway.until(Status::Queued).await;

    second.cancel_token().cancel();
    assert_eq!(error(second.finished().await.unwrap()).code, Code::Cancelled);
    first.cancel_token().cancel();
    assert_eq!(error(first.finished().await.unwrap()).code, Code::Cancelled);

    let records = calls.gateway.invocations().await;
    assert!(records.iter().all(|record| record.status == Status::Cancelled), "{records:?}");
    assert_eq!(calls.peer().calls().len(), 1);
    // Its slot is free again.
    calls.peer().release();
    calls.call("echo", "{}").await.outcome.unwrap();
}

#[tokio::test]
async fn the_deadline_ends_a_call_and_frees_its_slot() {
    let calls = Calls::new().await;
    calls.configure(json!({ "timeoutSeconds": 1 })).await;
    calls.peer().answer("echo", Answer::Echo.held());
    let late = error(calls.call("echo", "{}").await);
    assert_eq!(late.code, Code::Timeout);
    calls.peer().release();
    calls.call("echo", "{}").await.outcome.unwrap();
}

#[tokio::test]
async fn a_caller_who_hangs_up_leaves_a_running_call_to_its_end() {
    let calls = Calls::new().await;
    calls.peer().answer("echo", Answer::Echo.held());
    drop(calls.start("echo", "{}"));
    calls.peer().until("it is there", |peer| peer.held() == 1).await;
    assert_eq!(calls.gateway.invocations().await[0].status, Status::Running);
    calls.peer().release();
    calls.gateway.until(Status::Succeeded).await;

    calls.peer().hold();
    let mut request = calls.request("echo", "{}");
    request.cancel_on_hang_up = true;
    let ctx = &calls.gateway.world.ctx;
    let running = app::broker::start(ctx, &calls.agent, request);
    calls.peer().until("it is there", |peer| peer.held() == 1).await;
    drop(running);
    calls.gateway.until(Status::Cancelled).await;
}

#[tokio::test]
async fn a_server_that_asks_for_a_pause_gets_one() {
    let calls = Calls::new().await;
    let busy = Answer::Status {
        status: 429,
        headers: vec![("retry-after", "4".to_owned())],
        body: String::new(),
    };
    calls.peer().script("echo", [busy, Answer::Echo]);
    let limited = error(calls.call("echo", "{}").await);
    assert_eq!(limited.code, Code::RateLimited);
    assert!(limited.retryable());

    let record = calls.call("echo", "{}").await.invocation;
    let records = calls.gateway.invocations().await;
    let paused = records.iter().find(|one| one.id == record).unwrap();
    assert!(paused.queue_wait_ms >= 500, "waited {} ms", paused.queue_wait_ms);
}
