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
mod permit;
mod reap;
mod record;
mod resolve;
mod result;
mod send;

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use domain::{
    Caller, Code, Error,
    ids::{ExecutionId, InvocationId, SessionId},
    invocation::Origin,
    limits,
};
use futures::FutureExt;
use serde_json::value::RawValue;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Ctx;
pub use reap::reap;

/// What somebody asks for.
#[derive(Debug)]
pub struct CallRequest {
    pub session: SessionId,
    /// As `tools/list` gave it; looked up, never parsed.
    pub agent_name: String,
    /// The JSON of the arguments as it came; it goes to the server byte for byte.
    pub arguments: Box<RawValue>,
    pub execution: ExecutionId,
    /// The asker's own id of the call, unique within the execution.
    pub call_id: String,
    pub origin: Origin,
    /// An identical earlier question that nobody holds any more is taken over.
    pub attach: bool,
    /// Closing the stream cancels the call (2026-07-28); otherwise it goes on without its caller.
    pub cancel_on_hang_up: bool,
}

/// A call that left its record.
#[derive(Debug)]
pub struct Called {
    pub invocation: InvocationId,
    /// The asked name led to a tool.
    pub known: bool,
    /// The JSON of the MCP result as the server sent it, a tool's own `isError` included; or why there
    /// is none.
    pub outcome: Result<Bytes, Error>,
}

/// A call on its way. Dropped before it finished, its caller has hung up.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<Result<Called, Error>>,
    cancel: CancellationToken,
    hung_up: CancellationToken,
}

impl Running {
    /// Waits for the end. An outer error means that nothing was recorded: no such session, an
    /// archived one, or this node takes no calls.
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
        call(&ctx, &caller, request, ends).await
    });
    Running { task, cancel, hung_up }
}

async fn call(
    ctx: &Ctx,
    caller: &Caller,
    request: CallRequest,
    ends: Ends,
) -> Result<Called, Error> {
    if ctx.draining.is_cancelled() {
        return Err(Error::new(Code::Unavailable, "this node is shutting down"));
    }
    if ctx.tasks.len() > limits::IN_FLIGHT_CALLS.size() {
        return Err(Error::new(Code::Limited, "this node holds as many calls as it can"));
    }
    let context = resolve::context(ctx, caller, &request).await?;
    let mut record = record::Record::new(ctx, caller, &request);
    let governed = async {
        let resolved = resolve::resolve(ctx, caller, &request, &context).await?;
        record.resolved(&resolved);
        permitted(ctx, caller, &request, &resolved, &mut record, &ends).await
    };
    // A bug of ours ends one call; its record is closed all the same.
    let outcome = AssertUnwindSafe(governed)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(Error::internal("the call panicked")));
    let outcome = record.close(ctx, outcome).await?;
    Ok(Called { invocation: record.invocation(), known: record.is_resolved(), outcome })
}

/// From permission to answer. Whatever it returns is how the call ended.
async fn permitted(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &resolve::Resolved,
    record: &mut record::Record,
    ends: &Ends,
) -> Result<send::Answer, Error> {
    let permit = permit::permit(ctx, caller, request, resolved, record, ends).await?;
    let admitted = admit::admit(ctx, resolved, record, permit, ends).await?;
    send::send(ctx, request, resolved, record, admitted, ends).await
}
