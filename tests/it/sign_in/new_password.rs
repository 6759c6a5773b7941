//! Another password: set by the operator, changed by its person.

use chrono::TimeDelta;
use domain::{Role, limits};
use http::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use sqlx::PgPool;
use tests::{
    browser::{Browser, Seen},
    world::{Person, World, eventually},
};

use super::{PASSWORD, browser_of, noon, person, signed_in};

const NEW: &str = "another horse battery";
const MINE: &str = "/api/me/password";

async fn set(world: &World, person: &Person) -> app::users::PasswordSet {
    let new = SecretString::from(NEW);
    app::users::set_password(&world.ctx, &person.tenant.slug, &person.email, new).await.unwrap()
}

async fn change(browser: &mut Browser, current: &str, new: &str) -> Seen {
    let body = json!({ "current": current, "new": new });
    browser.fetch(Method::PUT, MINE, Some(body)).await
}

/// Details of the audit's events of this action, oldest first.
async fn audited(owner: &PgPool, action: &str) -> Vec<Value> {
    let details = "SELECT details FROM audit_events WHERE action = $1 ORDER BY audit_event_id";
    sqlx::query_scalar(details).bind(action).fetch_all(owner).await.unwrap()
}

#[tokio::test]
async fn a_set_password_revokes_every_token_that_can_permit_or_configure() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let bob = person(&world, &ann.tenant, "bob@acme.test", Role::Superadmin).await;
    let mut fates = Vec::new();
    for (whose, scopes, lives) in [
        (&ann, "api:read,approve", false),
        (&ann, "api:read,api:write,admin", false),
        (&ann, "mcp:call,api:read,admin", false),
        (&ann, "mcp:call,api:read", true),
        (&ann, "api:read,api:write", true),
        (&bob, "api:read,api:write,approve,admin", true),
    ] {
        fates.push((world.token(whose, scopes).await, scopes, lives));
    }
    let set = set(&world, &ann).await;
    assert_eq!((set.web_sessions, set.tokens), (1, 3));
    for (token, scopes, lives) in fates {
        let status = world.get(&token, "/api/me").await.0.as_u16();
        assert_eq!(status, if lives { 200 } else { 401 }, "{scopes}");
    }
    assert_eq!(browser.get("/api/me").await.status, 401);
    let owner = world.owner().await;
    let told = audited(&owner, "user.password_set").await;
    assert_eq!(told, [json!({ "webSessions": 1, "tokens": 3 })]);
    let revoked = audited(&owner, "token.revoked").await;
    assert_eq!(revoked, vec![json!({ "userId": ann.id }); 3]);
}

/// As a request of the token's holder that makes a stronger one at this moment.
#[tokio::test]
async fn a_token_that_is_being_made_does_not_outlive_the_old_password() {
    let world = World::new().await;
    let (ann, _) = signed_in(&world).await;
    let maker = world.full_token(&ann).await;
    let owner = world.owner().await;
    let mut making = owner.begin().await.unwrap();
    sqlx::query("SELECT FROM api_tokens FOR NO KEY UPDATE").execute(&mut *making).await.unwrap();
    sqlx::query(
        "INSERT INTO api_tokens (tenant_id, token_id, user_id, name, digest, scopes, created_at, expires_at)
         SELECT tenant_id, gen_random_uuid(), user_id, 'made meanwhile', sha256('x'), scopes,
                created_at, expires_at
         FROM api_tokens",
    )
    .execute(&mut *making)
    .await
    .unwrap();
    let setting = async { set(&world, &ann).await.tokens };
    let superuser = world.superuser().await;
    let made = async {
        let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity
                                    WHERE wait_event_type = 'Lock' AND query LIKE '%api_tokens%')";
        let waiting = async || {
            let found: bool = sqlx::query_scalar(waits).fetch_one(&superuser).await.unwrap();
            found.then_some(())
        };
        eventually("the tokens are waited for", waiting).await;
        making.commit().await.unwrap();
    };
    assert_eq!(futures::join!(setting, made).0, 2);
    let left = "SELECT count(*) FROM api_tokens WHERE revoked_at IS NULL";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&owner).await.unwrap();
    assert_eq!((left, world.get(&maker, "/api/me").await.0.as_u16()), (0, 401));
}

