//! What happened in a session, for its owner's screens and scripts.

pub use domain::event::EventId;
use domain::{Caller, Error, ids::SessionId};
use serde_json::Value;
use store::Tx;
pub use store::events::Event;

use crate::{Ctx, sessions, signals::Hint};

/// The events of the caller's own session that are later than `after` (`None`: all), oldest first.
///
/// Reads up to the oldest transaction that still runs and no further: what comes later has a larger
/// id than everything read, so that paging has no gap and no duplicate.
pub async fn page(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    after: Option<EventId>,
    rows: i64,
) -> Result<Vec<Event>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    sessions::readable(&mut tx, caller, session).await?;
    let page = store::events::list(&mut tx, session, after.unwrap_or_default(), rows).await?;
    tx.commit().await?;
    Ok(page)
}

/// Appends an event in the transaction of the change; [`hint`] after its commit.
pub(crate) async fn append(
    ctx: &Ctx,
    tx: &mut Tx,
    session: SessionId,
    kind: &str,
    data: Value,
) -> Result<(), Error> {
    Ok(store::events::append(tx, session, kind, &data, ctx.now()).await?)
}

pub(crate) fn hint(ctx: &Ctx, session: SessionId) {
    ctx.signals.hint(Hint::Events(session));
}
