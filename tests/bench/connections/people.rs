//! People who are all connected to one server: one signs in at the provider, the others are made after that one.

use anyhow::{Context, ensure};
use domain::{
    ids::{TenantId, UserId},
    json::Sha256Digest,
};
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sqlx::Row;
use store::vault::{Purpose, RowName, Sealed, Vault};
use tests::authorization_server::{AuthorizationServer, ProtectedPeer};
use uuid::Uuid;

use crate::{
    callers::Access,
    gateway::Gateway,
    setup::{self, MOST_AT_ONCE, Rest},
};

/// The person's account at the provider.
pub(super) fn subject(number: usize) -> String {
    format!("person-{number}")
}

/// The server that they are connected to.
pub(super) struct Server {
    id: String,
}

impl Server {
    /// Now is a minute before the end of everybody's token.
    pub(super) async fn let_near_end(&self, gateway: &Gateway) -> anyhow::Result<()> {
        let near = "UPDATE mcp_connections SET refresh_at = now(), expires_at = now() + interval '1 minute'
                    WHERE server_id = $1 AND version = 0";
        sqlx::query(near).bind(&self.id).execute(gateway.database.admin()).await?;
        // As after a day's work, and not as after an import.
        sqlx::query("VACUUM (ANALYZE) mcp_connections, users, api_tokens, sessions")
            .execute(gateway.database.admin())
            .await?;
        Ok(())
    }

    /// How many have other tokens by now.
    pub(super) async fn refreshed(&self, gateway: &Gateway) -> anyhow::Result<usize> {
        let count = "SELECT count(*) FROM mcp_connections
                     WHERE server_id = $1 AND state = 'connected' AND version = 1 AND refresh_at > now()";
        let count: i64 =
            sqlx::query_scalar(count).bind(&self.id).fetch_one(gateway.database.admin()).await?;
        Ok(usize::try_from(count)?)
    }
}

/// People with a token, a session and a connection each, and where and as whom each of them calls.
pub(super) async fn seed(
    gateway: &Gateway,
    provider: &AuthorizationServer,
    peer: &ProtectedPeer,
    count: usize,
) -> anyhow::Result<(Server, Vec<Access>)> {
    let rest = Rest::of(&gateway.installation)?;
    let form = json!({
        "name": "Refreshing", "slug": "refreshing", "transport": "http", "url": peer.url(),
        "authMode": "oauth", "enabled": true,
        "governance": { "maxConcurrent": MOST_AT_ONCE, "maxQueueDepth": MOST_AT_ONCE },
    });
    let server = rest.ask(Method::POST, "/api/mcp/servers", form).await?;
    let id = setup::text(&server, "id")?.to_owned();
    sign_in(&rest, provider, &id, &server["revision"]).await?;
    rest.ask(Method::POST, &format!("/api/mcp/servers/{id}/tools/refresh"), json!({})).await?;

    let admin = gateway.database.admin();
    let row = sqlx::query(
        "SELECT tenant_id, user_id, sealed, key_id FROM mcp_connections WHERE server_id = $1",
    );
    let row = row.bind(&id).fetch_one(admin).await?;
    let (tenant, first) = (TenantId(row.try_get(0)?), UserId(row.try_get(1)?));
    let keys = gateway.installation.secret("encryption-keys")?;
    let vault = Vault::new(&SecretString::from(keys)).context("the keys are not good")?;
    let sealed = Sealed { token: row.try_get(2)?, key_id: row.try_get(3)? };
    let opened =
        vault.open(Purpose::Credential, row_of(tenant, &id, &first.to_string()), &sealed)?;
    let mut grant: Value = serde_json::from_str(opened.expose_secret())?;
    let like = setup::text(&grant, "access_token")?.to_owned();

    let (mut users, mut sessions, mut digests, mut credentials) = (vec![], vec![], vec![], vec![]);
    let mut accesses = Vec::with_capacity(count);
    for number in 0..count {
        let (access, refresh) = provider.hand_out(&like, &subject(number));
        grant["access_token"] = json!(access);
        grant["refresh_token"] = json!(refresh);
        let (user, session) = (Uuid::new_v4(), Uuid::new_v4());
        let text = SecretString::from(grant.to_string());
        let sealed = vault.seal(
            Purpose::Credential,
            row_of(tenant, &id, &UserId(user).to_string()),
            &text,
        )?;
        let token = format!("blw_bench{}", Uuid::new_v4().simple());
        users.push(user);
        sessions.push(session);
        digests.push(Sha256Digest::of(token.as_bytes()).as_bytes().to_vec());
        credentials.push(sealed.token);
        let url = gateway.installation.url.join(&format!("/mcp/{session}"))?;
        let tool = "mcp__refreshing__whoami".to_owned();
        accesses.push(Access { url, tool, token: Some(token) });
    }
    for statement in PEOPLE {
        let made = sqlx::query(statement)
            .bind(tenant.0)
            .bind(&users)
            .bind(&sessions)
            .bind(&digests)
            .bind(&credentials)
            .bind(&sealed.key_id)
            .bind(&id)
            .execute(admin)
            .await?;
        ensure!(made.rows_affected() == count as u64, "{} were made", made.rows_affected());
    }
    // The one who signed in has done their part.
    rest.ask(Method::DELETE, &format!("/api/mcp/servers/{id}/connection"), json!({})).await?;
    Ok((Server { id }, accesses))
}

