//! Calls: `tools/call`, and what the broker governs like one. The server's words go to the client
//! meanwhile, its questions too.

use std::sync::Arc;

use app::{
    broker::{self, Asked, Asking, CallRequest, Outcome, Resume},
    through::{Clocks, InputRequired, Relay, Reply, Source, Upstream},
};
use axum::http::HeaderMap;
use domain::{
    Code, Error,
    elicitation::ELICITATION,
    ids::{ServerId, SessionId},
    invocation::{Origin, PseudoTool},
    limits,
};
use futures::future::join_all;
use rmcp::model::ErrorCode;
use serde_json::{Value, json, value::RawValue};
use tokio::{sync::oneshot, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    asker,
    ears::Ears,
    errors,
    results::{Kind, shaped},
    source,
    wish::Wish,
};
use crate::gateway::{
    Scene,
    answer::{Answer, Work},
    calls::{self, Ended},
    eras::Era,
    fault::Fault,
    headers,
    in_flight::{Held, Key},
    input::{self, Input, PERMISSION},
    message::{Message, RequestId, ToolCall},
    raw::{INVOCATION_KEY, Members},
};

/// What a client asks for.
#[derive(Debug)]
struct Call {
    id: RequestId,
    what: What,
    /// Of a pseudo-tool: its params.
    arguments: Box<RawValue>,
    input: Input,
    /// What it answers to the server's questions.
    responses: Option<Arc<RawValue>>,
    wish: Wish,
    /// For the headers that repeat arguments; newer clients alone.
    headers: Option<HeaderMap>,
}

#[derive(Debug)]
enum What {
    Tool(String),
    Pseudo(PseudoTool),
}

pub(super) fn tool(
    scene: &Scene,
    headers: &HeaderMap,
    message: &Message<'_>,
    id: &RequestId,
) -> Result<Work, Fault> {
    let ToolCall { id, name, arguments, input } = ToolCall::of(message, id.clone(), scene.era)?;
    let call = Call {
        id,
        what: What::Tool(name),
        arguments,
        input,
        responses: responses(message)?,
        wish: Wish::of(scene, message)?,
        headers: (scene.era == Era::Modern).then(|| headers.clone()),
    };
    Ok(begin(scene, call))
}

pub(super) fn pseudo(
    scene: &Scene,
    message: &Message<'_>,
    id: &RequestId,
    tool: PseudoTool,
) -> Result<Work, Fault> {
    let params = message.params.without(&["_meta", "inputResponses", "requestState"]);
    let params = RawValue::from_string(params)
        .map_err(|_| message.fault(ErrorCode::INVALID_PARAMS, "params are no JSON"))?;
    let call = Call {
        id: id.clone(),
        what: What::Pseudo(tool),
        arguments: params,
        input: Input::of(message, scene.era)?,
        responses: responses(message)?,
        wish: Wish::of(scene, message)?,
        headers: None,
    };
    Ok(begin(scene, call))
}

/// `inputResponses` without the answer to our own question, which the server never asked.
fn responses(message: &Message<'_>) -> Result<Option<Arc<RawValue>>, Fault> {
    let Some(given) = message.params.get("inputResponses") else { return Ok(None) };
    let invalid = || {
        let words = "params.inputResponses must be an object of objects";
        message.fault(ErrorCode::INVALID_PARAMS, words)
    };
    let members = Members::parse(given.get()).ok_or_else(invalid)?;
    if members.iter().any(|(_, answer)| !answer.get().starts_with('{')) {
        return Err(invalid());
    }
    let answers = members.without(&[PERMISSION]);
    if answers == "{}" {
        return Ok(None);
    }
    RawValue::from_string(answers).map(|answers| Some(answers.into())).map_err(|_| invalid())
}

/// Begins when it is first polled.
fn begin(scene: &Scene, call: Call) -> Work {
    let scene = scene.clone();
    Box::pin(async move {
        let id = call.id.clone();
        run(&scene, call).await.unwrap_or_else(|error| Answer::Refused(id, scene.explained(error)))
    })
}

