//! Who holds the line of a question: the waiting call, nobody for a while, an identical call.

use super::{
    CallName, CorruptRow, Db, ExecutionId, NodeId, PermissionRequestId, Question, RequestState,
    ServerId, SessionId, Settled, Sha256Digest, StoreError, TenantId, Timestamp, TokenId, ToolId,
    Tx, Uuid, select, settled,
};

/// As much of a question as a waiting call looks at again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub state: RequestState,
    pub settled: Option<Settled>,
    pub used_at: Option<Timestamp>,
}

pub async fn look(tx: &mut Tx, id: PermissionRequestId) -> Result<Option<Look>, StoreError> {
    let row = sqlx::query!(
        "SELECT state, authorization_id, authorization_source, used_at FROM permission_requests
         WHERE tenant_id = $1 AND permission_request_id = $2",
        tx.tenant().0,
        id.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let corrupt = |problem| CorruptRow::new("permission_requests", id, problem);
    Ok(Some(Look {
        state: row.state.parse().map_err(|_| corrupt("unknown state"))?,
        settled: settled(row.authorization_id, row.authorization_source.as_deref())
            .map_err(corrupt)?,
        used_at: row.used_at,
    }))
}

/// The question that a call waits for, or whose answer it did not pick up.
pub async fn of_call(
    tx: &mut Tx,
    session: SessionId,
    name: &CallName,
) -> Result<Option<PermissionRequestId>, StoreError> {
    let id = sqlx::query_scalar!(
        "SELECT permission_request_id FROM permission_requests
         WHERE tenant_id = $1 AND session_id = $2 AND execution_id = $3 AND tool_call_id = $4
           AND used_at IS NULL AND state <> 'cancelled'",
        tx.tenant().0,
        session.0,
        name.execution.0,
        name.call_id,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(id.map(PermissionRequestId))
}

/// Spends a decided question. False: it is not decided, or somebody was faster.
pub async fn spend(
    tx: &mut Tx,
    id: PermissionRequestId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE permission_requests SET used_at = $3
         WHERE tenant_id = $1 AND permission_request_id = $2 AND used_at IS NULL
           AND state IN ('allowed', 'denied')",
        tx.tenant().0,
        id.0,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Nobody holds the line any more: an identical call may take the question over until `expires_at`.
/// Nothing happens to one that is cancelled, spent or detached already.
pub async fn detach(
    tx: &mut Tx,
    id: PermissionRequestId,
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE permission_requests SET detached_at = $3, expires_at = $4, node_id = NULL
         WHERE tenant_id = $1 AND permission_request_id = $2 AND detached_at IS NULL
           AND used_at IS NULL AND state <> 'cancelled'",
        tx.tenant().0,
        id.0,
        now,
        expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The client of a question is or was there at this moment: nobody need hold the line, it lives until
/// `expires_at`. Nothing happens to one that is cancelled or spent.
pub async fn keep(
    tx: &mut Tx,
    id: PermissionRequestId,
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE permission_requests
         SET detached_at = coalesce(detached_at, $3), expires_at = $4, node_id = NULL
         WHERE tenant_id = $1 AND permission_request_id = $2 AND used_at IS NULL
           AND state <> 'cancelled' AND expires_at > $3",
        tx.tenant().0,
        id.0,
        now,
        expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// By what two calls are the same to a person who was asked about one of them.
#[derive(Debug, Clone, Copy)]
pub struct Sameness<'a> {
    pub session: SessionId,
    pub token: TokenId,
    pub server: &'a ServerId,
    pub tool: &'a ToolId,
    pub definition_hash: Option<Sha256Digest>,
    pub input_digest: Sha256Digest,
}

/// The oldest unspent question of such a call that nobody holds (or only a process that is dead),
/// locked; one that another identical call takes at this moment is passed over, and so is one whose
/// own client can come back to it.
pub async fn lock_unheld(
    tx: &mut Tx,
    same: Sameness<'_>,
    this_node: NodeId,
    now: Timestamp,
) -> Result<Option<Question>, StoreError> {
    let row = select!(
        "r.session_id = $2 AND r.token_id = $3 AND r.server_id = $4 AND r.tool_id = $5
           AND r.definition_hash IS NOT DISTINCT FROM $6 AND r.input_digest = $7
           AND r.owner_kind = 'gateway' AND r.used_at IS NULL AND r.state <> 'cancelled' AND r.expires_at > $8
           AND (r.detached_at IS NOT NULL
                OR (r.node_id <> $9 AND NOT EXISTS (
                    SELECT 1 FROM nodes n WHERE n.node_id = r.node_id AND n.ended_at IS NULL
                      AND n.lease_expires_at >= clock_timestamp())))
           AND NOT EXISTS (
               SELECT FROM tool_calls c WHERE c.tenant_id = $1 AND c.execution_id = r.execution_id
                 AND c.call_id = r.tool_call_id AND c.resumable_until IS NOT NULL
                 AND c.state <> 'ended')
         ORDER BY r.permission_request_id LIMIT 1 FOR UPDATE OF r SKIP LOCKED",
        tx.tenant().0,
        same.session.0,
        same.token.0,
        same.server.as_str(),
        same.tool.as_str(),
        same.definition_hash.as_ref().map(Sha256Digest::as_bytes),
        same.input_digest.as_bytes(),
        now,
        this_node.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Question::try_from).transpose()?)
}

/// A call that holds the line of a question from now on.
#[derive(Debug, Clone, Copy)]
pub struct Holder<'a> {
    pub execution: ExecutionId,
    pub tool_call_id: &'a str,
    pub node: NodeId,
}

/// Gives a question of [`lock_unheld`] to a call that holds the line again.
pub async fn hand_over(
    tx: &mut Tx,
    id: PermissionRequestId,
    to: Holder<'_>,
    expires_at: Timestamp,
    used_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE permission_requests
         SET detached_at = NULL, execution_id = $3, tool_call_id = $4, node_id = $5, expires_at = $6,
             used_at = $7
         WHERE tenant_id = $1 AND permission_request_id = $2",
        tx.tenant().0,
        id.0,
        to.execution.0,
        to.tool_call_id,
        to.node.0,
        expires_at,
        used_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Pending questions of all tenants whose time is over or whose holder is dead.
pub async fn due(
    db: &Db,
    now: Timestamp,
    most: i32,
) -> Result<Vec<(TenantId, PermissionRequestId)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT tenant_id AS "tenant_id!", permission_request_id AS "permission_request_id!"
           FROM due_questions($1, $2)"#,
        now,
        most,
    )
    .fetch_all(db.pool())
    .await?;
    let ids = |row: (Uuid, Uuid)| (TenantId(row.0), PermissionRequestId(row.1));
    Ok(rows.into_iter().map(|row| ids((row.tenant_id, row.permission_request_id))).collect())
}

/// Those of `ids` that are still pending and nobody else's to change right now; with whether a living
/// process holds the line.
pub async fn lock_due(
    tx: &mut Tx,
    ids: &[PermissionRequestId],
) -> Result<Vec<(Question, bool)>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = select!(
        "r.permission_request_id = ANY($2) AND r.state = 'pending'
         ORDER BY r.permission_request_id FOR UPDATE SKIP LOCKED",
        tx.tenant().0,
        &ids,
    )
    .fetch_all(tx.conn())
    .await?;
    let holders: Vec<Uuid> = rows.iter().filter_map(|row| row.node_id).collect();
    let living = sqlx::query_scalar!(
        "SELECT node_id FROM nodes
         WHERE node_id = ANY($1) AND ended_at IS NULL AND lease_expires_at >= clock_timestamp()",
        &holders,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            let held = row.node_id.is_some_and(|node| living.contains(&node));
            Ok((row.try_into()?, held))
        })
        .collect()
}
