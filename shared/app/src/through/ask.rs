//! What is asked of a server besides calls: its lists, and what belongs to an upstream session. The
//! same checks and the same admission, no question, no record.

use std::sync::Arc;

use bytes::Bytes;
use coordination::{Entry, Group, Queue, Slot};
use domain::{
    Caller, Code, Error, Retry,
    limits::{self, Limit},
};
use outbound::mcp::{Call, CallFailure, Deadline, Rpc, What};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Source, Upstream};
use crate::{Ctx, slots};

/// One request that is no call.
#[derive(Debug)]
pub struct Ask {
    pub method: &'static str,
    /// A JSON object as the client wrote it; its `_meta` is left out.
    pub params: Option<Arc<RawValue>>,
    pub upstream: Upstream,
}

/// No result.
#[derive(Debug)]
pub struct Refused {
    pub error: Error,
    /// The server's own refusal in protocol.
    pub rpc: Option<Rpc>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, rpc: None }
    }
}

/// The server's result as it came. Dropping the future cancels the request.
///
/// Refused as a call is: `RATE_LIMIT_QUEUE_FULL`, `RATE_LIMIT_QUEUE_TIMEOUT`, `TIMEOUT`,
/// `RESPONSE_TOO_LARGE`, `SERVER_CHANGED`, and what the transport says.
pub async fn ask(ctx: &Ctx, caller: &Caller, source: &Source, ask: Ask) -> Result<Bytes, Refused> {
    let [_mine, theirs] = admitted(ctx, caller, source).await?;
    let target = source.target(ask.upstream.own.as_ref());
    let call = Call {
        what: What::Request { method: ask.method, params: ask.params, input: None },
        response_limit: source.response_limit,
        trace: None,
        relay: ask.upstream.relay,
        // Only what is answered in rounds needs them, and none of this is (MCP: Multi Round-Trip
        // Requests, "Supported Requests").
        capabilities: None,
        progress: ask.upstream.progress,
        log_level: ask.upstream.log_level,
        meta: ask.upstream.meta,
        pinned: None,
    };
    let deadline = Deadline::after(source.timeout, ctx.permission_wait);
    let mut theirs = Some(theirs);
    let sent = tokio::select! {
        sent = ctx.mcp.call(&target, call, deadline.clone(), CancellationToken::new()) => sent,
        never = slots::lend(ctx, &source.group, &mut theirs, &deadline) => match never {},
    };
    match sent {
        Ok(answer) if answer.raw.len() as u64 > source.response_limit => {
            let words = format!("the answer has more than {} bytes", source.response_limit);
            Err(Error::new(Code::ResponseTooLarge, words).into())
        }
        Ok(answer) => Ok(answer.raw),
        Err(CallFailure { error, rpc, .. }) => {
            if error.code == Code::RateLimited {
                let pause = match error.retry {
                    Retry::After(pause) => pause,
                    _ => limits::COOLDOWN_MS.millis().max(source.group.min_interval),
                };
                ctx.admission.cool_down(&source.group.key, pause);
            }
            Err(Refused { error, rpc })
        }
    }
}

/// A place of this person's, then one of the server's.
pub(super) async fn admitted(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
) -> Result<[Slot; 2], Error> {
    let began = Instant::now();
    let mine = place(ctx, caller, source).await?;
    let theirs = slot(ctx, &source.group).await?;
    // What was looked at before the wait may hold no longer.
    if began.elapsed() > limits::ASK_RECHECK_MS.millis() {
        source.recheck(ctx, caller).await?;
    }
    Ok([mine, theirs])
}

/// A place of this person's.
pub(super) async fn place(ctx: &Ctx, caller: &Caller, source: &Source) -> Result<Slot, Error> {
    let own = Group {
        key: format!("{}/asks/{}", source.group.key, caller.user),
        max_concurrent: count(limits::ASKS_RUNNING),
        max_queue_depth: count(limits::ASKS_WAITING),
        queue_timeout: source.group.queue_timeout,
        min_interval: limits::ASK_INTERVAL_MS.millis(),
    };
    slot(ctx, &own).await
}

pub(super) fn count(limit: Limit) -> u32 {
    u32::try_from(limit.default).unwrap_or(u32::MAX)
}

async fn slot(ctx: &Ctx, group: &Group) -> Result<Slot, Error> {
    match ctx.admission.enter(group, Queue::Bounded) {
        Entry::Admitted(slot) => Ok(slot),
        Entry::Refused => Err(Error::new(
            Code::RateLimitQueueFull,
            "as many requests as may wait for this server already do",
        )),
        Entry::Queued(ticket) => tokio::select! {
            admitted = ticket.admitted() => admitted.map_err(|_| {
                Error::new(
                    Code::RateLimitQueueTimeout,
                    "the request waited its time for a slot of the server and was taken out",
                )
            }),
            () = ctx.stopping.cancelled() => {
                Err(Error::new(Code::Interrupted, "this node stopped before the request was sent"))
            }
        },
    }
}
