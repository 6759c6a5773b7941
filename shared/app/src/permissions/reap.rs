//! No question without a living owner or an expiry.

use std::collections::BTreeMap;

use domain::{
    Error,
    ids::{PermissionRequestId, TenantId},
    limits,
    permission::OwnerKind,
};
use store::requests::Question;

use super::{announce, cancel_locked};
use crate::Ctx;

/// Ends at most `most` questions whose time is over or whose holder died with its process; answers how
/// many were changed.
///
/// A gateway question whose holder died is detached and keeps its expiry; others end with their owner.
pub async fn expire_due(ctx: &Ctx, most: usize) -> Result<usize, Error> {
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    let mut by_tenant: BTreeMap<TenantId, Vec<PermissionRequestId>> = BTreeMap::new();
    for (tenant, id) in store::requests::due(&ctx.db, ctx.now(), most).await? {
        by_tenant.entry(tenant).or_default().push(id);
    }
    let mut changed = 0;
    for (tenant, ids) in by_tenant {
        changed += expire(ctx, tenant, &ids).await?;
    }
    Ok(changed)
}

async fn expire(ctx: &Ctx, tenant: TenantId, ids: &[PermissionRequestId]) -> Result<usize, Error> {
    let mut tx = ctx.begin(tenant).await?;
    let mut cancelled = Vec::new();
    let mut changed = 0;
    for (question, held) in store::requests::lock_due(&mut tx, ids).await? {
        match fate(ctx, &question, held) {
            Fate::Lives => continue,
            Fate::Cancelled => {
                cancel_locked(ctx, &mut tx, &question).await?;
                cancelled.push((question.session, question.id));
            }
            Fate::Detached(expires_at) => {
                store::requests::detach(&mut tx, question.id, expires_at, ctx.now()).await?;
            }
        }
        changed += 1;
    }
    tx.commit().await?;
    for (session, id) in cancelled {
        announce(ctx, session, [id]);
    }
    Ok(changed)
}

enum Fate {
    Lives,
    Cancelled,
    Detached(domain::Timestamp),
}

fn fate(ctx: &Ctx, question: &Question, held: bool) -> Fate {
    let now = ctx.now();
    let Some(expires_at) = question.expires_at else {
        return if held { Fate::Lives } else { Fate::Cancelled };
    };
    if held && question.detached_at.is_none() {
        // Its holder lets go at this very moment and detaches it; one that never does is lost.
        let lost = expires_at + limits::NODE_LEASE_MS.millis();
        return if lost <= now { Fate::Cancelled } else { Fate::Lives };
    }
    if expires_at <= now {
        return Fate::Cancelled;
    }
    if question.detached_at.is_some() {
        return Fate::Lives;
    }
    match question.owner {
        OwnerKind::Gateway => Fate::Detached(expires_at),
        OwnerKind::Run | OwnerKind::Inspector | OwnerKind::Plan | OwnerKind::Host => {
            Fate::Cancelled
        }
    }
}
