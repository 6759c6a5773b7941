//! `tools/call`, of both eras: the one way from an external client to the broker.

use app::broker::{self, CallRequest, Called, Running};
use axum::http::HeaderMap;
use bytes::Bytes;
use domain::{Code, Error, Retry, ids::InvocationId, invocation::Origin, limits};
use rmcp::model::ErrorCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Scene,
    answer::{Answer, Work},
    eras::Era,
    fault::{Fault, bounded, millis},
    headers,
    in_flight::{Held, Key},
    message::{Message, RequestId, ToolCall},
    raw::{self, INVOCATION_KEY},
    tools,
};

/// Begins when it is first polled.
pub(super) fn call(
    scene: &Scene,
    headers: &HeaderMap,
    message: &Message<'_>,
    id: RequestId,
) -> Result<Work, Fault> {
    let call = ToolCall::of(message, id)?;
    let scene = scene.clone();
    let repeated = scene.era == Era::Modern && headers::has_params(headers);
    let headers = repeated.then(|| headers.clone());
    Ok(Box::pin(async move {
        let id = call.id.clone();
        if let Some(headers) = headers
            && let Err(answer) = check_params(&scene, &headers, &call).await
        {
            return answer;
        }
        run(&scene, call).await.unwrap_or_else(|error| Answer::Refused(id, scene.explained(error)))
    }))
}

async fn check_params(scene: &Scene, headers: &HeaderMap, call: &ToolCall) -> Result<(), Answer> {
    let schema = tools::input_schema(scene, &call.name)
        .await
        .map_err(|error| Answer::Refused(call.id.clone(), error))?;
    let Some(schema) = schema else { return Ok(()) };
    headers::check_params(headers, &schema, &call.arguments)
        .map_err(|fault| fault.of(Some(call.id.clone())).into())
}

async fn run(scene: &Scene, call: ToolCall) -> Result<Answer, Error> {
    let ctx = &scene.api.ctx;
    let session = scene.session().await?;
    let caller = tools::narrowed(scene).await?;
    let modern = scene.era == Era::Modern;
    let request = CallRequest {
        session,
        agent_name: call.name,
        arguments: call.arguments,
        // Each request is an execution of its own: ids of requests come again.
        execution: ctx.mint(),
        call_id: call.id.json().to_owned(),
        origin: Origin::Gateway,
        attach: !modern,
        cancel_on_hang_up: modern,
    };
    let mut running = broker::start(ctx, &caller, request);
    let held = scene.mcp_session.map(|session| {
        let key = Key::new(&caller, session, &call.id);
        scene.in_flight.enter(key, running.cancel_token())
    });
    let ended = match &held {
        None => end(scene, &mut running).await,
        Some(held) => tokio::select! {
            biased;
            // The client asked for no answer (MCP: Cancellation, "Behavior Requirements").
            () = held.told() => return Ok(Answer::Silent),
            ended = end(scene, &mut running) => ended,
        },
    };
    if let Some(held) = held {
        Held::ended(held);
    }
    answer(&call.id, ended?, scene.era)
}

/// The end of the call, or what can be said of it when the node stops.
async fn end(scene: &Scene, running: &mut Running) -> Result<Ended, Error> {
    let called = tokio::select! {
        biased;
        called = running.finished() => Some(called),
        () = scene.api.ctx.stopping.cancelled() => None,
    };
    let called = match called {
        Some(called) => Some(called),
        None => timeout(limits::GATEWAY_LAST_WORDS_MS.millis(), running.finished()).await.ok(),
    };
    let Some(called) = called else {
        let error = Error::new(Code::Interrupted, "this node stopped before the call ended");
        return Ok(Ended { invocation: None, known: true, outcome: Err(error) });
    };
    let Called { invocation, known, outcome } = called?;
    Ok(Ended { invocation: Some(invocation), known, outcome })
}

struct Ended {
    invocation: Option<InvocationId>,
    /// The asked name led to a tool.
    known: bool,
    outcome: Result<Bytes, Error>,
}

