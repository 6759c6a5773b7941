//! What waits for a superadmin's look.

use std::collections::HashMap;

use domain::{Caller, Error, Role, ids::ServerId};

use crate::Ctx;

/// How many tools of each server are in quarantine; servers without any are left out.
pub async fn quarantined(ctx: &Ctx, caller: &Caller) -> Result<HashMap<ServerId, i64>, Error> {
    caller.require_role(Role::Superadmin)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let counts = store::tools::quarantined(&mut tx).await?;
    tx.commit().await?;
    Ok(counts.into_iter().filter(|(server, _)| caller.reach.covers_source(server)).collect())
}
