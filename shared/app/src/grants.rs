//! Standing permissions of a session: made by a decision, revoked here.

use domain::{
    Caller, Error, Scope,
    ids::{PermissionGrantId, SessionId},
    permission::EpochReason,
};
use serde_json::json;
pub use store::grants::Grant;

use crate::{Ctx, audit, epochs, events, sessions};

/// The grants in the caller's own sessions, or in one of them; newest first.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    session: Option<SessionId>,
    after: Option<PermissionGrantId>,
    rows: i64,
) -> Result<Vec<Grant>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let only = sessions::narrowed(&mut tx, caller, session).await?;
    let page = store::grants::list(&mut tx, caller.user, only.as_deref(), after, rows).await?;
    tx.commit().await?;
    Ok(page)
}

/// Revokes a grant; one that was revoked before is answered as it is. What it allowed already stands.
///
/// `DENIED` without the scope `approve`.
pub async fn revoke(ctx: &Ctx, caller: &Caller, id: PermissionGrantId) -> Result<Grant, Error> {
    caller.require_scope(Scope::Approve)?;
    let unknown = || Error::not_found("permission grant");
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut grant = store::grants::find(&mut tx, id).await?.ok_or_else(unknown)?;
    let mut session =
        sessions::lock_own(&mut tx, caller, grant.session).await?.ok_or_else(unknown)?;
    let now = ctx.now();
    if store::grants::revoke(&mut tx, id, now).await? {
        grant.revoked_at = Some(now);
        let epoch = epochs::advance(ctx, &mut tx, &mut session, EpochReason::GrantRevoked).await?;
        let details = json!({ "permissionGrantId": id, "permissionEpochId": epoch.id });
        let subject = id.to_string();
        audit::record(ctx, &mut tx, caller, "grant.revoked", &subject, details.clone()).await?;
        events::append(ctx, &mut tx, session.id, "grant.revoked", details).await?;
    } else {
        // Somebody else revoked it while we waited for the session.
        grant = store::grants::find(&mut tx, id).await?.ok_or_else(unknown)?;
    }
    tx.commit().await?;
    events::hint(ctx, session.id);
    Ok(grant)
}
