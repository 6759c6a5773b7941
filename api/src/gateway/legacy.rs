//! MCP 2025-11-25, 2025-06-18 and 2025-03-26: requests of a session that began with `initialize`.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use domain::{Error, ids::SessionId};
use rmcp::model::{ErrorCode, ProtocolVersion};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Scene, about,
    answer::{self, Answer, Form, Work},
    calls,
    eras::{self, MODERN},
    fault::{self, Fault},
    headers::{self, PROTOCOL_VERSION, SESSION_ID},
    in_flight::Key,
    message::{Message, Replies, RequestId},
    through, tools,
    voice::Voice,
};

/// One message.
pub(super) async fn serve(
    scene: &Scene,
    headers: &HeaderMap,
    message: &Message<'_>,
    refuse: impl Fn(&Error) -> Response,
) -> Response {
    if message.method == "initialize" {
        return match &message.id {
            Some(id) => initialize(scene, message, id, refuse).await,
            None => StatusCode::ACCEPTED.into_response(),
        };
    }
    let (scene, _) = match resumed(scene, headers) {
        Ok(resumed) => resumed,
        Err(Refusal::Fault(fault)) => return fault.of(message.id.clone()).into_response(),
        Err(Refusal::Error(error)) => return refuse(&error),
    };
    let (voice, said) = Voice::channel();
    let scene = Scene { voice, ..scene };
    if let Some(work) = work(&scene, headers, message) {
        return answer::respond(vec![work], said, Form::One, refuse).await;
    }
    through::told(&scene, message).await;
    StatusCode::ACCEPTED.into_response()
}

/// A batch, which 2025-03-26 alone has. Its requests run side by side.
pub(super) async fn serve_batch(
    scene: &Scene,
    headers: &HeaderMap,
    messages: Vec<Result<Message<'_>, Fault>>,
    refuse: impl Fn(&Error) -> Response,
) -> Response {
    let (scene, version) = match batch_version(headers).and_then(|()| resumed(scene, headers)) {
        Ok(resumed) => resumed,
        Err(Refusal::Fault(fault)) => return fault.into_response(),
        Err(Refusal::Error(error)) => return refuse(&error),
    };
    if version != ProtocolVersion::V_2025_03_26.as_str() {
        return no_batches().into_response();
    }
    let (voice, said) = Voice::channel();
    let scene = Scene { voice, ..scene };
    for message in messages.iter().flatten() {
        through::told(&scene, message).await;
    }
    let works: Vec<Work> = messages
        .into_iter()
        .filter_map(|message| match message {
            Ok(message) => work(&scene, headers, &message),
            Err(fault) => Some(ready(fault.into())),
        })
        .collect();
    if works.is_empty() {
        return StatusCode::ACCEPTED.into_response();
    }
    answer::respond(works, said, Form::Batch, refuse).await
}

/// Ends a session, and the upstream session of the pass-through form, if its server is still what it
/// was.
pub(super) async fn end(scene: &Scene, headers: &HeaderMap) -> Result<(), Refusal> {
    let scene = resume(scene, headers)?;
    if let Some(session) = scene.mcp_session {
        scene.memory.ended.end(session);
    }
    if scene.own.is_some() {
        through::end(&scene).await.map_err(|error| Refusal::Error(scene.explained(error)))?;
    }
    Ok(())
}

/// The scene of the session that a request without a message belongs to.
pub(super) fn resume(scene: &Scene, headers: &HeaderMap) -> Result<Scene, Refusal> {
    resumed(scene, headers).map(|(scene, _)| scene)
}

/// Answers to questions that a server asked through us (MCP 2025-11-25: Transports, "Sending Messages to
/// the Server").
pub(super) fn answered(scene: &Scene, headers: &HeaderMap, replies: Replies) -> Response {
    let (scene, version) = match resumed(scene, headers) {
        Ok(resumed) => resumed,
        Err(refusal) => return refusal.render(scene),
    };
    if replies.batch && version != ProtocolVersion::V_2025_03_26.as_str() {
        return no_batches().into_response();
    }
    if let Some(session) = scene.mcp_session {
        for (id, reply) in replies.each {
            scene.memory.questions.answer(session, &id, reply);
        }
    }
    StatusCode::ACCEPTED.into_response()
}

/// Why a request does not belong to a session.
#[derive(Debug)]
pub(super) enum Refusal {
    Fault(Fault),
    Error(Error),
}

