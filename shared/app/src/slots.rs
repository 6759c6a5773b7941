//! A slot of a server while its call is asked about.

use std::convert::Infallible;

use coordination::{Group, Slot};
use outbound::mcp::Deadline;

use crate::Ctx;

/// Gives the slot back to the group whenever the deadline's clock stands still, because the server has
/// its client asked something, and takes it again when it runs. Never ends; dropped, the slot is as
/// it is at that moment.
///
/// A slot that is taken again does not queue, though it may be one too many. The server goes on as soon as
/// it has the answer, so to queue would be to hold the answer back. A server that does one thing at a
/// time would then stand still: the next call has the slot, and waits behind the one whose
/// answer we keep.
pub(crate) async fn lend(
    ctx: &Ctx,
    group: &Group,
    slot: &mut Option<Slot>,
    deadline: &Deadline,
) -> Infallible {
    loop {
        deadline.paused().await;
        *slot = None;
        deadline.running().await;
        *slot = Some(ctx.admission.retake(group));
    }
}
