//! Calls that ended long enough ago for their ids to be forgotten. Their records stay.

use domain::{
    Timestamp,
    ids::{ExecutionId, TenantId},
};

use crate::{Db, StoreError, Tx};

/// A row of `tool_calls` whose time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedCall {
    pub tenant: TenantId,
    pub execution: ExecutionId,
    pub call_id: String,
}

/// Calls of all tenants that ended before `before`, the oldest first, at most `limit`.
pub async fn due(db: &Db, before: Timestamp, limit: u32) -> Result<Vec<EndedCall>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT tenant_id AS "tenant!", execution_id AS "execution!", call_id AS "call_id!"
           FROM due_ended_calls($1, $2)"#,
        before,
        i32::try_from(limit).unwrap_or(i32::MAX),
    )
    .fetch_all(db.pool())
    .await?;
    let ended = rows.into_iter().map(|row| EndedCall {
        tenant: TenantId(row.tenant),
        execution: ExecutionId(row.execution),
        call_id: row.call_id,
    });
    Ok(ended.collect())
}

/// Deletes these rows of the transaction's tenant, as far as they have ended.
pub async fn forget(tx: &mut Tx, calls: &[EndedCall]) -> Result<u64, StoreError> {
    let tenant = tx.tenant();
    let (executions, call_ids): (Vec<_>, Vec<_>) = calls
        .iter()
        .filter(|call| call.tenant == tenant)
        .map(|call| (call.execution.0, call.call_id.clone()))
        .unzip();
    let done = sqlx::query!(
        "DELETE FROM tool_calls c
         USING unnest($2::uuid[], $3::text[]) AS old (execution_id, call_id)
         WHERE c.tenant_id = $1 AND c.execution_id = old.execution_id AND c.call_id = old.call_id
           AND c.ended_at IS NOT NULL",
        tenant.0,
        &executions,
        &call_ids,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}
