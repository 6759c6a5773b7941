//! Recorded changes, each with its leaf.

use domain::{audit::EventRecord, json::Sha256Digest};

use crate::{StoreError, Tx};

/// Appends the change and its leaf: one statement.
pub async fn insert(
    tx: &mut Tx,
    record: &EventRecord<'_>,
    leaf: Sha256Digest,
) -> Result<(), StoreError> {
    sqlx::query!(
        "WITH event AS (
             INSERT INTO audit_events (tenant_id, audit_event_id, actor_user_id, via, action, subject,
                                       details, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8))
         INSERT INTO audit_leaves (tenant_id, kind, subject_id, sha256) VALUES ($1, 'event', $2, $9)",
        tx.tenant().0,
        record.event.0,
        record.actor.map(|actor| actor.0),
        record.via,
        record.action,
        record.subject,
        record.details,
        record.created_at,
        leaf.as_bytes(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
