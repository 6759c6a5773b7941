//! Questions to a person, from asked to spent.

use domain::{
    Timestamp,
    ids::{
        AuthorizationId, ExecutionId, NodeId, PermissionRequestId, ServerId, SessionId, TenantId,
        TokenId, ToolId, UserId,
    },
    json::Sha256Digest,
    permission::{Matching, OwnerKind, PermissionRequest, RequestState, Settled},
};
use uuid::Uuid;

use crate::{CorruptRow, Db, StoreError, Tx, calls::CallName, sessions::uuids};

mod cards;
mod holders;
pub use cards::{Names, names};
pub use holders::*;

/// A question with everything that its card shows and its waiting call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub id: PermissionRequestId,
    pub session: SessionId,
    pub user: UserId,
    pub owner: OwnerKind,
    pub execution: ExecutionId,
    pub tool_call_id: String,
    pub token: Option<TokenId>,
    /// The process that holds the caller.
    pub node: Option<NodeId>,
    pub resource: String,
    pub matches: Matching,
    /// What is asked and what a grant would cover.
    pub words: String,
    /// What else a grant would allow.
    pub example: String,
    pub server: Option<ServerId>,
    pub tool: Option<ToolId>,
    /// Of the canonical input.
    pub input_digest: Sha256Digest,
    /// The canonical input, or its beginning.
    pub input_shown: String,
    pub state: RequestState,
    /// Exactly when it is allowed or denied.
    pub settled: Option<Settled>,
    /// Nobody holds the line since then.
    pub detached_at: Option<Timestamp>,
    /// The answer was picked up then, once and for all.
    pub used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
}

impl Question {
    /// The part that `domain` decides on.
    #[must_use]
    pub fn request(&self) -> PermissionRequest {
        PermissionRequest {
            id: self.id,
            session: self.session,
            state: self.state,
            expires_at: self.expires_at,
            matches: self.matches.clone(),
        }
    }
}

macro_rules! select {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            $crate::requests::Row,
            "SELECT r.permission_request_id, r.session_id, r.user_id, r.owner_kind, r.execution_id,
                    r.tool_call_id, r.token_id, r.node_id, r.action, r.resource, r.resource_class,
                    r.words, r.example, r.server_id, r.tool_id, r.definition_hash, r.input_digest,
                    r.input_shown, r.state, r.authorization_id, r.authorization_source,
                    r.detached_at, r.used_at, r.expires_at, r.created_at, r.resolved_at
             FROM permission_requests r WHERE r.tenant_id = $1 AND " + $rest,
            $($argument),*
        )
    };
}
use select;

/// Inserts a pending question.
pub async fn insert(tx: &mut Tx, question: &Question) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO permission_requests (
             tenant_id, permission_request_id, session_id, user_id, owner_kind, execution_id,
             tool_call_id, token_id, node_id, action, resource, resource_class, words, example,
             server_id, tool_id, definition_hash, input_digest, input_shown, expires_at, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                 $20, $21)",
        tx.tenant().0,
        question.id.0,
        question.session.0,
        question.user.0,
        question.owner.as_str(),
        question.execution.0,
        question.tool_call_id,
        question.token.map(|id| id.0),
        question.node.map(|id| id.0),
        question.matches.action,
        question.resource,
        question.matches.resource_class,
        question.words,
        question.example,
        question.server.as_ref().map(ServerId::as_str),
        question.tool.as_ref().map(ToolId::as_str),
        question.matches.definition_hash.as_ref().map(Sha256Digest::as_bytes),
        question.input_digest.as_bytes(),
        question.input_shown,
        question.expires_at,
        question.created_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

pub async fn find(tx: &mut Tx, id: PermissionRequestId) -> Result<Option<Question>, StoreError> {
    let row = select!("r.permission_request_id = $2", tx.tenant().0, id.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Question::try_from).transpose()?)
}

/// Until commit nobody else's to change. Its session is locked before it, where both are.
pub async fn lock(tx: &mut Tx, id: PermissionRequestId) -> Result<Option<Question>, StoreError> {
    let row = select!("r.permission_request_id = $2 FOR UPDATE", tx.tenant().0, id.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Question::try_from).transpose()?)
}

