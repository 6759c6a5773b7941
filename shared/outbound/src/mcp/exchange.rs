//! One message to a server and what comes back, over HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use domain::{Code, Error, limits};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use rmcp::model::{ErrorCode, ProtocolVersion};
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use url::Url;
use uuid::Uuid;

use super::{
    Relay, Reply, Target,
    changes::Hints,
    channel::{self, Answered, Fault, Link, Means, Trail},
    door::Door,
    wire::{self, Message, Outcome, RpcError},
};
use crate::{
    egress::Destination,
    http::{Body, Failure, drain, status_failure},
    words,
};

mod questions;
mod standing;
mod stream;

use stream::Conversation;

/// A server as far as it does not depend on a session.
#[derive(Debug)]
pub(super) struct Upstream {
    door: Door,
    url: Url,
    headers: HeaderMap,
    next_id: AtomicU64,
    /// One for each answer that the server may owe us its attention for.
    answers: Arc<Semaphore>,
    tasks: TaskTracker,
    hints: Hints,
}

impl Upstream {
    pub(super) fn new(
        means: &Means,
        target: &Target,
        url: &Url,
        destination: Destination,
        headers: &[(HeaderName, SecretString)],
    ) -> Result<Self, Error> {
        Ok(Self {
            door: Door::new(
                means.http.open(url, destination)?,
                target.authority.clone(),
                target.secrets(),
            ),
            url: url.clone(),
            headers: shared_headers(headers)?,
            next_id: AtomicU64::new(first_id(target)),
            answers: Arc::new(Semaphore::new(limits::SERVER_REQUESTS.size())),
            tasks: means.tasks.clone(),
            hints: means.hints.clone(),
        })
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and waits for its result; nothing is ever sent twice here.
    pub(super) async fn request(
        self: &Arc<Self>,
        link: &Link,
        message: &Message,
        cap: u64,
        trail: &Trail,
        relay: Option<&Relay>,
    ) -> Result<Answered, Fault> {
        let id = message.id.ok_or_else(|| Error::internal("a request without an id"))?;
        let reply = self.post(link, message, trail).await?;
        let (endpoint, response) = (reply.url, reply.response);
        let status = response.status();
        if status == StatusCode::NOT_FOUND && link.session.is_some() {
            let unknown_method = i64::from(ErrorCode::METHOD_NOT_FOUND.0);
            return Err(match wire::refusal(&error_body(response).await) {
                Some(error) if error.code == unknown_method => self.refused(status, error),
                _ => Fault::Lost,
            });
        }
        if !status.is_success() {
            self.decline_session(link, response.headers());
            return Err(self.refusal(response).await);
        }
        let session = response.headers().get(wire::SESSION_ID).cloned();
        let result = match media_type(response.headers()) {
            "text/event-stream" => {
                let talk = Conversation::new(self, link, Some(id), relay);
                self.read_stream(talk, response, cap, trail).await?
            }
            // Some servers listen in lines instead; an answer that never ends is none.
            "application/json" if message.method == Some("subscriptions/listen") => {
                let talk = Conversation::new(self, link, Some(id), relay).in_lines();
                self.read_stream(talk, response, cap, trail).await?
            }
            "application/json" | "" if status != StatusCode::ACCEPTED => {
                let body = Body::new(response, cap).read().await.map_err(Fault::from)?;
                let mut talk = Conversation::new(self, link, Some(id), relay);
                match talk.hear(&body)? {
                    Some(Outcome::Result(result)) => result,
                    Some(Outcome::Error(error)) => return Err(self.refused(status, error)),
                    None => {
                        return Err(
                            unfit("the server answered something else than was asked").into()
                        );
                    }
                }
            }
            "" => return Err(unfit("the server took the request and answered nothing").into()),
            _ => return Err(unfit("the server answered neither JSON nor an event stream").into()),
        };
        Ok(Answered { result, session, endpoint: Some(endpoint) })
    }

    /// Sends a notification; any 2xx is success.
    pub(super) async fn notify(
        &self,
        link: &Link,
        message: &Message,
        trail: &Trail,
    ) -> Result<(), Failure> {
        let response = self.post(link, message, trail).await?.response;
        let status = response.status();
        if status.is_success() {
            drain(response).await;
            return Ok(());
        }
        let headers = response.headers().clone();
        drop(error_body(response).await);
        // Nobody is shown what the server says to a notification.
        Err(status_failure(status, &headers, &[]))
    }

    /// Ends a session (DELETE); servers that do not offer it answer 405.
    pub(super) async fn end_session(&self, link: &Link) -> Result<(), Failure> {
        let headers = self.addressed(link);
        let (trail, none) = (Trail::default(), Bytes::new());
        let reply =
            Box::pin(self.door.send(&Method::DELETE, self.at(link), &headers, &none, &trail))
                .await?;
        drain(reply.response).await;
        Ok(())
    }

    /// Some servers begin a session even for a message that they refuse, and keep it for ever.
    fn decline_session(self: &Arc<Self>, link: &Link, headers: &HeaderMap) {
        let given = headers.get(wire::SESSION_ID).filter(|_| link.session.is_none());
        let Some(session) = given.cloned() else { return };
        let upstream = Arc::clone(self);
        let link = Link { session: Some(session), version: None, ..link.clone() };
        self.farewell(async move { upstream.end_session(&link).await });
    }

    async fn post(
        &self,
        link: &Link,
        message: &Message,
        trail: &Trail,
    ) -> Result<crate::http::Reply, Failure> {
        let mut headers = self.addressed(link);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        if let (Some(version), Some(method)) = (&link.version, message.method)
            && *version >= ProtocolVersion::STANDARD_HEADERS
        {
            headers.insert(wire::METHOD, HeaderValue::from_static(method));
        }
        headers.extend(message.headers.clone());
        Box::pin(self.door.send(&Method::POST, self.at(link), &headers, &message.body, trail)).await
    }

    fn at<'a>(&'a self, link: &'a Link) -> &'a Url {
        link.endpoint.as_ref().unwrap_or(&self.url)
    }

    fn addressed(&self, link: &Link) -> HeaderMap {
        let mut headers = self.headers.clone();
        let version = link.version.as_ref().map(|version| HeaderValue::from_str(version.as_str()));
        if let Some(Ok(version)) = version {
            headers.insert(wire::PROTOCOL_VERSION, version);
        }
        if let Some(session) = &link.session {
            headers.insert(wire::SESSION_ID, session.clone());
        }
        headers
    }

    fn refused(&self, status: StatusCode, error: RpcError) -> Fault {
        Fault::Rpc { status, error: error.masked(&self.door.secrets()) }
    }

    /// What a status other than 2xx means: a JSON-RPC error where there is one, unless the status
    /// alone decides (credentials, rate limits, failures of the server).
    async fn refusal(&self, response: reqwest::Response) -> Fault {
        let status = response.status();
        let headers = response.headers().clone();
        let body = error_body(response).await;
        let decides = status.is_server_error()
            || matches!(
                status,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
            );
        let text = match wire::refusal(&body) {
            Some(error) if !decides => return self.refused(status, error),
            Some(error) => error.message,
            // A page is nobody's words.
            None if media_type(&headers) == "text/html" => String::new(),
            None => String::from_utf8_lossy(&body).into_owned(),
        };
        let text = words::masked(&text, &self.door.secrets());
        let failure = status_failure(status, &headers, text.as_bytes());
        Fault::Failed { status: Some(status), failure }
    }

    /// Answers a request of the server without keeping anybody waiting. A server that asks faster than
    /// it takes answers is left without.
    fn answer(self: &Arc<Self>, link: &Link, id: &RawValue, method: &str, reply: Option<&Reply>) {
        let Ok(permit) = Arc::clone(&self.answers).try_acquire_owned() else {
            tracing::debug!("a server asks too much: a request of it is left without an answer");
            return;
        };
        let (upstream, link) = (Arc::clone(self), link.clone());
        let message = wire::answer(id, method, reply);
        self.farewell(async move {
            let _permit = permit;
            upstream.notify(&link, &message, &Trail::default()).await
        });
    }

    fn farewell(&self, work: impl Future<Output = Result<(), Failure>> + Send + 'static) {
        channel::farewell(&self.tasks, work);
    }
}

/// Where the ids of requests begin. A session that several processes use must not see one twice
/// (2025-11-25, basic): each begins at a random place, below what a JSON number holds exactly.
fn first_id(target: &Target) -> u64 {
    if target.key.session.is_none() {
        return 1;
    }
    1 + (Uuid::new_v4().as_u64_pair().0 >> 16)
}

/// Headers that would break the framing or the addressing of a request.
const NEVER_SHARED: [HeaderName; 7] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
];

