//! Steps 9 to 13: the request leaves, the answer comes back and is judged.

use std::sync::Arc;

use bytes::Bytes;
use domain::{Caller, Code, Error, Retry, elicitation::Asker, json::Sha256Digest, limits};
use outbound::mcp::{
    Answer as Answered, Call, CallFailure, Deadline, Input, PinnedTool, Ran, What,
};
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    CallRequest, Ends, Step,
    admit::Admitted,
    pseudo,
    record::{Record, millis},
    resolve::Resolved,
    result,
    resume::{self, Waits},
};
use crate::{Ctx, slots, through};

/// A stored answer of the server.
#[derive(Debug)]
pub(super) struct Answer {
    /// The MCP result as it came.
    pub raw: Bytes,
    pub raw_digest: Sha256Digest,
    /// The normalised result.
    pub result: Vec<u8>,
    pub result_digest: Sha256Digest,
    pub is_error: bool,
    /// The bytes are in CAS already, not to be written with the close.
    pub stored: bool,
}

pub(super) async fn send(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &Resolved,
    record: &mut Record,
    admitted: Admitted,
    ends: &Ends,
) -> Result<Step, Error> {
    let began = Instant::now();
    let started_at = ctx.now();
    let cancel = CancellationToken::new();
    let call = call(request, resolved, record)?;
    let deadline = Deadline::after(resolved.timeout, ctx.permission_wait);
    let mut slot = Some(admitted.slot);
    let sending = ctx.mcp.call(&resolved.target, call, deadline.clone(), cancel.clone());
    tokio::pin!(sending);
    let sent = tokio::select! {
        sent = &mut sending => sent,
        error = ends.ended(ctx) => {
            // The server is told; its answer is no longer waited for.
            cancel.cancel();
            let failure = (&mut sending).await.err();
            let ran = failure.map_or(Ran::Unknown, |failure| failure.ran);
            Err(CallFailure { error, ran, rpc: None })
        }
        never = slots::lend(ctx, &resolved.group, &mut slot, &deadline) => match never {},
    };
    // The server is free for the next call while this one is stored.
    drop(slot);
    let mut attempt = json!({ "startedAt": started_at, "durationMs": millis(began.elapsed()) });
    if let (Some(Waits::Client(_)), Some(responses)) = (record.waits(), &request.responses) {
        attempt["responsesDigest"] = json!(Sha256Digest::of(responses.get().as_bytes()));
    }
    match sent {
        Ok(Answered { raw, upstream_requests, input_required }) => {
            attempt["outcome"] = json!(if input_required { "input_required" } else { "answered" });
            attempt["upstreamRequests"] = json!(upstream_requests);
            record.attempts.push(attempt);
            if input_required && record.attempts.len() >= limits::INPUT_ROUNDS.size() {
                let words = "the server asked for input again and again, and gave no answer";
                return Err(Error::new(Code::UpstreamFormat, words));
            }
            if input_required {
                let (server_name, askable) = (resolved.server_name.as_str(), resolved.askable);
                let asker = Asker { server_name, askable, urls: &ctx.url_rules };
                let input = through::input_required(&asker, &raw)?;
                let inquiry = resume::ask_back(ctx, caller, request, resolved, record, input);
                return inquiry.await.map(Step::AskedBack);
            }
            result::judge(ctx, resolved, record, raw).await.map(Step::Answered)
        }
        Err(CallFailure { error, ran, rpc }) => {
            if error.code == Code::RateLimited {
                // Step 10: the whole group pauses, as long as the server said.
                let pause = match error.retry {
                    Retry::After(pause) => pause,
                    _ => limits::COOLDOWN_MS.millis().max(resolved.group.min_interval),
                };
                ctx.admission.cool_down(&resolved.group.key, pause);
            }
            attempt["outcome"] = json!("failed");
            attempt["code"] = json!(error.code);
            attempt["ran"] = json!(if ran == Ran::No { "no" } else { "unknown" });
            if let Some(rpc) = &rpc {
                attempt["rpcCode"] = json!(rpc.code);
            }
            record.rpc = rpc;
            record.attempts.push(attempt);
            Err(error)
        }
    }
}

/// What goes to the server: the input as it came, and what the client answered to the server's questions.
fn call(request: &CallRequest, resolved: &Resolved, record: &Record) -> Result<Call, Error> {
    let arguments: Arc<RawValue> = request.arguments.clone().into();
    // Answers go to the server that asked for them, and to nobody who did not: an approval is of the
    // input that the person saw.
    let input = match record.waits() {
        Some(Waits::Client(state)) => {
            Some(Input { responses: request.responses.clone(), state: state.clone() })
        }
        Some(Waits::Person(_)) | None => None,
    };
    let input = input.filter(|input| input.responses.is_some() || input.state.is_some());
    let validators = resolved.validators.as_ref();
    let what = match resolved.pseudo {
        None => What::Tool {
            name: resolved.entry.original_name.clone(),
            arguments,
            input_schema: validators.map(|validators| Arc::clone(&validators.input_schema)),
            input,
        },
        Some(pseudo) => {
            let method = pseudo::method(pseudo);
            What::Request { method, params: Some(arguments), input }
        }
    };
    let askable = resolved.askable;
    let capabilities = (!askable.is_nothing())
        .then(|| to_raw_value(&askable.declared("2026-07-28")))
        .transpose()
        .map_err(Error::internal)?;
    let upstream = &request.upstream;
    Ok(Call {
        what,
        response_limit: resolved.response_limit,
        trace: None,
        relay: upstream.relay.clone(),
        capabilities: capabilities.map(Arc::from),
        progress: upstream.progress,
        log_level: upstream.log_level.clone(),
        meta: upstream.meta.clone(),
        pinned: resolved.entry.definition_hash.map(|definition_hash| PinnedTool {
            tool: resolved.entry.tool.clone(),
            definition_hash,
        }),
    })
}
