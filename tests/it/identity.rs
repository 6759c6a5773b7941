//! Tokens, roles, and what neither can do.

use chrono::{DateTime, TimeDelta, Utc};
use domain::{Code, Role, Via};
use http::StatusCode;
use serde_json::{Value, json};
use tests::world::{Person, World};

fn noon() -> DateTime<Utc> {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

#[tokio::test]
async fn me_is_the_tokens_holder_as_far_as_the_token_reaches() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let ann = world.user(&acme, "ann@acme.test", Role::Admin).await;
    let token = world.token(&ann, "api:read,approve").await;
    let (status, me) = world.get(&token, "/api/me").await;
    assert_eq!(status, StatusCode::OK);
    let expected = json!({
        "user": { "id": ann.id, "email": "ann@acme.test" },
        "tenant": { "id": acme.id, "slug": "acme" },
        "role": "admin",
        "scopes": ["api:read", "approve"],
    });
    assert_eq!(me, expected);
}

#[tokio::test]
async fn unknown_expired_revoked_and_disabled_look_the_same() {
    let world = World::with_fixed_clock(noon()).await;
    let acme = world.tenant("acme").await;
    let ann = world.user(&acme, "ann@acme.test", Role::Superadmin).await;
    let bob = world.user(&acme, "bob@acme.test", Role::Member).await;
    let admin = world.full_token(&ann).await;

    let revoked = mint(&world, &admin, json!({ "name": "short", "scopes": ["api:read"] })).await;
    let path = format!("/api/tokens/{}", revoked["id"].as_str().unwrap());
    let (status, once) = world.delete(&admin, &path).await;
    assert_eq!(status, StatusCode::OK);
    let (status, again) = world.delete(&admin, &path).await;
    assert_eq!((status, &again), (StatusCode::OK, &once), "revoking is idempotent");

    let disabled = world.token(&bob, "api:read").await;
    assert_eq!(world.get(&disabled, "/api/me").await.0, StatusCode::OK);
    let path = format!("/api/users/{}", bob.id);
    let (status, _) = world.patch(&admin, &path, json!({ "status": "disabled" })).await;
    assert_eq!(status, StatusCode::OK);

    let soon = noon() + TimeDelta::hours(1);
    let form = json!({ "name": "an hour", "scopes": ["api:read"], "expiresAt": soon });
    let expired = text(&mint(&world, &admin, form).await);
    assert_eq!(world.get(&expired, "/api/me").await.0, StatusCode::OK);
    world.ctx.clock.advance(TimeDelta::hours(1));

    let unknown = format!("blw_{}", "A".repeat(43));
    for token in [unknown, expired, text(&revoked), disabled, "not one of ours".to_owned()] {
        let (status, problem) = world.get(&token, "/api/me").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert_eq!(problem["code"], "UNAUTHENTICATED");
        assert_eq!(problem["detail"], "this token is not usable");
    }
}

#[tokio::test]
async fn a_token_is_shown_once_and_kept_as_a_digest() {
    let world = World::new().await;
    let (ann, token) = superadmin(&world).await;
    let minted = mint(&world, &token, json!({ "name": "agent", "scopes": ["api:read"] })).await;
    let secret = text(&minted);
    assert_eq!((secret.len(), &secret[..4]), (47, "blw_"));
    let (_, list) = world.get(&token, "/api/tokens").await;
    assert_eq!(list["items"][0]["name"], "agent", "newest first");
    assert!(!list.to_string().contains(&secret));

    let owner = world.owner().await;
    let all: String = sqlx::query_scalar("SELECT string_agg(t::text, '') FROM api_tokens t")
        .fetch_one(&owner)
        .await
        .unwrap();
    assert!(!all.contains(&secret) && !all.contains(&secret[4..]));
    let leaves: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM audit_events e JOIN audit_leaves l ON l.subject_id = e.audit_event_id
         WHERE e.action = 'token.created' AND e.actor_user_id = $1 AND l.kind = 'event'",
    )
    .bind(ann.id.0)
    .fetch_one(&owner)
    .await
    .unwrap();
    assert_eq!(leaves, 1, "the change is recorded, with its leaf");
}

