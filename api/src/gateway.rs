//! The MCP endpoint for external clients: streamable HTTP of both eras.
//!
//! It is framed here and not by rmcp's server, whose types would lose what a result may hold beyond
//! them: results and arguments pass as they were written (docs/decisions). What a message means comes
//! from rmcp's model where a type says it all.
//!
//! ```text
//! bearer → scope → media types → body → message → era → answer
//! ```

mod about;
mod answer;
mod calls;
mod ended;
mod eras;
mod fault;
mod headers;
mod in_flight;
mod input;
mod legacy;
mod message;
mod metadata;
mod modern;
mod raw;
mod through;
mod tools;
mod voice;

use std::sync::Arc;

use app::{gateway_sessions::GatewaySession, through::OwnSession};
use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::post,
};
use domain::{Caller, Code, Error, Scope, ids::SessionId, limits};

use crate::{
    Api, caller,
    http::{body, id::Id},
    paths, problem,
};
use ended::Ended;
use eras::Era;
use in_flight::InFlight;
use legacy::McpSession;
use message::Body;
use metadata::{Challenge, Endpoint};
use through::{Holders, Questions};
use voice::Voice;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(paths::GATEWAY, post(post_default).get(get_default).delete(delete_default))
        .route(paths::GATEWAY_SESSION, post(post_session).get(get_session).delete(delete_session))
        .layer(Extension(Memory::default()))
        .merge(metadata::routes())
}

/// What one process knows of the requests of older clients that it serves.
#[derive(Debug, Clone, Default)]
struct Memory {
    ended: Ended,
    holders: Holders,
    in_flight: InFlight,
    questions: Questions,
}

/// Who asks, through which door, for what part of it; cheap to clone.
#[derive(Debug, Clone)]
struct Scene {
    api: Api,
    caller: Arc<Caller>,
    endpoint: Endpoint,
    /// Ids or slugs of the servers that `?sources=` names.
    sources: Option<Arc<[String]>>,
    /// The pass-through form: the id or slug of its one server.
    through: Option<Arc<str>>,
    era: Era,
    memory: Memory,
    /// Says something before the answer.
    voice: Voice,
    /// Older eras, after `initialize`.
    mcp_session: Option<McpSession>,
    /// The session that an older client got by `initialize`.
    resumed: Option<SessionId>,
    /// The upstream session that it holds in the pass-through form.
    own: Option<Arc<OwnSession>>,
}

impl Scene {
    /// The session whose calls these are.
    async fn session(&self) -> Result<SessionId, Error> {
        match self.resumed.or(self.endpoint.0) {
            Some(session) => Ok(session),
            None => app::sessions::default_for(&self.api.ctx, &self.caller).await,
        }
    }

    /// The session of the path is the caller's, if it names one.
    async fn check_named_session(&self) -> Result<(), Error> {
        let Some(session) = self.endpoint.0 else { return Ok(()) };
        app::gateway_sessions::check(&self.api.ctx, &self.caller, session).await
    }

    /// What an older client's `Mcp-Session-Id` stands for.
    fn in_session(&self, session: GatewaySession) -> Self {
        Self {
            resumed: Some(session.session),
            mcp_session: Some(session.nonce),
            own: session.own.map(Arc::new),
            ..self.clone()
        }
    }

    /// The default session may be archived under an older client, or the server of its upstream session
    /// be another one by now: then it has to begin anew, and only a 404 makes it do so.
    fn explained(&self, error: Error) -> Error {
        let default = self.resumed.is_some() && self.endpoint.0.is_none();
        let archived = default && error.code == Code::SessionArchived;
        if archived || (self.own.is_some() && through::is_over(&error)) {
            return Error::not_found("MCP session").because(error);
        }
        error
    }

    /// An error as HTTP: a problem, with the challenge that a 401 needs.
    fn refuse(&self, error: &Error) -> Response {
        metadata::refuse(error, Challenge::InvalidToken, &self.api.node, self.endpoint)
    }
}

async fn post_default(
    State(api): State<Api>,
    Extension(memory): Extension<Memory>,
    request: Request,
) -> Response {
    serve(api, memory, Endpoint(None), request).await.unwrap_or_else(|refused| *refused)
}

async fn post_session(
    State(api): State<Api>,
    Extension(memory): Extension<Memory>,
    Id(session): Id<SessionId>,
    request: Request,
) -> Response {
    let endpoint = Endpoint(Some(session));
    serve(api, memory, endpoint, request).await.unwrap_or_else(|refused| *refused)
}

async fn get_default(
    State(api): State<Api>,
    Extension(memory): Extension<Memory>,
    request: Request,
) -> Response {
    listen(api, memory, Endpoint(None), request).await.unwrap_or_else(|refused| *refused)
}

async fn get_session(
    State(api): State<Api>,
    Extension(memory): Extension<Memory>,
    Id(session): Id<SessionId>,
    request: Request,
) -> Response {
    let endpoint = Endpoint(Some(session));
    listen(api, memory, endpoint, request).await.unwrap_or_else(|refused| *refused)
}

async fn delete_default(
    State(api): State<Api>,
    Extension(memory): Extension<Memory>,
    request: Request,
) -> Response {
    end(api, memory, Endpoint(None), request).await.unwrap_or_else(|refused| *refused)
}

async fn delete_session(
    State(api): State<Api>,
    Extension(memory): Extension<Memory>,
    Id(session): Id<SessionId>,
    request: Request,
) -> Response {
    let endpoint = Endpoint(Some(session));
    end(api, memory, endpoint, request).await.unwrap_or_else(|refused| *refused)
}

/// An answer that ends the request before it was understood.
type Refused = Box<Response>;

