//! The one path of every tool call.
//!
//! ```text
//! session → resolve → validate → permission → admission → open (durable) + read back → send → close
//! ```
//!
//! Whoever calls, it goes through here; there is no second executor. From the moment that the session
//! is known, every call leaves exactly one invocation, whatever ends it. Nothing is sent before its
//! record is durable, and nothing that may have run is sent again.

mod admit;
pub(crate) mod gates;
mod permit;
mod pseudo;
mod reap;
mod record;
mod request;
pub(crate) mod resolve;
mod result;
mod resume;
mod send;

use std::panic::AssertUnwindSafe;

use domain::{Caller, Code, Error, limits};
use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Ctx;
pub use gates::Gate;
pub use reap::reap;
pub use request::{
    Asked, Asking, CallRequest, CallResult, Called, Fit, Fits, Inquiry, Outcome, Resume, Waiting,
};

/// A call on its way. Dropped before it finished, its caller has hung up.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<Result<Called, Error>>,
    cancel: CancellationToken,
    hung_up: CancellationToken,
}

impl Running {
    /// Waits for the end. An outer error means that it was no call, or not one to go on with: no such
    /// session, an archived one, this node takes no calls, and nothing was recorded; or a state that is
    /// not good, or somebody else's at this moment, and the record says so.
    ///
    /// Cancel-safe; not to be called again after it returned.
    pub async fn finished(&mut self) -> Result<Called, Error> {
        match (&mut self.task).await {
            Ok(called) => called,
            Err(panic) => Err(Error::internal(panic)),
        }
    }

    /// Cancelling it ends the call as `CANCELLED`, and its question with it. It is cancelled, too,
    /// when the call is over.
    #[must_use]
    pub fn cancel_token(&self) -> CancellationToken {
        self.cancel.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.hung_up.cancel();
    }
}

/// How the outside ends a call early.
#[derive(Debug, Clone)]
struct Ends {
    cancel: CancellationToken,
    hung_up: CancellationToken,
    cancel_on_hang_up: bool,
}

/// Begins a call. It runs on its own: the record is closed even if its caller goes away.
#[must_use]
pub fn start(ctx: &Ctx, caller: &Caller, request: CallRequest) -> Running {
    begin(ctx, caller, request, None)
}

/// Records a call that was refused before it came here, and ends it with that error.
#[must_use]
pub fn refuse(ctx: &Ctx, caller: &Caller, request: CallRequest, error: Error) -> Running {
    begin(ctx, caller, request, Some(error))
}

fn begin(ctx: &Ctx, caller: &Caller, request: CallRequest, refused: Option<Error>) -> Running {
    let (cancel, hung_up) = (CancellationToken::new(), CancellationToken::new());
    let ends = Ends {
        cancel: cancel.clone(),
        hung_up: hung_up.clone(),
        cancel_on_hang_up: request.cancel_on_hang_up,
    };
    let (ctx, caller) = (ctx.clone(), caller.clone());
    let tasks = ctx.tasks.clone();
    let over = cancel.clone().drop_guard();
    let task = tasks.spawn(async move {
        let _over = over;
        call(&ctx, &caller, request, refused, ends).await
    });
    Running { task, cancel, hung_up }
}

async fn call(
    ctx: &Ctx,
    caller: &Caller,
    request: CallRequest,
    refused: Option<Error>,
    ends: Ends,
) -> Result<Called, Error> {
    if ctx.draining.is_cancelled() {
        return Err(Error::new(Code::Unavailable, "this node is shutting down"));
    }
    if ctx.tasks.len() > limits::IN_FLIGHT_CALLS.size() {
        return Err(Error::new(Code::Limited, "this node holds as many calls as it can"));
    }
    let context = resolve::context(ctx, caller, &request).await?;
    // What only went wrong this time takes no call up: its client comes back with the same state.
    let passing = refused.as_ref().is_some_and(Error::retryable);
    let mut record = match request.asking.resume().filter(|_| !passing) {
        None => record::Record::new(ctx, caller, &request),
        Some(resume) => match resume::take_up(ctx, caller, &request, resume).await {
            Ok(record) => record,
            // It is the call of that state no more than it is another one; but it was made.
            Err(error) => {
                let mut record = record::Record::new(ctx, caller, &request);
                return Err(match record.close(ctx, Err(error)).await? {
                    Err(error) => error,
                    Ok(_) => Error::internal("a call without an answer succeeded"),
                });
            }
        },
    };
    let governed = async {
        if let Some(error) = refused {
            return Err(error);
        }
        let resolved = resolve::resolve(ctx, caller, &request, &context).await?;
        record.resolved(&resolved)?;
        permitted(ctx, caller, &request, &resolved, &mut record, &ends).await
    };
    // A bug of ours ends one call; its record is closed all the same.
    let step = AssertUnwindSafe(governed)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(Error::internal("the call panicked")));
    let plain = step.is_ok() || resolve::is_plain(ctx, caller, &context).await;
    let outcome = match step {
        Ok(Step::Parked(waiting)) => Ok(Outcome::Waiting(waiting)),
        Ok(Step::AskedBack(inquiry)) => Ok(Outcome::Inquiry(inquiry)),
        Ok(Step::Answered(answer)) => record.close(ctx, Ok(answer)).await?.map(Outcome::Done),
        Err(error) => record.close(ctx, Err(error)).await?.map(Outcome::Done),
    };
    let (invocation, known) = (record.invocation(), record.is_resolved());
    Ok(Called { invocation, known, plain, rpc: record.rpc, outcome })
}

/// How far a call came.
#[derive(Debug)]
enum Step {
    Answered(send::Answer),
    /// It waits for a person, and its caller knows how to come back. Its record stays open.
    Parked(Waiting),
    /// The server asks its client, who knows how to come back.
    AskedBack(Inquiry),
}

/// From permission to answer. Whatever it returns is how the call ended, unless it is parked.
async fn permitted(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &resolve::Resolved,
    record: &mut record::Record,
    ends: &Ends,
) -> Result<Step, Error> {
    let permit = match permit::permit(ctx, caller, request, resolved, record, ends).await? {
        permit::Permitted::Now(permit) => permit,
        permit::Permitted::Parked(waiting) => return Ok(Step::Parked(waiting)),
    };
    let admitted = admit::admit(ctx, resolved, record, permit, ends).await?;
    send::send(ctx, caller, request, resolved, record, admitted, ends).await
}
