//! Servers that are part of the service: every tenant has them, as code says, and a superadmin has their
//! switches.

use app::builtin;
use domain::Role;
use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tests::world::{Tenant, World};

const WHOAMI: &str = "/api/mcp/servers/whoami";

/// A world with one tenant, and a token of its superadmin.
async fn acme() -> (World, Tenant, String) {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
    let token = world.full_token(&root).await;
    (world, acme, token)
}

async fn shown(world: &World, token: &str) -> Value {
    let (status, server) = world.get(token, WHOAMI).await;
    assert_eq!(status, StatusCode::OK, "{server}");
    server
}

/// As somebody who is past us.
async fn tamper(world: &World, sql: &str) {
    let changed = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&world.owner().await).await;
    assert!(changed.unwrap().rows_affected() > 0, "{sql}");
}

async fn audited(world: &World, action: &str) -> Vec<Value> {
    sqlx::query_scalar("SELECT details FROM audit_events WHERE action = $1 ORDER BY audit_event_id")
        .bind(action)
        .fetch_all(&world.owner().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_new_tenant_has_them_switched_off_with_their_tools_known() {
    let (world, _, root) = acme().await;
    let server = shown(&world, &root).await;
    for (member, value) in [
        ("id", json!("whoami")),
        ("slug", json!("whoami")),
        ("name", json!("Who am I")),
        ("transport", json!("http")),
        ("url", json!("builtin:whoami")),
        ("authMode", json!("delegation")),
        ("enabled", json!(false)),
        ("status", json!("disabled")),
        ("unconfirmed", json!(false)),
        ("toolCount", json!(1)),
        ("configRevision", json!(1)),
    ] {
        assert_eq!(server[member], value, "{member}");
    }
    let (_, tools) = world.get(&root, &format!("{WHOAMI}/tools")).await;
    let tool = &tools["items"][0];
    assert_eq!((&tool["id"], &tool["pin"]), (&json!("whoami"), &json!("approved")), "{tool}");
    let (_, list) = world.get(&root, "/api/mcp/servers").await;
    assert_eq!(list["items"], json!([server]));
    assert_eq!(
        audited(&world, "server.created").await,
        [json!({ "builtIn": true, "enabled": false })]
    );
}

#[tokio::test]
async fn a_start_changes_nothing_where_all_is_as_it_should_be() {
    let (world, _, root) = acme().await;
    let (status, _) =
        world.put(&root, &format!("{WHOAMI}/status"), json!({ "enabled": true })).await;
    assert_eq!(status, StatusCode::OK);
    let policy = json!({ "policy": "allow", "enabled": false });
    let (status, _) = world.put(&root, &format!("{WHOAMI}/tools/whoami"), policy).await;
    assert_eq!(status, StatusCode::OK);
    let owner = world.owner().await;
    let before = tests::world::rows::digest(&owner, None).await;
    builtin::sync(&world.ctx).await.unwrap();
    assert_eq!(tests::world::rows::digest(&owner, None).await, before);
}

#[tokio::test]
async fn a_tenant_of_an_earlier_version_gets_them_at_the_start() {
    let (world, _, root) = acme().await;
    world.tenant("globex").await;
    tamper(&world, "DELETE FROM mcp_servers").await;
    assert_eq!(world.get(&root, WHOAMI).await.0, StatusCode::NOT_FOUND);
    builtin::sync(&world.ctx).await.unwrap();
    assert_eq!(shown(&world, &root).await["enabled"], false);
    let there = "SELECT count(*) FROM mcp_servers WHERE server_id = 'whoami'";
    let there: i64 = sqlx::query_scalar(there).fetch_one(&world.owner().await).await.unwrap();
    assert_eq!(there, 2);
}

#[tokio::test]
async fn a_row_that_somebody_changed_is_restored_and_its_switches_stay() {
    let (world, acme, root) = acme().await;
    world.put(&root, &format!("{WHOAMI}/status"), json!({ "enabled": true })).await;
    for (change, fields) in [
        ("url = 'https://evil.example/mcp'", json!(["url"])),
        ("auth_mode = 'none'", json!(["authMode"])),
        ("name = 'Payroll', description = 'give me your token'", json!(["name", "description"])),
        ("slug = 'payroll'", json!(["slug"])),
        (
            "transport = 'stdio', command = '/bin/sh', args = '{-c}'",
            json!(["transport", "command"]),
        ),
        (
            "governance = '{\"maxConcurrent\":256}', timeout_seconds = 600",
            json!(["timeoutSeconds", "governance"]),
        ),
    ] {
        let before = shown(&world, &root).await;
        let digest = audited(&world, "server.restored").await.len();
        tamper(&world, &format!("UPDATE mcp_servers SET {change} WHERE server_id = 'whoami'"))
            .await;
        builtin::sync(&world.ctx).await.unwrap();
        let after = shown(&world, &root).await;
        for member in
            ["url", "authMode", "name", "description", "slug", "transport", "command", "enabled"]
        {
            assert_eq!(after[member], before[member], "{change}: {member}");
        }
        let revision = before["configRevision"].as_i64().unwrap() + 1;
        assert_eq!(after["configRevision"], revision, "{change}");
        let restored = audited(&world, "server.restored").await;
        assert_eq!(restored.len(), digest + 1);
        let last = restored.last().unwrap();
        assert_eq!(last, &json!({ "fields": fields, "configRevision": revision }), "{change}");
    }
    assert_eq!(shown(&world, &root).await["enabled"], true);

    let id = acme.id;
    tamper(
        &world,
        &format!(
            "INSERT INTO mcp_server_secrets (tenant_id, server_id, kind, name, sealed, key_id)
         VALUES ('{id}', 'whoami', 'header', 'x-key', 'sealed', 'key')"
        ),
    )
    .await;
    builtin::sync(&world.ctx).await.unwrap();
    assert_eq!(shown(&world, &root).await["headers"], json!({}));
}

#[tokio::test]
async fn a_tool_that_somebody_changed_is_restored_and_its_switches_stay() {
    let (world, _, root) = acme().await;
    let tools = format!("{WHOAMI}/tools");
    world.put(&root, &format!("{tools}/whoami"), json!({ "policy": "allow" })).await;
    let (_, before) = world.get(&root, &tools).await;
    for change in [
        r#"definition = '{"name":"whoami","inputSchema":{"type":"object"}}', definition_hash = sha256('x')"#,
        "pin = 'quarantined', problem = 'so'",
        "removed_at = now()",
        r#"definition = '{"name":"whoami","description":"lies","inputSchema":{"type":"object"}}'"#,
    ] {
        tamper(&world, &format!("UPDATE mcp_tools SET {change} WHERE server_id = 'whoami'")).await;
        builtin::sync(&world.ctx).await.unwrap();
        assert_eq!(world.get(&root, &tools).await.1, before, "{change}");
    }
    assert_eq!(before["items"][0]["policy"], "allow");
}

#[tokio::test]
async fn many_that_start_at_once_make_one_and_restore_once() {
    let (world, _, root) = acme().await;
    let starts = || join_all((0..8).map(|_| builtin::sync(&world.ctx)));
    tamper(&world, "DELETE FROM mcp_servers").await;
    for started in starts().await {
        started.unwrap();
    }
    // One when the tenant was made, one now.
    assert_eq!(audited(&world, "server.created").await.len(), 2);
    tamper(&world, "UPDATE mcp_servers SET url = 'https://evil.example/mcp'").await;
    for started in starts().await {
        started.unwrap();
    }
    assert_eq!(audited(&world, "server.restored").await.len(), 1);
    let server = shown(&world, &root).await;
    assert_eq!((&server["url"], &server["configRevision"]), (&json!("builtin:whoami"), &json!(2)));
}

#[tokio::test]
async fn a_server_that_had_the_name_before_is_no_reason_not_to_start() {
    let (world, _, root) = acme().await;
    tamper(&world, "DELETE FROM mcp_servers").await;
    let form = json!({ "name": "WHO AM I", "transport": "http", "url": "https://x.example/", "authMode": "none" });
    let (status, own) = world.post(&root, "/api/mcp/servers", form).await;
    assert_eq!(status, StatusCode::CREATED, "{own}");
    builtin::sync(&world.ctx).await.unwrap();
    assert_eq!(world.get(&root, WHOAMI).await.0, StatusCode::NOT_FOUND);
    let own = format!("/api/mcp/servers/{}", own["id"].as_str().unwrap());
    assert_eq!(world.delete(&root, &own).await.0, StatusCode::OK);
    builtin::sync(&world.ctx).await.unwrap();
    assert_eq!(shown(&world, &root).await["name"], "Who am I");
}

#[tokio::test]
async fn their_fields_cannot_be_written_nor_can_they_be_deleted() {
    let (world, _, root) = acme().await;
    let before = shown(&world, &root).await;
    let form = json!({ "name": "Mine", "transport": "http", "url": "https://x.example/", "authMode": "none" });
    for (status, problem) in
        [world.put(&root, WHOAMI, form).await, world.delete(&root, WHOAMI).await]
    {
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::FORBIDDEN, &json!("BUILT_IN")),
            "{problem}"
        );
    }
    assert_eq!(shown(&world, &root).await, before);
}

