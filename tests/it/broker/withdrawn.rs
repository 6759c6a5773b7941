//! A call that ends refused takes its open question with it, in one transaction.

use domain::{invocation::Status, permission::Decision};
use serde_json::json;
use tests::peer::tool;

use crate::input_required::{Asking, Told, question, refusal};

/// The call is back, and the server's switch, revision or definition is not what it was.
async fn come_back_refused(asking: &Asking, first: &Told, code: &str) {
    let answer = asking.again(1, first, "accept").await;
    assert_eq!(refusal(&answer), code, "{answer}");
    let [record] = &asking.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!((record.status, record.error_code.as_deref()), (Status::Failed, Some(code)));
    assert!(asking.gateway.peer.calls().is_empty());
}

/// Whether record and question were last written by one transaction.
async fn together(asking: &Asking) -> bool {
    let sql = "SELECT i.xmin = r.xmin FROM invocations i, permission_requests r";
    sqlx::query_scalar(sql).fetch_one(&asking.gateway.world.owner().await).await.unwrap()
}

async fn switch_off(asking: &Asking) {
    let (ctx, owner) = (&asking.gateway.world.ctx, &asking.gateway.owner);
    app::servers::switch(ctx, owner, "demo", false).await.unwrap();
}

#[tokio::test]
async fn a_refused_call_leaves_no_question_behind() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    switch_off(&asking).await;
    come_back_refused(&asking, &first, "SOURCE_DISABLED").await;
    assert_eq!(asking.question_state().await, "cancelled");
    assert!(together(&asking).await);
    let (ctx, owner) = (&asking.gateway.world.ctx, &asking.gateway.owner);
    let late = app::permissions::decide(ctx, owner, question(&first), Decision::AllowOnce).await;
    assert_eq!(late.unwrap_err().code, domain::Code::PermissionAlreadyResolved);
}

#[tokio::test]
async fn a_call_that_is_declined_or_left_ends_with_its_question() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    assert_eq!(refusal(&asking.again(1, &first, "decline").await), "CANCELLED");
    assert_eq!(asking.question_state().await, "cancelled");
    assert!(together(&asking).await);

    let asking = Asking::new().await;
    asking.begin(1).await;
    let left = "UPDATE tool_calls SET resumable_until = now() - interval '1 second'";
    sqlx::query(left).execute(&asking.gateway.world.owner().await).await.unwrap();
    assert_eq!(app::broker::reap(&asking.gateway.world.ctx, 10).await.unwrap(), 1);
    assert_eq!(asking.question_state().await, "cancelled");
    assert!(together(&asking).await);
}

#[tokio::test]
async fn an_answer_that_a_refused_call_did_not_pick_up_serves_no_other() {
    let asking = Asking::new().await;
    let gateway = &asking.gateway;
    let first = asking.begin(1).await;
    asking.decide(&first, Decision::AllowOnce).await;
    switch_off(&asking).await;
    come_back_refused(&asking, &first, "SOURCE_DISABLED").await;
    assert_eq!(asking.question_state().await, "allowed");
    assert!(together(&asking).await);

    // The same call of a client that is held takes over what nobody holds.
    app::servers::switch(&gateway.world.ctx, &gateway.owner, "demo", true).await.unwrap();
    let mcp = gateway.initialize("2025-11-25").await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "mcp__demo__echo", "arguments": {"n": 1},
    }});
    let (path, headers) = (gateway.path(), [("mcp-session-id", mcp.as_str())]);
    let request =
        gateway.request(http::Method::POST, &gateway.token, &path, &headers, call.to_string());
    let _held = request.send().await.unwrap();
    let asked: i64 = sqlx::query_scalar("SELECT count(*) FROM permission_requests")
        .fetch_one(&gateway.world.owner().await)
        .await
        .unwrap();
    assert_eq!(asked, 2, "it is asked about");
    assert!(gateway.peer.calls().is_empty());
}

#[tokio::test]
async fn a_changed_definition_ends_the_question_about_the_old_one() {
    let asking = Asking::new().await;
    let gateway = &asking.gateway;
    let first = asking.begin(1).await;
    gateway.peer.change(|setup| setup.tools = vec![tool("echo").replace("a tool", "another")]);
    app::discovery::run(&gateway.world.ctx, gateway.owner.tenant, &gateway.server, None)
        .await
        .unwrap();
    come_back_refused(&asking, &first, "TOOL_CHANGED").await;
    assert_eq!(asking.question_state().await, "cancelled");
    assert!(together(&asking).await);
}
