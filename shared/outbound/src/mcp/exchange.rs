//! One message to a server and what comes back, over HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use domain::{Code, Error, limits};
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use rmcp::model::ProtocolVersion;
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;
use url::Url;

use super::{
    Target,
    sse::Parser,
    wire::{self, Incoming, Message, RpcError},
};
use crate::{
    egress::Destination,
    http::{Body, Failure, GuardedHttp, Origin, Ran, drain, status_failure},
    words,
};

/// A server as far as it does not depend on a session.
#[derive(Debug)]
pub(super) struct Upstream {
    origin: Origin,
    pub(super) url: Url,
    headers: HeaderMap,
    /// The values of these; they must not come back to others in the server's words.
    secrets: Vec<SecretString>,
    next_id: AtomicU64,
    /// What is told to servers without anybody waiting for it.
    pub(super) tasks: TaskTracker,
}

/// What one message is addressed with: where, in which version, in which session.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) endpoint: Url,
    pub(super) version: Option<ProtocolVersion>,
    pub(super) session: Option<HeaderValue>,
}

/// What was done for one call so far.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// HTTP requests.
    pub(super) requests: AtomicU32,
    /// The call itself may have reached the server.
    pub(super) sent: AtomicBool,
}

/// A result, and what its HTTP response told besides.
#[derive(Debug)]
pub(super) struct Answered {
    /// The JSON of `result`.
    pub(super) result: Bytes,
    pub(super) session: Option<HeaderValue>,
    /// Where the server answered, after redirects within its origin.
    pub(super) endpoint: Url,
}

/// No result.
#[derive(Debug)]
pub(super) enum Fault {
    /// 404 for the session id: the server did not look at the message.
    Lost,
    /// The server refused in protocol.
    Rpc {
        status: StatusCode,
        error: RpcError,
    },
    Failed {
        status: Option<StatusCode>,
        failure: Failure,
    },
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Failed { status: None, failure }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Failure::not_run(error).into()
    }
}

