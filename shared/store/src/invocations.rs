//! The record of governed calls, for reading.

use domain::{
    Timestamp,
    ids::{AuthorizationId, InvocationId, ServerId, SessionId, TokenId, ToolId, UserId},
    invocation::{Origin, Status},
    json::Sha256Digest,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{CorruptRow, StoreError, Tx};

/// One call as it stands.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub id: InvocationId,
    pub session: SessionId,
    pub user: UserId,
    pub execution_id: Uuid,
    pub call_id: String,
    pub token: Option<TokenId>,
    pub source: Option<ServerId>,
    pub tool: Option<ToolId>,
    pub asked_name: String,
    pub origin: Origin,
    pub status: Status,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub retryable: Option<bool>,
    pub queue_wait_ms: i64,
    pub duration_ms: i64,
    pub cache_hit: bool,
    pub attempts: Value,
    pub warnings: Value,
    pub authorization: Option<AuthorizationId>,
    pub request: Sha256Digest,
    pub raw: Option<Sha256Digest>,
    pub result: Option<Sha256Digest>,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

/// Which calls of a session are wanted; `None` = any.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub source: Option<String>,
    pub tool: Option<String>,
    pub status: Option<String>,
    pub origin: Option<String>,
}

/// Newest first, older than `after`.
pub async fn list(
    tx: &mut Tx,
    session: SessionId,
    filter: &Filter,
    after: Option<InvocationId>,
    rows: i64,
) -> Result<Vec<Invocation>, StoreError> {
    select(tx, session, None, filter, after, rows).await
}

/// One call of a session.
pub async fn find(
    tx: &mut Tx,
    session: SessionId,
    id: InvocationId,
) -> Result<Option<Invocation>, StoreError> {
    Ok(select(tx, session, Some(id), &Filter::default(), None, 1).await?.pop())
}

async fn select(
    tx: &mut Tx,
    session: SessionId,
    only: Option<InvocationId>,
    filter: &Filter,
    after: Option<InvocationId>,
    rows: i64,
) -> Result<Vec<Invocation>, StoreError> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT i.invocation_id, i.session_id, i.user_id, i.execution_id, i.call_id, i.token_id,
                  i.source_id, i.tool_id, i.asked_name, i.origin,
                  coalesce(i.status, c.state, 'running') AS "status!", i.error_code, i.error_message,
                  i.retryable, i.queue_wait_ms, i.duration_ms, i.cache_hit, i.attempts, i.warnings,
                  coalesce(i.authorization_id, c.authorization_id) AS authorization_id,
                  i.request_sha256, i.raw_sha256, i.result_sha256, i.created_at, i.finished_at
           FROM invocations i
           LEFT JOIN tool_calls c ON c.tenant_id = i.tenant_id AND c.execution_id = i.execution_id
                AND c.call_id = i.call_id AND i.status IS NULL
           WHERE i.tenant_id = $1 AND i.session_id = $2
             AND ($3::uuid IS NULL OR i.invocation_id < $3)
             AND ($4::text IS NULL OR i.source_id = $4)
             AND ($5::text IS NULL OR i.tool_id = $5)
             AND ($6::text IS NULL OR coalesce(i.status, c.state) = $6)
             AND ($7::text IS NULL OR i.origin = $7)
             AND ($9::uuid IS NULL OR i.invocation_id = $9)
           ORDER BY i.invocation_id DESC LIMIT $8"#,
        tx.tenant().0,
        session.0,
        after.map(|id| id.0),
        filter.source,
        filter.tool,
        filter.status,
        filter.origin,
        rows,
        only.map(|id| id.0),
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(Row::read).collect()
}

struct Row {
    invocation_id: Uuid,
    session_id: Uuid,
    user_id: Uuid,
    execution_id: Uuid,
    call_id: String,
    token_id: Option<Uuid>,
    source_id: Option<String>,
    tool_id: Option<String>,
    asked_name: String,
    origin: String,
    status: String,
    error_code: Option<String>,
    error_message: Option<String>,
    retryable: Option<bool>,
    queue_wait_ms: Option<i64>,
    duration_ms: Option<i64>,
    cache_hit: Option<bool>,
    attempts: Option<Value>,
    warnings: Option<Value>,
    authorization_id: Option<Uuid>,
    request_sha256: Vec<u8>,
    raw_sha256: Option<Vec<u8>>,
    result_sha256: Option<Vec<u8>>,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
}

impl Row {
    fn read(self) -> Result<Invocation, StoreError> {
        let corrupt = |problem| CorruptRow::new("invocations", self.invocation_id, problem);
        let digest = |bytes: &[u8]| {
            Sha256Digest::try_from(bytes).map_err(|_| corrupt("digest of another length"))
        };
        // The live row ends a moment before the record is read as closed.
        let status = if self.status == "ended" { "running" } else { &self.status };
        Ok(Invocation {
            id: InvocationId(self.invocation_id),
            session: SessionId(self.session_id),
            user: UserId(self.user_id),
            execution_id: self.execution_id,
            status: status.parse().map_err(|_| corrupt("unknown status"))?,
            origin: self.origin.parse().map_err(|_| corrupt("unknown origin"))?,
            request: digest(&self.request_sha256)?,
            raw: self.raw_sha256.as_deref().map(digest).transpose()?,
            result: self.result_sha256.as_deref().map(digest).transpose()?,
            call_id: self.call_id,
            token: self.token_id.map(TokenId),
            source: self.source_id.map(ServerId),
            tool: self.tool_id.map(ToolId),
            asked_name: self.asked_name,
            error_code: self.error_code,
            error_message: self.error_message,
            retryable: self.retryable,
            queue_wait_ms: self.queue_wait_ms.unwrap_or(0),
            duration_ms: self.duration_ms.unwrap_or(0),
            cache_hit: self.cache_hit.unwrap_or(false),
            attempts: self.attempts.unwrap_or_else(|| Value::Array(Vec::new())),
            warnings: self.warnings.unwrap_or_else(|| Value::Array(Vec::new())),
            authorization: self.authorization_id.map(AuthorizationId),
            created_at: self.created_at,
            finished_at: self.finished_at,
        })
    }
}
