//! Switching how a session treats dangerous calls.

use domain::{
    Caller, Error, Scope,
    ids::SessionId,
    permission::{ApprovalMode, AuthorizationSource, EpochReason, RequestState},
};
use serde_json::json;

use super::{Session, all_servers, lock_writable};
use crate::{
    Ctx, audit, epochs, events,
    permissions::{self, Ground},
};

/// Switches the mode and begins a new epoch. To `always_allow`, each pending question gets an
/// authorization of its own and its call goes on; no grant is made.
///
/// `DENIED` without the scope `approve`; `SESSION_ARCHIVED`. The mode that it has already: nothing
/// changes.
pub async fn set_mode(
    ctx: &Ctx,
    caller: &Caller,
    id: SessionId,
    mode: ApprovalMode,
) -> Result<Session, Error> {
    caller.require_scope(Scope::Approve)?;
    if mode == ApprovalMode::AlwaysAllow {
        all_servers(caller)?;
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut session = lock_writable(&mut tx, caller, id).await?;
    if session.mode == mode {
        return Ok(session);
    }
    session.mode = mode;
    let epoch = epochs::advance(ctx, &mut tx, &mut session, EpochReason::ModeChanged).await?;
    let details = json!({ "approvalMode": mode, "permissionEpochId": epoch.id });
    let subject = id.to_string();
    audit::record(ctx, &mut tx, caller, "session.mode_changed", &subject, details.clone()).await?;
    events::append(ctx, &mut tx, id, "session.mode_changed", details).await?;
    let mut released = Vec::new();
    if mode == ApprovalMode::AlwaysAllow {
        let now = ctx.now();
        for question in store::requests::lock_pending(&mut tx, id).await? {
            if question.request().shown_state(now) != RequestState::Pending {
                // Its time is over; the reaper will say so.
                continue;
            }
            let ground = Ground { source: AuthorizationSource::AlwaysAllow, grant: None };
            permissions::settle(ctx, &mut tx, &session, &question, ground).await?;
            released.push(question.id);
        }
    }
    tx.commit().await?;
    permissions::announce(ctx, id, released);
    Ok(session)
}
