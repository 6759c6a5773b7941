//! A client of one server: its present session, and requests in it.

use std::{
    borrow::Cow,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use domain::{Code, Error, limits};
use http::{HeaderValue, StatusCode};
use rmcp::model::{ErrorCode, ProtocolVersion};
use secrecy::ExposeSecret;
use serde_json::value::RawValue;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    About, Answer, Call, CallFailure, Reach, Relay, Resume, Rpc, Target, What,
    channel::{self, Channel, Fault, Link, Means, Trail},
    deadline::{Deadline, Entered, UnderWay},
    handshake::{self, Session},
    line::{Abandoned, Line},
    params,
    rounds::{Finished, finished},
    standing::Standing,
    wire::{self, Message, RpcError},
};
use crate::{
    http::{Failure, Ran},
    stdio::silent,
    words,
};

/// Shared, or the holder of an own session. A shared one ends its session when the last user drops
/// it; an own session outlives its client, unless it is [closed](Client::close).
#[derive(Debug)]
pub(super) struct Client {
    pub(super) channel: Channel,
    tasks: TaskTracker,
    /// The stream of the server's own messages, of a shared client.
    pub(super) standing: Standing,
    own: bool,
    /// In an own session.
    pub(super) under_way: UnderWay,
    session: RwLock<Arc<Session>>,
    /// Held by the one caller that begins a lost session anew.
    renewing: tokio::sync::Mutex<()>,
    /// Of no more use; the pool replaces it.
    dead: AtomicBool,
    /// Its session ends with it.
    ends: AtomicBool,
    pub(super) left: CancellationToken,
}

/// A result, and the session that it came in.
struct Got {
    session: Arc<Session>,
    result: Bytes,
}

/// What is sent, in whichever session.
struct Asking<'a> {
    cap: u64,
    relay: Option<&'a Relay>,
    trail: &'a Trail,
}

impl Client {
    /// Reaches the server and comes to terms with it, within [`limits::INITIALIZE_TIMEOUT_MS`], or
    /// [`limits::STDIO_START_MS`] for a program that has to be started.
    pub(super) async fn connect(
        means: &Means,
        target: &Target,
        trail: &Trail,
    ) -> Result<Self, Error> {
        let newest = || handshake::OFFERED[0].clone();
        let work = async {
            let channel = Channel::open(means, target).await?;
            match &target.reach {
                Reach::Http { .. } | Reach::Own { .. } => {
                    Ok((handshake::connect(&channel, trail).await?, channel))
                }
                // That transport is older than the newer era.
                Reach::Sse { .. } => {
                    Ok((handshake::initialize(&channel, newest(), None, trail).await?, channel))
                }
                Reach::Stdio(_) => match handshake::connect(&channel, trail).await {
                    // Some programs give up over a request that they do not know.
                    Err(_) if channel.is_broken() => {
                        let channel = Channel::open(means, target).await?;
                        let begun = handshake::initialize(&channel, newest(), None, trail);
                        Ok((begun.await?, channel))
                    }
                    outcome => Ok((outcome?, channel)),
                },
            }
        };
        let (session, channel) = Box::pin(begun_in_time(target, work, trail)).await?;
        Ok(Self::new(means, channel, session, false))
    }

    /// Begins an own session.
    pub(super) async fn open(
        means: &Means,
        target: &Target,
        capabilities: &RawValue,
        version: &str,
        trail: &Trail,
    ) -> Result<Self, Error> {
        let work = async {
            let channel = Channel::open(means, target).await?;
            Ok((handshake::open(&channel, capabilities, version, trail).await?, channel))
        };
        let (session, channel) = begun_in_time(target, work, trail).await?;
        Ok(Self::new(means, channel, session, true))
    }