#[tokio::test]
async fn a_token_makes_nothing_greater_than_itself() {
    let world = World::with_fixed_clock(noon()).await;
    let acme = world.tenant("acme").await;
    let ann = world.user(&acme, "ann@acme.test", Role::Superadmin).await;
    let agent = world.token(&ann, "mcp:call,api:read,api:write").await;
    for (form, code) in [
        (json!({ "name": "x", "scopes": ["approve"] }), "DENIED"),
        (json!({ "name": "x", "scopes": ["api:read", "admin"] }), "DENIED"),
        (json!({ "name": "x", "scopes": ["mcp:call", "approve"] }), "INVALID_INPUT"),
        (json!({ "name": "x", "scopes": [] }), "INVALID_INPUT"),
        (json!({ "name": "x", "scopes": ["everything"] }), "INVALID_INPUT"),
        (json!({ "name": "\u{0}", "scopes": ["api:read"] }), "INVALID_INPUT"),
        (json!({ "name": "x", "scopes": ["api:read"], "sources": ["custom-0"] }), "INVALID_INPUT"),
        (json!({ "name": "x", "scopes": ["api:read"], "expiresAt": noon() }), "INVALID_INPUT"),
        // The operator's token lives for 90 days.
        (
            json!({ "name": "x", "scopes": ["api:read"], "expiresAt": noon() + TimeDelta::days(91) }),
            "INVALID_INPUT",
        ),
    ] {
        let (_, problem) = world.post(&agent, "/api/tokens", form.clone()).await;
        assert_eq!(problem["code"], code, "{form}: {problem}");
    }

    let short = noon() + TimeDelta::days(1);
    let form = json!({ "name": "day", "scopes": ["api:write", "mcp:call"], "expiresAt": short });
    let day = text(&mint(&world, &agent, form).await);
    let child = mint(&world, &day, json!({ "name": "child", "scopes": ["mcp:call"] })).await;
    assert_eq!(child["expiresAt"], "2026-12-01T12:00:00Z", "it ends with its maker");
}