/// One attempt of the call, as far as it differs from the next.
struct Round {
    asking: Asking,
    responses: Option<Arc<RawValue>>,
}

async fn run(scene: &Scene, call: Call) -> Result<Answer, Error> {
    let session = scene.session().await?;
    let mut round = Round { asking: call.input.asking(scene), responses: call.responses.clone() };
    let source = match source(scene).await {
        Ok(source) => source,
        Err(error) => {
            // As it was named: nobody looks it up.
            let server = ServerId::from(scene.through.as_deref().unwrap_or_default());
            let request = request(scene, session, server, &call, round, Upstream::default());
            return Err(calls::at_the_door(scene, request, error).await);
        }
    };
    let mut rounds = 0;
    loop {
        let Some(ended) = attend(scene, &source, session, &call, round).await? else {
            return Ok(Answer::Silent);
        };
        let invocation = ended.invocation;
        match (&ended.outcome, invocation) {
            (Ok(Outcome::Waiting(waiting)), Some(invocation)) => {
                return Ok(call.input.required(scene, &call.id, invocation, waiting));
            }
            (Ok(Outcome::Inquiry(asked)), Some(invocation)) if scene.era == Era::Modern => {
                return Ok(input::inquiry(&call.id, invocation, asked));
            }
            (Ok(Outcome::Inquiry(asked)), Some(_)) => {
                rounds += 1;
                let within = rounds <= limits::INPUT_ROUNDS.size();
                let answers = if within {
                    answers(scene, &source, &call, &asked.input).await
                } else {
                    Answers::Declined
                };
                let (declined, silent, responses) = match answers {
                    Answers::Given(responses) => (false, false, responses),
                    Answers::Declined => (true, false, None),
                    Answers::Cancelled => (true, true, None),
                };
                let resume = Resume { state: asked.state.clone(), declined };
                let hold = scene.api.ctx.permission_wait;
                round = Round { asking: Asking::Return { hold, resume: Some(resume) }, responses };
                if silent {
                    // The record gets its end; the client wants none.
                    let _ended = attend(scene, &source, session, &call, round).await;
                    return Ok(Answer::Silent);
                }
            }
            _ => return answer(scene, &source, &call, ended),
        }
    }
}

fn request(
    scene: &Scene,
    session: SessionId,
    server: ServerId,
    call: &Call,
    round: Round,
    upstream: Upstream,
) -> CallRequest {
    CallRequest {
        session,
        asked: match &call.what {
            What::Tool(name) => Asked::Original { server, name: name.clone() },
            What::Pseudo(tool) => Asked::Pseudo { server, tool: *tool },
        },
        arguments: call.arguments.clone(),
        // Each request is an execution of its own: ids of requests come again.
        execution: scene.api.ctx.mint(),
        call_id: call.id.json().to_owned(),
        origin: Origin::Gateway,
        allowed_source_ids: None,
        asking: round.asking,
        fits: call.headers.as_ref().map(|given| headers::fits(given, &call.arguments)),
        cancel_on_hang_up: scene.era == Era::Modern,
        upstream,
        responses: round.responses,
    }
}

/// Calls, and passes on what the server says meanwhile. `None`: the client cancelled.
async fn attend(
    scene: &Scene,
    source: &Source,
    session: SessionId,
    call: &Call,
    round: Round,
) -> Result<Option<Ended>, Error> {
    let ctx = &scene.api.ctx;
    let (relay, mut heard) = Relay::channel();
    let upstream = call.wish.upstream(scene, relay);
    let request = request(scene, session, source.server.clone(), call, round, upstream);
    let mut ears = Ears::new(scene, source, &call.wish);
    let mut running = broker::start(ctx, &scene.caller, request);
    let held = listed(scene, &call.id, running.cancel_token());
    let ended = tokio::select! {
        biased;
        // The client asked for no answer (MCP: Cancellation, "Behavior Requirements").
        () = calls::told(held.as_ref()) => return Ok(None),
        () = ears.attend(&mut heard) => Err(Error::internal("a server was heard to its end")),
        ended = calls::end(scene, &mut running) => ended,
    };
    if let Some(held) = held {
        Held::ended(held);
    }
    ears.rest(&mut heard).await;
    ended.map(Some)
}