    /// Goes on with an own session that was begun elsewhere; nothing is sent.
    pub(super) async fn resume(
        means: &Means,
        target: &Target,
        resume: &Resume,
    ) -> Result<Self, Error> {
        if !matches!(target.reach, Reach::Http { .. } | Reach::Own { .. }) {
            return Err(channel::session_lost());
        }
        let version = ProtocolVersion::KNOWN_VERSIONS
            .iter()
            .find(|known| known.as_str() == resume.version)
            .ok_or_else(channel::session_lost)?;
        let id = resume.session_id.as_ref().map(|id| HeaderValue::from_str(id.expose_secret()));
        let link = Link {
            endpoint: None,
            version: Some(version.clone()),
            session: id.transpose().map_err(|_| channel::session_lost())?,
        };
        let session = handshake::resume(link, version)?;
        Ok(Self::new(means, Channel::open(means, target).await?, session, true))
    }

    fn new(means: &Means, channel: Channel, session: Session, own: bool) -> Self {
        Self {
            channel,
            tasks: means.tasks.clone(),
            standing: Standing::default(),
            own,
            under_way: UnderWay::default(),
            session: RwLock::new(Arc::new(session)),
            renewing: tokio::sync::Mutex::new(()),
            dead: AtomicBool::new(false),
            ends: AtomicBool::new(!own),
            left: CancellationToken::new(),
        }
    }

    pub(super) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its channel and present session, for what outlives a borrow.
    pub(super) fn line(&self, session: &Arc<Session>) -> Line {
        let (channel, tasks) = (self.channel.clone(), self.tasks.clone());
        Line { channel, tasks, session: Arc::clone(session) }
    }

    pub(super) fn is_own(&self) -> bool {
        self.own
    }

    /// Whether the next one who needs it needs another: also a shared one whose program gives way to
    /// another's, in which what is under way goes on.
    pub(super) fn is_dead(&self) -> bool {
        let gives_way = !self.own && self.channel.must_go();
        self.dead.load(Ordering::Relaxed) || self.channel.is_broken() || gives_way
    }

    /// It leaves the pool: who listens to it hears no more.
    pub(super) fn leave(&self) {
        self.standing.end();
        self.left.cancel();
    }

    /// The same, and its session ends when the last user drops it, whoever began it.
    pub(super) fn leave_for_good(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.leave();
    }

    /// Ends its session now.
    pub(super) async fn close(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.ends.store(false, Ordering::Relaxed);
        self.leave();
        let session = self.session();
        let told = self.channel.end_session(&session.link);
        if tokio::time::timeout(limits::FAREWELL_TIMEOUT_MS.millis(), told).await.is_err() {
            tracing::debug!("a server does not answer the end of its session");
        }
    }

    pub(super) fn about(&self) -> Result<About, Error> {
        let session = self.session();
        session.about.clone().ok_or_else(|| {
            Error::internal("what a server said of itself when another process began the session")
        })
    }

    /// How another process can go on with the session.
    pub(super) fn to_resume(&self) -> Option<Resume> {
        let session = self.session();
        let id = session.link.session.as_ref().map(|id| id.to_str().map(Into::into));
        // What is no text can be sent back by this process alone.
        let session_id = id.transpose().ok()?;
        matches!(self.channel, Channel::Http(_))
            .then(|| Resume { session_id, version: session.version.to_string() })
    }

    /// Has questions of the server during a call stop its clock. What is asked on a pipe, or on the
    /// stream of an own session, may be about any call in it.
    pub(super) fn clock(&self, call: &mut Call, deadline: &Deadline) -> Option<Entered> {
        let piped = matches!(self.channel, Channel::Duplex(_));
        call.relay = call.relay.take().map(|relay| {
            if self.own && piped { relay.of_session(&self.under_way) } else { relay.of(deadline) }
        });
        self.own.then(|| self.under_way.enter(deadline))
    }

