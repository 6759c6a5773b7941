//! Reading the record of a session's calls.

use domain::{
    Caller, Error,
    ids::{InvocationId, SessionId},
};
pub use store::invocations::{Filter, Invocation};

use crate::Ctx;

/// A page of a session that the caller owns or audits, newest first.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    filter: &Filter,
    after: Option<InvocationId>,
    rows: i64,
) -> Result<Vec<Invocation>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    crate::sessions::auditable(&mut tx, caller, session).await?;
    let page = store::invocations::list(&mut tx, session, filter, after, rows).await?;
    tx.commit().await?;
    Ok(page)
}

/// One call of a session that the caller owns or audits.
pub async fn get(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    id: InvocationId,
) -> Result<Invocation, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    crate::sessions::auditable(&mut tx, caller, session).await?;
    let found = store::invocations::find(&mut tx, session, id).await?;
    tx.commit().await?;
    found.ok_or_else(|| Error::not_found("invocation"))
}
