//! Hints within one process that a row changed. The row is the truth: whoever waits also looks at it
//! by a timer, so that a lost hint costs a moment and nothing else.

use domain::ids::{PermissionRequestId, SessionId, UserId};
use tokio::sync::broadcast;

/// What changed; ids only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// The session has new events.
    Events(SessionId),
    /// The question is no longer pending.
    Question(PermissionRequestId),
    /// A credential of the person was refreshed, or could not be.
    Credential(UserId),
}

/// The hints of one process.
#[derive(Debug, Clone)]
pub struct Signals {
    sender: broadcast::Sender<Hint>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(1024) }
    }
}

impl Signals {
    /// Given after the commit of the change.
    pub fn hint(&self, hint: Hint) {
        // Nobody waits: nothing to tell.
        let _ = self.sender.send(hint);
    }

    /// Must be taken before the row is looked at, so that no change falls between.
    #[must_use]
    pub fn listen(&self) -> Listener {
        Listener(self.sender.subscribe())
    }
}

/// One waiter.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Hint>);

impl Listener {
    /// Ends when a hint that `concerns` says yes to arrives, or when hints were missed; the caller
    /// looks at the row either way.
    pub async fn wait(&mut self, concerns: impl Fn(Hint) -> bool) {
        loop {
            match self.0.recv().await {
                Ok(hint) if !concerns(hint) => {}
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
