//! Calls that wait for a person or for their client without a caller: the client holds a sealed
//! `requestState` and comes back with it.

use domain::{
    Timestamp,
    ids::{AuthorizationId, InvocationId, NodeId},
    json::Sha256Digest,
};
use serde_json::Value;

use super::{CallName, rows::digest};
use crate::{CorruptRow, StoreError, Tx};

/// Nobody holds the line of a call of this node from now on, and nothing of it is under way; its client
/// can come back until `until`. False: the call is no longer this node's.
pub async fn park(
    tx: &mut Tx,
    name: &CallName,
    node: NodeId,
    until: Timestamp,
    attempts: &Value,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE tool_calls SET state = 'waiting', parked = true, resumable_until = $5, attempts = $6
         WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3 AND node_id = $4
           AND state IN ('waiting', 'running')",
        tx.tenant().0,
        name.execution.0,
        name.call_id,
        node.0,
        until,
        attempts,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What is known of a call whose client is back.
#[derive(Debug, Clone)]
pub struct Parked {
    pub invocation: InvocationId,
    pub request: Sha256Digest,
    pub created_at: Timestamp,
    pub authorization: Option<AuthorizationId>,
    /// Of the rounds so far.
    pub attempts: Vec<Value>,
}

/// What a client that comes back finds.
#[derive(Debug, Clone)]
pub enum Held {
    /// The call is the asking node's now.
    Now(Parked),
    /// A living node answers another request of the client for it.
    ByAnother,
    /// Nobody can come back to it any more.
    Never,
}

/// The client is back after so many `rounds`, before the call expired: this node holds the line, until
/// `until` at least. One whose holder is dead is taken over.
pub async fn resume(
    tx: &mut Tx,
    name: &CallName,
    rounds: i32,
    node: NodeId,
    now: Timestamp,
    until: Timestamp,
) -> Result<Held, StoreError> {
    let row = sqlx::query!(
        "UPDATE tool_calls c SET parked = false, node_id = $4, resumable_until = $6
         FROM invocations i
         WHERE c.tenant_id = $1 AND c.execution_id = $2 AND c.call_id = $3 AND c.state = 'waiting'
           AND c.resumable_until > $5 AND jsonb_array_length(coalesce(c.attempts, '[]')) = $7
           AND (c.parked OR NOT EXISTS (
               SELECT FROM nodes n WHERE n.node_id = c.node_id AND n.ended_at IS NULL
                 AND n.lease_expires_at >= clock_timestamp()))
           AND i.tenant_id = $1 AND i.invocation_id = c.invocation_id
         RETURNING c.invocation_id, c.authorization_id, c.attempts, i.request_sha256, i.created_at",
        tx.tenant().0,
        name.execution.0,
        name.call_id,
        node.0,
        now,
        until,
        rounds,
    )
    .fetch_optional(tx.conn())
    .await?;
    if let Some(row) = row {
        let corrupt = || CorruptRow::new("invocations", row.invocation_id, "no request digest");
        return Ok(Held::Now(Parked {
            invocation: InvocationId(row.invocation_id),
            request: digest(Some(row.request_sha256)).ok_or_else(corrupt)?,
            created_at: row.created_at,
            authorization: row.authorization_id.map(AuthorizationId),
            attempts: match row.attempts {
                Some(Value::Array(attempts)) => attempts,
                _ => Vec::new(),
            },
        }));
    }
    let held = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM tool_calls
             WHERE tenant_id = $1 AND execution_id = $2 AND call_id = $3 AND NOT parked
               AND state <> 'ended') AS "held!""#,
        tx.tenant().0,
        name.execution.0,
        name.call_id,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(if held { Held::ByAnother } else { Held::Never })
}
