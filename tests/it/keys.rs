//! Key rotation: which key sealed what, and sealing it anew beside whatever serves.
#![expect(clippy::unwrap_used, reason = "a test, and what helps it, fails by panicking")]

mod list;
mod rotate;

use std::process::{Command, Output, Stdio};

use domain::ids::TenantId;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use store::vault::{Purpose, RowName, Vault};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    world::{ENCRYPTION_KEY, World},
};

use crate::connections::Scene;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-under-test");
const NEW_KEY: &str = "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItMDA=";

/// `bailiwick keys …` at the world's database, with this keyring.
fn keys(world: &World, ring: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("keys").args(arguments).env_clear().stdin(Stdio::null());
    command.env("HOME", std::env::temp_dir());
    command.env("BAILIWICK_DATABASE_URL", &world.database.app_url);
    if !ring.is_empty() {
        command.env("BAILIWICK_ENCRYPTION_KEYS", ring);
    }
    command
}

async fn run(world: &World, ring: &str, arguments: &[&str]) -> (i32, Value, String) {
    let mut command = keys(world, ring, arguments);
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await;
    let Output { status, stdout, stderr } = ended.unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    for secret in [ENCRYPTION_KEY, NEW_KEY, "hush"] {
        assert!(!text.contains(secret), "{secret} is shown: {text}");
    }
    let value = serde_json::from_slice(&stdout).unwrap_or_default();
    (status.code().unwrap(), value, text)
}

fn id(key: &str) -> String {
    Vault::new(&key.into()).unwrap().key_ids()[0].to_owned()
}

fn both() -> String {
    format!("{NEW_KEY},{ENCRYPTION_KEY}")
}

/// A server that root is connected to by OAuth, with a value in every sealed column.
async fn scene() -> Scene {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    let fields = json!({ "authMode": "oauth", "headers": { "X-Shared": "hush-shared" } });
    let scene = Scene::with(World::new().await, provider, peer, fields).await;
    scene.connect(&scene.root, "root-at-tickets").await;
    scene.discover().await;
    let body = json!({ "value": "hush-variable", "hosts": ["example.org"] });
    let (status, shown) =
        scene.world.put(&scene.root.token, "/api/tenant/variables/KEY", body).await;
    assert!(status.is_success(), "{shown}");
    let (tenant, server) = (scene.tenant.id, scene.server.as_str());
    let (owner, user) = (scene.world.owner().await, scene.root.person.id);
    let (attempt, sign_in): (uuid::Uuid, uuid::Uuid) =
        (scene.world.ctx.mint(), scene.world.ctx.mint());
    for (purpose, row, insert) in [
        (
            Purpose::ServerEnv,
            (server, "TOKEN".to_owned()),
            format!(
                "INSERT INTO mcp_server_secrets (tenant_id, server_id, kind, name, sealed, key_id)
                 VALUES ('{tenant}', '{server}', 'env', 'TOKEN', $1, $2)"
            ),
        ),
        (
            Purpose::ClientSecret,
            (server, String::new()),
            format!(
                "INSERT INTO mcp_server_secrets (tenant_id, server_id, kind, name, sealed, key_id)
                 VALUES ('{tenant}', '{server}', 'client_secret', '', $1, $2)"
            ),
        ),
        (
            Purpose::OauthAttempt,
            (server, attempt.to_string()),
            format!(
                "INSERT INTO mcp_oauth_attempts (tenant_id, attempt_id, server_id, user_id, state_digest,
                     browser_digest, config_revision, generation, issuer, callback, status, sealed, key_id,
                     created_at, expires_at)
                 VALUES ('{tenant}', '{attempt}', '{server}', '{user}', sha256('s'), sha256('b'), 1, 1, 'i',
                     'c', 'started', $1, $2, now(), now() + interval '5 minutes')"
            ),
        ),
        (
            Purpose::CompanySecret,
            ("", String::new()),
            format!(
                "INSERT INTO company_issuers (tenant_id, revision, enabled, name, issuer, client_id, sealed,
                     key_id, scopes, adds_people, roles, local_sign_in, gateway_tokens,
                     gateway_audiences, updated_at)
                 VALUES ('{tenant}', 1, true, 'n', 'i', 'c', $1, $2, '{{openid}}', false, '[]', true,
                     false, '{{}}', now())"
            ),
        ),
        (
            Purpose::CompanySignIn,
            ("", sign_in.to_string()),
            format!(
                "INSERT INTO company_sign_ins (tenant_id, sign_in_id, state_digest, browser_digest,
                     network_digest, revision, sealed, key_id, created_at, expires_at)
                 VALUES ('{tenant}', '{sign_in}', sha256('s'), sha256('b'), sha256('n'), 1, $1, $2, now(),
                     now() + interval '5 minutes')"
            ),
        ),
    ] {
        let row = RowName { tenant, server: row.0, name: &row.1 };
        let sealed = scene.world.ctx.vault.seal(purpose, row, &"hush".into()).unwrap();
        let insert = sqlx::query(AssertSqlSafe(insert)).bind(sealed.token).bind(sealed.key_id);
        insert.execute(&owner).await.unwrap();
    }
    scene
}

/// As many tenant variables, sealed by the world's key.
async fn variables(world: &World, owner: &PgPool, tenant: TenantId, count: usize) {
    let (mut names, mut tokens) = (Vec::new(), Vec::new());
    for number in 0..count {
        let name = format!("V{number}");
        let row = RowName { tenant, server: "", name: &name };
        let sealed = world.ctx.vault.seal(Purpose::TenantVariable, row, &"hush".into()).unwrap();
        tokens.push(sealed.token);
        names.push(name);
    }
    sqlx::query(
        "INSERT INTO tenant_variables (tenant_id, name, sealed, key_id, hosts, updated_at)
         SELECT $1, n, s, $4, '{example.org}', now() FROM unnest($2::text[], $3::text[]) AS v (n, s)",
    )
    .bind(tenant.0)
    .bind(names)
    .bind(tokens)
    .bind(id(ENCRYPTION_KEY))
    .execute(owner)
    .await
    .unwrap();
}

/// Of `keys status --json`.
fn sealed(status: &Value, key: &str) -> u64 {
    let of = status.as_array().unwrap().iter().find(|one| one["keyId"] == *key);
    of.map_or(0, |one| one["sealed"].as_u64().unwrap())
}
