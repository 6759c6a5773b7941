//! Calls that nobody will end: their node is dead, or their client did not come back in time.

use domain::{
    Timestamp,
    ids::{AuthorizationId, ExecutionId, InvocationId, NodeId, SessionId, TenantId},
    json::Sha256Digest,
};
use serde_json::Value;

use super::{CallName, rows::digest};
use crate::{Db, StoreError, Tx};

/// A call that nobody will end.
#[derive(Debug)]
pub struct Orphan {
    pub name: CallName,
    pub invocation: InvocationId,
    /// That had it last.
    pub node: NodeId,
    pub session: SessionId,
    pub authorization: Option<AuthorizationId>,
    pub sent_at: Option<Timestamp>,
    pub raw: Option<Sha256Digest>,
    pub result: Option<Sha256Digest>,
    pub created_at: Timestamp,
    pub parked: bool,
    /// Its client could come back to it, and did not in time.
    pub left: bool,
    /// Of the rounds before it was left.
    pub attempts: Option<Value>,
}

/// Names of live calls that nobody will end, of all tenants.
pub async fn orphan_names(db: &Db, at: Timestamp, most: i32) -> Result<Vec<CallName>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT tenant_id AS "tenant_id!", execution_id AS "execution_id!", call_id AS "call_id!"
           FROM due_dead_calls($1, $2)"#,
        at,
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

/// The call, if that is still so.
pub async fn orphan(
    tx: &mut Tx,
    name: &CallName,
    at: Timestamp,
) -> Result<Option<Orphan>, StoreError> {
    let row = sqlx::query!(
        r#"SELECT invocation_id, node_id, parked, session_id, authorization_id, sent_at, raw_sha256, result_sha256,
                  created_at, attempts, (parked OR state = 'waiting') AND resumable_until IS NOT NULL AS "left!"
         FROM tool_calls c
         WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3 AND state <> 'ended'
           AND (state <> 'waiting' OR resumable_until IS NULL OR resumable_until <= $4)
           AND (parked OR NOT EXISTS (
               SELECT FROM nodes n WHERE n.node_id = c.node_id AND n.ended_at IS NULL
                 AND n.lease_expires_at >= clock_timestamp()))"#,
        tx.tenant().0,
        name.execution.0,
        name.call_id,
        at,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Orphan {
        name: name.clone(),
        invocation: InvocationId(row.invocation_id),
        node: NodeId(row.node_id),
        parked: row.parked,
        session: SessionId(row.session_id),
        authorization: row.authorization_id.map(AuthorizationId),
        sent_at: row.sent_at,
        raw: digest(row.raw_sha256),
        result: digest(row.result_sha256),
        created_at: row.created_at,
        left: row.left,
        attempts: row.attempts,
    }))
}
