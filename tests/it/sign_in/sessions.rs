//! How long a browser session lasts, and what ends it.

use chrono::TimeDelta;
use domain::{Role, limits};
use http::Method;
use secrecy::SecretString;
use serde_json::json;
use tests::{browser::Browser, world::World};

use super::{PASSWORD, browser_of, noon, person, signed_in};

#[tokio::test]
async fn each_sign_in_is_a_new_session_and_ends_the_one_before() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    // A value that somebody else put there is never taken over.
    let mut fixed = Browser::at(&world.url);
    let planted = format!("blw-session={}", "A".repeat(43));
    fixed.cookie = Some(planted.clone());
    assert_eq!(fixed.sign_in("acme", &ann.email, PASSWORD).await.status, 303);
    assert_ne!(fixed.cookie.as_ref(), Some(&planted));
    let mut thief = Browser::at(&world.url);
    thief.cookie = Some(planted);
    assert_eq!(thief.get("/api/me").await.status, 401);

    let before = browser.cookie.clone();
    let mut old = browser.clone();
    assert_eq!(browser.sign_in("acme", &ann.email, PASSWORD).await.status, 303);
    assert_ne!(browser.cookie, before);
    assert_eq!(old.get("/api/me").await.status, 401);
    assert_eq!(browser.get("/api/me").await.status, 200);
    assert_eq!(fixed.get("/api/me").await.status, 200, "another browser's goes on");
}

#[tokio::test]
async fn a_failed_sign_in_ends_nothing() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    assert_eq!(browser.sign_in("acme", &ann.email, "wrong horse").await.status, 401);
    assert_eq!(browser.get("/api/me").await.status, 200);
}

#[tokio::test]
async fn an_idle_session_ends_and_a_used_one_only_when_its_day_is_over() {
    let world = World::with_fixed_clock(noon()).await;
    let (ann, mut used) = signed_in(&world).await;
    let mut idle = browser_of(&world, &ann).await;
    let pause = TimeDelta::from_std(limits::WEB_SESSION_IDLE_SECONDS.seconds()).unwrap();
    let day = TimeDelta::from_std(limits::WEB_SESSION_SECONDS.seconds()).unwrap();
    let step = pause - TimeDelta::minutes(2);
    let mut passed = TimeDelta::zero();
    while passed + step < day {
        world.ctx.clock.advance(step);
        passed += step;
        assert_eq!(used.get("/api/me").await.status, 200, "{passed}");
    }
    assert_eq!(idle.get("/api/me").await.status, 401);
    let problem = idle.get("/api/me").await.json();
    assert_eq!(problem["detail"], "this sign-in is over");

    world.ctx.clock.advance(day - passed - TimeDelta::seconds(1));
    assert_eq!(used.get("/api/me").await.status, 200);
    world.ctx.clock.advance(TimeDelta::seconds(1));
    assert_eq!(used.get("/api/me").await.status, 401);

    // Both are forgotten some days later.
    app::housekeeping::forget_sign_ins(&world.ctx).await.unwrap();
    assert_eq!(sessions(&world).await, 2);
    world.ctx.clock.advance(TimeDelta::days(3));
    app::housekeeping::forget_sign_ins(&world.ctx).await.unwrap();
    assert_eq!(sessions(&world).await, 0);
}

async fn sessions(world: &World) -> i64 {
    let owner = world.owner().await;
    sqlx::query_scalar("SELECT count(*) FROM web_sessions").fetch_one(&owner).await.unwrap()
}

#[tokio::test]
async fn signing_out_ends_this_session_and_no_other() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let mut other = browser_of(&world, &ann).await;
    let mut stolen = browser.clone();
    let seen = browser.submit("/sign-out", &[]).await;
    assert_eq!((seen.status.as_u16(), seen.header("location")), (303, "/t/acme/sign-in"));
    assert_eq!(browser.cookie, None);
    assert_eq!(stolen.get("/api/me").await.status, 401);
    assert_eq!(other.get("/api/me").await.status, 200);

    let mut stolen = other.clone();
    let seen = other.fetch(Method::POST, "/api/logout", None).await;
    assert_eq!((seen.status.as_u16(), other.cookie.as_ref()), (204, None));
    assert_eq!(stolen.get("/api/me").await.status, 401);
    // Again, with the dead cookie, and with none.
    assert_eq!(stolen.fetch(Method::POST, "/api/logout", None).await.status, 204);
    assert_eq!(other.fetch(Method::POST, "/api/logout", None).await.status, 204);
    assert_eq!(other.submit("/sign-out", &[]).await.status, 303);
}

