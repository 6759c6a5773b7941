//! What is done by the clock. One node at a time does each, see [`app::tick`].

use std::time::Duration;

use app::{Ctx, broker, company, delegation, housekeeping, idempotency, permissions, tick::Tick};
use domain::{Error, limits};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// The ticks of this version.
pub const TICKS: &[Tick] = &[
    Tick {
        name: "reap-calls",
        period: limits::TICK_MS.millis(),
        work: |ctx| Box::pin(async move { reap_calls(&ctx).await }),
    },
    Tick {
        name: "expire-questions",
        period: limits::TICK_MS.millis(),
        work: |ctx| Box::pin(async move { expire_questions(&ctx).await }),
    },
    Tick {
        name: "make-partitions",
        period: DAY,
        work: |ctx| Box::pin(async move { housekeeping::make_partitions(&ctx).await }),
    },
    Tick {
        name: "forget-calls",
        period: HOUR,
        work: |ctx| Box::pin(async move { housekeeping::forget_calls(&ctx).await }),
    },
    Tick {
        name: "forget-sign-ins",
        period: HOUR,
        work: |ctx| Box::pin(async move { housekeeping::forget_sign_ins(&ctx).await }),
    },
    Tick {
        name: "forget-oauth-attempts",
        period: limits::ATTEMPT_SWEEP_SECONDS.seconds(),
        work: |ctx| Box::pin(async move { housekeeping::forget_attempts(&ctx).await }),
    },
    Tick {
        name: "forget-company-sign-ins",
        period: limits::COMPANY_SWEEP_SECONDS.seconds(),
        work: |ctx| Box::pin(async move { company::forget_old(&ctx).await }),
    },
    Tick {
        name: "forget-idempotency-keys",
        period: HOUR,
        work: |ctx| Box::pin(async move { idempotency::forget_old(&ctx).await }),
    },
    Tick {
        name: "forget-delegation-tokens",
        period: limits::DELEGATION_SWEEP_SECONDS.seconds(),
        work: |ctx| Box::pin(async move { delegation::forget_spent(&ctx).await }),
    },
    Tick {
        name: "forget-records",
        period: HOUR,
        work: |ctx| Box::pin(async move { housekeeping::forget_records(&ctx).await }),
    },
];

async fn reap_calls(ctx: &Ctx) -> Result<(), Error> {
    let most = i32::try_from(limits::REAPER_BATCH.default).unwrap_or(i32::MAX);
    let reaped = broker::reap(ctx, most).await?;
    if reaped > 0 {
        tracing::info!(reaped, "closed calls of dead nodes");
    }
    Ok(())
}

async fn expire_questions(ctx: &Ctx) -> Result<(), Error> {
    permissions::expire_due(ctx, limits::REAPER_BATCH.size()).await?;
    Ok(())
}
