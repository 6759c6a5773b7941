//! A governed call, from its context to its close: the statements of the hot path.
//!
//! Each is one round trip and its own transaction; the SQL functions set the tenant themselves
//! (`migrations/20261130150400_call_path.sql`). A statement that was cut off by an outage may have
//! happened: [`close`] says whether it closed the call, and may be tried again.

use domain::{
    Timestamp,
    audit::AuthorizationRecord,
    ids::{
        AuthorizationId, ExecutionId, InvocationId, NodeId, PermissionEpochId, PermissionGrantId,
        ServerId, SessionId, TenantId, TokenId, ToolId, UserId,
    },
    invocation::{CatalogEntry, Origin, ReadBack, ServerNow, Status},
    json::Sha256Digest,
    permission::{ApprovalMode, ToolPolicy},
};
use serde_json::Value;

use crate::{CorruptRow, Db, StoreError, Tx};

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
    /// `None`: no tool of the tenant has the asked name.
    pub tool: Option<ContextTool>,
}

/// The tool that a name stands for, with its server.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, read by name")]
pub struct ContextTool {
    pub server: ServerId,
    pub server_name: String,
    pub server_enabled: bool,
    pub transport: String,
    pub url: String,
    pub auth_mode: String,
    pub config_revision: i64,
    pub timeout_seconds: i32,
    pub governance: Option<Value>,
    /// Header name, sealed value, key id.
    pub headers: Vec<(String, String, String)>,
    pub tool: ToolId,
    pub original_name: String,
    pub tool_enabled: bool,
    pub policy: ToolPolicy,
    pub approved: bool,
    pub removed: bool,
    /// `None`: it was never approved.
    pub definition_hash: Option<Sha256Digest>,
    /// A standing grant of the session on exactly this tool as it is defined now.
    pub grant: Option<PermissionGrantId>,
}

/// `None`: the session does not exist for this person.
pub async fn context(
    db: &Db,
    tenant: TenantId,
    user: UserId,
    session: SessionId,
    agent_name: &str,
) -> Result<Option<Context>, StoreError> {
    let row = sqlx::query!(
        r#"SELECT session_archived AS "session_archived!", approval_mode AS "approval_mode!",
                  permission_epoch_id AS "permission_epoch_id!", user_active AS "user_active!",
                  tenant_sources AS "tenant_sources!", project_sources, session_sources,
                  server_id, server_name, server_enabled, transport, url, auth_mode,
                  config_revision, timeout_seconds, governance, headers, tool_id, original_name,
                  tool_enabled, policy, pin, tool_removed, definition_hash, permission_grant_id
           FROM call_context($1, $2, $3, $4)"#,
        tenant.0,
        user.0,
        session.0,
        agent_name,
    )
    .fetch_optional(db.pool())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let corrupt = |problem| CorruptRow::new("mcp_tools", agent_name, problem);
    let ids = |names: Vec<String>| names.into_iter().map(ServerId::from).collect::<Vec<_>>();
    let tool = match (row.server_id, row.tool_id) {
        (Some(server), Some(tool)) => Some(ContextTool {
            server: server.into(),
            server_name: row.server_name.unwrap_or_default(),
            server_enabled: row.server_enabled.unwrap_or(false),
            transport: row.transport.unwrap_or_default(),
            url: row.url.unwrap_or_default(),
            auth_mode: row.auth_mode.unwrap_or_default(),
            config_revision: row.config_revision.ok_or(corrupt("no revision"))?,
            timeout_seconds: row.timeout_seconds.ok_or(corrupt("no time-out"))?,
            governance: row.governance,
            headers: match row.headers {
                None => Vec::new(),
                Some(headers) => {
                    serde_json::from_value(headers).map_err(|_| corrupt("unreadable headers"))?
                }
            },
            tool: tool.into(),
            original_name: row.original_name.unwrap_or_default(),
            tool_enabled: row.tool_enabled.unwrap_or(false),
            policy: row
                .policy
                .and_then(|policy| policy.parse().ok())
                .ok_or(corrupt("unknown policy"))?,
            approved: row.pin.as_deref() == Some("approved"),
            removed: row.tool_removed.unwrap_or(true),
            definition_hash: digest(row.definition_hash),
            grant: row.permission_grant_id.map(PermissionGrantId),
        }),
        _ => None,
    };
    Ok(Some(Context {
        session_archived: row.session_archived,
        mode: ApprovalMode::parse(&row.approval_mode).ok_or(CorruptRow::new(
            "sessions",
            session,
            "unknown mode",
        ))?,
        epoch: PermissionEpochId(row.permission_epoch_id),
        user_active: row.user_active,
        tenant_sources: ids(row.tenant_sources),
        project_sources: row.project_sources.map(ids),
        session_sources: row.session_sources.map(ids),
        tool,
    }))
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

/// Moves a live call between `waiting` and `queued`, and notes the authorization that a decision
/// gave it. False: it is no longer live.
pub async fn set_live(
    tx: &mut Tx,
    name: &CallName,
    state: Status,
    authorization: Option<AuthorizationId>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE tool_calls SET state = $4, authorization_id = coalesce($5, authorization_id)
         WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3 AND state <> 'ended'",
        tx.tenant().0,
        name.execution.0,
        name.call_id,
        state.as_str(),
        authorization.map(|one| one.0),
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
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
}

/// Closes a call. False: it was closed before, and nothing was changed.
pub async fn close(db: &Db, call: &Closing<'_>) -> Result<bool, StoreError> {
    let closed = sqlx::query_scalar!(
        r#"SELECT close_call($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
            $17, $18, $19, $20, $21, $22) AS "closed!""#,
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
    )
    .fetch_one(db.pool())
    .await?;
    Ok(closed)
}

