//! Roles, database and schema, for the operator's commands.

use domain::Error;
pub use store::setup::Setup;

use crate::Ctx;

/// Makes roles, database and schema where they are missing. Idempotent.
pub async fn migrate(setup: &Setup<'_>) -> Result<(), Error> {
    Ok(store::setup::migrate(setup).await?)
}

/// Refused with `UNAVAILABLE` unless the schema has every migration of this program.
pub async fn check(ctx: &Ctx) -> Result<(), Error> {
    Ok(store::setup::check(&ctx.db).await?)
}
