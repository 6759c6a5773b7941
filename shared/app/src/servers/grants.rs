//! Grants that end because what they were given on is gone, or is something else.

use std::collections::BTreeMap;

use domain::{
    Error,
    ids::{PermissionEpochId, PermissionGrantId, SessionId},
    json::Sha256Digest,
};
use serde_json::json;
use store::{
    Tx,
    servers::{Server, deletion},
};

use crate::{Ctx, events};

/// Revokes every grant on a tool of the server; answers the sessions, which the caller has locked.
pub(super) async fn revoke_all(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &Server,
) -> Result<Vec<SessionId>, Error> {
    let revoked = deletion::revoke_grants(tx, &server.id, ctx.now()).await?;
    renew_epochs(ctx, tx, revoked).await
}

/// Revokes the grants on a tool, `<serverId>/<toolId>`, that were given on another definition of it;
/// answers their sessions.
pub(super) async fn revoke_other_definitions(
    ctx: &Ctx,
    tx: &mut Tx,
    class: &str,
    definition: Sha256Digest,
) -> Result<Vec<SessionId>, Error> {
    let revoked = store::tools::revoke_grants_on_others(tx, class, &definition, ctx.now()).await?;
    renew_epochs(ctx, tx, revoked).await
}

/// Each with the new epoch of its session, where the revocation is an event.
async fn renew_epochs(
    ctx: &Ctx,
    tx: &mut Tx,
    revoked: Vec<(SessionId, PermissionGrantId)>,
) -> Result<Vec<SessionId>, Error> {
    let mut epochs: BTreeMap<SessionId, PermissionEpochId> = BTreeMap::new();
    for (session, grant) in revoked {
        let epoch = *epochs.entry(session).or_insert_with(|| ctx.mint());
        let data = json!({ "permissionGrantId": grant, "permissionEpochId": epoch });
        events::append(ctx, tx, session, "grant.revoked", data).await?;
    }
    let fresh: Vec<(SessionId, PermissionEpochId)> =
        epochs.iter().map(|(session, epoch)| (*session, *epoch)).collect();
    deletion::rotate_epochs(tx, &fresh, ctx.now()).await?;
    Ok(epochs.into_keys().collect())
}
