//! The call that waits: held, hung up, taken over, cut off.

use app::permissions::{Attached, Resolution, attach, detach, expire_due};
use domain::{
    Scopes,
    ids::{PermissionRequestId, TokenId},
};
use serde_json::json;
use store::calls::CallName;
use tests::{
    questions::{again, by},
    world::eventually,
};

use super::{Desk, allowed};

impl Desk {
    async fn token_id(&self) -> TokenId {
        let scopes = Scopes::new([domain::Scope::McpCall]).unwrap();
        let (slug, email) = (&self.ann.tenant.slug, &self.ann.email);
        let minted =
            app::tokens::create_for(&self.world.ctx, slug, email, scopes, None).await.unwrap();
        minted.token.id
    }

    async fn attach(&self, call: &app::permissions::NewQuestion) -> Option<Attached> {
        let name = CallName {
            tenant: self.ann.tenant.id,
            execution: call.execution,
            call_id: call.call_id.clone(),
        };
        super::hold(&self.world.ctx, &self.world.database.owner_url, &name, call.session).await;
        attach(&self.world.ctx, self.ann.tenant.id, call).await.unwrap()
    }

    async fn detach(&self, id: PermissionRequestId) {
        detach(&self.world.ctx, self.ann.tenant.id, id).await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_decision() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let waiter = desk.waiter(id);
    desk.decide(id, "allow_once").await;
    assert!(allowed(waiter.await.unwrap()));
}

#[tokio::test]
async fn an_answer_is_picked_up_once() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let waiters = [desk.waiter(id), desk.waiter(id)];
    desk.decide(id, "allow_once").await;
    let mut allowances = 0;
    for waiter in waiters {
        allowances += usize::from(allowed(waiter.await.unwrap()));
    }
    assert_eq!(allowances, 1);
    assert_eq!(desk.look(id).await, Resolution::Cancelled);
}

#[tokio::test]
async fn a_waiter_whose_time_is_over_leaves_the_question_as_it_is() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    assert_eq!(desk.look(id).await, Resolution::TimedOut);
    assert_eq!(desk.state(id).await, "pending");
    // An answer of the last moment counts.
    desk.decide(id, "allow_once").await;
    assert!(allowed(desk.look(id).await));
}

#[tokio::test]
async fn a_cancelled_question_wakes_its_waiter_and_cannot_be_decided() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let waiter = desk.waiter(id);
    let expired = "UPDATE permission_requests SET expires_at = now() - interval '1 minute'";
    sqlx::query(expired).execute(&desk.superuser().await).await.unwrap();
    assert_eq!(expire_due(&desk.world.ctx, 10).await.unwrap(), 1);
    assert_eq!(waiter.await.unwrap(), Resolution::Cancelled);
    let (status, problem) = desk.decide(id, "allow_once").await;
    assert_eq!(status, 409);
    assert_eq!(problem["details"]["request"]["state"], "cancelled");
}

#[tokio::test]
async fn only_the_same_tokens_identical_call_takes_a_detached_question_over_and_one_alone() {
    let desk = Desk::new().await;
    let token = desk.token_id().await;
    let first = by(token, desk.question("forecast", r#"{"city":"Aarhus"}"#));
    let id = desk.ask_about(&first).await;
    assert_eq!(desk.attach(&again(&first)).await, None, "its caller is still there");
    desk.detach(id).await;

    let another_token = by(desk.token_id().await, again(&first));
    assert_eq!(desk.attach(&another_token).await, None);
    let another_input = by(token, desk.question("forecast", r#"{"city":"Odense"}"#));
    assert_eq!(desk.attach(&another_input).await, None);
    let mut another_definition = again(&first);
    another_definition.definition_hash = Some(domain::json::Sha256Digest::of(b"changed"));
    assert_eq!(desk.attach(&another_definition).await, None);

    let second = again(&first);
    assert_eq!(desk.attach(&second).await, Some(Attached::Pending(id)));
    assert_eq!(desk.attach(&again(&first)).await, None, "it is held again");
    let shown = desk.shown(id).await;
    assert_eq!(shown["executionId"], second.execution.to_string());
    assert_eq!(shown["toolCallId"], "2");
    let waiter = desk.waiter(id);
    desk.decide(id, "allow_once").await;
    assert!(allowed(waiter.await.unwrap()));
}

#[tokio::test]
async fn an_answer_to_a_detached_question_waits_for_the_next_identical_call_and_one_alone() {
    let desk = Desk::new().await;
    let token = desk.token_id().await;
    for (decision, allows) in [("allow_once", true), ("deny", false)] {
        let first = by(token, desk.question("forecast", &format!(r#"{{"try":"{decision}"}}"#)));
        let id = desk.ask_about(&first).await;
        desk.detach(id).await;
        desk.decide(id, decision).await;
        let Some(Attached::Decided(resolution)) = desk.attach(&again(&first)).await else {
            panic!("not taken over");
        };
        assert_eq!(allowed(resolution), allows);
        assert_eq!(desk.attach(&again(&first)).await, None, "used once");
    }
}

#[tokio::test]
async fn an_answer_that_came_as_the_caller_hung_up_is_not_lost() {
    let desk = Desk::new().await;
    let first = by(desk.token_id().await, desk.question("forecast", "{}"));
    let id = desk.ask_about(&first).await;
    desk.decide(id, "allow_once").await;
    desk.detach(id).await;
    let found = desk.attach(&again(&first)).await;
    assert!(matches!(found, Some(Attached::Decided(resolution)) if allowed(resolution)));
}

#[tokio::test]
async fn a_waiter_outlives_an_outage_of_the_database() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let waiter = desk.waiter(id);
    let superuser = desk.superuser().await;
    for _ in 0..3 {
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND usename = 'bailiwick_app'",
        )
        .execute(&superuser)
        .await
        .unwrap();
        // Everybody's next statement meets a dead connection.
        let (status, _) = desk.world.get(&desk.token, "/api/sessions").await;
        assert!(status == 200 || status == 503, "{status}");
    }
    eventually("the decision gets through", async || {
        let (status, answer) = desk.decide(id, "allow_once").await;
        assert!(status == 200 || status == 503, "{status} {answer}");
        (status == 200).then_some(())
    })
    .await;
    assert!(allowed(waiter.await.unwrap()));
}

#[tokio::test]
async fn archiving_a_session_cancels_its_questions_and_lets_nobody_ask() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let waiter = desk.waiter(id);
    let path = format!("/api/sessions/{}", desk.session);
    let (status, archived) = desk.world.delete(&desk.token, &path).await;
    assert_eq!(status, 200, "{archived}");
    assert_eq!(waiter.await.unwrap(), Resolution::Cancelled);
    assert_eq!(desk.state(id).await, "cancelled");
    let (status, problem) = desk.decide(id, "allow_once").await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("SESSION_ARCHIVED")));
    let question = desk.question("forecast", "{}");
    let refused =
        app::permissions::ask(&desk.world.ctx, desk.ann.tenant.id, &question).await.unwrap_err();
    assert_eq!(refused.code, domain::Code::SessionArchived);
}
