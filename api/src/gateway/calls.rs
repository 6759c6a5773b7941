//! `tools/call`, of both eras: the one way from an external client to the broker.

use app::{
    broker::{self, Asked, CallRequest, Called, Fits, Outcome, Running},
    results,
    through::{Relay, Rpc},
};
use axum::http::HeaderMap;
use domain::{
    Caller, Code, Error, Retry,
    ids::{InvocationId, SessionId},
    invocation::Origin,
    limits,
};
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
    input,
    message::{Message, RequestId, ToolCall},
    raw::{self, ERROR_KEY, INVOCATION_KEY},
    through::{Ears, Wish},
    tools,
};
use crate::{NodeSettings, paths};

/// Begins when it is first polled.
pub(super) fn call(
    scene: &Scene,
    headers: &HeaderMap,
    message: &Message<'_>,
    id: RequestId,
) -> Result<Work, Fault> {
    let call = ToolCall::of(message, id, scene.era)?;
    let wish = Wish::of(scene, message)?;
    let fits = (scene.era == Era::Modern).then(|| headers::fits(headers, &call.arguments));
    let scene = scene.clone();
    Ok(Box::pin(async move {
        let id = call.id.clone();
        run(&scene, call, &wish, fits)
            .await
            .unwrap_or_else(|error| Answer::Refused(id, scene.explained(error)))
    }))
}

async fn run(
    scene: &Scene,
    call: ToolCall,
    wish: &Wish,
    fits: Option<Fits>,
) -> Result<Answer, Error> {
    let ctx = &scene.api.ctx;
    let session = scene.session().await?;
    let narrowed = tools::narrowed(scene).await;
    if let Ok(caller) = &narrowed
        && call.name == results::NAME
        && results::is_offered(caller, scene.sources.as_deref())
    {
        return read_result(scene, caller, session, &call).await;
    }
    let modern = scene.era == Era::Modern;
    let (relay, mut heard) = Relay::channel();
    let request = CallRequest {
        session,
        asked: Asked::Agent(call.name),
        arguments: call.arguments,
        // Each request is an execution of its own: ids of requests come again.
        execution: ctx.mint(),
        call_id: call.id.json().to_owned(),
        origin: Origin::Gateway,
        allowed_source_ids: None,
        asking: call.input.asking(scene),
        fits,
        upstream: wish.progress_alone(relay),
        responses: None,
        cancel_on_hang_up: modern,
    };
    let caller = match narrowed {
        Ok(caller) => caller,
        Err(error) => return Err(at_the_door(scene, request, error).await),
    };
    let mut ears = Ears::progress_alone(scene, wish);
    let mut running = broker::start(ctx, &caller, request);
    let held = scene.mcp_session.map(|session| {
        let key = Key::new(&caller, session, &call.id);
        scene.memory.in_flight.enter(key, running.cancel_token())
    });
    let ended = tokio::select! {
        biased;
        // The client asked for no answer (MCP: Cancellation, "Behavior Requirements").
        () = told(held.as_ref()) => return Ok(Answer::Silent),
        () = ears.attend(&mut heard) => Err(Error::internal("a server was heard to its end")),
        ended = end(scene, &mut running) => ended,
    };
    if let Some(held) = held {
        Held::ended(held);
    }
    ears.rest(&mut heard).await;
    let ended = ended?;
    match (&ended.outcome, ended.invocation) {
        (Ok(Outcome::Waiting(waiting)), Some(invocation)) => {
            return Ok(call.input.required(scene, &call.id, invocation, waiting));
        }
        (Ok(Outcome::Inquiry(inquiry)), Some(invocation)) => {
            return Ok(input::inquiry(&call.id, invocation, inquiry));
        }
        _ => {}
    }
    answer(&call.id, ended, scene.era)
}

/// Has a call recorded that gets no further than the door; answers what is to be said of it.
pub(super) async fn at_the_door(scene: &Scene, request: CallRequest, error: Error) -> Error {
    let mut running = broker::refuse(&scene.api.ctx, &scene.caller, request, error);
    match end(scene, &mut running).await.map(|ended| ended.outcome) {
        Ok(Err(error)) | Err(error) => error,
        Ok(Ok(_)) => Error::internal("a refused call was answered"),
    }
}

/// Ends when the client cancels a call that it can cancel.
pub(super) async fn told(held: Option<&Held>) {
    match held {
        Some(held) => held.told().await,
        None => std::future::pending().await,
    }
}

/// A tool of ours. Its output schema is why a refusal has no structured content.
async fn read_result(
    scene: &Scene,
    caller: &Caller,
    session: SessionId,
    call: &ToolCall,
) -> Result<Answer, Error> {
    let read = results::read(&scene.api.ctx, caller, session, &call.arguments).await;
    let result = match read {
        Ok(page) => {
            let page = serde_json::to_value(page).map_err(Error::internal)?;
            complete(
                json!({
                    "content": [{ "type": "text", "text": page.to_string() }],
                    "structuredContent": page,
                    "isError": false,
                }),
                scene.era,
            )
        }
        Err(error) if matches!(error.code, Code::SessionArchived | Code::Unauthenticated) => {
            return Err(error);
        }
        Err(error) => {
            if error.code == Code::Internal {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "reading a result failed"
                );
            }
            refused(&error, None, false, scene.era)
        }
    };
    Ok(Answer::result(&call.id, &result.to_string()))
}