    /// Sends a call. What the server proved not to have looked at, because it lost the session, is
    /// sent once more in a new one, unless the session was somebody's own; nothing else is sent twice
    /// but for what the server asks again: with its `requestState` and no question (2026-07-28,
    /// basic/patterns/mrtr), which is ours to do where the caller cannot be asked anything.
    pub(super) async fn call(&self, call: &Call, trail: &Trail) -> Result<Answer, CallFailure> {
        let unfit = |words: &str| {
            CallFailure::from(Failure::unknown(Error::new(Code::UpstreamFormat, words)))
        };
        let mut call = Cow::Borrowed(call);
        for _ in 0..limits::INPUT_ROUNDS.default {
            let build = |session: &Session| {
                params::message(self.channel.next_id(), &call, session.sender.as_ref())
            };
            let asking =
                Asking { cap: cap(call.response_limit), relay: call.relay.as_ref(), trail };
            let Got { session, result } = self.ask(build, &asking).await?;
            let input_required = match finished(&session, &call, &result).map_err(unfit)? {
                Finished::Complete => false,
                Finished::Asks => true,
                Finished::Again(state) => {
                    call.to_mut().come_back(state);
                    continue;
                }
            };
            let upstream_requests = trail.requests.load(Ordering::Relaxed);
            return Ok(Answer { raw: result, upstream_requests, input_required });
        }
        Err(unfit("the server asked for input again and again, and gave no answer"))
    }

    /// One request of ours.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Option<Arc<RawValue>>,
        cap: u64,
        trail: &Trail,
    ) -> Result<Bytes, Error> {
        let call = Call::plain(What::Request { method, params, input: None });
        let build = |session: &Session| {
            params::message(self.channel.next_id(), &call, session.sender.as_ref())
        };
        let outcome = self.ask(build, &Asking { cap, relay: None, trail }).await;
        outcome.map(|got| got.result).map_err(|CallFailure { error, rpc, .. }| match rpc {
            None => error,
            Some(rpc) => Error::new(Code::UpstreamFormat, format!("the server refused {method}"))
                .with_untrusted(rpc.message),
        })
    }

    async fn ask(
        &self,
        build: impl Fn(&Session) -> Result<Message, Error>,
        Asking { cap, relay, trail }: &Asking<'_>,
    ) -> Result<Got, CallFailure> {
        let mut session = self.session();
        if session.suspect.load(Ordering::Relaxed) {
            session = self.settle(&session, trail).await.map_err(CallFailure::not_run)?;
        }
        let mut renewed = false;
        loop {
            let message = build(&session).map_err(CallFailure::not_run)?;
            trail.sent.store(true, Ordering::Relaxed);
            let outcome = {
                let mut abandoned = Abandoned::arm(&self.line(&session), message.id);
                let sent = self.channel.request(&session.link, &message, *cap, trail, *relay);
                let outcome = sent.await;
                abandoned.disarm();
                outcome
            };
            let fault = match outcome {
                Ok(answered) => return Ok(Got { session, result: answered.result }),
                Err(fault) => fault,
            };
            match fault {
                Fault::Lost if !renewed => {
                    trail.sent.store(false, Ordering::Relaxed);
                    session = self.renew(&session, trail).await.map_err(CallFailure::not_run)?;
                    renewed = true;
                }
                Fault::Lost => return Err(CallFailure::not_run(lost_again())),
                Fault::Rpc { error, .. } => {
                    self.doubt(&session, &error);
                    return Err(refused(error));
                }
                Fault::Failed { status, failure } => {
                    if status.is_some_and(|status| !handshake::is_about_neither(status)) {
                        suspect(&session);
                    }
                    return Err(failure.into());
                }
            }
        }
    }

    /// Replaces a lost session; callers that lost the same one wait for the one that does it. An own
    /// session is never replaced: what its holder did in it would be gone without a word.
    async fn renew(&self, lost: &Arc<Session>, trail: &Trail) -> Result<Arc<Session>, Error> {
        if self.own {
            self.dead.store(true, Ordering::Relaxed);
            return Err(channel::session_lost());
        }
        let _one = self.renewing.lock().await;
        let present = self.session();
        if !Arc::ptr_eq(&present, lost) {
            return Ok(present);
        }
        let begun = handshake::initialize(&self.channel, lost.version.clone(), None, trail);
        let session = Arc::new(in_time(begun, trail).await.inspect_err(|_| {
            // It may be another server by now: the next call finds out from the beginning.
            self.dead.store(true, Ordering::Relaxed);
        })?);
        *self.session.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&session);
        Ok(session)
    }

    /// A session that may be lost is tried with a ping: that is answered in any living session.
    async fn settle(&self, doubted: &Arc<Session>, trail: &Trail) -> Result<Arc<Session>, Error> {
        let ping = wire::message(Some(self.channel.next_id()), "ping", None::<()>)?;
        let sent = self.channel.request(&doubted.link, &ping, cap(0), trail, None);
        let answer = match in_time(async { Ok(sent.await) }, trail).await {
            Err(_) if !self.own => return self.renew(doubted, trail).await,
            answer => answer?,
        };
        match answer {
            Err(Fault::Lost) => self.renew(doubted, trail).await,
            Err(Fault::Rpc { status, error }) if refuses_session(status, &error) => {
                self.renew(doubted, trail).await
            }
            Err(Fault::Failed { status: Some(status), .. })
                if !handshake::is_about_neither(status) =>
            {
                self.renew(doubted, trail).await
            }
            Err(Fault::Failed { failure, .. }) => Err(failure.error),
            Ok(_) | Err(Fault::Rpc { .. }) => {
                doubted.suspect.store(false, Ordering::Relaxed);
                Ok(Arc::clone(doubted))
            }
        }
    }

    /// Some servers refuse an unknown session with a status or an error of their own instead of 404.
    /// That proves nothing, so nothing is sent again; but the next call does not rely on the session.
    fn doubt(&self, session: &Session, error: &RpcError) {
        if error.code == i64::from(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0) && !self.own {
            self.dead.store(true, Ordering::Relaxed);
        }
        if is_servers_own(error) {
            suspect(session);
        }
    }
}

