//! Personal connections: who is connected to which server, and with what.

mod refreshing;

use domain::{
    Timestamp,
    connection::{Connection, ConnectionState, ReconnectReason},
    ids::{ServerId, TenantId, TokenId, ToolId, UserId},
    invocation::ReadBack,
};
use uuid::Uuid;

use crate::{CorruptRow, Db, StoreError, Tx, calls::ReadBackRow, vault::Sealed};

pub use refreshing::{
    Failed, Lease, Refreshed, clear_exactly, failed, lease, need_scopes, release, save_refreshed,
    touch,
};

/// What becomes of the stored credential.
#[derive(Debug, Clone, Copy)]
pub enum Stored<'a> {
    Keep,
    Put(&'a Sealed),
    Clear,
}

struct Row {
    server_id: String,
    user_id: Uuid,
    generation: i64,
    version: i64,
    state: String,
    reason: Option<String>,
    kind: Option<String>,
    account: Option<String>,
    issuer: Option<String>,
    scopes: Vec<String>,
    needs_scopes: Vec<String>,
    expires_at: Option<Timestamp>,
    refresh_at: Option<Timestamp>,
    connected_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    updated_at: Timestamp,
}

impl TryFrom<Row> for Connection {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        let corrupt = |problem| CorruptRow::new("mcp_connections", &row.server_id, problem);
        let reason = row.reason.map(|reason| reason.parse()).transpose();
        let kind = row.kind.map(|kind| kind.parse()).transpose();
        Ok(Self {
            state: row.state.parse().map_err(|_| corrupt("unknown state"))?,
            reason: reason.map_err(|_| corrupt("unknown reason"))?,
            kind: kind.map_err(|_| corrupt("unknown kind"))?,
            server: ServerId(row.server_id),
            user: UserId(row.user_id),
            generation: row.generation,
            version: row.version,
            account: row.account,
            issuer: row.issuer,
            scopes: row.scopes,
            needs_scopes: row.needs_scopes,
            expires_at: row.expires_at,
            refresh_at: row.refresh_at,
            connected_at: row.connected_at,
            last_used_at: row.last_used_at,
            updated_at: row.updated_at,
        })
    }
}

/// `None`: the person never had to do with the server.
pub async fn find(
    tx: &mut Tx,
    server: &ServerId,
    user: UserId,
) -> Result<Option<Connection>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT server_id, user_id, generation, version, state, reason, kind, account, issuer, scopes,
                needs_scopes, expires_at, refresh_at, connected_at, last_used_at, updated_at
         FROM mcp_connections WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3",
        tx.tenant().0,
        server.as_str(),
        user.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Connection::try_from).transpose()?)
}

/// All of a person's.
pub async fn of_person(tx: &mut Tx, user: UserId) -> Result<Vec<Connection>, StoreError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT server_id, user_id, generation, version, state, reason, kind, account, issuer, scopes,
                needs_scopes, expires_at, refresh_at, connected_at, last_used_at, updated_at
         FROM mcp_connections WHERE tenant_id = $1 AND user_id = $2 ORDER BY server_id",
        tx.tenant().0,
        user.0,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(Connection::try_from).collect::<Result<_, _>>()?)
}

/// Everybody's to one server.
pub async fn of_server(tx: &mut Tx, server: &ServerId) -> Result<Vec<Connection>, StoreError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT server_id, user_id, generation, version, state, reason, kind, account, issuer, scopes,
                needs_scopes, expires_at, refresh_at, connected_at, last_used_at, updated_at
         FROM mcp_connections WHERE tenant_id = $1 AND server_id = $2 ORDER BY user_id",
        tx.tenant().0,
        server.as_str(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(Connection::try_from).collect::<Result<_, _>>()?)
}