impl Upstream {
    pub(super) fn new(
        http: &GuardedHttp,
        target: &Target,
        tasks: TaskTracker,
    ) -> Result<Self, Error> {
        Ok(Self {
            origin: http.open(&target.url, Destination::Configured)?,
            url: target.url.clone(),
            headers: shared_headers(target)?,
            secrets: target.headers.iter().map(|(_, secret)| secret.clone()).collect(),
            next_id: AtomicU64::new(1),
            tasks,
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
    ) -> Result<Answered, Fault> {
        let id = message.id.ok_or_else(|| Error::internal("a request without an id"))?;
        let reply = self.post(link, message, trail).await?;
        let (endpoint, response) = (reply.url, reply.response);
        let status = response.status();
        if status == StatusCode::NOT_FOUND && link.session.is_some() {
            drain(response).await;
            return Err(Fault::Lost);
        }
        if !status.is_success() {
            self.decline_session(link, response.headers());
            return Err(self.refusal(response).await);
        }
        let session = response.headers().get(wire::SESSION_ID).cloned();
        let result = match media_type(response.headers()) {
            "text/event-stream" => self.read_stream(link, id, response, cap, trail).await?,
            "application/json" | "" if status != StatusCode::ACCEPTED => {
                let body = Body::new(response, cap).read().await.map_err(Fault::from)?;
                match wire::incoming(&body, id)? {
                    Incoming::Result(result) => result,
                    Incoming::Error(error) => return Err(self.refused(status, error)),
                    _ => {
                        return Err(
                            unfit("the server answered something else than was asked").into()
                        );
                    }
                }
            }
            "" => return Err(unfit("the server took the request and answered nothing").into()),
            _ => return Err(unfit("the server answered neither JSON nor an event stream").into()),
        };
        Ok(Answered { result, session, endpoint })
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
        let (sent, none) = (AtomicU32::new(0), Bytes::new());
        let reply =
            self.origin.send(&Method::DELETE, &link.endpoint, &headers, &none, &sent).await?;
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
        let Trail { requests, .. } = trail;
        self.origin.send(&Method::POST, &link.endpoint, &headers, &message.body, requests).await
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

    /// Reads events until one answers request `id`. A stream that breaks is resumed where the server
    /// gave its events ids; the request is never posted again.
    async fn read_stream(
        self: &Arc<Self>,
        link: &Link,
        id: u64,
        response: reqwest::Response,
        cap: u64,
        trail: &Trail,
    ) -> Result<Bytes, Fault> {
        let mut parser = Parser::default();
        let mut body = Body::new(response, cap);
        let (mut resumes, mut resumed_at) = (0, None);
        loop {
            let broken = loop {
                while let Some(event) = parser.next() {
                    if !matches!(event.kind.as_str(), "" | "message") {
                        continue;
                    }
                    match wire::incoming(&event.data, id)? {
                        Incoming::Result(result) => {
                            self.finish(body);
                            return Ok(result);
                        }
                        Incoming::Error(error) => {
                            self.finish(body);
                            return Err(self.refused(StatusCode::OK, error));
                        }
                        Incoming::Request { id, method } => self.answer(link, &id, &method),
                        Incoming::Other => {}
                    }
                }
                match body.chunk().await {
                    Ok(Some(chunk)) => parser.feed(&chunk),
                    Ok(None) => break unavailable("the server ended the stream without an answer"),
                    Err(failure) if failure.error.code == Code::UpstreamUnavailable => {
                        break failure;
                    }
                    Err(failure) => return Err(failure.into()),
                }
            };
            let Some(last) = parser.last_event_id.clone() else { return Err(broken.into()) };
            // A server may close and let us poll, as long as it gets on.
            resumes = if resumed_at.as_ref() == Some(&last) { resumes + 1 } else { 1 };
            if resumes > limits::STREAM_RESUMES.default {
                return Err(broken.into());
            }
            tokio::time::sleep(pause(parser.retry)).await;
            resumed_at = Some(last.clone());
            parser = parser.restart();
            body = Body::new(self.resume(link, &last, trail).await?, body.left());
        }
    }

    /// Reads a stream to its end, which comes right after the answer: only then its connection can
    /// be used again.
    fn finish(&self, mut body: Body) {
        let rest = async move {
            while body.chunk().await?.is_some() {}
            Ok(())
        };
        let mut rest = Box::pin(rest);
        if rest.as_mut().now_or_never().is_none() {
            self.farewell(rest);
        }
    }

    async fn resume(
        &self,
        link: &Link,
        last_event_id: &str,
        trail: &Trail,
    ) -> Result<reqwest::Response, Failure> {
        let mut headers = self.addressed(link);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let last = HeaderValue::from_str(last_event_id)
            .map_err(|_| unfit("the server's event id cannot stand in a header"))?;
        headers.insert(wire::LAST_EVENT_ID, last);
        let (get, none) = (Method::GET, Bytes::new());
        let resumed =
            self.origin.send(&get, &link.endpoint, &headers, &none, &trail.requests).await;
        // Whatever stops us now, the request that we wait for was sent before.
        let response =
            resumed.map_err(|failure| Failure { ran: Ran::Unknown, ..failure })?.response;
        if response.status().is_success() && media_type(response.headers()) == "text/event-stream" {
            return Ok(response);
        }
        Err(unavailable("the server broke the stream and does not resume it"))
    }

    fn refused(&self, status: StatusCode, mut error: RpcError) -> Fault {
        error.message = words::masked(&error.message, &self.secrets);
        Fault::Rpc { status, error }
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
        let text = words::masked(&text, &self.secrets);
        let failure = status_failure(status, &headers, text.as_bytes());
        Fault::Failed { status: Some(status), failure }
    }

    /// Answers a request of the server without keeping the call waiting.
    fn answer(self: &Arc<Self>, link: &Link, id: &RawValue, method: &str) {
        let (upstream, link) = (Arc::clone(self), link.clone());
        let message = wire::reply(id, method);
        self.farewell(async move { upstream.notify(&link, &message, &Trail::default()).await });
    }

    /// Tells the server something that nobody waits for.
    pub(super) fn farewell(
        &self,
        work: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) {
        // Dropped outside a runtime (at the end of a process) there is nobody left to send it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let bounded = async move {
            match tokio::time::timeout(limits::FAREWELL_TIMEOUT_MS.millis(), work).await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => {
                    tracing::debug!(error = %failure.error, "not told to the server");
                }
                Err(_) => tracing::debug!("not told to the server: it does not answer"),
            }
        };
        self.tasks.spawn_on(bounded, &runtime);
    }
}

/// Headers that would break the framing or the addressing of a request.
const NEVER_SHARED: [header::HeaderName; 7] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
];

fn shared_headers(target: &Target) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, secret) in &target.headers {
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
async fn error_body(response: reqwest::Response) -> Bytes {
    Body::new(response, limits::ERROR_BODY_BYTES.default).read().await.unwrap_or_default()
}

/// How long to wait before a stream is resumed; a server cannot make us spin.
fn pause(asked: Option<Duration>) -> Duration {
    let usual = limits::STREAM_RETRY_MS.millis();
    asked.unwrap_or(usual).clamp(usual / 10, Duration::from_millis(limits::STREAM_RETRY_MS.ceiling))
}

/// Essence of the content type, lower case; empty where there is none.
fn media_type(headers: &HeaderMap) -> &'static str {
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
