//! A held call waits for its answer.

use domain::{
    Code, Error, Timestamp,
    ids::{AuthorizationId, PermissionRequestId},
    limits,
    permission::{AuthorizationSource, RequestState, Settled},
};
use store::{Tx, calls::CallName};
use tokio::time::{Instant, sleep};

use crate::{Ctx, signals::Hint};

/// How waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    Allowed {
        authorization: AuthorizationId,
        source: AuthorizationSource,
    },
    Denied {
        authorization: AuthorizationId,
        source: AuthorizationSource,
    },
    /// Nobody will answer any more, or the answer went to an identical call.
    Cancelled,
    /// Nobody answered in time; the question is as it was.
    TimedOut,
    /// The call is another node's by now, and the answer with it.
    Taken,
}

impl From<Settled> for Resolution {
    fn from(Settled { authorization, source }: Settled) -> Self {
        if source.allows() {
            Self::Allowed { authorization, source }
        } else {
            Self::Denied { authorization, source }
        }
    }
}

/// Waits until the question of `call` is answered, cancelled, or `deadline` comes. The answer is spent, and
/// the call goes on by it, in one transaction: nobody has the answer who does not have the call. Goes on
/// through an outage of the database.
///
/// `left` ends the waiting, but between two looks alone: an answer whose transaction is under way is never
/// dropped. `Err` inside: with what it ended.
pub async fn wait<T>(
    ctx: &Ctx,
    call: &CallName,
    id: PermissionRequestId,
    deadline: Instant,
    left: impl Future<Output = T>,
) -> Result<Result<Resolution, T>, Error> {
    tokio::pin!(left);
    // Before the first look, so that no answer falls between.
    let mut listener = ctx.signals.listen();
    let mut pickup = Pickup { id, wrote: None };
    loop {
        // Also once after the deadline: an answer of the last moment counts.
        let over = Instant::now() >= deadline;
        match pickup.look(ctx, call).await {
            Ok(Some(resolution)) => return Ok(Ok(resolution)),
            Ok(None) => {}
            Err(error) if error.code == Code::Unavailable => {}
            Err(error) => return Err(error),
        }
        if over {
            return Ok(Ok(Resolution::TimedOut));
        }
        tokio::select! {
            why = &mut left => return Ok(Err(why)),
            () = listener.wait(|hint| hint == Hint::Question(id)) => {}
            () = sleep(limits::QUESTION_POLL_MS.millis()) => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    }
}

struct Pickup {
    id: PermissionRequestId,
    /// What we spent the question with, should the commit have been cut off: it may have happened.
    wrote: Option<Timestamp>,
}

impl Pickup {
    async fn look(&mut self, ctx: &Ctx, call: &CallName) -> Result<Option<Resolution>, Error> {
        let mut tx = ctx.begin(call.tenant).await?;
        let look = store::requests::look(&mut tx, self.id).await?;
        let Some(look) = look else { return Ok(Some(Resolution::Cancelled)) };
        let settled = match (look.state, look.settled) {
            (RequestState::Pending, _) => return Ok(None),
            (_, Some(settled)) => settled,
            (_, None) => return Ok(Some(Resolution::Cancelled)),
        };
        if let Some(used_at) = look.used_at {
            let ours = self.wrote == Some(used_at);
            return Ok(Some(if ours { settled.into() } else { Resolution::Cancelled }));
        }
        let now = ctx.now();
        if !store::requests::spend(&mut tx, self.id, now).await? {
            return Ok(Some(Resolution::Cancelled));
        }
        if !goes_on(ctx, &mut tx, call, settled).await? {
            // Not committed: the answer stays for whoever has the call.
            return Ok(Some(Resolution::Taken));
        }
        self.wrote = Some(now);
        tx.commit().await?;
        Ok(Some(settled.into()))
    }
}

/// Lets a call of this node go on by an answer, in the transaction that spends it. False: the call is no longer
/// this node's.
pub(super) async fn goes_on(
    ctx: &Ctx,
    tx: &mut Tx,
    call: &CallName,
    settled: Settled,
) -> Result<bool, Error> {
    if settled.source.allows() {
        let authorization = Some(settled.authorization);
        return Ok(store::calls::set_queued(tx, call, ctx.node, authorization).await?);
    }
    Ok(store::calls::is_held(tx, call, ctx.node).await?)
}
