//! The state of a session's permissions at one moment. Each change begins a new one, and whatever
//! was decided names the one that its decision began.

use domain::{Caller, Error, Scope, ids::SessionId, permission::EpochReason};
use serde_json::json;
use store::Tx;
pub use store::epochs::Epoch;

use crate::{
    Ctx, audit, events,
    sessions::{self, Session},
};

/// The present epoch of the caller's own session.
pub async fn current(ctx: &Ctx, caller: &Caller, session: SessionId) -> Result<Epoch, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let session = sessions::readable(&mut tx, caller, session).await?;
    let epoch = store::epochs::find(&mut tx, session.epoch).await?;
    tx.commit().await?;
    epoch.ok_or_else(|| Error::internal("a session without its epoch"))
}

/// Begins a new epoch because the caller wants one.
///
/// `DENIED` without the scope `approve`, `SESSION_ARCHIVED` for an archived session.
pub async fn rotate(ctx: &Ctx, caller: &Caller, session: SessionId) -> Result<Epoch, Error> {
    caller.require_scope(Scope::Approve)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut session = sessions::lock_writable(&mut tx, caller, session).await?;
    let epoch = advance(ctx, &mut tx, &mut session, EpochReason::Rotated).await?;
    let details = json!({ "permissionEpochId": epoch.id });
    let subject = session.id.to_string();
    audit::record(ctx, &mut tx, caller, "session.epoch_rotated", &subject, details.clone()).await?;
    events::append(ctx, &mut tx, session.id, "permission.epoch_rotated", details).await?;
    tx.commit().await?;
    events::hint(ctx, session.id);
    Ok(epoch)
}

/// Begins a new epoch of a session that the caller has locked, and saves the session.
pub(crate) async fn advance(
    ctx: &Ctx,
    tx: &mut Tx,
    session: &mut Session,
    reason: EpochReason,
) -> Result<Epoch, Error> {
    let epoch = Epoch { id: ctx.mint(), session: session.id, reason, created_at: ctx.now() };
    store::epochs::insert(tx, &epoch).await?;
    session.epoch = epoch.id;
    store::sessions::save(tx, session).await?;
    Ok(epoch)
}
