//! Roles, database and schema, for the operator's commands.

use domain::{Code, Error};
use store::StoreError;
pub use store::setup::Setup;

use crate::Ctx;

/// Makes roles, database and schema where they are missing. Idempotent.
pub async fn migrate(setup: &Setup<'_>) -> Result<(), Error> {
    Ok(store::setup::migrate(setup).await?)
}

/// Refused with [`Code::Unavailable`] unless the schema has every migration of this program.
pub async fn check(ctx: &Ctx) -> Result<(), Error> {
    store::setup::check(&ctx.db).await.map_err(|error| match error {
        StoreError::Outdated => Error::new(
            Code::Unavailable,
            "the database is older than this program: run `bailiwick migrate`",
        )
        .because(error),
        other => other.into(),
    })
}
