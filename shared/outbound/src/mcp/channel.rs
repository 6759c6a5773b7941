//! The seam between a client and what carries its messages.
//!
//! A [`Client`](super::client::Client) knows sessions, eras and calls; a [`Channel`] knows how a
//! message gets to the server and its answer back. There are two kinds: [`Upstream`], where each
//! request is an HTTP request with a response of its own, and [`Duplex`], where everything goes
//! through one pipe (a child's stdio, the stream of 2024-11-05).
//!
//! # What is expected of a [`Duplex`]
//!
//! - [`Duplex::open`] starts the program or opens the stream (for HTTP+SSE it waits for `endpoint`,
//!   judged as `Learned` and of the same origin). No JSON-RPC yet; dropped midway it leaves nothing.
//! - [`Duplex::request`] sends `message` once and waits for the answer with its id, however many
//!   requests are under way. `cap` bounds the answer in bytes (`RESPONSE_TOO_LARGE`, and only this
//!   request fails). It adds 1 to `trail.requests`. `link` matters to HTTP only. Dropping the future
//!   forgets the request; telling the server (`notifications/cancelled`) is the client's business.
//! - While it runs, these go to `relay`: progress whose `progressToken` is `message.id`, and any
//!   notification whose `_meta["io.modelcontextprotocol/subscriptionId"]` is `message.id` (that is how
//!   `subscriptions/listen` works here: a request that runs for long). Other progress is dropped.
//! - A request of the server, and a notification that names no request: on a *shared* duplex requests
//!   are refused, and notifications go to every [`listen`](Duplex::listen)er (log messages, which may
//!   be about anybody, to the relay of the only request under way or to nobody). On an *own* one
//!   ([`ClientKey::session`](super::ClientKey::session)) both go to the relay of the youngest request
//!   that has one, else to the listener; requests that nobody takes are refused.
//! - `ping` is answered always; everything else that is refused gets -32601 ([`wire::answer`]). At
//!   most [`limits::SERVER_REQUESTS`] requests of a server wait at a time; more are refused at once.
//!   A `notifications/cancelled` of the server drops the question that it names.
//! - Each notification is told to [`Hints::heard`], whoever else gets it.
//! - When the pipe ends, every request under way fails with `UPSTREAM_UNAVAILABLE` (`Ran::Unknown`),
//!   [`is_broken`](Duplex::is_broken) is true, later requests fail with `Ran::No`, listeners end.
//! - Errors of the server are masked ([`words::masked`](crate::words::masked)) with the secrets of the
//!   target. [`Duplex::close`], or dropping it, ends child or stream, and returns when that is done.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
    time::Duration,
};

use bytes::Bytes;
use domain::{Code, Error, limits};
use http::{HeaderValue, StatusCode};
use rmcp::model::ProtocolVersion;
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::task::TaskTracker;
use url::Url;

use super::{
    PinnedTool, Reach, Relay, SharedAuthority, Target,
    changes::Hints,
    duplex::Duplex,
    exchange::Upstream,
    wire::{Message, RpcError},
};
use crate::{
    egress::Destination,
    http::{Failure, GuardedHttp},
    stdio::Stdio,
};

/// What carries the messages of one client. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Channel {
    Http(Arc<Upstream>),
    Duplex(Arc<Duplex>),
}

/// What a channel is made of beside its target.
#[derive(Debug, Clone)]
pub(super) struct Means {
    pub(super) http: GuardedHttp,
    pub(super) stdio: Stdio,
    /// What is told to servers without anybody waiting for it.
    pub(super) tasks: TaskTracker,
    pub(super) hints: Hints,
}

/// What one message is addressed with: where, in which version, in which session. HTTP only, but for
/// the version.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    /// `None`: the configured URL.
    pub(super) endpoint: Option<Url>,
    pub(super) version: Option<ProtocolVersion>,
    pub(super) session: Option<HeaderValue>,
}

impl Link {
    /// The eras with `initialize`: sessions, requests of the server on streams, streams that can be
    /// resumed.
    pub(super) fn has_sessions(&self) -> bool {
        self.version.as_ref().is_none_or(ProtocolVersion::has_initialize)
    }
}

/// What was done for one call so far.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// Requests that went out.
    pub(super) requests: AtomicU32,
    /// The call itself may have reached the server.
    pub(super) sent: AtomicBool,
    /// By whose right its requests leave. `None`: the client's own.
    pub(super) authority: Option<SharedAuthority>,
    /// What is called.
    pub(super) pinned: Option<PinnedTool>,
    /// An authority is asked: whatever that takes, the server is not silent meanwhile.
    pub(super) asks: watch::Sender<bool>,
}

