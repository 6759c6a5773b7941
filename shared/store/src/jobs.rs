//! Enqueueing: a message becomes visible exactly when the caller's transaction commits.

use std::time::Duration;

use apalis_core::task::builder::TaskBuilder;
use domain::{Timestamp, jobs::Job, limits};

use crate::{Db, StoreError, Tx};

/// Adds `job` to its queue, inside the caller's transaction.
pub async fn push<J: Job>(tx: &mut Tx, job: &J) -> Result<(), StoreError> {
    push_later(tx, job, Duration::ZERO).await
}

/// Adds `job` to its queue, inside the caller's transaction, to be run in `wait`.
///
/// The queue has a second's grain, and takes the second that has begun.
pub async fn push_later<J: Job>(tx: &mut Tx, job: &J, wait: Duration) -> Result<(), StoreError> {
    let args = serde_json::to_vec(job).map_err(apalis_postgres::Error::JsonError)?;
    // The queue's own attempts are for jobs whose worker died or panicked; all else is ours.
    let task =
        TaskBuilder::new(args).run_after(wait).max_attempts(limits::JOB_ATTEMPTS.size()).build();
    apalis_postgres::queries::push_tasks(tx.conn(), J::QUEUE, vec![task]).await?;
    Ok(())
}

/// Deletes jobs that ended before `before`.
///
/// The tables are the queue library's: its schema is not there when our own queries are checked.
pub async fn forget(db: &Db, before: Timestamp) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM apalis.jobs
         WHERE done_at < $1
           AND (status IN ('Done', 'Killed') OR (status = 'Failed' AND attempts >= max_attempts))",
    )
    .bind(before)
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected())
}

/// Deletes workers that were last seen before `before` and that no job names any more. Each start
/// makes a new one, since one that keeps its name after a crash keeps its jobs for ever.
pub async fn forget_workers(db: &Db, before: Timestamp) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM apalis.workers w
         WHERE w.last_seen < $1
           AND NOT EXISTS (SELECT FROM apalis.jobs j WHERE j.lock_by = w.id)",
    )
    .bind(before)
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected())
}
