//! What a server says while it is asked: progress, log messages, questions of its own.

use domain::limits;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::deadline::{Clocks, Deadline, UnderWay};

/// The end of a caller's channel that the server speaks into. Bounded: a full one drops
/// notifications, and lets requests wait.
#[derive(Debug, Clone)]
pub struct Relay {
    said: mpsc::Sender<FromServer>,
    asking: Asking,
}

/// What waits while the caller is asked.
#[derive(Debug, Clone)]
enum Asking {
    Nothing,
    Request(Deadline),
    /// Nobody can tell which request of the session a question belongs to.
    Session(UnderWay),
}

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
        /// Of what waits for the answer: to be stopped while somebody is asked.
        clocks: Clocks,
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
        (Self { said: sender, asking: Asking::Nothing }, receiver)
    }

    /// The same for what is said in answer to one request.
    pub(super) fn of(self, deadline: &Deadline) -> Self {
        Self { asking: Asking::Request(deadline.clone()), ..self }
    }

    /// The same for what is said in an own session, whatever it is about.
    pub(super) fn of_session(self, under_way: &UnderWay) -> Self {
        Self { asking: Asking::Session(under_way.clone()), ..self }
    }

    fn clocks(&self) -> Clocks {
        match &self.asking {
            Asking::Nothing => Clocks::default(),
            Asking::Request(deadline) => Clocks::of(deadline),
            Asking::Session(under_way) => under_way.clocks(),
        }
    }

    /// Passes a notification on, or drops it where nobody takes it or too many wait.
    pub(super) fn notify(&self, method: String, params: Option<Box<RawValue>>) {
        if self.said.try_send(FromServer::Notification { method, params }).is_err() {
            tracing::debug!("a notification of a server was dropped");
        }
    }

    /// Passes anything on: a notification as above, a request when there is room.
    pub(super) async fn pass(&self, message: FromServer) {
        match message {
            FromServer::Notification { method, params } => self.notify(method, params),
            FromServer::Request { method, params, reply, .. } => {
                let clocks = self.clocks();
                let request = FromServer::Request { method, params, reply, clocks };
                // Nobody there: dropped, and so refused.
                drop(self.said.send(request).await);
            }
        }
    }

    /// Somebody still reads.
    pub(super) fn is_heard(&self) -> bool {
        !self.said.is_closed()
    }

    /// Until nobody reads any more.
    pub(super) async fn closed(&self) {
        self.said.closed().await;
    }

    /// Asks the caller; `None`: refused, or nobody there. Dropping the future takes the question back.
    pub(super) async fn ask(&self, method: String, params: Option<Box<RawValue>>) -> Option<Reply> {
        let (reply, answered) = oneshot::channel();
        let clocks = self.clocks();
        self.said.send(FromServer::Request { method, params, reply, clocks }).await.ok()?;
        answered.await.ok()
    }
}
