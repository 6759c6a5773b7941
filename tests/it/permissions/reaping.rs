//! No question without a living owner or an expiry.

use app::permissions::{Attached, attach, detach, expire_due};
use chrono::{TimeDelta, TimeZone, Utc};
use domain::limits;
use tests::{
    questions::{again, by},
    world::World,
};
use uuid::Uuid;

use super::Desk;

impl Desk {
    /// The clock stands until it is moved.
    async fn at_noon() -> Self {
        let noon = Utc.with_ymd_and_hms(2026, 11, 30, 12, 0, 0).unwrap();
        let desk = Self::in_world(World::with_fixed_clock(noon).await).await;
        desk.register_node().await;
        desk
    }

    fn later(&self, seconds: i64) {
        self.world.ctx.clock.advance(TimeDelta::seconds(seconds));
    }

    async fn reap(&self) -> usize {
        expire_due(&self.world.ctx, limits::REAPER_BATCH.size()).await.unwrap()
    }

    async fn end_node(&self) {
        sqlx::query("UPDATE nodes SET ended_at = now() WHERE node_id = $1")
            .bind(self.world.ctx.node.0)
            .execute(&self.superuser().await)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_detached_question_ends_ten_minutes_after_the_last_contact() {
    let desk = Desk::at_noon().await;
    let id = desk.ask("forecast").await;
    desk.later(300);
    detach(&desk.world.ctx, desk.ann.tenant.id, id).await.unwrap();
    assert_eq!(desk.shown(id).await["expiresAt"], "2026-11-30T12:15:00Z");
    desk.later(599);
    assert_eq!(desk.reap().await, 0);
    assert_eq!(desk.state(id).await, "pending");
    desk.later(1);
    // Whoever looks sees it ended, whether or not the reaper came by.
    assert_eq!(desk.state(id).await, "cancelled");
    let (status, problem) = desk.decide(id, "allow_once").await;
    assert_eq!(status, 409, "{problem}");
    assert_eq!(problem["code"], "PERMISSION_ALREADY_RESOLVED");
    assert_eq!(problem["details"]["request"]["state"], "cancelled");
    let listed = desk.read("/api/permission-requests?state=cancelled").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(desk.reap().await, 1);
    assert_eq!(desk.reap().await, 0);
    assert_eq!(desk.state(id).await, "cancelled");
    assert!(desk.authorizations().await.is_empty());
}

#[tokio::test]
async fn the_reaper_takes_no_answer_back() {
    let desk = Desk::at_noon().await;
    let id = desk.ask("forecast").await;
    detach(&desk.world.ctx, desk.ann.tenant.id, id).await.unwrap();
    desk.later(599);
    let (status, answer) = desk.decide(id, "allow_once").await;
    assert_eq!(status, 200, "{answer}");
    desk.later(60);
    assert_eq!(desk.reap().await, 0);
    assert_eq!(desk.state(id).await, "allowed");
}

#[tokio::test]
async fn neither_grant_nor_mode_answers_what_has_expired() {
    let desk = Desk::at_noon().await;
    let expired = desk.ask("forecast").await;
    detach(&desk.world.ctx, desk.ann.tenant.id, expired).await.unwrap();
    desk.later(601);
    let id = desk.ask("forecast").await;
    let (_, answer) = desk.decide(id, "allow_matching").await;
    assert_eq!(answer["resolvedRequests"].as_array().unwrap().len(), 1);
    let (status, _) = desk.switch("always_allow").await;
    assert_eq!(status, 200);
    assert_eq!(desk.state(expired).await, "cancelled");
    assert_eq!(desk.authorizations().await.len(), 1);
}

#[tokio::test]
async fn a_held_question_is_left_to_its_holder() {
    let desk = Desk::at_noon().await;
    let id = desk.ask("forecast").await;
    desk.later(600);
    assert_eq!(desk.reap().await, 0, "its holder lets go at this moment");
    detach(&desk.world.ctx, desk.ann.tenant.id, id).await.unwrap();
    assert_eq!(desk.state(id).await, "pending");

    let lost = desk.ask("forecast").await;
    desk.later(600 + 10);
    assert_eq!(desk.reap().await, 2, "a holder that never lets go is lost");
    assert_eq!(
        (desk.state(id).await, desk.state(lost).await),
        ("cancelled".into(), "cancelled".into())
    );
}

#[tokio::test]
async fn a_question_whose_holder_died_is_detached_and_keeps_its_expiry() {
    let desk = Desk::at_noon().await;
    let token = app::tokens::create_for(
        &desk.world.ctx,
        &desk.ann.tenant.slug,
        &desk.ann.email,
        domain::Scopes::new([domain::Scope::McpCall]).unwrap(),
        None,
    );
    let token = token.await.unwrap().token.id;
    let asked = by(token, desk.question("forecast", "{}"));
    let id = desk.ask_about(&asked).await;
    assert_eq!(desk.reap().await, 0, "its holder lives");
    desk.later(60);
    desk.end_node().await;
    assert_eq!(desk.reap().await, 1);
    assert_eq!(desk.shown(id).await["expiresAt"], "2026-11-30T12:10:00Z");
    assert_eq!(desk.reap().await, 0, "once");
    let found = attach(&desk.world.ctx, desk.ann.tenant.id, &again(&asked)).await.unwrap();
    assert_eq!(found, Some(Attached::Pending(id)));
}

#[tokio::test]
async fn an_identical_call_need_not_wait_for_the_reaper() {
    let desk = Desk::at_noon().await;
    let asked = by(domain::ids::TokenId(Uuid::new_v4()), desk.question("forecast", "{}"));
    let id = desk.ask_about(&asked).await;
    sqlx::query("UPDATE permission_requests SET node_id = $1")
        .bind(Uuid::new_v4())
        .execute(&desk.superuser().await)
        .await
        .unwrap();
    let found = attach(&desk.world.ctx, desk.ann.tenant.id, &again(&asked)).await.unwrap();
    assert_eq!(found, Some(Attached::Pending(id)));
}

#[tokio::test]
async fn a_question_of_another_owner_ends_with_its_holder() {
    let desk = Desk::at_noon().await;
    let id = desk.ask("forecast").await;
    sqlx::query("UPDATE permission_requests SET owner_kind = 'inspector', expires_at = NULL")
        .execute(&desk.superuser().await)
        .await
        .unwrap();
    assert_eq!(desk.reap().await, 0);
    desk.end_node().await;
    assert_eq!(desk.reap().await, 1);
    assert_eq!(desk.state(id).await, "cancelled");
}
