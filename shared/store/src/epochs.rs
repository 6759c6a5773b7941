//! The states of a session's permissions, one after the other; append-only.

use domain::{
    Timestamp,
    ids::{PermissionEpochId, SessionId},
    permission::EpochReason,
};

use crate::{CorruptRow, StoreError, Tx};

/// What a decision binds to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    pub id: PermissionEpochId,
    pub session: SessionId,
    pub reason: EpochReason,
    pub created_at: Timestamp,
}

/// Appends an epoch; the session's own column makes it the present one.
pub async fn insert(tx: &mut Tx, epoch: &Epoch) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO permission_epochs (tenant_id, permission_epoch_id, session_id, reason, created_at)
         VALUES ($1, $2, $3, $4, $5)",
        tx.tenant().0,
        epoch.id.0,
        epoch.session.0,
        epoch.reason.as_str(),
        epoch.created_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

pub async fn find(tx: &mut Tx, id: PermissionEpochId) -> Result<Option<Epoch>, StoreError> {
    let row = sqlx::query!(
        "SELECT permission_epoch_id, session_id, reason, created_at FROM permission_epochs
         WHERE tenant_id = $1 AND permission_epoch_id = $2",
        tx.tenant().0,
        id.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let reason = row.reason.parse().map_err(|_| {
        CorruptRow::new("permission_epochs", row.permission_epoch_id, "unknown reason")
    })?;
    Ok(Some(Epoch {
        id: PermissionEpochId(row.permission_epoch_id),
        session: SessionId(row.session_id),
        reason,
        created_at: row.created_at,
    }))
}
