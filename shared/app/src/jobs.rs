//! The queue, as the worker needs it. Use cases enqueue in their own transactions.

use std::time::Duration;

use domain::{Error, ids::TenantId, jobs::Job};

use crate::Ctx;

/// Enqueues `job` to be run in `wait`.
pub async fn push_later<J: Job>(
    ctx: &Ctx,
    tenant: TenantId,
    job: &J,
    wait: Duration,
) -> Result<(), Error> {
    let mut tx = ctx.begin(tenant).await?;
    store::jobs::push_later(&mut tx, job, wait).await?;
    Ok(tx.commit().await?)
}
