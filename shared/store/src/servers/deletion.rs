//! What goes with a server that is deleted.

use domain::{
    Timestamp,
    ids::{PermissionEpochId, PermissionGrantId, PermissionRequestId, ServerId, SessionId},
    permission::TOOL_CALL,
};
use uuid::Uuid;

use super::Server;
use crate::{StoreError, Tx};

/// Takes the server out of the tenant's selection.
pub async fn deselect_tenant(tx: &mut Tx, server: &ServerId) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE tenants SET enabled_source_ids = array_remove(enabled_source_ids, $2)
         WHERE tenant_id = $1 AND $2 = ANY(enabled_source_ids)",
        tx.tenant().0,
        server.as_str(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Takes the server out of the selections of projects and of sessions, which the caller has locked.
pub async fn deselect(tx: &mut Tx, server: &ServerId) -> Result<(), StoreError> {
    let (tenant, server) = (tx.tenant().0, server.as_str());
    sqlx::query!(
        "UPDATE projects SET enabled_source_ids = array_remove(enabled_source_ids, $2)
         WHERE tenant_id = $1 AND $2 = ANY(enabled_source_ids)",
        tenant,
        server,
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "UPDATE sessions SET enabled_source_ids = array_remove(enabled_source_ids, $2)
         WHERE tenant_id = $1 AND $2 = ANY(enabled_source_ids)",
        tenant,
        server,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Locks the sessions that chose the server, have an active grant on it, or a pending question about
/// it: as every decision does before it looks at questions and grants.
pub async fn lock_sessions(tx: &mut Tx, server: &ServerId) -> Result<(), StoreError> {
    sqlx::query!(
        "SELECT s.session_id FROM sessions s
         WHERE s.tenant_id = $1
           AND ($2 = ANY(s.enabled_source_ids)
                OR EXISTS (SELECT FROM permission_grants g
                        WHERE g.tenant_id = $1 AND g.session_id = s.session_id AND g.action = $3
                          AND g.state = 'active' AND starts_with(g.resource_class, $2 || '/'))
                OR EXISTS (SELECT FROM permission_requests r
                           WHERE r.tenant_id = $1 AND r.session_id = s.session_id
                             AND r.server_id = $2 AND r.state = 'pending'))
         ORDER BY s.session_id FOR NO KEY UPDATE OF s",
        tx.tenant().0,
        server.as_str(),
        TOOL_CALL,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(())
}

/// Revokes every grant on a tool of the server.
pub async fn revoke_grants(
    tx: &mut Tx,
    server: &ServerId,
    now: Timestamp,
) -> Result<Vec<(SessionId, PermissionGrantId)>, StoreError> {
    let rows = sqlx::query!(
        "UPDATE permission_grants SET state = 'revoked', revoked_at = $4
         WHERE tenant_id = $1 AND action = $3 AND state = 'active'
           AND starts_with(resource_class, $2 || '/')
         RETURNING session_id, permission_grant_id",
        tx.tenant().0,
        server.as_str(),
        TOOL_CALL,
        now,
    )
    .fetch_all(tx.conn())
    .await?;
    let grant = |session, grant| (SessionId(session), PermissionGrantId(grant));
    Ok(rows.into_iter().map(|row| grant(row.session_id, row.permission_grant_id)).collect())
}

/// Gives each session the new epoch beside it: grants of theirs were revoked.
pub async fn rotate_epochs(
    tx: &mut Tx,
    epochs: &[(SessionId, PermissionEpochId)],
    now: Timestamp,
) -> Result<(), StoreError> {
    let (sessions, epochs): (Vec<Uuid>, Vec<Uuid>) =
        epochs.iter().map(|(session, epoch)| (session.0, epoch.0)).unzip();
    sqlx::query!(
        "WITH fresh AS (SELECT * FROM unnest($2::uuid[], $3::uuid[]) AS f (session_id, epoch_id)),
              rotated AS (
                  UPDATE sessions s SET permission_epoch_id = f.epoch_id FROM fresh f
                  WHERE s.tenant_id = $1 AND s.session_id = f.session_id)
         INSERT INTO permission_epochs (tenant_id, permission_epoch_id, session_id, reason, created_at)
         SELECT $1, f.epoch_id, f.session_id, 'grant_revoked', $4 FROM fresh f",
        tx.tenant().0,
        &sessions,
        &epochs,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Cancels every pending question about the server.
pub async fn cancel_questions(
    tx: &mut Tx,
    server: &ServerId,
    now: Timestamp,
) -> Result<Vec<(SessionId, PermissionRequestId)>, StoreError> {
    let rows = sqlx::query!(
        "UPDATE permission_requests SET state = 'cancelled', resolved_at = $3
         WHERE tenant_id = $1 AND server_id = $2 AND state = 'pending'
         RETURNING session_id, permission_request_id",
        tx.tenant().0,
        server.as_str(),
        now,
    )
    .fetch_all(tx.conn())
    .await?;
    let question = |session, request| (SessionId(session), PermissionRequestId(request));
    Ok(rows.into_iter().map(|row| question(row.session_id, row.permission_request_id)).collect())
}

/// Deletes the server with its secrets and tools; what it was called stays for the audit.
pub async fn delete(tx: &mut Tx, server: &Server, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query!(
        "WITH gone AS (DELETE FROM mcp_servers WHERE tenant_id = $1 AND server_id = $2)
         INSERT INTO mcp_server_tombstones (tenant_id, server_id, name, deleted_at)
         VALUES ($1, $2, $3, $4)",
        tx.tenant().0,
        server.id.as_str(),
        server.name,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