async fn serve(
    api: Api,
    memory: Memory,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let mut scene = enter(api, memory, endpoint, &parts).await?;
    headers::check_media_types(&parts.headers)
        .map_err(|(status, error)| Box::new(problem::render(&error, status)))?;
    let request = Request::from_parts(parts, body);
    let headers = request.headers().clone();
    let body = body::read(request, limits::GATEWAY_BODY_BYTES.size()).await.map_err(Box::new)?;
    if scene.through.is_some()
        && let Some(replies) = message::replies(&body)
    {
        return Ok(legacy::answered(&scene, &headers, replies));
    }
    let message = match message::parse(&body) {
        Ok(Body::One(message)) => message,
        Ok(Body::Batch(messages)) => {
            let refuse = |error: &Error| scene.refuse(error);
            return Ok(legacy::serve_batch(&scene, &headers, messages, refuse).await);
        }
        Err(fault) => return Ok(fault.into_response()),
    };
    scene.era = match eras::of(&headers, &message) {
        Ok(era) => era,
        Err(fault) => return Ok(fault.into_response()),
    };
    let refuse = |error: &Error| scene.refuse(error);
    Ok(match scene.era {
        Era::Modern => modern::serve(&scene, &headers, &message, refuse).await,
        Era::Legacy => legacy::serve(&scene, &headers, &message, refuse).await,
    })
}

/// A stream is offered in the pass-through form alone (MCP 2025-11-25: Transports, "Listening for
/// Messages from the Server").
async fn listen(
    api: Api,
    memory: Memory,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, _) = request.into_parts();
    let scene = enter(api, memory, endpoint, &parts).await?;
    let no_stream = || not_allowed("POST, DELETE", "this endpoint offers no stream by GET");
    if scene.through.is_none() || is_modern(&parts) {
        return Ok(no_stream());
    }
    headers::check_takes_events(&parts.headers)
        .map_err(|(status, error)| Box::new(problem::render(&error, status)))?;
    let scene = match legacy::resume(&scene, &parts.headers) {
        Ok(scene) => scene,
        Err(refusal) => return Ok(refusal.render(&scene)),
    };
    Ok(match through::streams::get(&scene).await {
        Ok(response) => response,
        Err(error) if app::through::is_not_offered(&error) => no_stream(),
        Err(error) => scene.refuse(&scene.explained(error)),
    })
}

/// The version that has neither streams by GET nor sessions.
fn is_modern(parts: &Parts) -> bool {
    let version = parts.headers.get(headers::PROTOCOL_VERSION);
    version.is_some_and(|version| version.as_bytes() == eras::MODERN.as_str().as_bytes())
}

async fn end(
    api: Api,
    memory: Memory,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, _) = request.into_parts();
    let scene = enter(api, memory, endpoint, &parts).await?;
    if is_modern(&parts) {
        return Ok(not_allowed("POST", "this protocol version has no sessions"));
    }
    Ok(match legacy::end(&scene, &parts.headers).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal.render(&scene),
    })
}

fn not_allowed(allow: &'static str, words: &str) -> Response {
    let error = Error::new(Code::InvalidInput, words);
    let mut response = problem::render(&error, StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// Who asks and for what, before anything of the body is read.
async fn enter(
    api: Api,
    memory: Memory,
    endpoint: Endpoint,
    parts: &Parts,
) -> Result<Scene, Refused> {
    let refuse = |error: &Error, challenge| {
        Box::new(metadata::refuse(error, challenge, &api.node, endpoint))
    };
    let token = caller::bearer(parts).map_err(|error| refuse(&error, Challenge::NoToken))?;
    let audience = metadata::address(&api.node, endpoint);
    let caller = app::identity::authenticate_at_gateway(&api.ctx, token, audience).await.map_err(
        |error| {
            let lacks = error.code == Code::Denied;
            refuse(
                &error,
                if lacks { Challenge::InsufficientScope } else { Challenge::InvalidToken },
            )
        },
    )?;
    caller
        .require_scope(Scope::McpCall)
        .map_err(|error| refuse(&error, Challenge::InsufficientScope))?;
    let (sources, through) =
        asked_for(parts).map_err(|error| refuse(&error, Challenge::InvalidToken))?;
    Ok(Scene {
        api,
        caller: Arc::new(caller),
        endpoint,
        sources,
        through,
        era: Era::Legacy,
        memory,
        voice: Voice::default(),
        mcp_session: None,
        resumed: None,
        own: None,
    })
}

/// What a request is about: the servers that `?sources=` names, or the one server of `prefix=off`.
type AskedFor = (Option<Arc<[String]>>, Option<Arc<str>>);

/// `INVALID_INPUT` for forms that there are not.
fn asked_for(parts: &Parts) -> Result<AskedFor, Error> {
    let refused = |words: &str| Err(Error::new(Code::InvalidInput, words));
    let (mut sources, mut prefixed): (Option<Vec<String>>, _) = (None, true);
    for (name, value) in
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
    {
        match (&*name, &*value) {
            ("prefix", "on") => prefixed = true,
            ("prefix", "off") => prefixed = false,
            ("prefix", _) => return refused("prefix must be on or off"),
            ("sources", list) => {
                let named = list.split(',').map(str::trim).filter(|one| !one.is_empty());
                sources.get_or_insert_default().extend(named.map(str::to_owned));
            }
            _ => {}
        }
    }
    if prefixed {
        return match sources {
            Some(none) if none.is_empty() => refused("sources must name at least one server"),
            sources => Ok((sources.map(Arc::from), None)),
        };
    }
    match sources.as_deref() {
        Some([one]) => Ok((None, Some(Arc::from(one.as_str())))),
        _ => refused("prefix=off needs sources to name exactly one server"),
    }
}