/// Where a person's credential is sealed for.
fn row_of<'a>(tenant: TenantId, server: &'a str, name: &'a str) -> RowName<'a> {
    RowName { tenant, server, name }
}

/// One person signs in, as people do.
async fn sign_in(
    rest: &Rest,
    provider: &AuthorizationServer,
    server: &str,
    revision: &Value,
) -> anyhow::Result<()> {
    let path = format!("/api/mcp/servers/{server}/oauth");
    let (started, cookie) =
        rest.ask_for_cookie(&format!("{path}/start"), json!({ "revision": revision })).await?;
    let url = setup::text(&started, "authorizationUrl")?.parse()?;
    let callback = provider.walk(&url, "first").await;
    let result = rest.come_back(&callback, &cookie).await?;
    rest.ask(Method::POST, &format!("{path}/confirm"), json!({ "result": result })).await?;
    Ok(())
}

/// Each takes tenant, people, sessions, digests of tokens, credentials, key, server.
const PEOPLE: [&str; 5] = [
    "INSERT INTO users (tenant_id, user_id, email, role, created_at)
     SELECT $1, p.user_id, 'person-' || p.number || '@bench.test', 'member', now()
     FROM unnest($2::uuid[]) WITH ORDINALITY AS p (user_id, number)
     WHERE ($3::uuid[], $4::bytea[], $5::text[], $6::text, $7::text) IS NOT NULL",
    "INSERT INTO api_tokens (tenant_id, token_id, user_id, name, digest, scopes, created_at, expires_at)
     SELECT $1, p.user_id, p.user_id, 'bench', p.digest, '{mcp:call}', now(), now() + interval '1 day'
     FROM unnest($2::uuid[], $4::bytea[]) AS p (user_id, digest)
     WHERE ($3::uuid[], $5::text[], $6::text, $7::text) IS NOT NULL",
    "INSERT INTO permission_epochs (tenant_id, permission_epoch_id, session_id, reason, created_at)
     SELECT $1, p.session_id, p.session_id, 'session_created', now()
     FROM unnest($3::uuid[]) AS p (session_id)
     WHERE ($2::uuid[], $4::bytea[], $5::text[], $6::text, $7::text) IS NOT NULL",
    "INSERT INTO sessions (tenant_id, session_id, owner_user_id, title, approval_mode, enabled_source_ids,
                           permission_epoch_id, created_at)
     SELECT $1, p.session_id, p.user_id, 'bench', 'always_allow', ARRAY[$7::text], p.session_id, now()
     FROM unnest($2::uuid[], $3::uuid[]) AS p (user_id, session_id)
     WHERE ($4::bytea[], $5::text[], $6::text) IS NOT NULL",
    "INSERT INTO mcp_connections (tenant_id, server_id, user_id, generation, version, state, kind, sealed, key_id,
                                  expires_at, refresh_at, connected_at, updated_at)
     SELECT $1, $7, p.user_id, 1, 0, 'connected', 'oauth', p.sealed, $6, now(), now(), now(), now()
     FROM unnest($2::uuid[], $5::text[]) AS p (user_id, sealed)
     WHERE ($3::uuid[], $4::bytea[]) IS NOT NULL",
];
