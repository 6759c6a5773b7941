//! What the reaper makes of the calls of a dead node.

use app::nodes::Kind;
use domain::{Code, invocation::Status, limits};
use tests::{peer::Answer, world::eventually};

use super::{Calls, error};

/// Says in the database that this node ended, and reaps.
async fn die(calls: &Calls) -> usize {
    let owner = calls.gateway.world.owner().await;
    // A node that is not in the table is as dead as one whose lease is over.
    sqlx::query("DELETE FROM nodes").execute(&owner).await.unwrap();
    let most = i32::try_from(limits::REAPER_BATCH.default).unwrap();
    app::broker::reap(&calls.gateway.world.ctx, most).await.unwrap()
}

#[tokio::test]
async fn a_call_that_was_sent_is_closed_as_interrupted_and_its_late_answer_is_not_believed() {
    let calls = Calls::new().await;
    calls.peer().answer("echo", Answer::Echo.held());
    let mut running = calls.start("echo", "{}");
    calls.peer().until("it is there", |peer| peer.held() == 1).await;
    assert_eq!(die(&calls).await, 1);

    let record = &calls.gateway.invocations().await[0];
    assert_eq!(record.status, Status::Failed);
    assert_eq!(record.error_code.as_deref(), Some("INTERRUPTED"));
    calls.peer().release();
    assert_eq!(error(running.finished().await.unwrap()).code, Code::Interrupted);
    assert_eq!(calls.gateway.invocations().await[0].error_code.as_deref(), Some("INTERRUPTED"));
    assert_eq!(die(&calls).await, 0);
}

#[tokio::test]
async fn a_node_whose_lease_ran_out_in_an_outage_does_not_close_its_own_calls() {
    let calls = Calls::new().await;
    let ctx = &calls.gateway.world.ctx;
    app::nodes::register(ctx, Kind::Api, "here").await.unwrap();
    calls.peer().answer("echo", Answer::Echo.held());
    let mut running = calls.start("echo", "{}");
    calls.peer().until("it is there", |peer| peer.held() == 1).await;
    let owner = calls.gateway.world.owner().await;
    sqlx::query("UPDATE nodes SET lease_expires_at = clock_timestamp() - interval '1 second'")
        .execute(&owner)
        .await
        .unwrap();

    let ticks = tokio::spawn(app::tick::run(ctx.clone(), worker::TICKS));
    eventually("the reaper has looked", async || {
        let done = "SELECT done_at IS NOT NULL FROM ticks WHERE name = 'reap-calls'";
        let done: Option<bool> = sqlx::query_scalar(done).fetch_optional(&owner).await.unwrap();
        (done == Some(true)).then_some(())
    })
    .await;
    calls.peer().release();
    running.finished().await.unwrap().outcome.unwrap();
    assert_eq!(calls.gateway.invocations().await[0].status, Status::Succeeded);
    ctx.draining.cancel();
    ticks.await.unwrap();
}

#[tokio::test]
async fn a_call_whose_result_was_stored_is_closed_as_succeeded() {
    let calls = Calls::new().await;
    calls.peer().answer("echo", Answer::Echo.held());
    let mut running = calls.start("echo", "{}");
    calls.peer().until("it is there", |peer| peer.held() == 1).await;
    let owner = calls.gateway.world.owner().await;
    sqlx::query("UPDATE tool_calls SET raw_sha256 = sha256('r'), result_sha256 = sha256('s')")
        .execute(&owner)
        .await
        .unwrap();
    assert_eq!(die(&calls).await, 1);
    let record = &calls.gateway.invocations().await[0];
    assert_eq!((record.status, record.error_code.as_deref()), (Status::Succeeded, None));
    calls.peer().release();
    let _ = running.finished().await;
}

#[tokio::test]
async fn every_closed_call_has_its_leaf() {
    let calls = Calls::new().await;
    calls.call("echo", "{}").await.outcome.unwrap();
    assert_eq!(error(calls.call("nothing", "{}").await).code, Code::NotFound);
    calls.peer().answer("echo", Answer::Echo.held());
    let _running = calls.start("echo", r#"{"n":2}"#);
    calls.peer().until("it is there", |peer| peer.held() == 1).await;
    die(&calls).await;

    let owner = calls.gateway.world.owner().await;
    let missing: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM invocations i WHERE NOT EXISTS
            (SELECT 1 FROM audit_leaves l WHERE l.tenant_id = i.tenant_id
                AND l.kind = 'invocation' AND l.subject_id = i.invocation_id)",
    )
    .fetch_one(&owner)
    .await
    .unwrap();
    let leaves: i64 =
        sqlx::query_scalar("SELECT count(*) FROM audit_leaves WHERE kind = 'invocation'")
            .fetch_one(&owner)
            .await
            .unwrap();
    assert_eq!((missing, leaves), (0, 3));
}