impl Refusal {
    pub(super) fn render(self, scene: &Scene) -> Response {
        match self {
            Self::Fault(fault) => fault.into_response(),
            Self::Error(error) => scene.refuse(&error),
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn batch_version(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers::single(headers, PROTOCOL_VERSION)? {
        Some(version) if version == MODERN.as_str() => Err(no_batches().into()),
        Some(version) if eras::legacy(version).is_none() => Err(eras::unsupported(version).into()),
        _ => Ok(()),
    }
}

fn no_batches() -> Fault {
    let words = "this protocol version has no batches: send one message";
    Fault::new(ErrorCode::INVALID_REQUEST, words).malformed()
}

/// The scene of the request's MCP session, and the version that it agreed on.
fn resumed(scene: &Scene, headers: &HeaderMap) -> Result<(Scene, String), Refusal> {
    let Some(id) = headers::single(headers, SESSION_ID)? else {
        let words = "the header Mcp-Session-Id is missing: begin with initialize";
        return Err(Fault::new(ErrorCode::INVALID_REQUEST, words).malformed().into());
    };
    let ctx = &scene.api.ctx;
    let resumed = app::gateway_sessions::open(ctx, &scene.caller, id).map_err(Refusal::Error)?;
    let elsewhere = scene.endpoint.0.is_some_and(|session| session != resumed.session);
    let ended = scene.memory.ended.has(resumed.nonce);
    if ended || elsewhere || !scene.caller.reach.covers_session(resumed.session) {
        return Err(Refusal::Error(Error::not_found("MCP session")));
    }
    // A session of the one form is none of the other.
    if resumed.own.is_some() != scene.through.is_some() {
        return Err(Refusal::Error(Error::not_found("MCP session")));
    }
    let version = resumed.version.clone();
    Ok((scene.in_session(resumed), version))
}

/// `None` for a notification, which is never answered.
fn work(scene: &Scene, headers: &HeaderMap, message: &Message<'_>) -> Option<Work> {
    let Some(id) = message.id.clone() else {
        if message.method == "notifications/cancelled" {
            cancel(scene, message);
        }
        return None;
    };
    let no_method =
        |message: &Message<'_>| Err(message.fault(ErrorCode::METHOD_NOT_FOUND, "no such method"));
    let work = match message.method.as_str() {
        "ping" => Ok(ready(Answer::result(&id, "{}"))),
        method if scene.through.is_some() && method != "initialize" => {
            through::work(scene, headers, message, &id).unwrap_or_else(|| no_method(message))
        }
        "tools/list" => tools::list(scene, message, id),
        "tools/call" => calls::call(scene, headers, message, id),
        "initialize" => {
            let words = "initialize must not be part of a batch";
            Err(message.fault(ErrorCode::INVALID_REQUEST, words))
        }
        _ => no_method(message),
    };
    Some(work.unwrap_or_else(|fault| ready(fault.into())))
}

fn ready(answer: Answer) -> Work {
    Box::pin(std::future::ready(answer))
}

/// Unknown, ended and malformed ids are let pass (MCP: Cancellation, "Error Handling").
fn cancel(scene: &Scene, message: &Message<'_>) {
    let request = message.params.get("requestId").and_then(RequestId::of);
    if let (Some(session), Some(request)) = (scene.mcp_session, request) {
        scene.memory.in_flight.cancel(&Key::new(&scene.caller, session, &request));
    }
}

async fn initialize(
    scene: &Scene,
    message: &Message<'_>,
    id: &RequestId,
    refuse: impl Fn(&Error) -> Response,
) -> Response {
    let Some(wished) = message.params.string("protocolVersion") else {
        return malformed(message, "params.protocolVersion must be a string");
    };
    let capabilities = message.params.get("capabilities");
    let capabilities: Option<Value> =
        capabilities.and_then(|capabilities| serde_json::from_str(capabilities.get()).ok());
    let Some(capabilities) = capabilities.filter(Value::is_object) else {
        return malformed(message, "params.capabilities must be an object");
    };
    if message.params.object("clientInfo").is_none() {
        return malformed(message, "params.clientInfo must be an object");
    }
    let version = eras::negotiated(&wished);
    let begun = if scene.through.is_some() {
        through::begin::initialize(scene, &version, &capabilities).await
    } else {
        begun(scene, &version).await
    };
    match begun {
        Ok((session_id, result)) => {
            let mut response = answer::json(StatusCode::OK, fault::response(id, &result));
            response.headers_mut().insert(HeaderName::from_static(SESSION_ID), session_id);
            response
        }
        Err(error) => refuse(&error),
    }
}

fn malformed(message: &Message<'_>, words: &str) -> Response {
    message.fault(ErrorCode::INVALID_PARAMS, words).malformed().into_response()
}

/// The new `Mcp-Session-Id` and the result.
async fn begun(scene: &Scene, version: &ProtocolVersion) -> Result<(HeaderValue, String), Error> {
    scene.check_named_session().await?;
    let session: SessionId = scene.session().await?;
    let (ctx, caller) = (&scene.api.ctx, &scene.caller);
    let id = app::gateway_sessions::seal(ctx, caller, session, version.as_str(), None)?;
    let id = HeaderValue::from_str(&id).map_err(Error::internal)?;
    let result = about::initialize(version.clone(), about::capabilities());
    let result = serde_json::to_string(&result).map_err(Error::internal)?;
    Ok((id, result))
}

/// One session of the protocol, as in-flight calls know it.
pub(super) type McpSession = Uuid;
