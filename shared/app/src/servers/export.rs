//! All servers of a tenant, to be imported elsewhere.

use domain::{Caller, Error, Role};

use super::{Configured, with_secret_names};
use crate::Ctx;
use store::servers::Wanted;

/// A server with the names of its secrets.
pub type Exported = Configured;

/// The custom servers that the caller reaches, oldest first, without a secret. For superadmins.
pub async fn export(ctx: &Ctx, caller: &Caller) -> Result<Vec<Exported>, Error> {
    caller.require_role(Role::Superadmin)?;
    let wanted = Wanted {
        usable_by: None,
        only: caller.reach.sources.as_deref(),
        after: None,
        rows: i64::MAX,
    };
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut servers = store::servers::page(&mut tx, wanted).await?;
    servers.retain(store::servers::Server::is_custom);
    servers.reverse();
    let exported = with_secret_names(&mut tx, servers).await?;
    tx.commit().await?;
    Ok(exported)
}