#[tokio::test]
async fn a_changed_password_ends_the_other_sessions_and_no_token() {
    let world = World::new().await;
    let (ann, mut here) = signed_in(&world).await;
    let mut elsewhere = browser_of(&world, &ann).await;
    let bob = person(&world, &ann.tenant, "bob@acme.test", Role::Member).await;
    let mut his = browser_of(&world, &bob).await;
    let token = world.full_token(&ann).await;
    assert_eq!(change(&mut here, PASSWORD, NEW).await.status, 204);
    assert_eq!(here.get("/api/me").await.status, 200);
    assert_eq!(elsewhere.get("/api/me").await.status, 401);
    assert_eq!(his.get("/api/me").await.status, 200);
    assert_eq!(world.get(&token, "/api/me").await.0, 200);
    for (password, status) in [(PASSWORD, 401), (NEW, 303)] {
        let seen = Browser::at(&world.url).sign_in("acme", &ann.email, password).await;
        assert_eq!(seen.status, status);
    }
    let told = audited(&world.owner().await, "user.password_changed").await;
    assert_eq!(told, [json!({ "webSessions": 1 })]);
}

#[tokio::test]
async fn nobody_changes_a_password_without_knowing_it_or_by_a_token() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let bob = person(&world, &ann.tenant, "bob@acme.test", Role::Member).await;
    app::users::set_password(&world.ctx, "acme", &bob.email, "bob's own".to_owned().into())
        .await
        .unwrap();
    for (current, new, path) in [
        ("wrong horse battery", NEW, "/current"),
        ("bob's own", NEW, "/current"),
        ("", NEW, "/current"),
        (PASSWORD, "short", "/new"),
        (PASSWORD, &"x".repeat(1_025), "/new"),
    ] {
        let seen = change(&mut browser, current, new).await;
        let problem = seen.json();
        assert_eq!(
            (seen.status.as_u16(), &problem["code"], &problem["details"]["errors"][0]["path"]),
            (422, &json!("INVALID_INPUT"), &json!(path)),
            "{current} {new}"
        );
        assert!(!seen.text.contains("horse"), "{seen:?}");
    }
    let body = json!({ "current": PASSWORD, "new": NEW });
    let token = world.full_token(&ann).await;
    let (status, problem) = world.put(&token, MINE, body.clone()).await;
    assert_eq!((status.as_u16(), &problem["code"]), (403, &json!("DENIED")));
    assert_eq!(world.put("", MINE, body).await.0, 401);
    browser_of(&world, &ann).await;
}

#[tokio::test]
async fn guessing_the_own_password_waits_as_signing_in_does() {
    let world = World::with_fixed_clock(noon()).await;
    let (ann, mut browser) = signed_in(&world).await;
    for _ in 0..limits::SIGN_IN_FREE_TRIES.default {
        assert_eq!(change(&mut browser, "wrong horse battery", NEW).await.status, 422);
    }
    let seen = change(&mut browser, PASSWORD, NEW).await;
    assert_eq!((seen.status.as_u16(), seen.header("retry-after")), (429, "1"), "{seen:?}");
    let seen = Browser::at(&world.url).sign_in("acme", &ann.email, PASSWORD).await;
    assert_eq!(seen.status, 429);
    world.ctx.clock.advance(TimeDelta::seconds(1));
    assert_eq!(change(&mut browser, PASSWORD, NEW).await.status, 204);
}

#[tokio::test]
async fn the_page_changes_the_password() {
    let world = World::new().await;
    let (ann, mut browser) = signed_in(&world).await;
    let page = browser.get("/servers").await;
    assert!(page.text.contains(r#"href="/me/password""#), "{}", page.text);
    let page = browser.get("/me/password").await;
    assert!(page.status == 200 && !page.text.contains("is changed"), "{}", page.text);
    for (current, new, again, words) in [
        ("wrong horse battery", NEW, NEW, "That is not your password."),
        (PASSWORD, "short", "short", "fewer than 8 characters"),
        (PASSWORD, NEW, "something else", "not the same both times"),
    ] {
        let fields = [("current", current), ("new", new), ("again", again)];
        let page = browser.submit("/me/password", &fields).await;
        assert!(page.status == 422 && page.text.contains(words), "{words}: {page:?}");
        for typed in [current, new, again] {
            assert!(!page.text.contains(typed), "{typed}: {}", page.text);
        }
    }
    let fields = [("current", PASSWORD), ("new", NEW), ("again", NEW)];
    let seen = browser.submit("/me/password", &fields).await;
    assert_eq!((seen.status.as_u16(), seen.header("location")), (303, "/me/password?changed"));
    let page = browser.get("/me/password?changed").await;
    assert!(page.text.contains("Your password is changed"), "{}", page.text);
    assert_eq!(Browser::at(&world.url).sign_in("acme", &ann.email, NEW).await.status, 303);
    let seen = Browser::at(&world.url).submit("/me/password", &fields).await;
    assert!(seen.header("location").starts_with("/t/acme/sign-in"), "{seen:?}");
}
