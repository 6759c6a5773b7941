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
mod eras;
mod fault;
mod headers;
mod in_flight;
mod legacy;
mod message;
mod metadata;
mod modern;
mod raw;
mod tools;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::post,
};
use domain::{Caller, Code, Error, Scope, Via, ids::SessionId, limits};

use crate::{
    Api, caller,
    http::{body, id::Id},
    paths, problem,
};
use eras::Era;
use in_flight::InFlight;
use legacy::{McpSession, Refusal};
use message::Body;
use metadata::{Challenge, Endpoint};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(paths::GATEWAY, post(post_default).get(get_default).delete(delete_default))
        .route(paths::GATEWAY_SESSION, post(post_session).get(get_session).delete(delete_session))
        .layer(Extension(InFlight::default()))
        .merge(metadata::routes())
}

/// Who asks, through which door, for what part of it; cheap to clone.
#[derive(Debug, Clone)]
struct Scene {
    api: Api,
    caller: Arc<Caller>,
    endpoint: Endpoint,
    /// Ids or slugs of the servers that `?sources=` names.
    sources: Option<Arc<[String]>>,
    era: Era,
    in_flight: InFlight,
    /// Older eras, after `initialize`.
    mcp_session: Option<McpSession>,
    /// The session that an older client got by `initialize`.
    resumed: Option<SessionId>,
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

    fn in_session(&self, session: SessionId, mcp_session: McpSession) -> Self {
        Self { resumed: Some(session), mcp_session: Some(mcp_session), ..self.clone() }
    }

    /// The default session may be archived under an older client, which then has to begin anew: only
    /// a 404 makes it do so.
    fn explained(&self, error: Error) -> Error {
        let default = self.resumed.is_some() && self.endpoint.0.is_none();
        if default && error.code == Code::SessionArchived {
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
    Extension(in_flight): Extension<InFlight>,
    request: Request,
) -> Response {
    serve(api, in_flight, Endpoint(None), request).await.unwrap_or_else(|refused| *refused)
}

async fn post_session(
    State(api): State<Api>,
    Extension(in_flight): Extension<InFlight>,
    Id(session): Id<SessionId>,
    request: Request,
) -> Response {
    let endpoint = Endpoint(Some(session));
    serve(api, in_flight, endpoint, request).await.unwrap_or_else(|refused| *refused)
}

async fn get_default(
    State(api): State<Api>,
    Extension(in_flight): Extension<InFlight>,
    request: Request,
) -> Response {
    no_stream(api, in_flight, Endpoint(None), request).await
}

async fn get_session(
    State(api): State<Api>,
    Extension(in_flight): Extension<InFlight>,
    Id(session): Id<SessionId>,
    request: Request,
) -> Response {
    no_stream(api, in_flight, Endpoint(Some(session)), request).await
}

async fn delete_default(
    State(api): State<Api>,
    Extension(in_flight): Extension<InFlight>,
    request: Request,
) -> Response {
    end(api, in_flight, Endpoint(None), request).await.unwrap_or_else(|refused| *refused)
}

async fn delete_session(
    State(api): State<Api>,
    Extension(in_flight): Extension<InFlight>,
    Id(session): Id<SessionId>,
    request: Request,
) -> Response {
    let endpoint = Endpoint(Some(session));
    end(api, in_flight, endpoint, request).await.unwrap_or_else(|refused| *refused)
}

/// An answer that ends the request before it was understood.
type Refused = Box<Response>;

async fn serve(
    api: Api,
    in_flight: InFlight,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let mut scene = enter(api, in_flight, endpoint, &parts).await?;
    headers::check_media_types(&parts.headers)
        .map_err(|(status, error)| Box::new(problem::render(&error, status)))?;
    let request = Request::from_parts(parts, body);
    let headers = request.headers().clone();
    let body = body::read(request, limits::GATEWAY_BODY_BYTES.size()).await.map_err(Box::new)?;
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

/// No stream is offered (MCP 2025-11-25: Transports, "Listening for Messages from the Server").
async fn no_stream(
    api: Api,
    in_flight: InFlight,
    endpoint: Endpoint,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match enter(api, in_flight, endpoint, &parts).await {
        Ok(_) => not_allowed("POST, DELETE", "this endpoint offers no stream by GET"),
        Err(refused) => *refused,
    }
}

async fn end(
    api: Api,
    in_flight: InFlight,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, _) = request.into_parts();
    let scene = enter(api, in_flight, endpoint, &parts).await?;
    let version = parts.headers.get(headers::PROTOCOL_VERSION);
    if version.is_some_and(|version| version.as_bytes() == eras::MODERN.as_str().as_bytes()) {
        return Ok(not_allowed("POST", "this protocol version has no sessions"));
    }
    Ok(match legacy::end(&scene, &parts.headers) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(Refusal::Fault(fault)) => fault.into_response(),
        Err(Refusal::Error(error)) => scene.refuse(&error),
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
    in_flight: InFlight,
    endpoint: Endpoint,
    parts: &Parts,
) -> Result<Scene, Refused> {
    let refuse = |error: &Error, challenge| {
        Box::new(metadata::refuse(error, challenge, &api.node, endpoint))
    };
    let token = caller::bearer(parts).map_err(|error| refuse(&error, Challenge::NoToken))?;
    let caller = app::identity::authenticate(&api.ctx, token, Via::Gateway)
        .await
        .map_err(|error| refuse(&error, Challenge::InvalidToken))?;
    caller
        .require_scope(Scope::McpCall)
        .map_err(|error| refuse(&error, Challenge::InsufficientScope))?;
    let sources = sources(parts).map_err(|error| refuse(&error, Challenge::InvalidToken))?;
    Ok(Scene {
        api,
        caller: Arc::new(caller),
        endpoint,
        sources,
        era: Era::Legacy,
        in_flight,
        mcp_session: None,
        resumed: None,
    })
}

/// What `?sources=` names; `INVALID_INPUT` for forms that this version does not have.
fn sources(parts: &Parts) -> Result<Option<Arc<[String]>>, Error> {
    let refused = |words: &str| Err(Error::new(Code::InvalidInput, words));
    let mut sources: Option<Vec<String>> = None;
    for (name, value) in
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
    {
        match (&*name, &*value) {
            ("prefix", "on") => {}
            ("prefix", _) => return refused("prefix=off is not offered by this version"),
            ("sources", list) => {
                let named = list.split(',').map(str::trim).filter(|one| !one.is_empty());
                sources.get_or_insert_default().extend(named.map(str::to_owned));
            }
            _ => {}
        }
    }
    if sources.as_ref().is_some_and(Vec::is_empty) {
        return refused("sources must name at least one server");
    }
    Ok(sources.map(Arc::from))
}