#[tokio::test]
async fn a_disabled_person_is_signed_out_for_good() {
    let world = World::new().await;
    let (ann, mut admin) = signed_in(&world).await;
    let mia = person(&world, &ann.tenant, "mia@acme.test", Role::Member).await;
    let mut hers = browser_of(&world, &mia).await;
    let path = format!("/api/users/{}", mia.id);
    for status in ["disabled", "active"] {
        let seen = admin.fetch(Method::PATCH, &path, Some(json!({ "status": status }))).await;
        assert_eq!(seen.status, 200, "{seen:?}");
        assert_eq!(hers.get("/api/me").await.status, 401, "{status}");
    }
    browser_of(&world, &mia).await;
}

#[tokio::test]
async fn a_role_counts_as_it_is_now() {
    let world = World::new().await;
    let (ann, mut admin) = signed_in(&world).await;
    let mia = person(&world, &ann.tenant, "mia@acme.test", Role::Member).await;
    let mut hers = browser_of(&world, &mia).await;
    assert_eq!(hers.get("/api/users").await.status, 403);
    let role = json!({ "role": "admin" });
    admin.fetch(Method::PATCH, &format!("/api/users/{}", mia.id), Some(role)).await;
    assert_eq!(hers.get("/api/users").await.status, 200);
}

#[tokio::test]
async fn another_password_ends_every_session() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let bob = person(&world, &ann.tenant, "bob@acme.test", Role::Member).await;
    let mut his = browser_of(&world, &bob).await;
    let new = || SecretString::from("another horse battery");
    app::users::set_password(&world.ctx, "acme", "ANN@acme.test", new()).await.unwrap();
    assert_eq!(browser.get("/api/me").await.status, 401);
    assert_eq!(his.get("/api/me").await.status, 200);
    let mut again = Browser::at(&world.url);
    assert_eq!(again.sign_in("acme", &ann.email, PASSWORD).await.status, 401);
    let seen = again.sign_in("acme", &ann.email, "another horse battery").await;
    assert_eq!(seen.status, 303);
    for (tenant, email) in [("nowhere", "ann@acme.test"), ("acme", "nobody@acme.test")] {
        assert!(app::users::set_password(&world.ctx, tenant, email, new()).await.is_err());
    }
}

#[tokio::test]
async fn what_lasts_longer_than_a_request_ends_with_the_session() {
    let world = World::with_fixed_clock(noon()).await;
    let (_, mut browser) = signed_in(&world).await;
    let secret = browser.cookie.clone().unwrap();
    let secret = secret.strip_prefix("blw-session=").unwrap();
    let caller = app::identity::authenticate_browser(&world.ctx, secret).await.unwrap();
    app::identity::recheck(&world.ctx, &caller).await.unwrap();
    // Looking whether it still holds is no use of it.
    let pause = TimeDelta::from_std(limits::WEB_SESSION_IDLE_SECONDS.seconds()).unwrap();
    world.ctx.clock.advance(pause - TimeDelta::seconds(1));
    app::identity::recheck(&world.ctx, &caller).await.unwrap();
    world.ctx.clock.advance(TimeDelta::seconds(1));
    app::identity::recheck(&world.ctx, &caller).await.unwrap_err();
    assert_eq!(browser.get("/api/me").await.status, 401);
}

#[tokio::test]
async fn the_audit_says_who_came_and_went_and_the_cookie_is_kept_nowhere() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let cookie = browser.cookie.clone().unwrap();
    let secret = cookie.strip_prefix("blw-session=").unwrap().to_owned();
    browser.fetch(Method::POST, "/api/sessions", Some(json!({}))).await;
    let token = json!({ "name": "by hand", "scopes": ["api:read"] });
    assert_eq!(browser.fetch(Method::POST, "/api/tokens", Some(token)).await.status, 201);
    browser.submit("/sign-out", &[]).await;
    let owner = world.owner().await;
    let events: Vec<(String, bool)> = sqlx::query_as(
        "SELECT action, via = 'console:' || (SELECT web_session_id FROM web_sessions)
         FROM audit_events WHERE actor_user_id = $1 ORDER BY created_at, audit_event_id",
    )
    .bind(ann.id.0)
    .fetch_all(&owner)
    .await
    .unwrap();
    let names: Vec<&str> = events.iter().map(|(action, _)| action.as_str()).collect();
    assert!(names.starts_with(&["web_session.created"]), "{names:?}");
    assert!(
        names.contains(&"token.created") && names.ends_with(&["web_session.revoked"]),
        "{names:?}"
    );
    assert!(events.iter().all(|(_, by_console)| *by_console), "{events:?}");
    let rows: String = sqlx::query_scalar("SELECT string_agg(w::text, '') FROM web_sessions w")
        .fetch_one(&owner)
        .await
        .unwrap();
    assert!(!rows.contains(&secret));
}
