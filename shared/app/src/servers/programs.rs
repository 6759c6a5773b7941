//! The programs that a superadmin can pick.

use domain::{
    Caller, Code, Error, Role,
    server::stdio::{AllowedProgram, StdioMode},
};

use crate::Ctx;

/// The mode that holds here, `off`, `allowlist` or `any`, and the operator's list. For superadmins.
///
/// Where any program may run but there is a second tenant, none may: `off`.
pub async fn programs(
    ctx: &Ctx,
    caller: &Caller,
) -> Result<(&'static str, Vec<AllowedProgram>), Error> {
    caller.require_role(Role::Superadmin)?;
    Ok(match &ctx.stdio {
        StdioMode::Off => ("off", Vec::new()),
        StdioMode::Allowlist(programs) => ("allowlist", programs.clone()),
        StdioMode::Any => {
            let mut tx = ctx.begin(caller.tenant).await?;
            let only = store::tenants::is_only(&mut tx).await?;
            (if only { "any" } else { "off" }, Vec::new())
        }
    })
}

/// Whether this process may serve with what its operator set: `CONFLICT` where any program may run and
/// there are several tenants, each of which could then do whatever this process can.
pub async fn check_programs(ctx: &Ctx) -> Result<(), Error> {
    if !matches!(ctx.stdio, StdioMode::Any) || !store::tenants::are_several(&ctx.db).await? {
        return Ok(());
    }
    let words = "BAILIWICK_STDIO=any is for an installation with one tenant, and here are several: set \
                 it to allowlist";
    Err(Error::new(Code::Conflict, words))
}
