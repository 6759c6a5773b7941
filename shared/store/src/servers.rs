//! `mcp_servers` and `mcp_server_secrets`: servers as the superadmin configured them.

pub mod deletion;
mod values;

use std::time::Duration;

use domain::{
    Timestamp,
    ids::{ServerId, UserId},
    server::{GovernanceForm, OAuthSettings, ServerReach, ServerStatus, is_custom_id},
};
use sqlx::types::Json;

pub(crate) use self::values::ValuesRow;
pub use self::values::{SealedValue, SealedValues, SealedVariable, values};
use crate::{CorruptRow, StoreError, Tx, sessions::texts, vault::Sealed};

/// One server, without its secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    pub id: ServerId,
    pub slug: String,
    pub name: String,
    pub description: String,
    pub icon: Option<String>,
    pub tags: Vec<String>,
    pub reach: ServerReach,
    /// Of one tool call.
    pub timeout: Duration,
    pub enabled: bool,
    /// As it was asked for.
    pub governance: Option<GovernanceForm>,
    /// Grows when the reach, or a secret, changes.
    pub config_revision: i64,
    /// Grows with every save.
    pub form_revision: i64,
    /// `Untested`, `Ready` or `Error`; whether it is switched on is said by `enabled` alone.
    pub status: ServerStatus,
    /// Fixed words of ours, never the peer's.
    pub status_error: Option<String>,
    pub checked_at: Option<Timestamp>,
    /// When its tools were first pinned.
    pub pinned_at: Option<Timestamp>,
    /// How it came to be; never changes.
    pub imported: bool,
    /// It was imported, and nobody agreed yet to contact it as it is now.
    pub unconfirmed: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Tools that the server lists, hidden ones too.
    pub tool_count: i64,
}

impl Server {
    /// Whether a superadmin made it; others are built in and cannot be written.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        is_custom_id(self.id.as_str())
    }
}

macro_rules! select {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT s.server_id, s.slug, s.name, s.description, s.icon, s.tags, s.transport, s.url,
                      s.command, s.args, s.cwd, s.auth_mode, s.api_key_header,
                      s.oauth AS "oauth: Json<OAuthSettings>", s.timeout_seconds, s.enabled,
                      s.governance AS "governance: Json<GovernanceForm>", s.config_revision,
                      s.form_revision, s.status, s.status_error, s.checked_at, s.pinned_at,
                      s.imported, s.unconfirmed, s.created_at, s.updated_at,
                      (SELECT count(*) FROM mcp_tools t
                       WHERE t.tenant_id = $1 AND t.server_id = s.server_id
                         AND t.removed_at IS NULL) AS "tool_count!"
               FROM mcp_servers s WHERE s.tenant_id = $1 "# + $rest,
            $($argument),*
        )
    };
}

/// The server of this id, else of this slug.
pub async fn find(tx: &mut Tx, id_or_slug: &str) -> Result<Option<Server>, StoreError> {
    let row = select!(
        "AND (s.server_id = $2 OR s.slug = $2) ORDER BY s.server_id = $2 DESC LIMIT 1",
        tx.tenant().0,
        id_or_slug,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Server::try_from).transpose()?)
}

/// All of the tenant's, by name.
pub async fn all(tx: &mut Tx) -> Result<Vec<Server>, StoreError> {
    let rows =
        select!("ORDER BY lower(s.name), s.server_id", tx.tenant().0).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Server::try_from).collect::<Result<_, _>>()?)
}

/// As [`find`], locked until the transaction ends.
pub async fn lock(tx: &mut Tx, id_or_slug: &str) -> Result<Option<Server>, StoreError> {
    let row = select!(
        "AND (s.server_id = $2 OR s.slug = $2) ORDER BY s.server_id = $2 DESC LIMIT 1 FOR UPDATE OF s",
        tx.tenant().0,
        id_or_slug,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Server::try_from).transpose()?)
}

/// As [`find`]; until the transaction ends nobody changes it or its secrets. Others may hold it too.
pub async fn hold(tx: &mut Tx, id_or_slug: &str) -> Result<Option<Server>, StoreError> {
    let row = select!(
        "AND (s.server_id = $2 OR s.slug = $2) ORDER BY s.server_id = $2 DESC LIMIT 1 FOR SHARE OF s",
        tx.tenant().0,
        id_or_slug,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Server::try_from).transpose()?)
}

/// Where a list of servers goes on: newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub created_at: Timestamp,
    pub id: ServerId,
}

/// Which servers a list shows.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Those alone that are switched on, or that this person is connected to, or was.
    pub usable_by: Option<UserId>,
    /// These alone.
    pub only: Option<&'a [ServerId]>,
    pub after: Option<&'a Cursor>,
    pub rows: i64,
}