/// The connection, held until commit; made where there is none. After the server, before attempts.
pub async fn lock(
    tx: &mut Tx,
    server: &ServerId,
    user: UserId,
    now: Timestamp,
) -> Result<Connection, StoreError> {
    sqlx::query!(
        "INSERT INTO mcp_connections (tenant_id, server_id, user_id, generation, version, state, updated_at)
         VALUES ($1, $2, $3, 0, 0, 'disconnected', $4) ON CONFLICT DO NOTHING",
        tx.tenant().0,
        server.as_str(),
        user.0,
        now,
    )
    .execute(tx.conn())
    .await?;
    let row = sqlx::query_as!(
        Row,
        "SELECT server_id, user_id, generation, version, state, reason, kind, account, issuer, scopes,
                needs_scopes, expires_at, refresh_at, connected_at, last_used_at, updated_at
         FROM mcp_connections WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 FOR UPDATE",
        tx.tenant().0,
        server.as_str(),
        user.0,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(row.try_into()?)
}

/// Writes a locked connection back. Whoever refreshes it does so in vain once its generation changed.
pub async fn save(
    tx: &mut Tx,
    connection: &Connection,
    credential: Stored<'_>,
) -> Result<(), StoreError> {
    let (keep, sealed) = match credential {
        Stored::Keep => (true, None),
        Stored::Put(sealed) => (false, Some(sealed)),
        Stored::Clear => (false, None),
    };
    sqlx::query!(
        "UPDATE mcp_connections
         SET refresh_by = CASE WHEN generation = $4 THEN refresh_by END,
             refresh_until = CASE WHEN generation = $4 THEN refresh_until END,
             refresh_failures = CASE WHEN generation = $4 THEN refresh_failures ELSE 0 END,
             generation = $4, version = $5, state = $6, reason = $7, kind = $8, account = $9, issuer = $10,
             scopes = $11, needs_scopes = $12, expires_at = $13, refresh_at = $14, connected_at = $15,
             last_used_at = $16, updated_at = $17,
             sealed = CASE WHEN $18 THEN sealed ELSE $19 END,
             key_id = CASE WHEN $18 THEN key_id ELSE $20 END
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3",
        tx.tenant().0,
        connection.server.as_str(),
        connection.user.0,
        connection.generation,
        connection.version,
        connection.state.as_str(),
        connection.reason.map(ReconnectReason::as_str),
        connection.kind.map(domain::connection::CredentialKind::as_str),
        connection.account,
        connection.issuer,
        &connection.scopes,
        &connection.needs_scopes,
        connection.expires_at,
        connection.refresh_at,
        connection.connected_at,
        connection.last_used_at,
        connection.updated_at,
        keep,
        sealed.map(|sealed| sealed.token.as_str()),
        sealed.map(|sealed| sealed.key_id.as_str()),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Takes everybody's credential of a locked server out; every generation grows. How many were
/// connected.
pub async fn clear_all(
    tx: &mut Tx,
    server: &ServerId,
    reason: ReconnectReason,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let cleared = sqlx::query_scalar!(
        r#"WITH cleared AS (
               UPDATE mcp_connections c
               SET generation = c.generation + 1, sealed = NULL, key_id = NULL, expires_at = NULL,
                   refresh_at = NULL, refresh_by = NULL, refresh_until = NULL, updated_at = $4,
                   state = CASE WHEN c.state = 'connected' THEN 'reconnect_required' ELSE c.state END,
                   reason = CASE WHEN c.state = 'connected' THEN $3 ELSE c.reason END
               FROM (SELECT user_id, state FROM mcp_connections
                     WHERE tenant_id = $1 AND server_id = $2 ORDER BY user_id FOR UPDATE) was
               WHERE c.tenant_id = $1 AND c.server_id = $2 AND c.user_id = was.user_id
               RETURNING was.state)
           SELECT count(*) AS "count!" FROM cleared WHERE state = 'connected'"#,
        tx.tenant().0,
        server.as_str(),
        reason.as_str(),
        now,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(u64::try_from(cleared).unwrap_or_default())
}

/// The stored credential of a connected one.
pub async fn credential(
    tx: &mut Tx,
    server: &ServerId,
    user: UserId,
) -> Result<Option<Sealed>, StoreError> {
    let row = sqlx::query!(
        "SELECT sealed, key_id FROM mcp_connections
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3",
        tx.tenant().0,
        server.as_str(),
        user.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.and_then(|row| Some(Sealed { token: row.sealed?, key_id: row.key_id? })))
}

/// Every stored credential of a person.
pub async fn credentials_of(
    tx: &mut Tx,
    user: UserId,
) -> Result<Vec<(ServerId, Sealed)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT server_id, sealed AS "sealed!", key_id AS "key_id!" FROM mcp_connections
           WHERE tenant_id = $1 AND user_id = $2 AND sealed IS NOT NULL AND key_id IS NOT NULL"#,
        tx.tenant().0,
        user.0,
    )
    .fetch_all(tx.conn())
    .await?;
    let sealed = |token, key_id| Sealed { token, key_id };
    Ok(rows
        .into_iter()
        .map(|row| (ServerId(row.server_id), sealed(row.sealed, row.key_id)))
        .collect())
}

/// Whose credential at which server, in which state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialName {
    pub tenant: TenantId,
    pub server: ServerId,
    pub user: UserId,
    pub generation: i64,
    pub version: i64,
}