fn suspect(session: &Session) {
    if session.link.session.is_some() {
        session.suspect.store(true, Ordering::Relaxed);
    }
}

/// JSON-RPC 2.0, section 5.1: left to each server.
fn is_servers_own(error: &RpcError) -> bool {
    (-32_099..=-32_000).contains(&error.code)
}

/// The answer to a ping in a session that is no more.
fn refuses_session(status: StatusCode, error: &RpcError) -> bool {
    status == StatusCode::BAD_REQUEST || is_servers_own(error)
}

impl Drop for Client {
    fn drop(&mut self) {
        self.standing.end();
        if self.ends.load(Ordering::Relaxed) {
            let (channel, session) = (self.channel.clone(), self.session());
            if session.link.session.is_some() || matches!(channel, Channel::Duplex(_)) {
                channel::farewell(
                    &self.tasks,
                    async move { channel.end_session(&session.link).await },
                );
            }
        }
    }
}

impl Call {
    /// A request without anything besides.
    pub(super) fn plain(what: What) -> Self {
        Self {
            what,
            response_limit: 0,
            trace: None,
            relay: None,
            capabilities: None,
            progress: false,
            log_level: None,
            meta: None,
            pinned: None,
        }
    }
}

fn refused(error: RpcError) -> CallFailure {
    let rpc = Rpc {
        code: error.code,
        message: words::untrusted(&error.message),
        data: error.data.clone().filter(|data| data.get().len() <= limits::ERROR_DATA_BYTES.size()),
    };
    let error = error.into_error(Code::ToolError, "the server refused the call");
    CallFailure { error, ran: Ran::Unknown, rpc: Some(rpc) }
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

/// How long the beginning may take.
async fn begun_in_time<T>(
    target: &Target,
    work: impl Future<Output = Result<T, Error>>,
    trail: &Trail,
) -> Result<T, Error> {
    if !matches!(target.reach, Reach::Stdio(_)) {
        return in_time(work, trail).await;
    }
    tokio::time::timeout(limits::STDIO_START_MS.millis(), work)
        .await
        .unwrap_or_else(|_| Err(silent()))
}

async fn in_time<T>(
    work: impl Future<Output = Result<T, Error>>,
    trail: &Trail,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        outcome = work => outcome,
        () = trail.silence(limits::INITIALIZE_TIMEOUT_MS.millis()) => {
            Err(Error::new(Code::Timeout, "the server did not answer while we connected"))
        }
    }
}