#[tokio::test]
async fn admins_see_and_end_the_tokens_of_people_below_them() {
    let world = World::new().await;
    let (ann, _) = superadmin(&world).await;
    let bob = world.user(&ann.tenant, "bob@acme.test", Role::Admin).await;
    let mia = world.user(&ann.tenant, "mia@acme.test", Role::Member).await;
    let (admin, member) = (world.full_token(&bob).await, world.token(&mia, "api:read").await);

    let (status, list) = world.get(&admin, &format!("/api/tokens?userId={}", mia.id)).await;
    assert_eq!(status, StatusCode::OK);
    let id = list["items"][0]["id"].as_str().unwrap();
    assert_eq!(world.delete(&admin, &format!("/api/tokens/{id}")).await.0, StatusCode::OK);
    assert_eq!(world.get(&member, "/api/me").await.0, StatusCode::UNAUTHORIZED);

    let without_scope = world.token(&bob, "api:read,api:write").await;
    for (token, user) in [(&admin, ann.id), (&without_scope, mia.id)] {
        let (status, _) = world.get(token, &format!("/api/tokens?userId={user}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn nobody_changes_themselves_one_above_or_to_above() {
    let world = World::new().await;
    let (ann, _) = superadmin(&world).await;
    let bob = world.user(&ann.tenant, "bob@acme.test", Role::Admin).await;
    let mia = world.user(&ann.tenant, "mia@acme.test", Role::Member).await;
    let admin = world.full_token(&bob).await;
    for (user, patch) in [
        (&bob, json!({ "role": "member" })),
        (&bob, json!({ "status": "disabled" })),
        (&ann, json!({ "status": "disabled" })),
        (&mia, json!({ "role": "superadmin" })),
    ] {
        let (status, problem) =
            world.patch(&admin, &format!("/api/users/{}", user.id), patch).await;
        assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("DENIED")));
    }
    let form = json!({ "email": "eve@acme.test", "role": "superadmin" });
    assert_eq!(world.post(&admin, "/api/users", form).await.0, StatusCode::FORBIDDEN);
    let form = json!({ "email": "MIA@acme.test", "role": "member" });
    assert_eq!(world.post(&admin, "/api/users", form).await.0, StatusCode::CONFLICT);
    let form = json!({ "email": "zoe@acme.test", "role": "member", "password": "short" });
    assert_eq!(world.post(&admin, "/api/users", form).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let form = json!({ "email": "zoe@acme.test", "role": "member", "password": "long enough" });
    let (status, zoe) = world.post(&admin, "/api/users", form).await;
    assert_eq!((status, zoe.get("password")), (StatusCode::CREATED, None));
}

#[tokio::test]
async fn of_two_superadmins_who_end_each_other_one_stays() {
    let world = World::new().await;
    let (ann, ann_token) = superadmin(&world).await;
    let bob = world.user(&ann.tenant, "bob@acme.test", Role::Superadmin).await;
    let bob_token = world.full_token(&bob).await;
    let (of_bob, of_ann) = (format!("/api/users/{}", bob.id), format!("/api/users/{}", ann.id));
    for (by_ann, by_bob) in [
        (json!({ "role": "member" }), json!({ "status": "disabled" })),
        (json!({ "status": "disabled" }), json!({ "role": "admin" })),
    ] {
        // Both are held at the door, so that both were authenticated before either went on.
        let owner = world.owner().await;
        let mut door = owner.begin().await.unwrap();
        sqlx::query("SELECT FROM users FOR UPDATE").execute(&mut *door).await.unwrap();
        let superuser = world.superuser().await;
        let waiting = async {
            tests::world::eventually("both wait for the lock", async || {
                let count: i64 = sqlx::query_scalar(
                    "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'",
                )
                .fetch_one(&superuser)
                .await
                .unwrap();
                (count == 2).then_some(())
            })
            .await;
            door.commit().await.unwrap();
        };
        let (one, other, ()) = tokio::join!(
            world.patch(&ann_token, &of_bob, by_ann),
            world.patch(&bob_token, &of_ann, by_bob),
            waiting,
        );
        let mut statuses = [one.0.as_u16(), other.0.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{one:?} {other:?}");

        // Both anew, by the operator's hand.
        sqlx::query("UPDATE users SET role = 'superadmin', status = 'active'")
            .execute(&owner)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn the_selection_of_a_tenant_takes_the_scope_approve_and_servers_of_its_own() {
    let world = World::new().await;
    let (ann, full) = superadmin(&world).await;
    let admin = world.token(&ann, "api:read,api:write,admin").await;
    for patch in [json!({ "enabledSourceIds": [] }), json!({ "autoApproveNewTools": true })] {
        assert_eq!(
            world.patch(&admin, "/api/tenant", patch.clone()).await.0,
            StatusCode::FORBIDDEN
        );
        assert_eq!(world.patch(&full, "/api/tenant", patch).await.0, StatusCode::OK);
    }
    let patch = json!({ "enabledSourceIds": ["custom-000000000000"] });
    let (status, problem) = world.patch(&full, "/api/tenant", patch).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["details"]["unknown"], json!(["custom-000000000000"]));
    let (_, tenant) = world.get(&admin, "/api/tenant").await;
    assert_eq!(
        (&tenant["autoApproveNewTools"], &tenant["enabledSourceIds"]),
        (&json!(true), &json!([]))
    );
}

#[tokio::test]
async fn a_long_stream_notices_that_its_caller_may_no_longer_ask() {
    let world = World::new().await;
    let (ann, admin) = superadmin(&world).await;
    let bob = world.user(&ann.tenant, "bob@acme.test", Role::Member).await;
    let token = world.token(&bob, "api:read").await;
    let caller = app::identity::authenticate(&world.ctx, &token, Via::Token).await.unwrap();
    let again = app::identity::recheck(&world.ctx, &caller).await.unwrap();
    assert_eq!((again.user, again.role), (bob.id, Role::Member));

    let path = format!("/api/users/{}", bob.id);
    world.patch(&admin, &path, json!({ "role": "admin" })).await;
    let again = app::identity::recheck(&world.ctx, &caller).await.unwrap();
    assert_eq!(again.role, Role::Admin, "as they stand now");

    world.patch(&admin, &path, json!({ "status": "disabled" })).await;
    let refused = app::identity::recheck(&world.ctx, &caller).await.unwrap_err();
    assert_eq!(refused.code, Code::Unauthenticated);
}

#[tokio::test]
async fn a_malformed_id_is_not_found() {
    let world = World::new().await;
    let (_, token) = superadmin(&world).await;
    for id in ["x", "%00", "%FF", "00000000-0000-0000-0000-00000000000g"] {
        let (status, problem) = world.delete(&token, &format!("/api/tokens/{id}")).await;
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::NOT_FOUND, &json!("NOT_FOUND")),
            "{id}"
        );
    }
}

async fn superadmin(world: &World) -> (Person, String) {
    let acme = world.tenant("acme").await;
    let ann = world.user(&acme, "ann@acme.test", Role::Superadmin).await;
    let token = world.full_token(&ann).await;
    (ann, token)
}

async fn mint(world: &World, token: &str, form: Value) -> Value {
    let (status, minted) = world.post(token, "/api/tokens", form).await;
    assert_eq!(status, StatusCode::CREATED, "{minted}");
    minted
}

fn text(minted: &Value) -> String {
    minted["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn who_cannot_decide_makes_nobody_who_could() {
    let world = World::new().await;
    let (ann, _) = superadmin(&world).await;
    let mia = world.user(&ann.tenant, "mia@acme.test", Role::Member).await;
    let agent = world.token(&ann, "mcp:call,api:read,api:write,admin").await;
    let full = world.full_token(&ann).await;
    let minted = async |by: &str, form: Value| {
        let (status, minted) = world.post(by, "/api/tokens", form).await;
        assert_eq!(status, StatusCode::CREATED, "{minted}");
        minted["token"].as_str().unwrap().to_owned()
    };
    let derived = minted(&agent, json!({ "name": "x", "scopes": ["api:write", "admin"] })).await;
    let (_, session) = world.post(&full, "/api/sessions", json!({})).await;
    let limited = json!({
        "name": "y", "scopes": ["api:write", "admin", "approve"], "sessions": [session["id"]],
    });
    let limited = minted(&full, limited).await;
    for token in [&agent, &derived, &limited] {
        let eve =
            json!({ "email": "eve@acme.test", "role": "superadmin", "password": "long enough" });
        assert_eq!(world.post(token, "/api/users", eve).await.0, StatusCode::FORBIDDEN);
        let raised = json!({ "role": "superadmin" });
        let path = format!("/api/users/{}", mia.id);
        assert_eq!(world.patch(token, &path, raised).await.0, StatusCode::FORBIDDEN);
    }
}
