//! `ticks`: what is done again and again, each a lease with a fencing number.

use std::time::Duration;

use domain::{Timestamp, ids::NodeId};

use crate::{Db, StoreError, nodes::millis};

/// Makes the rows that are missing, due at once.
pub async fn ensure(db: &Db, names: &[String]) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO ticks (name, due_at) SELECT name, clock_timestamp() FROM unnest($1::text[]) AS t (name)
         ON CONFLICT DO NOTHING",
        names,
    )
    .execute(db.pool())
    .await?;
    Ok(())
}

/// Which of these are due; a lease may be in the way.
pub async fn due(db: &Db, names: &[String]) -> Result<Vec<String>, StoreError> {
    let due = sqlx::query_scalar!(
        "SELECT name FROM ticks WHERE name = ANY($1) AND due_at <= clock_timestamp()",
        names,
    )
    .fetch_all(db.pool())
    .await?;
    Ok(due)
}

/// The epoch under which `node` may do the work until the lease ends; `None`: it is not due, or
/// somebody else does it.
pub async fn take(
    db: &Db,
    name: &str,
    node: NodeId,
    lease: Duration,
) -> Result<Option<i64>, StoreError> {
    let epoch = sqlx::query_scalar!("SELECT take_tick($1, $2, $3)", name, node.0, millis(lease))
        .fetch_one(db.pool())
        .await?;
    Ok(epoch)
}

/// Gives the lease back, with the next time in `period`. `done`: the work was done. False: the lease
/// was lost, and whoever has it now will say so.
pub async fn give_back(
    db: &Db,
    name: &str,
    epoch: i64,
    period: Duration,
    done: bool,
) -> Result<bool, StoreError> {
    let given = sqlx::query!(
        "UPDATE ticks
         SET due_at = clock_timestamp() + $3::bigint * interval '1 millisecond',
             done_at = CASE WHEN $4 THEN clock_timestamp() ELSE done_at END,
             holder_node_id = NULL, lease_expires_at = NULL
         WHERE name = $1 AND epoch = $2",
        name,
        epoch,
        millis(period),
        done,
    )
    .execute(db.pool())
    .await?;
    Ok(given.rows_affected() == 1)
}

/// Deletes ticks that have been due since `before`: no version that runs knows them any more.
pub async fn forget(db: &Db, before: Timestamp) -> Result<u64, StoreError> {
    let done =
        sqlx::query!("DELETE FROM ticks WHERE due_at < $1", before).execute(db.pool()).await?;
    Ok(done.rows_affected())
}

/// Makes the partitions of the month of `now` and of `ahead` more; how many were new.
pub async fn make_partitions(db: &Db, now: Timestamp, ahead: i32) -> Result<i32, StoreError> {
    let made = sqlx::query_scalar!(r#"SELECT make_partitions($1, $2) AS "made!""#, now, ahead)
        .fetch_one(db.pool())
        .await?;
    Ok(made)
}
