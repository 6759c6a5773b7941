//! What keeps the tables in shape; nobody asks for it.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use domain::{Error, Timestamp, limits, limits::Limit};

use crate::{Ctx, connections};

/// Makes the partitions of this month and of those to come.
pub async fn make_partitions(ctx: &Ctx) -> Result<(), Error> {
    let ahead = i32::try_from(limits::PARTITION_MONTHS_AHEAD.default).unwrap_or(i32::MAX);
    let made = store::ticks::make_partitions(&ctx.db, ctx.now(), ahead).await?;
    if made > 0 {
        tracing::info!(made, "made partitions");
    }
    Ok(())
}

/// Forgets the ids of calls whose execution ended long ago; their records stay.
pub async fn forget_calls(ctx: &Ctx) -> Result<(), Error> {
    let before = days_ago(ctx, limits::TOOL_CALL_KEEP_DAYS);
    let batch = u32::try_from(limits::REAPER_BATCH.default).unwrap_or(u32::MAX);
    loop {
        let due = store::ended_calls::due(&ctx.db, before, batch).await?;
        let full = due.len() >= limits::REAPER_BATCH.size();
        let mut by_tenant: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for call in due {
            by_tenant.entry(call.tenant).or_default().push(call);
        }
        let mut forgotten = 0;
        for (tenant, calls) in by_tenant {
            let mut tx = ctx.begin(tenant).await?;
            forgotten += store::ended_calls::forget(&mut tx, &calls).await?;
            tx.commit().await?;
        }
        // Rows that stay however often they are due must not keep us here.
        if !full || forgotten == 0 {
            return Ok(());
        }
    }
}

/// Forgets nodes and queue workers that are gone, finished jobs, and ticks that no version knows.
pub async fn forget_records(ctx: &Ctx) -> Result<(), Error> {
    let before = days_ago(ctx, limits::RECORD_KEEP_DAYS);
    store::nodes::forget(&ctx.db, before).await?;
    store::ticks::forget(&ctx.db, before).await?;
    store::jobs::forget(&ctx.db, before).await?;
    store::jobs::forget_workers(&ctx.db, before).await?;
    Ok(())
}

/// Forgets browser sessions that ended long ago, and attempts to sign in that say nothing any more.
pub async fn forget_sign_ins(ctx: &Ctx) -> Result<(), Error> {
    let batch = u32::try_from(limits::REAPER_BATCH.default).unwrap_or(u32::MAX);
    while store::sign_in::forget(&ctx.db, ctx.now(), batch).await? >= u64::from(batch) {}
    let before = days_ago(ctx, limits::RECORD_KEEP_DAYS);
    loop {
        let due = store::web_sessions::due(&ctx.db, before, batch).await?;
        let full = due.len() >= limits::REAPER_BATCH.size();
        let mut by_tenant: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (tenant, session) in due {
            by_tenant.entry(tenant).or_default().push(session);
        }
        for (tenant, sessions) in by_tenant {
            let mut tx = ctx.begin(tenant).await?;
            store::web_sessions::forget(&mut tx, &sessions).await?;
            tx.commit().await?;
        }
        if !full {
            return Ok(());
        }
    }
}

/// Forgets tries to connect by OAuth whose time is over.
pub async fn forget_attempts(ctx: &Ctx) -> Result<(), Error> {
    let most = i32::try_from(limits::OAUTH_SWEEP.default).unwrap_or(i32::MAX);
    for tenant in store::oauth_attempts::due(&ctx.db, ctx.now(), most).await? {
        connections::oauth::sweep(ctx, tenant).await?;
    }
    Ok(())
}

fn days_ago(ctx: &Ctx, days: Limit) -> Timestamp {
    let days = i64::try_from(days.default).unwrap_or(i64::MAX);
    ctx.now() - TimeDelta::days(days)
}