/// An older client cancels a request by its id.
pub(super) fn listed(scene: &Scene, id: &RequestId, token: CancellationToken) -> Option<Held> {
    let key = Key::new(&scene.caller, scene.mcp_session?, id);
    Some(scene.memory.in_flight.enter(key, token))
}

/// What an older client says to the questions of a server that asks in rounds.
enum Answers {
    Given(Option<Arc<RawValue>>),
    /// It cannot be answered: the call ends.
    Declined,
    Cancelled,
}

async fn answers(scene: &Scene, source: &Source, call: &Call, input: &InputRequired) -> Answers {
    let mut ears = Ears::new(scene, source, &call.wish);
    let mut waiting = Vec::new();
    for request in &input.requests {
        let (sender, reply) = oneshot::channel();
        // Between two rounds the call is with nobody.
        ears.ask(&request.method, request.params.as_deref(), sender, &Clocks::default()).await;
        waiting.push(timeout(scene.api.ctx.permission_wait, reply));
    }
    let token = CancellationToken::new();
    // Cancelled when this is over, however it ends: only then is its entry swept.
    let _over = token.clone().drop_guard();
    let held = listed(scene, &call.id, token);
    let mut replies = join_all(waiting);
    let replies = loop {
        tokio::select! {
            biased;
            () = calls::told(held.as_ref()) => return Answers::Cancelled,
            replies = &mut replies => break replies,
            () = ears.answered() => {}
        }
    };
    if let Some(held) = held {
        Held::ended(held);
    }
    let mut given = serde_json::Map::new();
    for (request, reply) in input.requests.iter().zip(replies) {
        let answer = match reply {
            Ok(Ok(Reply::Result(result))) => serde_json::from_str(result.get()).ok(),
            // Refused, or in no time: nobody made a choice (MCP: Elicitation, "Response Actions").
            _ if request.method == ELICITATION => Some(json!({ "action": "cancel" })),
            _ => None,
        };
        match answer {
            Some(answer @ Value::Object(_)) => given.insert(request.key.clone(), answer),
            _ => return Answers::Declined,
        };
    }
    if given.is_empty() {
        return Answers::Given(None);
    }
    match serde_json::value::to_raw_value(&given) {
        Ok(given) => Answers::Given(Some(given.into())),
        Err(_) => Answers::Declined,
    }
}

fn answer(scene: &Scene, source: &Source, call: &Call, ended: Ended) -> Result<Answer, Error> {
    let era = scene.era;
    let (id, invocation) = (&call.id, ended.invocation);
    if let Err(error) = &ended.outcome {
        if let Some(rpc) = &ended.rpc {
            let asker = asker(scene, source, &call.wish);
            return Ok(errors::passed_on(rpc, id, invocation, era, &asker).into());
        }
        if app::through::is_session_lost(error) {
            return Err(Error::not_found("MCP session"));
        }
    }
    let What::Pseudo(tool) = &call.what else { return calls::answer(id, ended, era) };
    match ended.outcome {
        Ok(Outcome::Done(result)) => {
            let kind = Kind { cacheable: *tool == PseudoTool::ResourceRead };
            Ok(Answer::result(id, &shaped(&result.raw, kind, invocation, era)?))
        }
        Ok(_) => Err(Error::internal("a call that waits is not over")),
        Err(error) => {
            if error.code == Code::Internal {
                tracing::error!(error = &error as &dyn std::error::Error, "call failed");
            }
            let mut fault = Fault::from_error(&error, Some(id.clone()));
            if let Some(data) = &mut fault.data {
                data[INVOCATION_KEY] = json!(invocation);
                if let Some(details) = error.details {
                    data["details"] = details;
                }
            }
            Ok(fault.into())
        }
    }
}
