//! A client of one server: its present session, and calls in it.

use std::{
    borrow::Cow,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use domain::{Code, Error, limits};
use http::StatusCode;
use rmcp::model::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use tokio_util::task::TaskTracker;

use super::{
    CallFailure, Target, ToolCall,
    exchange::{Answered, Fault, Trail, Upstream},
    handshake::{self, Session},
    mirror,
    wire::{self, Message, RpcError},
};
use crate::{
    http::{Failure, GuardedHttp, Ran},
    words,
};

/// Ends its session when the last user drops it.
#[derive(Debug)]
pub(super) struct Client {
    upstream: Arc<Upstream>,
    session: RwLock<Arc<Session>>,
    /// Held by the one caller that begins a lost session anew.
    renewing: tokio::sync::Mutex<()>,
    /// Of no more use; the pool replaces it.
    dead: AtomicBool,
}

impl Client {
    /// Reaches the server and comes to terms with it, within [`limits::INITIALIZE_TIMEOUT_MS`].
    pub(super) async fn connect(
        http: &GuardedHttp,
        target: &Target,
        tasks: TaskTracker,
        trail: &Trail,
    ) -> Result<Self, Error> {
        let upstream = Arc::new(Upstream::new(http, target, tasks)?);
        let session = in_time(handshake::connect(&upstream, trail)).await?;
        Ok(Self {
            upstream,
            session: RwLock::new(Arc::new(session)),
            renewing: tokio::sync::Mutex::new(()),
            dead: AtomicBool::new(false),
        })
    }

    pub(super) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Calls a tool. A call that the server proved not to have looked at, because it lost the
    /// session, is sent once more in a new one; nothing else is sent twice.
    pub(super) async fn call(&self, call: &ToolCall, trail: &Trail) -> Result<Bytes, CallFailure> {
        let mut session = self.session();
        if session.suspect.load(Ordering::Relaxed) {
            session = self.renew(&session, trail).await.map_err(CallFailure::not_run)?;
        }
        let mut renewed = false;
        loop {
            let message = self.call_message(&session, call).map_err(CallFailure::not_run)?;
            trail.sent.store(true, Ordering::Relaxed);
            let outcome = {
                let mut abandoned = Abandoned::arm(&self.upstream, &session, message.id);
                let cap = cap(call.response_limit);
                let outcome = self.upstream.request(&session.link, &message, cap, trail).await;
                abandoned.disarm();
                outcome
            };
            let fault = match outcome {
                Ok(Answered { result, .. }) => return complete(&session, result),
                Err(fault) => fault,
            };
            match fault {
                Fault::Lost if !renewed => {
                    trail.sent.store(false, Ordering::Relaxed);
                    session = self.renew(&session, trail).await.map_err(CallFailure::not_run)?;
                    renewed = true;
                }
                Fault::Lost => return Err(CallFailure::not_run(lost_again())),
                Fault::Rpc { status, error } => {
                    self.doubt(&session, status, &error);
                    return Err(refused(error));
                }
                Fault::Failed { status, failure } => {
                    if status == Some(StatusCode::BAD_REQUEST) && session.link.session.is_some() {
                        session.suspect.store(true, Ordering::Relaxed);
                    }
                    return Err(failure.into());
                }
            }
        }
    }

    /// One request other than a call, with the same care for lost sessions.
    pub(super) async fn request(
        &self,
        method: &'static str,
        mut params: Map<String, Value>,
        cap: u64,
        trail: &Trail,
    ) -> Result<Bytes, Error> {
        let mut session = self.session();
        let mut renewed = false;
        loop {
            if !session.meta.is_empty() {
                params.insert("_meta".to_owned(), Value::Object(session.meta.clone()));
            }
            let message = wire::message(Some(self.upstream.next_id()), method, Some(&params))?;
            match self.upstream.request(&session.link, &message, cap, trail).await {
                Ok(Answered { result, .. }) => return Ok(result),
                Err(Fault::Lost) if !renewed => {
                    session = self.renew(&session, trail).await?;
                    renewed = true;
                }
                Err(Fault::Lost) => return Err(lost_again()),
                Err(Fault::Rpc { error, .. }) => {
                    let words = format!("the server refused {method}");
                    return Err(error.into_error(Code::UpstreamFormat, &words));
                }
                Err(Fault::Failed { failure, .. }) => return Err(failure.error),
            }
        }
    }

    fn call_message(&self, session: &Session, call: &ToolCall) -> Result<Message, Error> {
        #[derive(Serialize)]
        struct Params<'a> {
            name: &'a str,
            arguments: &'a RawValue,
            #[serde(rename = "_meta", skip_serializing_if = "Map::is_empty")]
            meta: Cow<'a, Map<String, Value>>,
        }
        let mut meta = Cow::Borrowed(&session.meta);
        if let Some(trace) = &call.trace {
            meta.to_mut().insert("traceparent".to_owned(), json!(trace));
        }
        let params = Params { name: &call.name, arguments: &call.arguments, meta };
        let mut message = wire::message(Some(self.upstream.next_id()), "tools/call", Some(params))?;
        if !session.version.has_initialize() {
            let schema = call.input_schema.as_deref();
            mirror::add(&mut message.headers, &call.name, schema, &call.arguments);
        }
        Ok(message)
    }

    /// Replaces a lost session; callers that lost the same one wait for the one that does it.
    async fn renew(&self, lost: &Arc<Session>, trail: &Trail) -> Result<Arc<Session>, Error> {
        let _one = self.renewing.lock().await;
        let present = self.session();
        if !Arc::ptr_eq(&present, lost) {
            return Ok(present);
        }
        let begun = handshake::initialize(&self.upstream, lost.version.clone(), trail);
        let session = Arc::new(in_time(begun).await.inspect_err(|_| {
            // It may be another server by now: the next call finds out from the beginning.
            self.dead.store(true, Ordering::Relaxed);
        })?);
        *self.session.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&session);
        Ok(session)
    }

    /// Some servers refuse an unknown session with 400 and an error of their own instead of 404.
    /// That proves nothing, so nothing is sent again; but the next call does not rely on the session.
    fn doubt(&self, session: &Session, status: StatusCode, error: &RpcError) {
        if error.code == i64::from(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0) {
            self.dead.store(true, Ordering::Relaxed);
        }
        let own_code = (-32_099..=-32_000).contains(&error.code);
        if status == StatusCode::BAD_REQUEST && own_code && session.link.session.is_some() {
            session.suspect.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let session = self.session();
        if session.link.session.is_some() {
            let upstream = Arc::clone(&self.upstream);
            self.upstream.farewell(async move { upstream.end_session(&session.link).await });
        }
    }
}

