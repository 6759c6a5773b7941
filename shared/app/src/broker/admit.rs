//! Step 7 and 8: a slot of the server, the record made durable, and what still holds at that moment.

use coordination::{Entry, Queue, Slot};
use domain::{
    Code, Error,
    invocation::{ReadBack, Status},
};

use super::{Ends, permit::Permit, record::Record, resolve::Resolved};
use crate::Ctx;

/// A call that may be sent now; the slot is held as long as this is.
#[derive(Debug)]
pub(super) struct Admitted {
    pub slot: Slot,
}

pub(super) async fn admit(
    ctx: &Ctx,
    resolved: &Resolved,
    record: &mut Record,
    permit: Permit,
    ends: &Ends,
) -> Result<Admitted, Error> {
    // A call that a person released has waited already.
    let queue = match permit {
        Permit::Settled(_) => Queue::Bounded,
        Permit::Decided => Queue::Unbounded,
    };
    let (slot, read_back) = match (ctx.admission.enter(&resolved.group, queue), permit) {
        (Entry::Admitted(slot), Permit::Settled(settled)) => {
            let read_back =
                record.open(ctx, Status::Running, Some((settled, resolved)), true).await?;
            (slot, read_back)
        }
        (Entry::Admitted(slot), Permit::Decided) => (slot, started(ctx, record, resolved).await?),
        (Entry::Queued(ticket), permit) => {
            match permit {
                Permit::Settled(settled) => {
                    record.open(ctx, Status::Queued, Some((settled, resolved)), false).await?;
                }
                Permit::Decided => queued(ctx, record).await?,
            }
            let slot = tokio::select! {
                admitted = ticket.admitted() => admitted.map_err(|timeout| {
                    record.queue_wait = timeout.queue_wait;
                    Error::new(
                        Code::RateLimitQueueTimeout,
                        "the call waited its time for a slot of the server and was taken out",
                    )
                })?,
                error = ends.ended(ctx) => return Err(error),
            };
            record.queue_wait = slot.queue_wait();
            (slot, started(ctx, record, resolved).await?)
        }
        (Entry::Refused, permit) => {
            if let Permit::Settled(settled) = permit {
                record.open(ctx, Status::Running, Some((settled, resolved)), false).await?;
            }
            return Err(Error::new(
                Code::RateLimitQueueFull,
                "as many calls as may wait for this server already do",
            ));
        }
    };
    resolved.entry.still_holds(&read_back)?;
    Ok(Admitted { slot })
}

async fn queued(ctx: &Ctx, record: &Record) -> Result<(), Error> {
    let mut tx = ctx.begin(record.tenant()).await?;
    let authorization = record.authorization;
    let live = store::calls::set_queued(&mut tx, record.name(), ctx.node, authorization).await?;
    tx.commit().await?;
    if live { Ok(()) } else { Err(taken_away()) }
}

async fn started(ctx: &Ctx, record: &Record, resolved: &Resolved) -> Result<ReadBack, Error> {
    store::calls::start(
        &ctx.db,
        record.name(),
        ctx.node,
        &resolved.entry,
        record.token(),
        ctx.now(),
    )
    .await?
    .ok_or_else(taken_away)
}

pub(super) fn taken_away() -> Error {
    Error::new(
        Code::Interrupted,
        "the call was closed, or taken up by another node, while this node was out of touch with the \
         database",
    )
}
