//! Switching a server on and off.

use domain::{Caller, Error, Role};
use serde_json::json;

use super::{Configured, enqueue_discovery, forget_clients, lock, one_configured};
use crate::{Ctx, audit};

/// Switches a server on or off. For superadmins; idempotent. It grants nothing: what sessions use
/// is their selection.
pub async fn switch(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    enabled: bool,
) -> Result<Configured, Error> {
    caller.require_role(Role::Superadmin)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut server = lock(&mut tx, caller, server).await?;
    let changed = server.enabled != enabled;
    if changed {
        server.enabled = enabled;
        // Whoever switches it on has decided to contact it.
        server.unconfirmed &= !enabled;
        // The switch is part of the form: one that was loaded before is stale.
        server.form_revision += 1;
        server.updated_at = ctx.now();
        store::servers::save(&mut tx, &server).await?;
        enqueue_discovery(&mut tx, &server).await?;
        let action = if enabled { "server.enabled" } else { "server.disabled" };
        let details = json!({ "revision": server.form_revision });
        audit::record(ctx, &mut tx, caller, action, server.id.as_str(), details).await?;
    }
    let configured = one_configured(&mut tx, server).await?;
    tx.commit().await?;
    if changed && !enabled {
        forget_clients(ctx, caller.tenant, &configured.server.id).await;
    }
    Ok(configured)
}