/// Tells the server that nobody waits for a request any more, if dropped before its end: the caller
/// cancelled, its deadline passed, or it was dropped itself. In the newer era closing the
/// connection says it.
struct Abandoned<'a> {
    upstream: &'a Arc<Upstream>,
    session: &'a Arc<Session>,
    request: Option<u64>,
}

impl<'a> Abandoned<'a> {
    fn arm(upstream: &'a Arc<Upstream>, session: &'a Arc<Session>, request: Option<u64>) -> Self {
        let older = session.version.has_initialize();
        Self { upstream, session, request: request.filter(|_| older) }
    }

    fn disarm(&mut self) {
        self.request = None;
    }
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Some(id) = self.request else { return };
        let params = json!({ "requestId": id, "reason": "nobody waits for it any more" });
        let Ok(message) = wire::message(None, "notifications/cancelled", Some(params)) else {
            return;
        };
        let (upstream, session) = (Arc::clone(self.upstream), Arc::clone(self.session));
        self.upstream.farewell(async move {
            upstream.notify(&session.link, &message, &Trail::default()).await
        });
    }
}

/// Checks of a result no more than the protocol needs: that it is an object, and finished.
fn complete(session: &Session, result: Bytes) -> Result<Bytes, CallFailure> {
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(borrow, default, rename = "resultType")]
        result_type: Option<Cow<'a, str>>,
    }
    let unfit = |words: &str| {
        Err(CallFailure::from(Failure::unknown(Error::new(Code::UpstreamFormat, words))))
    };
    let peek = match result.first() {
        Some(b'{') => serde_json::from_slice::<Peek<'_>>(&result).ok(),
        _ => None,
    };
    let older = session.version.has_initialize();
    match peek.as_ref().map(|peek| peek.result_type.as_deref()) {
        Some(Some("input_required")) => unfit("the server asked for input that was not offered"),
        Some(None | Some("complete")) => Ok(result),
        Some(Some(_)) if older => Ok(result),
        Some(Some(_)) => unfit("the server answered with a kind of result that was not asked for"),
        None => unfit("the server's result is not an object"),
    }
}

fn refused(error: RpcError) -> CallFailure {
    let rpc = Some((error.code, words::untrusted(&error.message)));
    let error = error.into_error(Code::ToolError, "the server refused the call");
    CallFailure { error, ran: Ran::Unknown, rpc }
}

fn lost_again() -> Error {
    Error::new(Code::UpstreamUnavailable, "the server lost the session as soon as it had begun")
}

fn cap(response_limit: u64) -> u64 {
    limits::BODY_CAP_FACTOR
        .default
        .saturating_mul(response_limit)
        .max(limits::BODY_CAP_FLOOR_BYTES.default)
}

async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(limits::INITIALIZE_TIMEOUT_MS.millis(), work).await.unwrap_or_else(|_| {
        Err(Error::new(Code::Timeout, "the server did not answer while we connected"))
    })
}

impl CallFailure {
    pub(super) fn not_run(error: Error) -> Self {
        Self { error, ran: Ran::No, rpc: None }
    }
}

impl From<Failure> for CallFailure {
    fn from(Failure { error, ran }: Failure) -> Self {
        Self { error, ran, rpc: None }
    }
}
