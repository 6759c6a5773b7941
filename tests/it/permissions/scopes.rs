//! Who may not decide, whatever they try; and what nobody may change afterwards.

use http::Method;
use serde_json::{Value, json};
use sqlx::PgPool;

use super::Desk;

/// Everything that permits something, of one session.
async fn attempts(desk: &Desk) -> Vec<(Method, String, Value)> {
    let pending = desk.ask("alarm").await;
    let (status, answer) = desk.decide(desk.ask("forecast").await, "allow_matching").await;
    assert_eq!(status, 200, "{answer}");
    let grant = answer["grant"]["id"].as_str().unwrap();
    let session = format!("/api/sessions/{}", desk.session);
    let decision = format!("/api/permission-requests/{pending}/decision");
    vec![
        (Method::POST, decision.clone(), json!({ "decision": "allow_once" })),
        (Method::POST, decision.clone(), json!({ "decision": "allow_matching" })),
        (Method::POST, decision, json!({ "decision": "deny" })),
        (Method::PATCH, session.clone(), json!({ "approvalMode": "always_allow" })),
        (Method::PATCH, session.clone(), json!({ "approvalMode": "ask_for_dangerous" })),
        (Method::POST, "/api/sessions".into(), json!({ "approvalMode": "always_allow" })),
        (Method::DELETE, format!("/api/permission-grants/{grant}"), Value::Null),
        (Method::POST, format!("{session}/permission-epoch"), Value::Null),
    ]
}

#[tokio::test]
async fn who_may_call_may_not_permit() {
    let desk = Desk::new().await;
    let attempts = attempts(&desk).await;
    let (epoch, authorizations) = (desk.epoch().await, desk.authorizations().await);
    for scopes in
        ["mcp:call", "mcp:call,api:read,api:write", "api:read,api:write", "api:write,admin"]
    {
        let token = desk.world.token(&desk.ann, scopes).await;
        for (method, path, body) in &attempts {
            let body = (!body.is_null()).then(|| body.clone());
            let (status, problem) = desk.world.request(method.clone(), &token, path, body).await;
            assert_eq!(status, 403, "{scopes}: {method} {path}: {problem}");
            assert_eq!(problem["code"], "DENIED");
        }
    }
    assert_eq!((desk.epoch().await, desk.authorizations().await), (epoch, authorizations));
    let pending = desk.read("/api/permission-requests?state=pending").await;
    assert_eq!(pending["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_scope_approve_decides_without_the_right_to_write() {
    let desk = Desk::new().await;
    let token = desk.world.token(&desk.ann, "approve").await;
    let path = format!("/api/permission-requests/{}/decision", desk.ask("forecast").await);
    let (status, answer) =
        desk.world.post(&token, &path, json!({ "decision": "allow_once" })).await;
    assert_eq!(status, 200, "{answer}");
    let session = format!("/api/sessions/{}", desk.session);
    let (status, _) = desk.world.patch(&token, &session, json!({ "title": "renamed" })).await;
    assert_eq!(status, 403);
    let (status, _) =
        desk.world.patch(&token, &session, json!({ "approvalMode": "always_allow" })).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_token_of_single_servers_decides_about_no_others_and_switches_no_mode() {
    let desk = Desk::new().await;
    let admin = desk.world.user(&desk.ann.tenant, "root@acme.test", domain::Role::Superadmin).await;
    let form = json!({ "name": "Other", "transport": "http", "url": "http://127.0.0.1:9/mcp", "authMode": "none" });
    let admin_token = desk.world.full_token(&admin).await;
    let (status, server) = desk.world.post(&admin_token, "/api/mcp/servers", form).await;
    assert_eq!(status, 201, "{server}");
    let form =
        json!({ "name": "narrow", "scopes": ["api:read", "approve"], "sources": [server["id"]] });
    let (status, minted) = desk.world.post(&desk.token, "/api/tokens", form).await;
    assert_eq!(status, 201, "{minted}");
    let token = minted["token"].as_str().unwrap();

    let path = format!("/api/permission-requests/{}/decision", desk.ask("forecast").await);
    let (status, _) = desk.world.post(token, &path, json!({ "decision": "allow_once" })).await;
    assert_eq!(status, 404);
    let session = format!("/api/sessions/{}", desk.session);
    let (status, _) =
        desk.world.patch(token, &session, json!({ "approvalMode": "always_allow" })).await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn what_was_decided_cannot_be_rewritten() {
    let desk = Desk::new().await;
    desk.decide(desk.ask("forecast").await, "allow_once").await;
    let (app, owner): (PgPool, PgPool) = (desk.world.app_role().await, desk.world.owner().await);
    for table in ["permission_authorizations", "permission_epochs", "audit_leaves"] {
        let before = count(&owner, table).await;
        assert!(before > 0, "{table}");
        for statement in
            [format!("DELETE FROM {table}"), format!("UPDATE {table} SET tenant_id = tenant_id")]
        {
            let safe = sqlx::AssertSqlSafe;
            let refused = sqlx::query(safe(statement.clone())).execute(&app).await.unwrap_err();
            assert!(refused.to_string().contains("permission denied"), "{table}: {refused}");
            let refused = sqlx::query(safe(statement)).execute(&owner).await.unwrap_err();
            assert!(refused.to_string().contains("append-only"), "{table}: {refused}");
        }
        assert_eq!(count(&owner, table).await, before, "{table}");
    }
}

async fn count(owner: &PgPool, table: &str) -> i64 {
    let statement = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
    sqlx::query_scalar(statement).fetch_one(owner).await.unwrap()
}
