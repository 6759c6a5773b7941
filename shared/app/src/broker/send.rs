//! Steps 9 to 13: the request leaves, the answer comes back and is judged.

use std::sync::Arc;

use bytes::Bytes;
use domain::{Code, Error, Retry, json::Sha256Digest, limits};
use outbound::mcp::{CallFailure, Ran, ToolAnswer, ToolCall};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    CallRequest, Ends,
    admit::Admitted,
    record::{Record, millis},
    resolve::Resolved,
    result,
};
use crate::Ctx;

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
    request: &CallRequest,
    resolved: &Resolved,
    record: &mut Record,
    admitted: Admitted,
    ends: &Ends,
) -> Result<Answer, Error> {
    let began = Instant::now();
    let started_at = ctx.now();
    let cancel = CancellationToken::new();
    let call = ToolCall {
        name: resolved.entry.original_name.clone(),
        arguments: request.arguments.clone().into(),
        input_schema: Some(Arc::clone(&resolved.validators.input_schema)),
        response_limit: resolved.response_limit,
        trace: None,
    };
    let sending =
        ctx.mcp.call_tool(&resolved.target, call, began + resolved.timeout, cancel.clone());
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
    };
    // The server is free for the next call while this one is stored.
    drop(admitted.slot);
    let mut attempt = json!({ "startedAt": started_at, "durationMs": millis(began.elapsed()) });
    match sent {
        Ok(ToolAnswer { raw, upstream_requests }) => {
            attempt["outcome"] = json!("answered");
            attempt["upstreamRequests"] = json!(upstream_requests);
            record.attempts.push(attempt);
            result::judge(ctx, resolved, record, raw).await
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
            if let Some((code, _)) = rpc {
                attempt["rpcCode"] = json!(code);
            }
            record.attempts.push(attempt);
            Err(error)
        }
    }
}