/// A page of the servers, newest first.
pub async fn page(tx: &mut Tx, wanted: Wanted<'_>) -> Result<Vec<Server>, StoreError> {
    let only = texts(wanted.only);
    let after = wanted.after;
    let rows = select!(
        r#"AND ($2::uuid IS NULL OR s.enabled OR EXISTS (
                   SELECT FROM mcp_connections c
                   WHERE c.tenant_id = $1 AND c.server_id = s.server_id AND c.user_id = $2
                     AND c.state <> 'disconnected'))
           AND ($3::timestamptz IS NULL OR (s.created_at, s.server_id COLLATE "C") < ($3, $4))
           AND ($5::text[] IS NULL OR s.server_id = ANY($5))
           ORDER BY s.created_at DESC, s.server_id COLLATE "C" DESC LIMIT $6"#,
        tx.tenant().0,
        wanted.usable_by.map(|user| user.0),
        after.map(|cursor| cursor.created_at),
        after.map(|cursor| cursor.id.as_str()),
        only.as_deref(),
        wanted.rows,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(Server::try_from).collect::<Result<_, _>>()?)
}

/// How many servers a superadmin made. The tenant is locked by whoever adds one.
pub async fn count_custom(tx: &mut Tx) -> Result<u64, StoreError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM mcp_servers
           WHERE tenant_id = $1 AND server_id ~ '^custom-[0-9a-f]{12}$'"#,
        tx.tenant().0,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(count.unsigned_abs())
}

/// A name or slug that is taken breaks `mcp_servers_name_key` or `mcp_servers_slug_key`.
pub async fn insert(tx: &mut Tx, server: &Server) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO mcp_servers (tenant_id, server_id, slug, name, description, icon, tags, transport,
             url, command, args, cwd, auth_mode, api_key_header, oauth, timeout_seconds, enabled,
             governance, config_revision, form_revision, created_at, updated_at, unconfirmed,
             imported)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
             $20, $21, $22, $23, $24)",
        tx.tenant().0,
        server.id.as_str(),
        server.slug,
        server.name,
        server.description,
        server.icon.as_deref().unwrap_or_default(),
        &server.tags,
        server.reach.transport.as_str(),
        server.reach.url,
        server.reach.command,
        &server.reach.args,
        server.reach.cwd,
        server.reach.auth_mode.as_str(),
        server.reach.api_key_header.as_deref().unwrap_or_default(),
        server.reach.oauth.as_ref().map(Json) as _,
        seconds(server.timeout),
        server.enabled,
        server.governance.as_ref().map(Json) as _,
        server.config_revision,
        server.form_revision,
        server.created_at,
        server.updated_at,
        server.unconfirmed,
        server.imported,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Writes back all but what never changes: id, slug, creation, whether it was imported.
pub async fn save(tx: &mut Tx, server: &Server) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_servers
         SET name = $3, description = $4, icon = $5, tags = $6, transport = $7, url = $8, command = $9,
             args = $10, cwd = $11, auth_mode = $12, api_key_header = $13, oauth = $14,
             timeout_seconds = $15, enabled = $16, governance = $17, config_revision = $18,
             form_revision = $19, status = $20, status_error = $21, checked_at = $22,
             pinned_at = $23, updated_at = $24, unconfirmed = $25
         WHERE tenant_id = $1 AND server_id = $2",
        tx.tenant().0,
        server.id.as_str(),
        server.name,
        server.description,
        server.icon.as_deref().unwrap_or_default(),
        &server.tags,
        server.reach.transport.as_str(),
        server.reach.url,
        server.reach.command,
        &server.reach.args,
        server.reach.cwd,
        server.reach.auth_mode.as_str(),
        server.reach.api_key_header.as_deref().unwrap_or_default(),
        server.reach.oauth.as_ref().map(Json) as _,
        seconds(server.timeout),
        server.enabled,
        server.governance.as_ref().map(Json) as _,
        server.config_revision,
        server.form_revision,
        server.status.as_str(),
        server.status_error,
        server.checked_at,
        server.pinned_at,
        server.updated_at,
        server.unconfirmed,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Which of a server's secrets a row of `mcp_server_secrets` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    Env,
    Header,
    ClientSecret,
}

impl SecretKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::Header => "header",
            Self::ClientSecret => "client_secret",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Env, Self::Header, Self::ClientSecret].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// That a secret exists; not what it is.
#[derive(Debug, Clone)]
pub struct SecretName {
    pub server: ServerId,
    pub kind: SecretKind,
    /// Empty for the client secret.
    pub name: String,
    /// What its value refers to.
    pub variables: Vec<String>,
}