/// The end of the call, or what can be said of it when the node stops.
pub(super) async fn end(scene: &Scene, running: &mut Running) -> Result<Ended, Error> {
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
        let outcome = Err(error);
        return Ok(Ended { invocation: None, known: true, plain: false, rpc: None, outcome });
    };
    let Called { invocation, known, plain, rpc, outcome } = called?;
    let outcome = outcome.map_err(|error| with_link(error, &scene.api.node));
    Ok(Ended { invocation: Some(invocation), known, plain, rpc, outcome })
}

pub(super) struct Ended {
    pub invocation: Option<InvocationId>,
    /// The asked name led to a tool.
    known: bool,
    /// A refusal may have structured content.
    plain: bool,
    /// The server refused in protocol.
    pub rpc: Option<Rpc>,
    pub outcome: Result<Outcome, Error>,
}

pub(super) fn answer(id: &RequestId, ended: Ended, era: Era) -> Result<Answer, Error> {
    if let Some(fault) = ended.outcome.as_ref().err().and_then(headers::mismatched) {
        return Ok(fault.of(Some(id.clone())).into());
    }
    match (ended.outcome, ended.invocation) {
        (Ok(Outcome::Done(result)), Some(invocation)) => {
            passed_on(id, &result.raw, invocation, era)
        }
        (Ok(_), _) => Err(Error::internal("a result without an invocation")),
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
            Ok(Answer::result(id, &refused(&error, invocation, ended.plain, era).to_string()))
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
/// protocol. Only a tool without an output schema has it as structured content too, since clients check
/// that against the schema; every one has it in `_meta`.
fn refused(error: &Error, invocation: Option<InvocationId>, plain: bool, era: Era) -> Value {
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
    let mut refusal = json!({ "ok": false });
    let mut meta = json!({});
    if let Some(invocation) = invocation {
        refusal["invocationId"] = json!(invocation);
        meta[INVOCATION_KEY] = json!(invocation);
    }
    refusal["error"] = said;
    let mut result = json!({
        "content": [{ "type": "text", "text": refusal.to_string() }],
        "isError": true,
    });
    if plain {
        result["structuredContent"] = refusal.clone();
    }
    meta[ERROR_KEY] = refusal;
    result["_meta"] = meta;
    complete(result, era)
}

/// Where the person can mend it themselves, the error says so: `details.connectUrl`, and in its words,
/// since many clients show those alone.
fn with_link(mut error: Error, node: &NodeSettings) -> Error {
    let theirs = matches!(
        error.code,
        Code::ConnectionRequired | Code::ReconnectRequired | Code::InsufficientScope
    );
    let details = error.details.as_mut().and_then(Value::as_object_mut).filter(|_| theirs);
    let Some(details) = details else { return error };
    let Some(server) = details.get("serverId").and_then(Value::as_str) else { return error };
    let Ok(mut url) = node.public_url.join(paths::CONNECTIONS_PAGE) else { return error };
    url.query_pairs_mut().append_pair("server", server);
    error.public = format!("{}; open {url}", error.public);
    details.insert("connectUrl".to_owned(), json!(url));
    error
}

/// A result of ours, marked as 2026-07-28 wants it.
fn complete(mut result: Value, era: Era) -> Value {
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
        let invocation = Some(InvocationId(Uuid::nil()));
        let result = refused(&error, invocation, true, Era::Modern);
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
        assert_eq!(result["_meta"][ERROR_KEY], structured);
    }

    #[test]
    fn a_tool_with_an_output_schema_is_refused_without_structured_content() {
        let error = Error::new(Code::PermissionDenied, "no");
        let result = refused(&error, None, false, Era::Legacy);
        assert!(result.get("structuredContent").is_none());
        assert_eq!(result["_meta"][ERROR_KEY]["error"]["code"], "PERMISSION_DENIED");
        assert_eq!(result["content"][0]["text"], result["_meta"][ERROR_KEY].to_string());
    }

    #[test]
    fn who_can_connect_is_told_where() {
        let node = NodeSettings {
            public_url: "https://bailiwick.example/".parse().unwrap(),
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
        };
        let details = json!({ "serverId": "custom-0123456789ab" });
        let error =
            Error::new(Code::ConnectionRequired, "connect it").with_details(details.clone());
        let said = with_link(error, &node);
        let url = "https://bailiwick.example/connections?server=custom-0123456789ab";
        assert_eq!(said.public, format!("connect it; open {url}"));
        assert_eq!(said.details.unwrap()["connectUrl"], url);
        // Of other errors this person has nothing to mend.
        let other = with_link(Error::new(Code::Denied, "no").with_details(details.clone()), &node);
        assert_eq!((other.public.as_str(), other.details), ("no", Some(details)));
    }

    #[test]
    fn long_words_are_cut() {
        let error = Error::new(Code::Timeout, "ä".repeat(5_000));
        let result = refused(&error, None, true, Era::Legacy);
        let message = result["structuredContent"]["error"]["message"].as_str().unwrap();
        assert_eq!(message.chars().count(), 1_000);
        assert!(result.get("resultType").is_none());
    }
}
