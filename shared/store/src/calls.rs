//! A governed call, from its context to its close: the statements of the hot path.
//!
//! Each is one round trip and its own transaction; the SQL functions set the tenant themselves
//! (`migrations/…_call_path.sql`, `…_calls_that_wait_without_a_caller.sql`). A statement that was cut off by an outage may have
//! happened: [`close`] says whether it closed the call, and may be tried again.

use domain::{
    Timestamp,
    audit::AuthorizationRecord,
    connection::{ConnectionState, ReconnectReason},
    ids::{
        AuthorizationId, ExecutionId, InvocationId, NodeId, PermissionEpochId, PermissionGrantId,
        ServerId, SessionId, TenantId, TokenId, ToolId, UserId,
    },
    invocation::{CatalogEntry, Origin, ReadBack, Status},
    json::Sha256Digest,
    permission::{ApprovalMode, ToolPolicy},
};
use serde_json::Value;

use crate::{CorruptRow, Db, StoreError, Tx, servers::SealedValues};

mod orphans;
mod parked;
mod rows;

pub use orphans::{Orphan, orphan, orphan_names};
pub use parked::{Held, Parked, park, resume};
pub(crate) use rows::ReadBackRow;
use rows::{ContextRow, digest};

/// The name of a call: who asked, and their own id for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallName {
    pub tenant: TenantId,
    pub execution: ExecutionId,
    pub call_id: String,
}

/// What resolving, policy and admission look at.
#[derive(Debug)]
pub struct Context {
    pub session_archived: bool,
    pub mode: ApprovalMode,
    pub epoch: PermissionEpochId,
    pub user_active: bool,
    pub tenant_sources: Vec<ServerId>,
    pub project_sources: Option<Vec<ServerId>>,
    pub session_sources: Option<Vec<ServerId>>,
    /// `None`: no server of the tenant has the asked thing.
    pub server: Option<ContextServer>,
    /// `None`: no tool of the tenant has the asked name, or none was asked for.
    pub tool: Option<ContextTool>,
    /// A standing grant of the session on exactly this tool as it is defined now, or on one of the
    /// asked classes.
    pub grant: Option<PermissionGrantId>,
}

/// Where a call would go.
#[derive(Debug)]
pub struct ContextServer {
    pub server: ServerId,
    pub name: String,
    pub enabled: bool,
    pub transport: String,
    pub url: String,
    pub auth_mode: String,
    pub config_revision: i64,
    pub timeout_seconds: i32,
    pub governance: Option<Value>,
    /// What goes to it.
    pub values: SealedValues,
    /// Blank where it takes no API keys.
    pub api_key_header: String,
    /// The caller's own. `None`: they never had one.
    pub own: Option<OwnConnection>,
}

/// How far a person is connected to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnConnection {
    pub generation: i64,
    pub state: ConnectionState,
    pub reason: Option<ReconnectReason>,
}

/// The tool that a name stands for.
#[derive(Debug)]
pub struct ContextTool {
    pub tool: ToolId,
    /// What agents call it.
    pub agent_name: String,
    pub original_name: String,
    pub enabled: bool,
    pub policy: ToolPolicy,
    pub approved: bool,
    pub removed: bool,
    /// `None`: it was never approved.
    pub definition_hash: Option<Sha256Digest>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// The tool that agents call so.
    Agent(&'a str),
    /// The tool that this server calls so.
    Original { server: &'a ServerId, name: &'a str },
    /// No tool; a grant on one of these resource classes covers it.
    Server { server: &'a ServerId, classes: &'a [String] },
}

/// `None`: the session does not exist for this person.
pub async fn context(
    db: &Db,
    tenant: TenantId,
    user: UserId,
    session: SessionId,
    wanted: Wanted<'_>,
) -> Result<Option<Context>, StoreError> {
    context_of(db.pool(), tenant, user, session, wanted).await
}

/// The same as this transaction sees it.
pub async fn context_within(
    tx: &mut Tx,
    user: UserId,
    session: SessionId,
    wanted: Wanted<'_>,
) -> Result<Option<Context>, StoreError> {
    let tenant = tx.tenant();
    context_of(tx.conn(), tenant, user, session, wanted).await
}

async fn context_of(
    executor: impl sqlx::PgExecutor<'_>,
    tenant: TenantId,
    user: UserId,
    session: SessionId,
    wanted: Wanted<'_>,
) -> Result<Option<Context>, StoreError> {
    let (agent_name, server, original_name, classes) = match wanted {
        Wanted::Agent(name) => (Some(name), None, None, None),
        Wanted::Original { server, name } => (None, Some(server), Some(name), None),
        Wanted::Server { server, classes } => (None, Some(server), None, Some(classes)),
    };
    let row = sqlx::query_as!(
        ContextRow,
        r#"SELECT session_archived AS "session_archived!", approval_mode AS "approval_mode!",
                  permission_epoch_id AS "permission_epoch_id!", user_active AS "user_active!",
                  tenant_sources AS "tenant_sources!", project_sources, session_sources,
                  server_id, server_name, server_enabled, transport, url, auth_mode,
                  config_revision, timeout_seconds, governance, headers, command, args, cwd, env,
                  variables, only_tenant, tool_id, agent_name,
                  original_name, tool_enabled, policy, pin, tool_removed, definition_hash,
                  permission_grant_id, connection_generation, connection_state, connection_reason,
                  api_key_header
           FROM call_context($1, $2, $3, $4, $5, $6, $7)
           LEFT JOIN LATERAL server_values($1, server_id) ON true
           LEFT JOIN LATERAL own_connection($1, $2, server_id) ON true"#,
        tenant.0,
        user.0,
        session.0,
        agent_name,
        server.map(ServerId::as_str),
        original_name,
        classes,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| row.read(session)).transpose()?)
}

