//! OAuth protected resource metadata (RFC 9728): each endpoint has a document of its own, and a 401
//! names it.

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::Response,
    routing::get,
};
use domain::{Error, Scope, ids::SessionId};
use serde_json::{Value, json};

use crate::{Api, NodeSettings, http::id::Id, paths, problem, problem::Problem};

/// One MCP endpoint: of a session that its path names, or of the caller's default session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Endpoint(pub Option<SessionId>);

impl Endpoint {
    fn path(self) -> String {
        match self.0 {
            None => paths::GATEWAY.to_owned(),
            Some(session) => paths::GATEWAY_SESSION.replace("{session}", &session.to_string()),
        }
    }
}

/// Why a caller is turned away, as RFC 6750 (section 3.1) names it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Challenge {
    NoToken,
    InvalidToken,
    InsufficientScope,
}

pub(super) fn routes() -> Router<Api> {
    let of = |endpoint: &str| format!("{}{endpoint}", paths::RESOURCE_METADATA);
    Router::new()
        .route(paths::RESOURCE_METADATA, get(of_origin))
        .route(&of(paths::GATEWAY), get(of_default))
        .route(&of(paths::GATEWAY_SESSION), get(of_session))
}

async fn of_origin(State(api): State<Api>) -> Json<Value> {
    Json(document(&base(&api.node)))
}

async fn of_default(State(api): State<Api>) -> Result<Json<Value>, Problem> {
    of(&api, Endpoint(None)).await
}

async fn of_session(
    State(api): State<Api>,
    Id(session): Id<SessionId>,
) -> Result<Json<Value>, Problem> {
    of(&api, Endpoint(Some(session))).await
}

/// With `authorization_servers` where the endpoint takes tokens of the company's issuer. Our own tokens
/// are made in this service, not by one.
async fn of(api: &Api, endpoint: Endpoint) -> Result<Json<Value>, Problem> {
    let mut document = document(&address(&api.node, endpoint));
    if let Some(issuer) = app::company::gateway_issuer(&api.ctx, endpoint.0).await? {
        document["authorization_servers"] = json!([issuer]);
    }
    Ok(Json(document))
}

fn document(resource: &str) -> Value {
    json!({
        "resource": resource,
        "resource_name": "Bailiwick",
        "bearer_methods_supported": ["header"],
        "scopes_supported": [Scope::McpCall.as_str()],
    })
}

/// What a token has to be for at this endpoint: its address, as its document says it.
pub(super) fn address(node: &NodeSettings, endpoint: Endpoint) -> String {
    base(node) + &endpoint.path()
}

/// Our address without a slash at its end.
fn base(node: &NodeSettings) -> String {
    node.public_url.as_str().trim_end_matches('/').to_owned()
}

/// The answer to a caller who may not come in; it says where to read on.
pub(super) fn refuse(
    error: &Error,
    challenge: Challenge,
    node: &NodeSettings,
    endpoint: Endpoint,
) -> Response {
    let mut response = problem::render(error, problem::status(error.code));
    let said = match (response.status(), challenge) {
        (StatusCode::UNAUTHORIZED, Challenge::InvalidToken) => {
            "error=\"invalid_token\", ".to_owned()
        }
        (StatusCode::UNAUTHORIZED, _) => String::new(),
        (StatusCode::FORBIDDEN, Challenge::InsufficientScope) => {
            format!("error=\"insufficient_scope\", scope=\"{}\", ", Scope::McpCall.as_str())
        }
        _ => return response,
    };
    let document = format!("{}{}{}", base(node), paths::RESOURCE_METADATA, endpoint.path());
    let value = format!("Bearer {said}resource_metadata=\"{document}\"");
    if let Ok(value) = HeaderValue::from_str(&value) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}