fn answer(id: &RequestId, ended: Ended, era: Era) -> Result<Answer, Error> {
    match (ended.outcome, ended.invocation) {
        (Ok(result), Some(invocation)) => passed_on(id, &result, invocation, era),
        (Ok(_), None) => Err(Error::internal("a result without an invocation")),
        // An unknown tool is a fault of the protocol (MCP: Tools, "Error Handling").
        (Err(error), invocation) if !ended.known && error.code == Code::NotFound => {
            let mut fault =
                Fault::new(ErrorCode::INVALID_PARAMS, bounded(&error.public)).of(Some(id.clone()));
            fault.data = Some(json!({ "code": error.code, "invocationId": invocation }));
            Ok(fault.into())
        }
        (Err(error), invocation) => {
            if error.code == Code::Internal {
                tracing::error!(
                    invocation = invocation.map(tracing::field::display),
                    error = &error as &dyn std::error::Error,
                    "call failed",
                );
            }
            Ok(Answer::result(id, &refused(&error, invocation, era).to_string()))
        }
    }
}

/// The server's result as it came, an `isError` too.
fn passed_on(
    id: &RequestId,
    result: &[u8],
    invocation: InvocationId,
    era: Era,
) -> Result<Answer, Error> {
    let marked = std::str::from_utf8(result)
        .ok()
        .and_then(|result| raw::with_invocation(result, invocation, era == Era::Modern))
        .ok_or_else(|| Error::internal("a result that is no JSON object"))?;
    Ok(Answer::result(id, &marked))
}

/// The `CallToolResult` of a call that we refused or ended: for the agent to read, not for the
/// protocol.
fn refused(error: &Error, invocation: Option<InvocationId>, era: Era) -> Value {
    let mut said = json!({
        "code": error.code,
        "message": bounded(&error.public),
        "retryable": error.retryable(),
    });
    if let Retry::After(wait) = error.retry {
        said["retryAfterMs"] = json!(millis(wait));
    }
    if let Some(details) = &error.details {
        said["details"] = details.clone();
    }
    if let Some(words) = &error.untrusted {
        said["untrusted"] = json!(bounded(words));
    }
    let mut structured = json!({ "ok": false });
    let mut meta = json!({});
    if let Some(invocation) = invocation {
        structured["invocationId"] = json!(invocation);
        meta[INVOCATION_KEY] = json!(invocation);
    }
    structured["error"] = said;
    let mut result = json!({
        "content": [{ "type": "text", "text": structured.to_string() }],
        "structuredContent": structured,
        "isError": true,
        "_meta": meta,
    });
    if era == Era::Modern {
        result["resultType"] = json!("complete");
    }
    result
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_refusal_says_the_same_to_programs_and_to_models() {
        let error = Error::new(Code::RateLimited, "too many calls")
            .retry_after(Duration::from_millis(1_500))
            .with_untrusted("slow down!");
        let result = refused(&error, Some(InvocationId(Uuid::nil())), Era::Modern);
        let structured = json!({
            "ok": false,
            "invocationId": "00000000-0000-0000-0000-000000000000",
            "error": {
                "code": "RATE_LIMITED", "message": "too many calls", "retryable": true,
                "retryAfterMs": 1500, "untrusted": "slow down!",
            },
        });
        assert_eq!(result["structuredContent"], structured);
        assert_eq!(result["content"][0]["text"], structured.to_string());
        assert_eq!(result["isError"], true);
        assert_eq!(result["resultType"], "complete");
        assert_eq!(result["_meta"][INVOCATION_KEY], "00000000-0000-0000-0000-000000000000");
    }

    #[test]
    fn long_words_are_cut() {
        let error = Error::new(Code::Timeout, "ä".repeat(5_000));
        let result = refused(&error, None, Era::Legacy);
        let message = result["structuredContent"]["error"]["message"].as_str().unwrap();
        assert_eq!(message.chars().count(), 1_000);
        assert!(result.get("resultType").is_none());
    }
}
