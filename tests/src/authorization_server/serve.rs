//! Routes, metadata, registration.

use std::{collections::HashMap, sync::Arc};

use axum::{
    body::Body,
    extract::{ConnectInfo, State as Shared},
};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{Asked, Registered, State, WORDS, authorize, knobs::patch, lock, token};
use crate::{peer::listener::Cut, stops::Moment};

pub(super) async fn handle(
    Shared(state): Shared<Arc<State>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_form = kind.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    let mut asked = Asked {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: pairs(parts.uri.query().unwrap_or_default()),
        headers: parts.headers,
        form: if is_form { pairs(&body) } else { HashMap::new() },
        body,
        status: 0,
    };
    // Noted before it is answered: a test may look while a slow answer is under way.
    let place = {
        let mut journal = lock(&state.journal);
        journal.push(asked.clone());
        journal.len() - 1
    };
    let name = name(&state, &asked);
    state.stops.pass(name, Moment::Received).await;
    let Some(response) = route(&state, &asked).await else {
        cut.cut();
        return page(500, "never seen");
    };
    state.stops.pass(name, Moment::Done).await;
    asked.status = response.status().as_u16();
    if let Some(noted) = lock(&state.journal).get_mut(place) {
        noted.status = asked.status;
    }
    response
}

/// What a test may hold it by.
fn name(state: &State, asked: &Asked) -> &'static str {
    if asked.path.contains("/.well-known/") {
        return "metadata";
    }
    match asked.path.strip_prefix(state.path.as_str()) {
        Some("/register") => "register",
        Some("/revoke") => "revoke",
        Some("/token") if asked.field("grant_type") == "refresh_token" => "refresh_token",
        Some("/token") => "authorization_code",
        _ => "other",
    }
}

/// `None`: the connection is cut.
async fn route(state: &State, asked: &Asked) -> Option<Response<Body>> {
    if asked.path.contains("/.well-known/") {
        return Some(metadata(state, &asked.path));
    }
    let Some(path) = asked.path.strip_prefix(state.path.as_str()) else {
        return Some(page(404, "nothing here"));
    };
    Some(match (&asked.method, path) {
        (&Method::GET, "/authorize") => authorize::authorize(state, &asked.query),
        (&Method::POST, "/token") => return token::token(state, asked).await,
        (&Method::POST, "/revoke") => {
            tokio::time::sleep(state.knobs().revoke_delay).await;
            token::revoke(state, asked)
        }
        (&Method::POST, "/register") => register(state, &asked.body),
        _ => page(404, "nothing here"),
    })
}

/// RFC 8414 with its path inserted, OpenID with its path inserted or appended.
fn metadata(state: &State, path: &str) -> Response<Body> {
    let knobs = state.knobs();
    if let Some(status) = knobs.metadata_status {
        return page(status, WORDS);
    }
    let issuer_path = &state.path;
    let oauth = format!("/.well-known/oauth-authorization-server{issuer_path}");
    let inserted = format!("/.well-known/openid-configuration{issuer_path}");
    let appended = format!("{issuer_path}/.well-known/openid-configuration");
    let shown = path == oauth && !knobs.hide_oauth_metadata
        || (path == inserted || path == appended) && !knobs.hide_oidc_metadata;
    if !shown {
        return page(404, "nothing here");
    }
    let issuer = state.issuer();
    let mut document = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "revocation_endpoint": format!("{issuer}/revoke"),
        "scopes_supported": ["mcp:read", "mcp:write", "mcp:admin", "offline_access"],
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "authorization_response_iss_parameter_supported": true,
    });
    if knobs.dcr {
        document["registration_endpoint"] = json!(format!("{issuer}/register"));
    }
    if knobs.cimd {
        document["client_id_metadata_document_supported"] = json!(true);
    }
    patch(&mut document, &knobs.patch_metadata);
    answer(200, &document)
}

fn register(state: &State, body: &str) -> Response<Body> {
    let knobs = state.knobs();
    if !knobs.dcr {
        return error(403, "access_denied");
    }
    let asked: Value = serde_json::from_str(body).unwrap_or_default();
    let redirect_uris: Vec<String> = asked["redirect_uris"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|uri| uri.as_str().map(str::to_owned))
        .collect();
    if redirect_uris.is_empty() {
        return error(400, "invalid_redirect_uri");
    }
    let method = asked["token_endpoint_auth_method"].as_str().unwrap_or("client_secret_basic");
    let id = format!("client-{}", state.number());
    let secret = (method != "none").then(|| state.secret("client-secret"));
    // Of the scope nothing is said, as many do.
    let mut registered = json!({
        "client_id": id,
        "redirect_uris": redirect_uris,
        "token_endpoint_auth_method": method,
        "grant_types": asked["grant_types"],
        "response_types": ["code"],
    });
    if let Some(secret) = &secret {
        registered["client_secret"] = json!(secret);
        registered["client_secret_expires_at"] = json!(0);
    }
    patch(&mut registered, &knobs.patch_registration);
    let client = Registered {
        secret: registered["client_secret"].as_str().map(str::to_owned),
        method: registered["token_endpoint_auth_method"].as_str().unwrap_or(method).to_owned(),
        redirect_uris,
        scope: asked["scope"].as_str().map(str::to_owned),
    };
    lock(&state.kept).clients.insert(id, client);
    answer(201, &registered)
}

pub(super) fn pairs(text: &str) -> HashMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

pub(super) fn answer(status: u16, body: &Value) -> Response<Body> {
    respond(status, "application/json", body.to_string())
}

pub(super) fn error(status: u16, code: &str) -> Response<Body> {
    answer(status, &json!({"error": code, "error_description": WORDS}))
}

pub(super) fn page(status: u16, words: &str) -> Response<Body> {
    respond(status, "text/html", format!("<h1>{words}</h1>"))
}

pub(super) fn respond(status: u16, kind: &str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_str(kind).unwrap());
    response
}