/// A call whose node is dead.
#[derive(Debug)]
pub struct Orphan {
    pub name: CallName,
    pub invocation: InvocationId,
    pub session: SessionId,
    pub authorization: Option<AuthorizationId>,
    pub sent_at: Option<Timestamp>,
    pub raw: Option<Sha256Digest>,
    pub result: Option<Sha256Digest>,
    pub created_at: Timestamp,
}

/// Names of live calls whose node is dead, of all tenants.
pub async fn orphan_names(db: &Db, most: i32) -> Result<Vec<CallName>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT tenant_id AS "tenant_id!", execution_id AS "execution_id!", call_id AS "call_id!"
           FROM due_dead_calls($1)"#,
        most,
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| CallName {
            tenant: TenantId(row.tenant_id),
            execution: ExecutionId(row.execution_id),
            call_id: row.call_id,
        })
        .collect())
}

/// The call, if it is still live and its node still dead.
pub async fn orphan(tx: &mut Tx, name: &CallName) -> Result<Option<Orphan>, StoreError> {
    let row = sqlx::query!(
        "SELECT invocation_id, session_id, authorization_id, sent_at, raw_sha256, result_sha256, created_at
         FROM tool_calls c
         WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3 AND state <> 'ended'
           AND NOT EXISTS (SELECT FROM nodes n WHERE n.node_id = c.node_id AND n.ended_at IS NULL
                           AND n.lease_expires_at >= clock_timestamp())",
        tx.tenant().0,
        name.execution.0,
        name.call_id,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Orphan {
        name: name.clone(),
        invocation: InvocationId(row.invocation_id),
        session: SessionId(row.session_id),
        authorization: row.authorization_id.map(AuthorizationId),
        sent_at: row.sent_at,
        raw: digest(row.raw_sha256),
        result: digest(row.result_sha256),
        created_at: row.created_at,
    }))
}

/// Drops the live rows of calls that ended before `before`; answers how many.
pub async fn forget_ended(db: &Db, before: Timestamp, most: i32) -> Result<u64, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT tenant_id AS "tenant_id!", execution_id AS "execution_id!", call_id AS "call_id!"
           FROM due_ended_calls($1, $2)"#,
        before,
        most,
    )
    .fetch_all(db.pool())
    .await?;
    let mut forgotten = 0;
    let mut rows = rows.as_slice();
    while let Some(first) = rows.first() {
        let tenant = TenantId(first.tenant_id);
        let of_tenant = rows.iter().take_while(|row| row.tenant_id == tenant.0).count();
        let (mine, rest) = rows.split_at(of_tenant);
        let mut tx = db.begin(tenant).await?;
        for row in mine {
            let done = sqlx::query!(
                "DELETE FROM tool_calls WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3
                 AND ended_at IS NOT NULL",
                tenant.0,
                row.execution_id,
                row.call_id,
            )
            .execute(tx.conn())
            .await?;
            forgotten += done.rows_affected();
        }
        tx.commit().await?;
        rows = rest;
    }
    Ok(forgotten)
}

struct ReadBackRow {
    user_active: Option<bool>,
    server_enabled: Option<bool>,
    config_revision: Option<i64>,
    auth_mode: Option<String>,
    tool_present: Option<bool>,
    tool_enabled: Option<bool>,
    tool_denied: Option<bool>,
    tool_approved: Option<bool>,
    definition_hash: Option<Vec<u8>>,
}

impl From<ReadBackRow> for ReadBack {
    fn from(row: ReadBackRow) -> Self {
        let server = row.config_revision.map(|config_revision| ServerNow {
            enabled: row.server_enabled.unwrap_or(false),
            config_revision,
            auth_mode: row.auth_mode.unwrap_or_default(),
            tool_present: row.tool_present.unwrap_or(false),
            tool_enabled: row.tool_enabled.unwrap_or(false),
            tool_denied: row.tool_denied.unwrap_or(true),
            tool_approved: row.tool_approved.unwrap_or(false),
            definition_hash: digest(row.definition_hash),
        });
        Self { user_active: row.user_active.unwrap_or(false), server }
    }
}

fn digest(bytes: Option<Vec<u8>>) -> Option<Sha256Digest> {
    bytes.and_then(|bytes| Sha256Digest::try_from(bytes.as_slice()).ok())
}