impl Trail {
    /// Waits for what an authority says. Cancel-safe as the question is.
    pub(super) async fn asking<T>(&self, question: impl Future<Output = T>) -> T {
        struct Asked<'a>(&'a watch::Sender<bool>);
        impl Drop for Asked<'_> {
            fn drop(&mut self) {
                self.0.send_replace(false);
            }
        }
        self.asks.send_replace(true);
        let _asked = Asked(&self.asks);
        question.await
    }

    /// Ends when `patience` is over, not counting the time in which an authority was asked. Cancel-safe.
    pub(super) async fn silence(&self, patience: Duration) {
        let (mut asks, mut left) = (self.asks.subscribe(), patience);
        loop {
            // Its sender lives as long as we do.
            drop(asks.wait_for(|asks| !asks).await);
            let since = Instant::now();
            tokio::select! {
                Ok(()) = asks.changed() => left = left.saturating_sub(since.elapsed()),
                () = sleep(left) => return,
            }
        }
    }

    /// Of what somebody asked for.
    pub(super) fn of(target: &Target) -> Self {
        Self { authority: target.authority.clone(), ..Self::default() }
    }
}

/// A result, and what its HTTP response told besides.
#[derive(Debug)]
pub(super) struct Answered {
    /// The JSON of `result`.
    pub(super) result: Bytes,
    pub(super) session: Option<HeaderValue>,
    /// Where the server answered, after redirects within its origin. `None` but for HTTP.
    pub(super) endpoint: Option<Url>,
}

/// No result.
#[derive(Debug)]
pub(super) enum Fault {
    /// 404 for the session id, or a program of an own session that had to give way: the server did not
    /// look at the message.
    Lost,
    /// The server refused in protocol. `status` is 200 but for HTTP.
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

impl Channel {
    /// Makes what `target` asks for. HTTP does no network yet; a program is started.
    pub(super) async fn open(means: &Means, target: &Target) -> Result<Self, Error> {
        Ok(match &target.reach {
            Reach::Http { url, headers } => {
                let upstream = Upstream::new(means, target, url, Destination::Configured, headers)?;
                Self::Http(Arc::new(upstream))
            }
            Reach::Own { url } => {
                Self::Http(Arc::new(Upstream::new(means, target, url, Destination::Own, &[])?))
            }
            Reach::Sse { .. } | Reach::Stdio(_) => Self::Duplex(Duplex::open(means, target).await?),
        })
    }

    /// Sends a request and waits for its result; nothing is ever sent twice here.
    pub(super) async fn request(
        &self,
        link: &Link,
        message: &Message,
        cap: u64,
        trail: &Trail,
        relay: Option<&Relay>,
    ) -> Result<Answered, Fault> {
        match self {
            Self::Http(upstream) => upstream.request(link, message, cap, trail, relay).await,
            Self::Duplex(duplex) => duplex.request(link, message, cap, trail, relay).await,
        }
    }

    /// Sends a notification.
    pub(super) async fn notify(
        &self,
        link: &Link,
        message: &Message,
        trail: &Trail,
    ) -> Result<(), Failure> {
        match self {
            Self::Http(upstream) => upstream.notify(link, message, trail).await,
            Self::Duplex(duplex) => duplex.notify(message).await,
        }
    }

    /// Ends a session: DELETE, or the end of the pipe.
    pub(super) async fn end_session(&self, link: &Link) -> Result<(), Failure> {
        match self {
            Self::Http(upstream) if link.session.is_some() => upstream.end_session(link).await,
            Self::Http(_) => Ok(()),
            Self::Duplex(duplex) => {
                duplex.close().await;
                Ok(())
            }
        }
    }

    /// An id that no other request of this channel has.
    pub(super) fn next_id(&self) -> u64 {
        match self {
            Self::Http(upstream) => upstream.next_id(),
            Self::Duplex(duplex) => duplex.next_id(),
        }
    }

    /// Nothing can be sent any more.
    /// Whether no more requests begin here, though those under way go on.
    pub(super) fn must_go(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Duplex(duplex) => duplex.must_go(),
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Duplex(duplex) => duplex.is_broken(),
        }
    }
}

/// Tells the server something that nobody waits for, within [`limits::FAREWELL_TIMEOUT_MS`].
pub(super) fn farewell(
    tasks: &TaskTracker,
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
    tasks.spawn_on(bounded, &runtime);
}

/// The cap of a request whose answer only ends what comes before it; then no event of it may be larger
/// than [`limits::RESPONSE_BYTES`].
pub(super) const ENDLESS: u64 = u64::MAX;

pub(super) const SESSION_LOST: &str = "upstream_session_lost";
pub(super) const NOT_OFFERED: &str = "not_offered";

/// An own session that the server does not know any more.
pub(super) fn session_lost() -> Error {
    Error::not_found("MCP session").with_details(json!({ "reason": SESSION_LOST }))
}

pub(super) fn not_offered() -> Error {
    Error::new(Code::NotFound, "the server offers no stream of its own messages")
        .with_details(json!({ "reason": NOT_OFFERED }))
}

/// The mark of an error that callers must tell apart.
pub(super) fn reason(error: &Error) -> Option<&str> {
    error.details.as_ref()?.get("reason")?.as_str()
}