/// The names of the secrets of these servers.
pub async fn secret_names(
    tx: &mut Tx,
    servers: &[ServerId],
) -> Result<Vec<SecretName>, StoreError> {
    let servers = texts(Some(servers)).unwrap_or_default();
    let rows = sqlx::query!(
        "SELECT server_id, kind, name, variables FROM mcp_server_secrets
         WHERE tenant_id = $1 AND server_id = ANY($2) ORDER BY server_id, kind, name COLLATE \"C\"",
        tx.tenant().0,
        &servers,
    )
    .fetch_all(tx.conn())
    .await?;
    let mut names = Vec::with_capacity(rows.len());
    for row in rows {
        let kind = SecretKind::parse(&row.kind)
            .ok_or_else(|| CorruptRow::new("mcp_server_secrets", &row.server_id, "unknown kind"))?;
        let server = ServerId(row.server_id);
        names.push(SecretName { server, kind, name: row.name, variables: row.variables });
    }
    Ok(names)
}

/// The name and slug of every server of the tenant.
pub async fn labels(tx: &mut Tx) -> Result<Vec<(String, String)>, StoreError> {
    let rows =
        sqlx::query!("SELECT name, slug FROM mcp_servers WHERE tenant_id = $1", tx.tenant().0)
            .fetch_all(tx.conn())
            .await?;
    Ok(rows.into_iter().map(|row| (row.name, row.slug)).collect())
}

/// Writes a secret, new or in place of the one of that name; `variables` are those that it refers to.
pub async fn put_secret(
    tx: &mut Tx,
    server: &ServerId,
    kind: SecretKind,
    name: &str,
    sealed: &Sealed,
    variables: &[String],
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO mcp_server_secrets (tenant_id, server_id, kind, name, sealed, key_id, variables)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (tenant_id, server_id, kind, name)
         DO UPDATE SET sealed = EXCLUDED.sealed, key_id = EXCLUDED.key_id,
                       variables = EXCLUDED.variables",
        tx.tenant().0,
        server.as_str(),
        kind.as_str(),
        name,
        sealed.token,
        sealed.key_id,
        variables,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

pub async fn secret(
    tx: &mut Tx,
    server: &ServerId,
    kind: SecretKind,
    name: &str,
) -> Result<Option<Sealed>, StoreError> {
    let row = sqlx::query!(
        "SELECT sealed, key_id FROM mcp_server_secrets
         WHERE tenant_id = $1 AND server_id = $2 AND kind = $3 AND name = $4",
        tx.tenant().0,
        server.as_str(),
        kind.as_str(),
        name,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Sealed { token: row.sealed, key_id: row.key_id }))
}

pub async fn delete_secret(
    tx: &mut Tx,
    server: &ServerId,
    kind: SecretKind,
    name: &str,
) -> Result<(), StoreError> {
    sqlx::query!(
        "DELETE FROM mcp_server_secrets
         WHERE tenant_id = $1 AND server_id = $2 AND kind = $3 AND name = $4",
        tx.tenant().0,
        server.as_str(),
        kind.as_str(),
        name,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

struct Row {
    server_id: String,
    slug: String,
    name: String,
    description: String,
    icon: String,
    tags: Vec<String>,
    transport: String,
    url: String,
    command: String,
    args: Vec<String>,
    cwd: String,
    auth_mode: String,
    api_key_header: String,
    oauth: Option<Json<OAuthSettings>>,
    timeout_seconds: i32,
    enabled: bool,
    governance: Option<Json<GovernanceForm>>,
    config_revision: i64,
    form_revision: i64,
    status: String,
    status_error: Option<String>,
    checked_at: Option<Timestamp>,
    pinned_at: Option<Timestamp>,
    imported: bool,
    unconfirmed: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    tool_count: i64,
}

impl TryFrom<Row> for Server {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        let corrupt = |problem| CorruptRow::new("mcp_servers", &row.server_id, problem);
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let seconds =
            u64::try_from(row.timeout_seconds).map_err(|_| corrupt("negative time-out"))?;
        let reach = ServerReach {
            transport: row.transport.parse().map_err(|_| corrupt("unknown transport"))?,
            auth_mode: row.auth_mode.parse().map_err(|_| corrupt("unknown auth mode"))?,
            url: row.url,
            command: row.command,
            args: row.args,
            cwd: row.cwd,
            api_key_header: given(row.api_key_header),
            oauth: row.oauth.map(|Json(oauth)| oauth),
        };
        let status = row.status.parse().map_err(|_| corrupt("unknown status"))?;
        Ok(Self {
            id: ServerId(row.server_id),
            slug: row.slug,
            name: row.name,
            description: row.description,
            icon: given(row.icon),
            tags: row.tags,
            reach,
            timeout: Duration::from_secs(seconds),
            enabled: row.enabled,
            governance: row.governance.map(|Json(governance)| governance),
            config_revision: row.config_revision,
            form_revision: row.form_revision,
            status,
            status_error: row.status_error,
            checked_at: row.checked_at,
            pinned_at: row.pinned_at,
            imported: row.imported,
            unconfirmed: row.unconfirmed,
            created_at: row.created_at,
            updated_at: row.updated_at,
            tool_count: row.tool_count,
        })
    }
}

/// The schema bounds it to 600.
fn seconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX)
}
