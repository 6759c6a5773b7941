//! The token endpoint and revocation.

use axum::body::Body;
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use http::Response;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use url::form_urlencoded;

use super::{
    Access, Asked, Granted, Knobs, Refresh, Renewal, State,
    knobs::{Fault, patch},
    lock,
    serve::{answer, error, respond},
    words,
};

/// `None`: the connection is cut.
pub(super) async fn token(state: &State, asked: &Asked) -> Option<Response<Body>> {
    let fault = lock(&state.knobs).take_fault(asked.field("grant_type"));
    let knobs = state.knobs();
    let mut wait = knobs.token_delay;
    match &fault {
        Some(Fault::Answer { status, kind, body }) => {
            return Some(respond(*status, kind, body.clone()));
        }
        Some(Fault::CutBefore) => return None,
        Some(Fault::Late(by)) => wait += *by,
        _ => {}
    }
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    let given = give(state, &knobs, asked);
    Some(match (fault, given) {
        (Some(Fault::CutAfter), _) => return None,
        (_, Err((status, code))) => error(status, code),
        (Some(Fault::Patch(members)), Ok(mut body)) => {
            patch(&mut body, &members);
            answer(200, &body)
        }
        (_, Ok(body)) => answer(200, &body),
    })
}

type Refusal = (u16, &'static str);

fn give(state: &State, knobs: &Knobs, asked: &Asked) -> Result<Value, Refusal> {
    let client = authenticated(state, knobs, asked)?;
    let resource = asked.field("resource");
    let foreign =
        knobs.resources.as_ref().is_some_and(|known| !known.iter().any(|r| r == resource));
    if resource.is_empty() && knobs.require_resource || !resource.is_empty() && foreign {
        return Err((400, "invalid_target"));
    }
    let (granted, family) = match asked.field("grant_type") {
        "authorization_code" => redeem(state, asked, &client)?,
        "refresh_token" => return renew(state, knobs, asked, &client),
        _ => return Err((400, "unsupported_grant_type")),
    };
    Ok(issue(state, knobs, granted, family, true))
}

/// The client, by its own method and no other.
fn authenticated(state: &State, knobs: &Knobs, asked: &Asked) -> Result<String, Refusal> {
    let basic = asked.header("authorization").strip_prefix("Basic ").map(|encoded| {
        let decoded = BASE64_STANDARD.decode(encoded).unwrap_or_default();
        let decoded = String::from_utf8(decoded).unwrap_or_default();
        let (id, secret) = decoded.split_once(':').unwrap_or_default();
        (unescaped(id), unescaped(secret))
    });
    let (id, secret, method) = if let Some((id, secret)) = basic {
        (id, Some(secret), "client_secret_basic")
    } else {
        let secret = asked.form.get("client_secret").cloned();
        let method = if secret.is_some() { "client_secret_post" } else { "none" };
        (asked.field("client_id").to_owned(), secret, method)
    };
    let client = lock(&state.kept).clients.get(&id).cloned();
    let Some(client) = client else {
        let by_document = knobs.cimd && id.starts_with("https://") && method == "none";
        return if by_document { Ok(id) } else { Err((401, "invalid_client")) };
    };
    if client.method != method || client.secret.filter(|_| method != "none") != secret {
        return Err((401, "invalid_client"));
    }
    Ok(id)
}

/// RFC 6749, section 2.3.1: both halves are form-encoded.
fn unescaped(text: &str) -> String {
    let pair = format!("x={text}");
    let mut pairs = form_urlencoded::parse(pair.as_bytes());
    pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

fn redeem(state: &State, asked: &Asked, client: &str) -> Result<(Granted, usize), Refusal> {
    let mut kept = lock(&state.kept);
    let kept = &mut *kept;
    let code = kept.codes.get_mut(asked.field("code")).ok_or((400, "invalid_grant"))?;
    if code.used {
        kept.revoked.insert(code.family);
        return Err((400, "invalid_grant"));
    }
    let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(asked.field("code_verifier")));
    let fits = code.granted.client == client
        && code.redirect_uri == asked.field("redirect_uri")
        && code.challenge == digest;
    if !fits {
        return Err((400, "invalid_grant"));
    }
    if code.granted.audience != asked.field("resource") {
        return Err((400, "invalid_target"));
    }
    code.used = true;
    Ok((code.granted.clone(), code.family))
}

fn renew(state: &State, knobs: &Knobs, asked: &Asked, client: &str) -> Result<Value, Refusal> {
    let mut kept = lock(&state.kept);
    let inner = &mut *kept;
    let refresh =
        inner.refresh_tokens.get_mut(asked.field("refresh_token")).ok_or((400, "invalid_grant"))?;
    if refresh.used {
        // Whoever uses it a second time may have stolen it (RFC 9700, section 4.14).
        if inner.revoked.insert(refresh.family) {
            inner.reused += 1;
        }
        return Err((400, "invalid_grant"));
    }
    let gone = inner.revoked.contains(&refresh.family) || refresh.ends <= Instant::now();
    if gone || refresh.granted.client != client {
        return Err((400, "invalid_grant"));
    }
    if refresh.granted.audience != asked.field("resource") {
        return Err((400, "invalid_target"));
    }
    let mut granted = refresh.granted.clone();
    let narrower = words(asked.field("scope"));
    if narrower.iter().any(|scope| !granted.scopes.contains(scope)) {
        return Err((400, "invalid_scope"));
    }
    if !narrower.is_empty() {
        granted.scopes = narrower;
    }
    refresh.used = knobs.rotate;
    let family = refresh.family;
    let after = refresh.issued.elapsed();
    inner.renewals.push(Renewal { subject: granted.subject.clone(), after });
    drop(kept);
    Ok(issue(state, knobs, granted, family, knobs.rotate))
}

pub(super) fn issue(
    state: &State,
    knobs: &Knobs,
    granted: Granted,
    family: usize,
    refresh: bool,
) -> Value {
    let access_token = state.secret("access");
    let mut body = json!({
        "access_token": access_token,
        "token_type": "Bearer",
        "expires_in": knobs.access_ttl.as_secs(),
    });
    if knobs.names_scope {
        body["scope"] = json!(granted.scopes.join(" "));
    }
    if refresh && knobs.gives_refresh_tokens {
        let refresh_token = state.secret("refresh");
        body["refresh_token"] = json!(refresh_token);
        let issued = Instant::now();
        let ends = issued + knobs.refresh_ttl;
        let kept = Refresh { granted: granted.clone(), family, used: false, issued, ends };
        lock(&state.kept).refresh_tokens.insert(refresh_token, kept);
    }
    let ends = Instant::now() + knobs.access_ttl;
    lock(&state.kept).access_tokens.insert(access_token, Access { granted, family, ends });
    body
}

/// RFC 7009: the whole family, whichever token is named; an unknown one is no error.
pub(super) fn revoke(state: &State, asked: &Asked) -> Response<Body> {
    let client = match authenticated(state, &state.knobs(), asked) {
        Ok(client) => client,
        Err((status, code)) => return error(status, code),
    };
    let mut kept = lock(&state.kept);
    let token = asked.field("token");
    let of_refresh = kept.refresh_tokens.get(token).map(|one| (&one.granted.client, one.family));
    let of_access = kept.access_tokens.get(token).map(|one| (&one.granted.client, one.family));
    let family =
        of_refresh.or(of_access).filter(|(of, _)| **of == client).map(|(_, family)| family);
    kept.revoked.extend(family);
    respond(200, "text/plain", String::new())
}
