//! A server goes, with everything that speaks of it.

use domain::{
    Caller, Code, Error, Role,
    ids::{PermissionRequestId, SessionId},
    permission::RequestState,
};
use serde_json::json;
use store::{
    Tx,
    servers::{Server, deletion},
};

use super::{forget_clients, grants, lock};
use crate::{Ctx, audit, events, permissions};

/// Deletes a custom server with its secrets and tools, takes it out of every selection, revokes the
/// grants on its tools and cancels the questions about them. For superadmins. Its calls stay in the
/// audit, and a tombstone says what it was called.
pub async fn delete(ctx: &Ctx, caller: &Caller, server: &str) -> Result<(), Error> {
    caller.require_role(Role::Superadmin)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = lock(&mut tx, caller, server).await?;
    if !server.is_custom() {
        return Err(Error::new(Code::BuiltIn, "a built-in server cannot be deleted"));
    }
    // Server, then tenant, then sessions in the order of their ids: as everybody locks them.
    deletion::deselect_tenant(&mut tx, &server.id).await?;
    deletion::lock_sessions(&mut tx, &server.id).await?;
    deletion::deselect(&mut tx, &server.id).await?;
    let revoked = grants::revoke_all(ctx, &mut tx, &server).await?;
    let cancelled = cancel_questions(ctx, &mut tx, &server).await?;
    deletion::delete(&mut tx, &server, ctx.now()).await?;
    let details =
        json!({ "sessionsWithGrants": revoked.len(), "questionsCancelled": cancelled.len() });
    audit::record(ctx, &mut tx, caller, "server.deleted", server.id.as_str(), details).await?;
    tx.commit().await?;
    for session in revoked {
        events::hint(ctx, session);
    }
    for (session, question) in cancelled {
        permissions::announce(ctx, session, [question]);
    }
    forget_clients(ctx, caller.tenant, &server.id).await;
    Ok(())
}

async fn cancel_questions(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &Server,
) -> Result<Vec<(SessionId, PermissionRequestId)>, Error> {
    let cancelled = deletion::cancel_questions(tx, &server.id, ctx.now()).await?;
    for (session, question) in &cancelled {
        let data = json!({ "permissionRequestId": question, "state": RequestState::Cancelled });
        events::append(ctx, tx, *session, "permission.resolved", data).await?;
    }
    Ok(cancelled)
}