/// All pending questions of a session that the caller has locked, oldest first.
pub async fn lock_pending(tx: &mut Tx, session: SessionId) -> Result<Vec<Question>, StoreError> {
    let rows = select!(
        "r.session_id = $2 AND r.state = 'pending' ORDER BY r.permission_request_id FOR UPDATE",
        tx.tenant().0,
        session.0,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(|row| Ok(row.try_into()?)).collect()
}

/// How many questions of a session wait for a person.
pub async fn count_pending(tx: &mut Tx, session: SessionId) -> Result<usize, StoreError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM permission_requests
           WHERE tenant_id = $1 AND session_id = $2 AND state = 'pending'"#,
        tx.tenant().0,
        session.0,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Ends a pending question. False: it was no longer pending, and nothing was changed.
pub async fn resolve(
    tx: &mut Tx,
    id: PermissionRequestId,
    state: RequestState,
    settled: Option<Settled>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE permission_requests
         SET state = $3, authorization_id = $4, authorization_source = $5, resolved_at = $6
         WHERE tenant_id = $1 AND permission_request_id = $2 AND state = 'pending'",
        tx.tenant().0,
        id.0,
        state.as_str(),
        settled.map(|settled| settled.authorization.0),
        settled.map(|settled| settled.source.as_str()),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Which questions are wanted.
#[derive(Debug, Clone)]
pub struct Filter<'a> {
    pub user: UserId,
    /// `None`: of all sessions.
    pub sessions: Option<&'a [SessionId]>,
    /// `None`: in any state. An expired question counts as cancelled.
    pub state: Option<RequestState>,
}

/// Newest first, those before `after`.
pub async fn list(
    tx: &mut Tx,
    filter: &Filter<'_>,
    now: Timestamp,
    after: Option<PermissionRequestId>,
    rows: i64,
) -> Result<Vec<Question>, StoreError> {
    let sessions = uuids(filter.sessions);
    let rows = select!(
        "r.user_id = $2
           AND ($3::uuid[] IS NULL OR r.session_id = ANY($3))
           AND ($4::text IS NULL OR $4 =
                CASE WHEN r.state = 'pending' AND r.expires_at <= $5 THEN 'cancelled' ELSE r.state END)
           AND ($6::uuid IS NULL OR r.permission_request_id < $6)
         ORDER BY r.permission_request_id DESC LIMIT $7",
        tx.tenant().0,
        filter.user.0,
        sessions.as_deref(),
        filter.state.map(RequestState::as_str),
        now,
        after.map(|id| id.0),
        rows,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(|row| Ok(row.try_into()?)).collect()
}

/// What models call the tool now; `None`: it is gone.
pub async fn agent_name(
    tx: &mut Tx,
    server: &ServerId,
    tool: &ToolId,
) -> Result<Option<String>, StoreError> {
    let name = sqlx::query_scalar!(
        "SELECT agent_name FROM mcp_tools WHERE tenant_id = $1 AND server_id = $2 AND tool_id = $3",
        tx.tenant().0,
        server.as_str(),
        tool.as_str(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(name)
}

struct Row {
    permission_request_id: Uuid,
    session_id: Uuid,
    user_id: Uuid,
    owner_kind: String,
    execution_id: Uuid,
    tool_call_id: String,
    token_id: Option<Uuid>,
    node_id: Option<Uuid>,
    action: String,
    resource: String,
    resource_class: String,
    words: String,
    example: String,
    server_id: Option<String>,
    tool_id: Option<String>,
    definition_hash: Option<Vec<u8>>,
    input_digest: Vec<u8>,
    input_shown: String,
    state: String,
    authorization_id: Option<Uuid>,
    authorization_source: Option<String>,
    detached_at: Option<Timestamp>,
    used_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    created_at: Timestamp,
    resolved_at: Option<Timestamp>,
}

impl TryFrom<Row> for Question {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        let corrupt =
            |problem| CorruptRow::new("permission_requests", row.permission_request_id, problem);
        let digest = |bytes: &[u8]| {
            Sha256Digest::try_from(bytes).map_err(|_| corrupt("digest of another length"))
        };
        let definition_hash = row.definition_hash.as_deref().map(digest).transpose()?;
        Ok(Self {
            id: PermissionRequestId(row.permission_request_id),
            session: SessionId(row.session_id),
            user: UserId(row.user_id),
            owner: row.owner_kind.parse().map_err(|_| corrupt("unknown owner"))?,
            execution: ExecutionId(row.execution_id),
            token: row.token_id.map(TokenId),
            node: row.node_id.map(NodeId),
            input_digest: digest(&row.input_digest)?,
            state: row.state.parse().map_err(|_| corrupt("unknown state"))?,
            settled: settled(row.authorization_id, row.authorization_source.as_deref())
                .map_err(corrupt)?,
            matches: Matching {
                action: row.action,
                resource_class: row.resource_class,
                definition_hash,
            },
            tool_call_id: row.tool_call_id,
            resource: row.resource,
            words: row.words,
            example: row.example,
            server: row.server_id.map(ServerId),
            tool: row.tool_id.map(ToolId),
            input_shown: row.input_shown,
            detached_at: row.detached_at,
            used_at: row.used_at,
            expires_at: row.expires_at,
            created_at: row.created_at,
            resolved_at: row.resolved_at,
        })
    }
}

fn settled(
    authorization: Option<Uuid>,
    source: Option<&str>,
) -> Result<Option<Settled>, &'static str> {
    let Some(authorization) = authorization else { return Ok(None) };
    let source = source.and_then(|source| source.parse().ok());
    let source = source.ok_or("unknown authorization source")?;
    Ok(Some(Settled { authorization: AuthorizationId(authorization), source }))
}