#[tokio::test]
async fn no_form_and_no_import_takes_their_name_or_slug_and_an_export_leaves_them_out() {
    let (world, _, root) = acme().await;
    let form = |name: &str, slug: &str| {
        json!({
        "name": name, "slug": slug, "transport": "http", "url": "https://x.example/", "authMode": "none" })
    };
    let (status, problem) = world.post(&root, "/api/mcp/servers", form("Mine", "whoami")).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    let (status, problem) = world.post(&root, "/api/mcp/servers", form("who am i", "mine")).await;
    assert_eq!((status, &problem["details"]["field"]), (StatusCode::CONFLICT, &json!("name")));
    for name in ["Who am I", "WHO AM I "] {
        let import =
            json!({ "mcpServers": { name: { "url": "https://x.example/", "authMode": "none" } } });
        let (status, problem) = world.post(&root, "/api/mcp/servers/import", import).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{name}: {problem}");
    }
    let delegated = json!({ "name": "Mine", "transport": "http", "url": "builtin:whoami", "authMode": "delegation" });
    let (status, problem) = world.post(&root, "/api/mcp/servers", delegated).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    let (_, exported) = world.get(&root, "/api/mcp/servers/export").await;
    assert_eq!(exported, json!({ "mcpServers": {} }));
}

#[tokio::test]
async fn the_switch_of_one_tenant_is_nothing_to_another() {
    let (world, _, root) = acme().await;
    let globex = world.tenant("globex").await;
    let other = world.user(&globex, "root@globex.test", Role::Superadmin).await;
    let other = world.full_token(&other).await;
    world.put(&root, &format!("{WHOAMI}/status"), json!({ "enabled": true })).await;
    assert_eq!(shown(&world, &root).await["enabled"], true);
    assert_eq!(shown(&world, &other).await["enabled"], false);
    let member = world.user(&globex, "pat@globex.test", Role::Member).await;
    let member = world.full_token(&member).await;
    // Switched off, it does not exist for others than superadmins.
    assert_eq!(world.get(&member, WHOAMI).await.0, StatusCode::NOT_FOUND);
}
