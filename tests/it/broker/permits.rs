//! Who may, and who says so.

use domain::{
    Code,
    ids::PermissionRequestId,
    invocation::Status,
    permission::{ApprovalMode, Decision, ToolPolicy},
};
use serde_json::json;
use tests::{peer::Setup, world::eventually};

use super::{Calls, error};

async fn asking() -> Calls {
    Calls::with(Setup::modern(), ApprovalMode::AskForDangerous, json!({})).await
}

/// The only pending question of the session.
async fn question(calls: &Calls) -> PermissionRequestId {
    let path = format!("/api/permission-requests?sessionId={}", calls.gateway.session);
    let world = &calls.gateway.world;
    let token = world.full_token(&calls.gateway.person).await;
    let id = eventually("a question is asked", async || {
        let (_, page) = world.get(&token, &path).await;
        let items = page["items"].as_array()?.clone();
        let pending: Vec<_> = items.iter().filter(|one| one["state"] == "pending").collect();
        assert!(pending.len() < 2, "{items:#?}");
        pending.first().map(|one| one["id"].as_str().unwrap().to_owned())
    })
    .await;
    id.parse().unwrap()
}

async fn decide(calls: &Calls, decision: Decision) {
    let id = question(calls).await;
    let ctx = &calls.gateway.world.ctx;
    app::permissions::decide(ctx, &calls.gateway.owner, id, decision).await.unwrap();
}

#[tokio::test]
async fn nothing_reaches_the_server_before_the_person_said_yes() {
    let calls = asking().await;
    let mut running = calls.start("echo", "{}");
    calls.gateway.until(Status::Waiting).await;
    question(&calls).await;
    assert!(calls.peer().calls().is_empty());
    decide(&calls, Decision::AllowOnce).await;
    let called = running.finished().await.unwrap();
    called.outcome.unwrap();
    let record = &calls.gateway.invocations().await[0];
    assert_eq!(record.id, called.invocation);
    assert!(record.authorization.is_some());

    // Once is once.
    let _second = calls.start("echo", "{}");
    question(&calls).await;
    assert_eq!(calls.peer().calls().len(), 1);
}

#[tokio::test]
async fn a_no_ends_the_call_and_leaves_its_authorization() {
    let calls = asking().await;
    let mut running = calls.start("echo", "{}");
    decide(&calls, Decision::Deny).await;
    assert_eq!(error(running.finished().await.unwrap()).code, Code::PermissionDenied);
    let record = &calls.gateway.invocations().await[0];
    assert_eq!(record.status, Status::Failed);
    assert!(record.authorization.is_some());
    assert!(calls.peer().calls().is_empty());
}

#[tokio::test]
async fn a_grant_covers_the_next_call_and_no_changed_definition() {
    let calls = asking().await;
    let mut running = calls.start("echo", r#"{"n":1}"#);
    decide(&calls, Decision::AllowMatching).await;
    running.finished().await.unwrap().outcome.unwrap();
    calls.call("echo", r#"{"n":2}"#).await.outcome.unwrap();

    let token = calls.gateway.world.full_token(&calls.gateway.person).await;
    let path = format!("/api/sessions/{}/permission-authorizations", calls.gateway.session);
    let (_, page) = calls.gateway.world.get(&token, &path).await;
    let sources: Vec<_> =
        page["items"].as_array().unwrap().iter().map(|one| one["source"].clone()).collect();
    assert_eq!(sources, ["existing_grant", "user_grant"]);
}

#[tokio::test]
async fn policy_denies_and_the_server_is_never_contacted() {
    let calls = Calls::new().await;
    let ctx = &calls.gateway.world.ctx;
    let change =
        app::servers::tools::ToolChange { policy: Some(ToolPolicy::Deny), ..Default::default() };
    let tool = "echo".into();
    app::servers::tools::change(ctx, &calls.gateway.owner, "demo", &tool, change).await.unwrap();
    // Hidden and denied: the record says which rule it was.
    let refused = error(calls.call("echo", "{}").await);
    assert_eq!(refused.code, Code::PermissionDenied);
    assert!(calls.gateway.invocations().await[0].authorization.is_some());
    assert!(calls.peer().calls().is_empty());
}

#[tokio::test]
async fn a_question_that_was_left_behind_is_taken_over_by_the_same_call_once() {
    let calls = asking().await;
    drop(calls.start("echo", r#"{"n":1}"#));
    calls.gateway.until(Status::Cancelled).await;
    let first = question(&calls).await;

    let mut again = calls.start("echo", r#"{"n":1}"#);
    calls.gateway.until(Status::Waiting).await;
    assert_eq!(question(&calls).await, first);
    decide(&calls, Decision::AllowOnce).await;
    again.finished().await.unwrap().outcome.unwrap();

    // Spent: the third call asks anew.
    let _third = calls.start("echo", r#"{"n":1}"#);
    assert_ne!(question(&calls).await, first);
    assert_eq!(calls.peer().calls().len(), 1);
}

#[tokio::test]
async fn an_answer_given_while_nobody_held_the_line_serves_the_same_call_once() {
    let calls = asking().await;
    drop(calls.start("echo", r#"{"n":1}"#));
    calls.gateway.until(Status::Cancelled).await;
    decide(&calls, Decision::AllowOnce).await;

    calls.call("echo", r#"{"n":1}"#).await.outcome.unwrap();
    let mut other = calls.start("echo", r#"{"n":1}"#);
    decide(&calls, Decision::Deny).await;
    assert_eq!(error(other.finished().await.unwrap()).code, Code::PermissionDenied);
    assert_eq!(calls.peer().calls().len(), 1);
}

#[tokio::test]
async fn cancelling_a_waiting_call_withdraws_its_question() {
    let calls = asking().await;
    let mut running = calls.start("echo", "{}");
    let id = question(&calls).await;
    running.cancel_token().cancel();
    assert_eq!(error(running.finished().await.unwrap()).code, Code::Cancelled);
    let ctx = &calls.gateway.world.ctx;
    let late = app::permissions::decide(ctx, &calls.gateway.owner, id, Decision::AllowOnce).await;
    assert_eq!(late.unwrap_err().code, Code::PermissionAlreadyResolved);
}

#[tokio::test]
async fn a_definition_that_changes_while_the_question_is_open_is_not_called() {
    let calls = asking().await;
    let mut running = calls.start("echo", "{}");
    question(&calls).await;
    calls.peer().change(|setup| {
        setup.tools = vec![tests::peer::tool("echo").replace("a tool", "another tool")];
    });
    let ctx = &calls.gateway.world.ctx;
    app::discovery::run(ctx, calls.agent.tenant, calls.server(), None).await.unwrap();
    decide(&calls, Decision::AllowOnce).await;
    assert_eq!(error(running.finished().await.unwrap()).code, Code::ToolChanged);
    assert!(calls.peer().calls().is_empty());
}
