//! Dynamic client registration (RFC 7591), by hand: rmcp's always asks for the method `none` and forgets what it was given.

use bytes::Bytes;
use http::{HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use url::{Host, Url};

use super::{
    AuthMethod, AuthorizationServer, Client, Denial, OAuthFailure, step,
    wire::{Wire, accept_json},
};

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    #[serde(default)]
    client_secret: Option<SecretString>,
    #[serde(default)]
    client_secret_expires_at: Option<Value>,
    #[serde(default)]
    token_endpoint_auth_method: Option<String>,
    #[serde(default)]
    redirect_uris: Option<Vec<String>>,
}

pub(super) async fn register(
    wire: &Wire,
    server: &AuthorizationServer,
    redirect_uri: &Url,
    client_name: &str,
    scopes: &[String],
) -> Result<Client, OAuthFailure> {
    let endpoint =
        server.registration_endpoint.as_ref().ok_or(OAuthFailure::at(step::REGISTRATION))?;
    let asked = wanted(server);
    let mut body = json!({
        "client_name": client_name,
        "application_type": if is_loopback(redirect_uri) { "native" } else { "web" },
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": asked.name(),
    });
    if !scopes.is_empty() {
        body["scope"] = json!(scopes.join(" "));
    }
    let mut headers = accept_json();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = Bytes::from(body.to_string());
    let answered = wire.post(endpoint, &server.destination(), &headers, body).await?;
    if !answered.status.is_success() {
        let error: Option<Value> = serde_json::from_slice(&answered.body).ok();
        let error = error.as_ref().and_then(|body| body.get("error")?.as_str());
        return Err(OAuthFailure::Refused(error.map_or(Denial::Other, Denial::named)));
    }
    let registered = serde_json::from_slice(&answered.body)
        .map_err(|_| OAuthFailure::Malformed("it is no registration"))?;
    client(server, redirect_uri, registered)
}

/// A secret where the server takes one in a way that we know: we are able to keep it.
fn wanted(server: &AuthorizationServer) -> AuthMethod {
    let listed = &server.token_endpoint_auth_methods_supported;
    let known: Vec<AuthMethod> = listed.iter().filter_map(|name| AuthMethod::named(name)).collect();
    let secret = known.iter().copied().find(|method| method.needs_secret());
    // Nothing listed means `client_secret_basic`.
    let default = if listed.is_empty() { AuthMethod::Basic } else { AuthMethod::None };
    secret.or(known.first().copied()).unwrap_or(default)
}

fn client(
    server: &AuthorizationServer,
    redirect_uri: &Url,
    registered: Registered,
) -> Result<Client, OAuthFailure> {
    let Registered { client_id, client_secret, redirect_uris, .. } = registered;
    let client_secret = client_secret.filter(|secret| !secret.expose_secret().is_empty());
    if client_id.is_empty() {
        return Err(OAuthFailure::Malformed("it registered no client id"));
    }
    if redirect_uris.is_some_and(|uris| !uris.iter().any(|uri| uri == redirect_uri.as_str())) {
        return Err(OAuthFailure::Malformed("it registered another callback"));
    }
    let auth_method = match registered.token_endpoint_auth_method.as_deref() {
        Some(name) => AuthMethod::named(name)
            .ok_or(OAuthFailure::Malformed("it registered a way to sign in that we do not know"))?,
        None => server.auth_method(client_secret.is_some()),
    };
    if auth_method.needs_secret() && client_secret.is_none() {
        return Err(OAuthFailure::Malformed("it registered a client without its secret"));
    }
    let expires_at = match &registered.client_secret_expires_at {
        Some(Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_i64(),
        None => None,
    };
    Ok(Client {
        client_id,
        client_secret: client_secret.filter(|_| auth_method.needs_secret()),
        auth_method,
        // Zero: never (RFC 7591, section 3.2.1).
        expires_at_epoch: expires_at.filter(|seconds: &i64| *seconds > 0),
    })
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}
