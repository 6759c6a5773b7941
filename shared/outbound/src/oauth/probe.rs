//! Asking a server for its challenge, without a credential.

use std::sync::atomic::AtomicU32;

use bytes::Bytes;
use domain::limits;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::json;
use url::Url;

use super::{Challenge, OAuthFailure, wire::Wire};
use crate::{
    egress::Destination,
    http::{Failure, Origin, drain, status_failure},
};

/// The challenge of the server's answer to `initialize`, or of its refusal to open a stream, where it takes no POST
/// (HTTP+SSE). Some challenge POST alone. `None`: it does not challenge.
pub(super) async fn challenge(
    wire: &Wire,
    server: &Url,
) -> Result<Option<Challenge>, OAuthFailure> {
    let origin = wire.origin(server, &Destination::Configured)?;
    let asking = async {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "bailiwick", "version": env!("CARGO_PKG_VERSION")},
        }});
        let both = HeaderValue::from_static("application/json, text/event-stream");
        let json = HeaderValue::from_static("application/json");
        let headers = [(header::ACCEPT, both), (header::CONTENT_TYPE, json)];
        let body = Bytes::from(hello.to_string());
        let found = look(&origin, server, &Method::POST, headers.into_iter().collect(), body);
        if let Some(challenge) = found.await? {
            return Ok(Some(challenge));
        }
        let stream = HeaderValue::from_static("text/event-stream");
        let headers = HeaderMap::from_iter([(header::ACCEPT, stream)]);
        look(&origin, server, &Method::GET, headers, Bytes::new()).await
    };
    match tokio::time::timeout(limits::OAUTH_REQUEST_MS.millis(), asking).await {
        Ok(found) => Ok(found?),
        Err(_) => Err(OAuthFailure::late()),
    }
}

async fn look(
    origin: &Origin,
    server: &Url,
    method: &Method,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Option<Challenge>, Failure> {
    let reply = origin.send(method, server, &headers, &body, &AtomicU32::new(0)).await?;
    let status = reply.response.status();
    let answer_headers = reply.response.headers().clone();
    if status.is_client_error() {
        drain(reply.response).await;
        return Ok(Challenge::of(&answer_headers));
    }
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        return Err(status_failure(status, &answer_headers, &[]));
    }
    // It lets anybody in: the session that it may have begun is ended, and a stream is not read.
    drop(reply);
    let session = answer_headers.get("mcp-session-id").filter(|_| *method == Method::POST);
    if let Some(session) = session {
        let headers = HeaderMap::from_iter([(
            header::HeaderName::from_static("mcp-session-id"),
            session.clone(),
        )]);
        let nothing = Bytes::new();
        let ending = origin.send_once(&Method::DELETE, server, &headers, &nothing);
        // Best effort: the server forgets it by itself.
        drop(tokio::time::timeout(limits::FAREWELL_TIMEOUT_MS.millis(), ending).await);
    }
    Ok(None)
}