/// For whom a request is about to leave, and where to.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub tenant: TenantId,
    /// `None`: nobody's.
    pub user: Option<UserId>,
    pub token: Option<TokenId>,
    pub server: &'a ServerId,
    pub tool: Option<&'a ToolId>,
    pub at: Timestamp,
}

/// What decides whether it may.
#[derive(Debug)]
pub struct Now {
    pub read_back: ReadBack,
    /// `None`: the person has nothing to do with the server.
    pub own: Option<Own>,
}

/// How a person's connection stands.
#[derive(Debug)]
pub struct Own {
    pub generation: i64,
    pub version: i64,
    pub state: ConnectionState,
    pub reason: Option<ReconnectReason>,
    /// Of a connected one.
    pub sealed: Option<Sealed>,
    pub refresh_at: Option<Timestamp>,
    /// `None`: unknown.
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl Own {
    /// Whether its end lies behind.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Reads all of it back, in one round trip.
pub async fn read_back(db: &Db, asked: &Asked<'_>) -> Result<Now, StoreError> {
    let row = sqlx::query!(
        "SELECT * FROM outbound_read_back($1, $2, $3, $4, $5, $6)",
        asked.tenant.0,
        asked.user.map(|user| user.0),
        asked.token.map(|token| token.0),
        asked.server.as_str(),
        asked.tool.map(ToolId::as_str),
        asked.at,
    )
    .fetch_one(db.pool())
    .await?;
    let corrupt = |problem| CorruptRow::new("mcp_connections", asked.server, problem);
    let own = match (row.generation, row.version, row.state) {
        (Some(generation), Some(version), Some(state)) => {
            let reason = row.reason.map(|reason| reason.parse()).transpose();
            Some(Own {
                generation,
                version,
                state: state.parse().map_err(|_| corrupt("unknown state"))?,
                reason: reason.map_err(|_| corrupt("unknown reason"))?,
                sealed: row.sealed.zip(row.key_id).map(|(token, key_id)| Sealed { token, key_id }),
                refresh_at: row.refresh_at,
                expires_at: row.expires_at,
                last_used_at: row.last_used_at,
            })
        }
        _ => None,
    };
    let read_back = ReadBackRow {
        user_active: row.user_active,
        server_enabled: row.server_enabled,
        config_revision: row.config_revision,
        auth_mode: row.auth_mode,
        tool_present: row.tool_present,
        tool_enabled: row.tool_enabled,
        tool_denied: row.tool_denied,
        tool_approved: row.tool_approved,
        definition_hash: row.definition_hash,
    };
    Ok(Now { read_back: read_back.into(), own })
}