/// The approved definition of a tool, as the peer wrote it, with its hash.
pub async fn definition(
    tx: &mut Tx,
    server: &ServerId,
    tool: &ToolId,
) -> Result<Option<(Sha256Digest, String)>, StoreError> {
    let row = sqlx::query!(
        "SELECT definition, definition_hash FROM mcp_tools
         WHERE tenant_id = $1 AND server_id = $2 AND tool_id = $3",
        tx.tenant().0,
        server.as_str(),
        tool.as_str(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.and_then(|row| Some((digest(row.definition_hash)?, row.definition?))))
}

/// A call as it is made durable before anything is sent.
#[derive(Debug)]
pub struct NewCall<'a> {
    pub name: &'a CallName,
    pub invocation: InvocationId,
    pub session: SessionId,
    pub user: UserId,
    pub token: Option<TokenId>,
    pub origin: Origin,
    pub asked_name: &'a str,
    /// `None`: the name led to no tool.
    pub entry: Option<&'a CatalogEntry>,
    pub request: Sha256Digest,
    /// `None`: the object is stored already.
    pub request_body: Option<&'a [u8]>,
    pub node: NodeId,
    pub state: Status,
    /// The request leaves as soon as this is durable.
    pub sent: bool,
    pub at: Timestamp,
    pub authorization: Option<NewAuthorization<'a>>,
}

/// An authorization that is settled without asking, with its leaf.
#[derive(Debug)]
pub struct NewAuthorization<'a> {
    pub record: &'a AuthorizationRecord,
    pub leaf: Sha256Digest,
}

/// Makes a call durable; answers what holds at that moment.
pub async fn open(db: &Db, call: &NewCall<'_>) -> Result<ReadBack, StoreError> {
    let authorization = call.authorization.as_ref().map(|one| one.record);
    let leaf = call.authorization.as_ref().map(|one| one.leaf);
    let definition_hash = authorization.and_then(|one| one.definition_hash);
    let input_digest = authorization.and_then(|one| one.input_digest);
    let entry =
        call.entry.map(serde_json::to_value).transpose().map_err(|_| {
            CorruptRow::new("invocations", call.invocation, "entry that is no JSON")
        })?;
    let row = sqlx::query_as!(
        ReadBackRow,
        "SELECT * FROM open_call($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
            $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)",
        call.name.tenant.0,
        call.name.execution.0,
        call.name.call_id,
        call.invocation.0,
        call.session.0,
        call.user.0,
        call.token.map(|token| token.0),
        call.origin.as_str(),
        call.entry.map(|entry| entry.server.as_str()),
        call.entry.map(|entry| entry.tool.as_str()),
        call.asked_name,
        entry,
        call.request.as_bytes(),
        call.request_body,
        call.node.0,
        call.state.as_str(),
        call.sent,
        call.at,
        authorization.map(|one| one.authorization.0),
        authorization.map(|one| one.action.as_str()),
        authorization.map(|one| one.resource.as_str()),
        authorization.map(|one| one.mode.as_str()),
        authorization.map(|one| one.outcome.as_str()),
        authorization.map(|one| one.source.as_str()),
        authorization.map(|one| one.epoch.0),
        authorization.and_then(|one| one.grant).map(|grant| grant.0),
        definition_hash.as_ref().map(|hash| &hash.0[..]),
        input_digest.as_ref().map(|digest| &digest.0[..]),
        leaf.as_ref().map(|leaf| &leaf.0[..]),
    )
    .fetch_one(db.pool())
    .await?;
    Ok(row.into())
}

