//! What happened in a session, in an order that a reader can resume.
//!
//! An id is (transaction, sequence). A reader stops below the oldest transaction that still runs:
//! whatever is older is complete, so that a later commit never slips in behind an id that was read.

use domain::{Timestamp, event::EventId, ids::SessionId};
use serde_json::Value;

use crate::{CorruptRow, StoreError, Tx};

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: EventId,
    pub kind: String,
    pub at: Timestamp,
    pub data: Value,
}

/// Appends an event; it is read once this and every older transaction ended.
pub async fn append(
    tx: &mut Tx,
    session: SessionId,
    kind: &str,
    data: &Value,
    at: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO events (tenant_id, session_id, type, data, created_at)
         VALUES ($1, $2, $3, $4, $5)",
        tx.tenant().0,
        session.0,
        kind,
        data,
        at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The events of a session that are later than `after`, oldest first.
pub async fn list(
    tx: &mut Tx,
    session: SessionId,
    after: EventId,
    rows: i64,
) -> Result<Vec<Event>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT xid::text AS "xid!", seq, type AS kind, data, created_at FROM events
           WHERE tenant_id = $1 AND session_id = $2 AND (xid, seq) > ($3::text::xid8, $4)
             AND xid < pg_snapshot_xmin(pg_current_snapshot())
           ORDER BY xid, seq LIMIT $5"#,
        tx.tenant().0,
        session.0,
        after.transaction.to_string(),
        after.sequence.cast_signed(),
        rows,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            let unreadable = || CorruptRow::new("events", &row.xid, "unreadable id");
            let id = EventId {
                transaction: row.xid.parse().map_err(|_| unreadable())?,
                sequence: row.seq.try_into().map_err(|_| unreadable())?,
            };
            Ok(Event { id, kind: row.kind, at: row.created_at, data: row.data })
        })
        .collect()
}