pub(super) fn shared_headers(given: &[(HeaderName, SecretString)]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, secret) in given {
        if NEVER_SHARED.contains(name) {
            continue;
        }
        let mut value = HeaderValue::from_str(secret.expose_secret()).map_err(|_| {
            let words = format!("the value of the header {name} cannot stand in a header");
            Error::new(Code::ServerMisconfigured, words)
        })?;
        value.set_sensitive(true);
        headers.append(name.clone(), value);
    }
    Ok(headers)
}

/// As much of an error's body as is of interest.
pub(super) async fn error_body(response: reqwest::Response) -> Bytes {
    Body::new(response, limits::ERROR_BODY_BYTES.default).read().await.unwrap_or_default()
}

/// How long to wait before a stream is resumed; a server cannot make us spin.
fn pause(asked: Option<Duration>) -> Duration {
    let usual = limits::STREAM_RETRY_MS.millis();
    asked.unwrap_or(usual).clamp(usual / 10, Duration::from_millis(limits::STREAM_RETRY_MS.ceiling))
}

/// Essence of the content type, lower case; empty where there is none.
pub(super) fn media_type(headers: &HeaderMap) -> &'static str {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return "" };
    let essence = given.to_str().unwrap_or("?").split(';').next().unwrap_or_default().trim();
    ["application/json", "text/event-stream", "text/html"]
        .into_iter()
        .find(|known| essence.eq_ignore_ascii_case(known))
        .unwrap_or("other")
}

fn unavailable(words: &str) -> Failure {
    Failure::unknown(Error::new(Code::UpstreamUnavailable, words))
}

fn unfit(words: &str) -> Failure {
    Failure::unknown(Error::new(Code::UpstreamFormat, words))
}
