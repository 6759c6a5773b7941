//! What token endpoints really answer, made into what RFC 6749 says (section 5).
//!
//! `oauth2` reads the canonical form; every liberty that providers take is dealt with here, once.

use domain::limits;
use http::{StatusCode, header};
use oauth2::HttpResponse;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::{
    Denial, OAuthFailure,
    grant::response,
    wire::{Answered, unavailable},
};

/// Types of tokens that need a proof with each request, which we cannot give (IANA, OAuth Access Token Types). Any other
/// word, or none, is a provider's name for a bearer token: Slack writes `user`. A token of these must not be used by
/// who does not understand its type (RFC 6749, section 7.1).
const BOUND_TYPES: [&str; 4] = ["dpop", "pop", "mac", "n_a"];

/// The answer as JSON: 200 with tokens, or 400 with an error's code. Providers' words are left out.
pub(super) fn canonical(answered: &Answered) -> Result<HttpResponse, OAuthFailure> {
    if let Some(failure) = unavailable(answered) {
        return Err(OAuthFailure::unavailable(failure));
    }
    let members = members(answered);
    if let Some(error) = members.as_ref().and_then(error_of) {
        if matches!(error.as_str(), "server_error" | "temporarily_unavailable") {
            return Err(OAuthFailure::busy(&error));
        }
        let body = json!({"error": error}).to_string().into_bytes();
        return Ok(response(StatusCode::BAD_REQUEST, body));
    }
    if !answered.status.is_success() {
        // No code: a firewall, a proxy, a page. It says nothing about grant or client.
        return Err(OAuthFailure::Refused(Denial::Other));
    }
    let members = members.ok_or(OAuthFailure::Malformed("it is neither JSON nor a form"))?;
    let body = json!(tokens(members)?).to_string().into_bytes();
    Ok(response(StatusCode::OK, body))
}

/// JSON, or a form (GitHub without `Accept`, older providers). `None` where it is neither.
fn members(answered: &Answered) -> Option<Map<String, Value>> {
    if let Ok(Value::Object(members)) = serde_json::from_slice(&answered.body) {
        return Some(members);
    }
    let kind = answered.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let form = kind.starts_with("application/x-www-form-urlencoded")
        || (kind.is_empty() || kind.starts_with("text/plain"))
            && [&b"access_token="[..], b"error="]
                .iter()
                .any(|start| answered.body.starts_with(start));
    let pairs = form_urlencoded::parse(&answered.body);
    form.then(|| pairs.map(|(name, value)| (name.into_owned(), json!(value))).collect())
}

/// The code of an error, whatever the status. An `ok: false` (Slack) without one is an error too.
fn error_of(members: &Map<String, Value>) -> Option<String> {
    match members.get("error") {
        None | Some(Value::Null) => {}
        Some(Value::String(code)) if code.is_empty() => {}
        Some(Value::String(code)) => return Some(code.clone()),
        // Some wrap it: {"error": {"code": …}}.
        Some(other) => {
            let code = other.get("code").and_then(Value::as_str).unwrap_or("other");
            return Some(code.to_owned());
        }
    }
    (members.get("ok") == Some(&Value::Bool(false))).then(|| "other".to_owned())
}

fn tokens(mut members: Map<String, Value>) -> Result<Map<String, Value>, OAuthFailure> {
    let has_token =
        |members: &Map<String, Value>| members.get("access_token").is_some_and(Value::is_string);
    if !has_token(&members) {
        // Slack's tokens for a person stand one level deeper.
        match members.remove("authed_user") {
            Some(Value::Object(inner)) if has_token(&inner) => members = inner,
            _ => return Err(OAuthFailure::Malformed("it holds no access token")),
        }
    }
    if let Some(kind) = members.get("token_type").and_then(Value::as_str)
        && BOUND_TYPES.iter().any(|bound| kind.eq_ignore_ascii_case(bound))
    {
        return Err(OAuthFailure::Malformed("its token needs a proof that we cannot give"));
    }
    let mut canonical = Map::new();
    canonical.insert("token_type".to_owned(), json!("bearer"));
    canonical.extend(members.remove_entry("access_token"));
    let refresh = members.remove("refresh_token");
    if let Some(refresh) = refresh.filter(|one| one.as_str().is_some_and(|text| !text.is_empty())) {
        canonical.insert("refresh_token".to_owned(), refresh);
    }
    // OpenID Connect Core, section 3.1.3.3.
    let id_token = members.remove("id_token");
    if let Some(id_token) = id_token.filter(Value::is_string) {
        canonical.insert("id_token".to_owned(), id_token);
    }
    if let Some(seconds) = members.get("expires_in").and_then(seconds) {
        canonical.insert("expires_in".to_owned(), json!(seconds));
    }
    if let Some(scopes) = members.get("scope").and_then(scopes) {
        canonical.insert("scope".to_owned(), json!(scopes));
    }
    Ok(canonical)
}

/// Number or numeric string, whole or not; nothing where it is not positive.
fn seconds(value: &Value) -> Option<u64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse::<f64>().ok()?,
        _ => return None,
    };
    let most = limits::OAUTH_TOKEN_LIFE_SECONDS.default;
    // `parse` takes some words for numbers ("inf", "nan").
    if !number.is_finite() || number < 1.0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 1 and ten years"
    )]
    Some(number.min(most as f64) as u64)
}

/// Separated by spaces (RFC 6749), by commas (Slack, GitHub), or a list. `None` where it is empty: as was asked.
fn scopes(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        _ => return None,
    };
    let names = text.split(|char: char| char == ',' || char.is_ascii_whitespace());
    let names: Vec<&str> =
        names.filter(|name| !name.is_empty()).take(limits::OAUTH_SCOPES.size()).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

#[cfg(test)]
mod tests;
