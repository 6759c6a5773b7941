//! What a server says while it is asked: progress, log messages, questions of its own.

use domain::limits;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

/// The end of a caller's channel that the server speaks into. Bounded: a full one drops
/// notifications, and lets requests wait.
#[derive(Debug, Clone)]
pub struct Relay(mpsc::Sender<FromServer>);

/// One message of the server. Its words are a peer's: untrusted.
#[derive(Debug)]
pub enum FromServer {
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// `elicitation/create`, `sampling/createMessage`, `roots/list` or what it made up. `ping` is
    /// answered here and never comes. Servers of 2026-07-28 send none.
    Request {
        method: String,
        params: Option<Box<RawValue>>,
        /// Dropped: the server is told that we do not offer it (-32601). Closed
        /// ([`oneshot::Sender::closed`]): nobody waits any more, because the server took the request
        /// back or the call is over.
        reply: oneshot::Sender<Reply>,
    },
}

/// The answer to a request of the server.
#[derive(Debug)]
pub enum Reply {
    /// JSON of `result`.
    Result(Box<RawValue>),
    /// JSON of `error`: an object with `code` and `message`.
    Error(Box<RawValue>),
}

impl Relay {
    /// A relay and the end to read, which holds [`limits::RELAY_MESSAGES`].
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<FromServer>) {
        let (sender, receiver) = mpsc::channel(limits::RELAY_MESSAGES.size());
        (Self(sender), receiver)
    }

    /// Passes a notification on, or drops it where nobody takes it or too many wait.
    pub(super) fn notify(&self, method: String, params: Option<Box<RawValue>>) {
        if self.0.try_send(FromServer::Notification { method, params }).is_err() {
            tracing::debug!("a notification of a server was dropped");
        }
    }

    /// Passes anything on: a notification as above, a request when there is room.
    pub(super) async fn pass(&self, message: FromServer) {
        match message {
            FromServer::Notification { method, params } => self.notify(method, params),
            // Nobody there: dropped, and so refused.
            request @ FromServer::Request { .. } => drop(self.0.send(request).await),
        }
    }

    /// Somebody still reads.
    pub(super) fn is_heard(&self) -> bool {
        !self.0.is_closed()
    }

    /// Until nobody reads any more.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Asks the caller; `None`: refused, or nobody there. Dropping the future takes the question back.
    pub(super) async fn ask(&self, method: String, params: Option<Box<RawValue>>) -> Option<Reply> {
        let (reply, answered) = oneshot::channel();
        self.0.send(FromServer::Request { method, params, reply }).await.ok()?;
        answered.await.ok()
    }
}
