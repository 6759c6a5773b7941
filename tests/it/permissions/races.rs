//! Two at once, driven in both orders: whoever stands in the session's queue first goes first.

use std::future::Future;

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};
use sqlx::PgPool;
use tests::world::eventually;
use tokio::task::JoinHandle;

use super::{Desk, texts};

/// Starts `first`, then `second`, while somebody else holds the session; lets go when both wait.
async fn in_order<A: Send + 'static, B: Send + 'static>(
    desk: &Desk,
    first: impl Future<Output = A> + Send + 'static,
    second: impl Future<Output = B> + Send + 'static,
) -> (A, B) {
    let superuser = desk.superuser().await;
    let mut held = superuser.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM sessions WHERE session_id = $1 FOR UPDATE")
        .bind(desk.session.0)
        .execute(&mut *held)
        .await
        .unwrap();
    let first: JoinHandle<A> = tokio::spawn(first);
    until_waiting(&superuser, 1).await;
    let second: JoinHandle<B> = tokio::spawn(second);
    until_waiting(&superuser, 2).await;
    held.rollback().await.unwrap();
    (first.await.unwrap(), second.await.unwrap())
}

async fn until_waiting(superuser: &PgPool, how_many: i64) {
    eventually("both stand in the queue", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(superuser)
        .await
        .unwrap();
        (waiting == how_many).then_some(())
    })
    .await;
}

/// The request of a decision or a switch, apart from the desk, so that a task can own it.
fn sending(
    desk: &Desk,
    method: http::Method,
    path: &str,
    body: &Value,
) -> BoxFuture<'static, (u16, Value)> {
    let request = desk
        .world
        .client()
        .request(method, desk.world.url.join(path).unwrap())
        .bearer_auth(&desk.token)
        .json(body);
    async move {
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
    .boxed()
}

fn deciding(
    desk: &Desk,
    id: domain::ids::PermissionRequestId,
    decision: &str,
) -> BoxFuture<'static, (u16, Value)> {
    let path = format!("/api/permission-requests/{id}/decision");
    sending(desk, http::Method::POST, &path, &json!({ "decision": decision }))
}

fn switching(desk: &Desk) -> BoxFuture<'static, (u16, Value)> {
    let body = json!({ "approvalMode": "always_allow" });
    sending(desk, http::Method::PATCH, &format!("/api/sessions/{}", desk.session), &body)
}

fn asking(desk: &Desk, tool: &str) -> BoxFuture<'static, domain::ids::PermissionRequestId> {
    let (ctx, tenant, question) =
        (desk.world.ctx.clone(), desk.ann.tenant.id, desk.question(tool, "{}"));
    async move { app::permissions::ask(&ctx, tenant, &question).await.unwrap() }.boxed()
}

#[tokio::test]
async fn of_two_decisions_the_later_one_is_refused_with_the_question() {
    for (first, second, state) in
        [("allow_once", "deny", "allowed"), ("deny", "allow_matching", "denied")]
    {
        let desk = Desk::new().await;
        let id = desk.ask("forecast").await;
        let (winner, loser) =
            in_order(&desk, deciding(&desk, id, first), deciding(&desk, id, second)).await;
        assert_eq!(winner.0, 200, "{winner:?}");
        assert_eq!(loser.0, 409, "{loser:?}");
        assert_eq!(loser.1["code"], "PERMISSION_ALREADY_RESOLVED");
        assert_eq!(loser.1["details"]["request"], winner.1["request"]);
        assert_eq!(desk.state(id).await, state);
        assert_eq!(desk.authorizations().await.len(), 1);
        let grants = desk.read("/api/permission-grants").await;
        assert_eq!(grants["items"], json!([]), "the loser granted nothing");
        assert_eq!(desk.epoch().await["id"], winner.1["permissionEpoch"]["id"]);
    }
}

#[tokio::test]
async fn a_question_asked_after_a_grant_is_answered_by_it_though_its_call_saw_none() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let (decided, late) =
        in_order(&desk, deciding(&desk, id, "allow_matching"), asking(&desk, "forecast")).await;
    assert_eq!(decided.0, 200, "{decided:?}");
    assert_eq!(decided.1["authorizations"].as_array().unwrap().len(), 1);
    assert!(super::allowed(desk.look(late).await));
    let records = desk.authorizations().await;
    assert_eq!(records.len(), 2);
    let late = json!(late);
    let record = records.iter().find(|record| record["permissionRequestId"] == late).unwrap();
    assert_eq!(record["source"], "existing_grant");
    assert_eq!(record["permissionGrantId"], decided.1["grant"]["id"]);
}

#[tokio::test]
async fn a_question_asked_before_a_grant_is_released_with_the_others() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let (early, decided) =
        in_order(&desk, asking(&desk, "forecast"), deciding(&desk, id, "allow_matching")).await;
    assert_eq!(decided.0, 200, "{decided:?}");
    assert_eq!(decided.1["authorizations"].as_array().unwrap().len(), 2);
    assert!(super::allowed(desk.look(early).await));
}

#[tokio::test]
async fn no_question_is_left_behind_by_a_switch_to_always_allow() {
    let desk = Desk::new().await;
    let (switched, late) = in_order(&desk, switching(&desk), asking(&desk, "forecast")).await;
    assert_eq!(switched.0, 200, "{switched:?}");
    assert!(super::allowed(desk.look(late).await));

    let desk = Desk::new().await;
    let (early, switched) = in_order(&desk, asking(&desk, "forecast"), switching(&desk)).await;
    assert_eq!(switched.0, 200, "{switched:?}");
    assert!(super::allowed(desk.look(early).await));
    assert_eq!(texts(&desk.authorizations().await, "source"), ["always_allow"]);
}

#[tokio::test]
async fn a_decision_and_a_switch_answer_a_question_once() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let (switched, decided) = in_order(&desk, switching(&desk), deciding(&desk, id, "deny")).await;
    assert_eq!((switched.0, decided.0), (200, 409));
    assert_eq!(texts(&desk.authorizations().await, "source"), ["always_allow"]);

    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let (decided, switched) = in_order(&desk, deciding(&desk, id, "deny"), switching(&desk)).await;
    assert_eq!((decided.0, switched.0), (200, 200));
    assert_eq!(texts(&desk.authorizations().await, "source"), ["user_deny"]);
}
