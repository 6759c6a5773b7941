//! Asking a server for its challenge, without a credential.

use std::sync::atomic::AtomicU32;

use bytes::Bytes;
use domain::limits;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use url::Url;

use super::{Challenge, OAuthFailure, wire::Wire};
use crate::{
    egress::Destination,
    http::{Failure, Origin, drain, status_failure},
    mcp::{METHOD, PROTOCOL_VERSION, SESSION_ID},
};

const NEWER: &str = "2026-07-28";
const OLDER: &str = "2025-11-25";

/// What a server says to a request without a credential.
enum Said {
    Challenge(Challenge),
    /// Let in; the session that this may have begun.
    Open(Option<HeaderValue>),
    /// Refused, and not for want of a credential.
    Refused,
}

/// The challenge of the server's answer to `initialize`; else to `tools/list`, since some let everybody begin; else of
/// its refusal to open a stream, where it takes no POST (HTTP+SSE). Some challenge POST alone. `None`: it does not
/// challenge.
pub(super) async fn challenge(
    wire: &Wire,
    server: &Url,
) -> Result<Option<Challenge>, OAuthFailure> {
    let origin = wire.origin(server, &Destination::Configured)?;
    let asking = async {
        let (began, session) = match look(&origin, server, &Method::POST, posted(), hello()).await?
        {
            Said::Challenge(challenge) => return Ok(Some(challenge)),
            Said::Open(session) => (true, session),
            Said::Refused => (false, None),
        };
        let (headers, body) = list(began, session.as_ref());
        // It may fail over a session that was begun by halves: that is no word on credentials.
        let listed = look(&origin, server, &Method::POST, headers, body).await;
        end(&origin, server, session).await;
        if let Ok(Said::Challenge(challenge)) = listed {
            return Ok(Some(challenge));
        }
        let stream = HeaderValue::from_static("text/event-stream");
        let headers = HeaderMap::from_iter([(header::ACCEPT, stream)]);
        Ok::<_, Failure>(match look(&origin, server, &Method::GET, headers, Bytes::new()).await? {
            Said::Challenge(challenge) => Some(challenge),
            Said::Open(_) | Said::Refused => None,
        })
    };
    match tokio::time::timeout(limits::OAUTH_REQUEST_MS.millis(), asking).await {
        Ok(found) => Ok(found?),
        Err(_) => Err(OAuthFailure::late()),
    }
}

fn hello() -> Bytes {
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": OLDER, "capabilities": {}, "clientInfo": ourselves(),
    }});
    Bytes::from(hello.to_string())
}

/// In the session that was begun, else as a server of the newer era is asked.
fn list(began: bool, session: Option<&HeaderValue>) -> (HeaderMap, Bytes) {
    let mut headers = posted();
    let mut message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    if began {
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(OLDER));
        headers.extend(session.map(|session| (SESSION_ID, session.clone())));
    } else {
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(NEWER));
        headers.insert(METHOD, HeaderValue::from_static("tools/list"));
        message["params"] = json!({ "_meta": {
            "io.modelcontextprotocol/protocolVersion": NEWER,
            "io.modelcontextprotocol/clientInfo": ourselves(),
            "io.modelcontextprotocol/clientCapabilities": {},
        }});
    }
    (headers, Bytes::from(message.to_string()))
}

fn ourselves() -> Value {
    json!({"name": "bailiwick", "version": env!("CARGO_PKG_VERSION")})
}

fn posted() -> HeaderMap {
    let both = HeaderValue::from_static("application/json, text/event-stream");
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(header::ACCEPT, both), (header::CONTENT_TYPE, json)])
}

async fn look(
    origin: &Origin,
    server: &Url,
    method: &Method,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Said, Failure> {
    let reply = origin.send(method, server, &headers, &body, &AtomicU32::new(0)).await?;
    let status = reply.response.status();
    let answer_headers = reply.response.headers().clone();
    if status.is_client_error() {
        drain(reply.response).await;
        return Ok(Challenge::of(&answer_headers).map_or(Said::Refused, Said::Challenge));
    }
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        return Err(status_failure(status, &answer_headers, &[]));
    }
    // A stream is not read.
    drop(reply);
    Ok(Said::Open(answer_headers.get(SESSION_ID).cloned()))
}

/// Best effort: the server forgets it by itself.
async fn end(origin: &Origin, server: &Url, session: Option<HeaderValue>) {
    let Some(session) = session else { return };
    let headers = HeaderMap::from_iter([(SESSION_ID, session)]);
    let nothing = Bytes::new();
    let ending = origin.send_once(&Method::DELETE, server, &headers, &nothing);
    drop(tokio::time::timeout(limits::FAREWELL_TIMEOUT_MS.millis(), ending).await);
}