/// A call that waited is about to be sent: what holds now. `None`: it is no longer this node's.
pub async fn start(
    db: &Db,
    name: &CallName,
    node: NodeId,
    entry: &CatalogEntry,
    token: Option<TokenId>,
    at: Timestamp,
) -> Result<Option<ReadBack>, StoreError> {
    let row = sqlx::query_as!(
        ReadBackRow,
        "SELECT * FROM start_call($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        name.tenant.0,
        name.execution.0,
        name.call_id,
        node.0,
        entry.user.0,
        token.map(|token| token.0),
        entry.server.as_str(),
        entry.tool.as_str(),
        at,
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(ReadBack::from))
}

/// Moves a live call of this node from `waiting` to `queued`, and notes the authorization that a
/// decision gave it; nobody can come back to it any more. False: it is no longer this node's.
pub async fn set_queued(
    tx: &mut Tx,
    name: &CallName,
    node: NodeId,
    authorization: Option<AuthorizationId>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE tool_calls
         SET state = 'queued', authorization_id = coalesce($5, authorization_id), parked = false,
             resumable_until = NULL
         WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3 AND node_id = $4
           AND state <> 'ended'",
        tx.tenant().0,
        name.execution.0,
        name.call_id,
        node.0,
        authorization.map(|one| one.0),
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether a live call is this node's; until commit it stays so.
pub async fn is_held(tx: &mut Tx, name: &CallName, node: NodeId) -> Result<bool, StoreError> {
    let held = sqlx::query_scalar!(
        "SELECT invocation_id FROM tool_calls
         WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3 AND node_id = $4
           AND state <> 'ended' FOR SHARE",
        tx.tenant().0,
        name.execution.0,
        name.call_id,
        node.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(held.is_some())
}

/// The large result of a call is stored: should this node die now, the reaper closes the call as
/// succeeded.
pub async fn note_stored(
    tx: &mut Tx,
    name: &CallName,
    raw: Sha256Digest,
    result: Sha256Digest,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE tool_calls SET raw_sha256 = $4, result_sha256 = $5
         WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3 AND state <> 'ended'",
        tx.tenant().0,
        name.execution.0,
        name.call_id,
        raw.as_bytes(),
        result.as_bytes(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// How a call ended.
#[derive(Debug)]
pub struct Closing<'a> {
    pub name: &'a CallName,
    pub invocation: InvocationId,
    pub session: SessionId,
    pub status: Status,
    pub error_code: Option<&'a str>,
    pub error_message: Option<&'a str>,
    pub retryable: Option<bool>,
    pub queue_wait_ms: i64,
    pub duration_ms: i64,
    pub cache_hit: bool,
    pub attempts: &'a Value,
    pub warnings: &'a Value,
    pub authorization: Option<AuthorizationId>,
    pub raw: Option<Sha256Digest>,
    /// `None`: stored already, or nothing to store.
    pub raw_body: Option<&'a [u8]>,
    pub result: Option<Sha256Digest>,
    pub result_body: Option<&'a [u8]>,
    pub at: Timestamp,
    pub leaf: Sha256Digest,
    pub event: &'a Value,
    /// Whose call it is.
    pub node: NodeId,
    /// Whether its client had left it when that was looked at; `None`: whether or not.
    pub parked: Option<bool>,
}

/// Closes a call. False: it was closed before or is another node's by now, and nothing was changed.
pub async fn close(db: &Db, call: &Closing<'_>) -> Result<bool, StoreError> {
    closed(db.pool(), call).await
}

/// The same together with what ends with the call.
pub async fn close_within(tx: &mut Tx, call: &Closing<'_>) -> Result<bool, StoreError> {
    closed(tx.conn(), call).await
}

async fn closed(
    executor: impl sqlx::PgExecutor<'_>,
    call: &Closing<'_>,
) -> Result<bool, StoreError> {
    let closed = sqlx::query_scalar!(
        r#"SELECT close_call($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
            $17, $18, $19, $20, $21, $22, $23, $24) AS "closed!""#,
        call.name.tenant.0,
        call.name.execution.0,
        call.name.call_id,
        call.invocation.0,
        call.session.0,
        call.status.as_str(),
        call.error_code,
        call.error_message,
        call.retryable,
        call.queue_wait_ms,
        call.duration_ms,
        call.cache_hit,
        call.attempts,
        call.warnings,
        call.authorization.map(|one| one.0),
        call.raw.as_ref().map(|digest| &digest.0[..]),
        call.raw_body,
        call.result.as_ref().map(|digest| &digest.0[..]),
        call.result_body,
        call.at,
        call.leaf.as_bytes(),
        call.event,
        call.node.0,
        call.parked,
    )
    .fetch_one(executor)
    .await?;
    Ok(closed)
}
