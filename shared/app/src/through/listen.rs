//! What a server says outside of any request, for one client.

use std::time::Duration;

use coordination::{Entry, Group, Queue, Slot};
use domain::{Caller, Code, Error, elicitation::Askable, limits};
use outbound::mcp::{FromServer, Listening, Target};
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};
use tokio::time::Instant;

use super::{
    Ask, Offer, OwnSession, Source, Upstream, about, ask,
    ask::{admitted, count},
    begin,
};
use crate::Ctx;

/// A server that is listened to, until this is dropped.
#[derive(Debug)]
pub struct Heard {
    listening: Option<Listening>,
    /// One of the streams that this person may have of the server.
    _place: Slot,
    /// An upstream session that stands for the listening alone.
    borrowed: Option<(Ctx, Target)>,
}

impl Heard {
    /// What comes next. `None`: the server ended it. A server that says nothing of its own is
    /// waited for. Cancel-safe.
    pub async fn next(&mut self) -> Option<FromServer> {
        match &mut self.listening {
            Some(listening) => listening.next().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let Some((ctx, target)) = self.borrowed.take() else { return };
        let closing = ctx.clone();
        ctx.tasks.spawn(async move { closing.mcp.close(&target).await });
    }
}

/// Listens in the upstream session of an older client: everything comes.
///
/// Where the server has no such stream: [`is_not_offered`](super::is_not_offered).
pub async fn listen(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
    own: &OwnSession,
) -> Result<Heard, Error> {
    let place = place(ctx, caller, source)?;
    // The server's own slot is for the beginning alone: a stream lasts.
    let _slots = admitted(ctx, caller, source).await?;
    let listening = stream(ctx, &source.target(Some(own)), None).await?;
    Ok(Heard { listening: Some(listening), _place: place, borrowed: None })
}

/// What a client of 2026-07-28 wants to hear of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    pub prompts: bool,
    pub resources: bool,
    pub uris: Vec<String>,
}

impl Wishes {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What of it the server offers.
    fn within(self, offer: &Offer) -> Self {
        Self {
            prompts: self.prompts && offer.prompts_change,
            resources: self.resources && offer.resources_change,
            uris: if offer.subscribe { self.uris } else { Vec::new() },
        }
    }
}

/// Subscribes for a client of 2026-07-28; answers what of its wishes the server honours. With `tools`,
/// changes of tools are listened for, too; but they are what [`tools`](super::tools) says, whether the
/// server tells of them or not.
///
/// An older server is subscribed to in an upstream session that stands for this alone.
pub async fn subscribe(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
    tools: bool,
    wishes: Wishes,
) -> Result<(Heard, Wishes), Error> {
    let mut heard = Heard { listening: None, _place: place(ctx, caller, source)?, borrowed: None };
    let offer = about(ctx, caller, source).await?;
    let wishes = wishes.within(&offer);
    let tools = tools && offer.tools_change_told;
    if wishes.is_nothing() && !tools {
        return Ok((heard, wishes));
    }
    let began = if offer.is_modern() {
        filtered(ctx, caller, source, (tools, &wishes), &mut heard).await
    } else {
        borrowed(ctx, caller, source, &offer, &wishes, &mut heard).await
    };
    match began {
        Ok(()) => Ok((heard, wishes)),
        // It said that it would tell of changes and has no stream for it: nothing of that is honoured.
        Err(error) if super::is_not_offered(&error) => Ok((heard, Wishes::default())),
        Err(error) => Err(error),
    }
}

async fn filtered(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
    (tools, wishes): (bool, &Wishes),
    heard: &mut Heard,
) -> Result<(), Error> {
    let filter = json!({
        "toolsListChanged": tools,
        "promptsListChanged": wishes.prompts,
        "resourcesListChanged": wishes.resources,
        "resourceSubscriptions": wishes.uris,
    });
    let filter = to_raw_value(&filter).map_err(Error::internal)?;
    let _slots = admitted(ctx, caller, source).await?;
    heard.listening = Some(stream(ctx, &source.target(None), Some(&filter)).await?);
    Ok(())
}

async fn borrowed(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
    offer: &Offer,
    wishes: &Wishes,
    heard: &mut Heard,
) -> Result<(), Error> {
    let begun = begin(ctx, caller, source, Askable::default(), &offer.version).await?;
    let target = source.target(Some(&begun.own));
    heard.borrowed = Some((ctx.clone(), target.clone()));
    heard.listening = Some(stream(ctx, &target, None).await?);
    for uri in &wishes.uris {
        let params = to_raw_value(&json!({ "uri": uri })).map_err(Error::internal)?;
        let upstream = Upstream { own: Some(begun.own.clone()), ..Upstream::default() };
        let request = Ask { method: "resources/subscribe", params: Some(params.into()), upstream };
        ask(ctx, caller, source, request).await.map_err(|refused| refused.error)?;
    }
    Ok(())
}

/// `RATE_LIMIT_QUEUE_FULL` for more streams than one person may have.
fn place(ctx: &Ctx, caller: &Caller, source: &Source) -> Result<Slot, Error> {
    let group = Group {
        key: format!("{}/streams/{}", source.group.key, caller.user),
        max_concurrent: count(limits::STREAMS_OPEN),
        max_queue_depth: 0,
        queue_timeout: source.group.queue_timeout,
        min_interval: Duration::ZERO,
    };
    match ctx.admission.enter(&group, Queue::Bounded) {
        Entry::Admitted(slot) => Ok(slot),
        Entry::Queued(_) | Entry::Refused => Err(Error::new(
            Code::RateLimitQueueFull,
            "as many streams of this server as one person may have are open",
        )),
    }
}

async fn stream(ctx: &Ctx, target: &Target, filter: Option<&RawValue>) -> Result<Listening, Error> {
    let deadline = Instant::now() + target.patience(limits::INITIALIZE_TIMEOUT_MS.millis());
    ctx.mcp.listen(target, filter, deadline).await
}
