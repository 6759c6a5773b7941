//! Reading what was allowed and denied in a session.

pub use domain::audit::{AuthorizationRecord, Outcome};
use domain::{
    Caller, Error,
    ids::{AuthorizationId, ExecutionId, SessionId},
};

use crate::{Ctx, sessions};

/// The authorizations of a session that the caller owns or audits (of one execution, if named),
/// newest first.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    execution: Option<ExecutionId>,
    after: Option<AuthorizationId>,
    rows: i64,
) -> Result<Vec<AuthorizationRecord>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    sessions::auditable(&mut tx, caller, session).await?;
    let page = store::authorizations::list(&mut tx, session, execution, after, rows).await?;
    tx.commit().await?;
    Ok(page)
}
