//! `nodes`: the processes of the service. Leases run by the database's clock.

use std::time::Duration;

use domain::{Timestamp, ids::NodeId};

use crate::{CorruptRow, Db, StoreError};

/// A process that starts.
#[derive(Debug, Clone)]
pub struct NewNode<'a> {
    pub id: NodeId,
    /// `up`, `api` or `worker`.
    pub kind: &'a str,
    pub place: &'a str,
    pub serves_calls: bool,
    pub lease: Duration,
    /// Of the program that it runs.
    pub version: &'a str,
    /// Of its keyring, the one that seals first.
    pub key_ids: &'a [String],
}

/// A living process elsewhere that serves calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherNode {
    pub kind: String,
    pub place: String,
}

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    Renewed,
    /// It had run out, and nobody had taken the node's place.
    Revived,
    /// The node was ended by others.
    Ended,
}

/// Ends earlier nodes of the same place and inserts this one; unless another living node serves
/// calls, and this one would too.
pub async fn register(db: &Db, node: &NewNode<'_>) -> Result<Result<(), OtherNode>, StoreError> {
    let other = sqlx::query!(
        r#"SELECT other_kind AS "kind!", other_place AS "place!"
           FROM register_node($1, $2, $3, $4, $5, $6, $7)"#,
        node.id.0,
        node.kind,
        node.place,
        node.serves_calls,
        millis(node.lease),
        node.version,
        node.key_ids,
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(match other {
        Some(other) => Err(OtherNode { kind: other.kind, place: other.place }),
        None => Ok(()),
    })
}

/// The keys of a living process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeKeys {
    pub kind: String,
    pub place: String,
    /// The one that seals first. `None`: a version that did not say.
    pub key_ids: Option<Vec<String>>,
}

/// The keys of all living processes, the oldest first.
pub async fn keys(db: &Db) -> Result<Vec<NodeKeys>, StoreError> {
    Ok(sqlx::query_as!(
        NodeKeys,
        "SELECT kind, place, key_ids FROM nodes
         WHERE ended_at IS NULL AND lease_expires_at > clock_timestamp()
         ORDER BY started_at, node_id",
    )
    .fetch_all(db.pool())
    .await?)
}

/// Prolongs the lease.
pub async fn renew(db: &Db, id: NodeId, lease: Duration) -> Result<Renewal, StoreError> {
    let renewal =
        sqlx::query_scalar!(r#"SELECT renew_node($1, $2) AS "renewal!""#, id.0, millis(lease))
            .fetch_one(db.pool())
            .await?;
    match renewal.as_str() {
        "renewed" => Ok(Renewal::Renewed),
        "revived" => Ok(Renewal::Revived),
        "ended" => Ok(Renewal::Ended),
        _ => Err(CorruptRow::new("nodes", id, "unknown renewal").into()),
    }
}

/// The node takes no more part.
pub async fn end(db: &Db, id: NodeId) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE nodes SET ended_at = clock_timestamp() WHERE node_id = $1 AND ended_at IS NULL",
        id.0,
    )
    .execute(db.pool())
    .await?;
    Ok(())
}

/// Deletes nodes that were gone before `before`; rows that still name one are of dead nodes all the
/// same.
pub async fn forget(db: &Db, before: Timestamp) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "DELETE FROM nodes WHERE coalesce(ended_at, lease_expires_at) < $1 AND lease_expires_at < $1",
        before,
    )
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected())
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
