//! The upstream session that an older client holds for itself.

use domain::{Caller, Error, elicitation::Askable, limits};
use outbound::mcp::Opened;
use serde_json::value::to_raw_value;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Offer, OwnSession, Source,
    ask::{admitted, place},
};
use crate::Ctx;

/// An upstream session that was begun.
#[derive(Debug)]
pub struct Begun {
    pub own: OwnSession,
    pub offer: Offer,
}

/// Begins a session with the server for a client that offers `askable` and speaks `version`.
pub async fn begin(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
    askable: Askable,
    version: &str,
) -> Result<Begun, Error> {
    let _slots = admitted(ctx, caller, source).await?;
    let askable = askable.with_sampling(source.relays_sampling);
    let mut own = OwnSession {
        id: Uuid::new_v4(),
        person: caller.user,
        server: source.server.clone(),
        revision: source.revision,
        version: version.to_owned(),
        session_id: None,
        resumable: false,
        askable,
    };
    let target = source.target(Some(&own));
    let declared = to_raw_value(&askable.declared(version)).map_err(Error::internal)?;
    let deadline = Instant::now() + target.patience(limits::INITIALIZE_TIMEOUT_MS.millis());
    let Opened { about, resume } = ctx.mcp.open(&target, &declared, version, deadline).await?;
    own.version.clone_from(&about.version);
    own.resumable = resume.is_some();
    own.session_id = resume.and_then(|resume| resume.session_id);
    Ok(Begun { offer: Offer::of(&about, true)?, own })
}

/// Tells the server in a client's own session that the client's roots changed, if the client offers any.
///
/// It takes a place of the person's alone, none of the server's: there is nothing to answer, and a call
/// that has the server's only slot may be waiting for this very news.
pub async fn roots_changed(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
    own: &OwnSession,
) -> Result<(), Error> {
    if !own.askable.roots {
        return Ok(());
    }
    let _place = place(ctx, caller, source).await?;
    let deadline = Instant::now() + limits::FAREWELL_TIMEOUT_MS.millis();
    let target = source.target(Some(own));
    ctx.mcp.notify(&target, "notifications/roots/list_changed", deadline).await
}

/// Ends it, with the server too.
pub async fn end(ctx: &Ctx, source: &Source, own: &OwnSession) {
    ctx.mcp.close(&source.target(Some(own))).await;
}
