//! What is said to a client before the answer to its request: notifications, and questions of a server.

use tokio::sync::mpsc;

/// JSON-RPC messages that wait to be sent; more, and their author waits.
const WAITING: usize = 16;

/// Speaks into the stream that answers a request. The default is mute: nobody would hear it.
#[derive(Debug, Clone, Default)]
pub(super) struct Voice(Option<mpsc::Sender<String>>);

/// The other end.
#[derive(Debug)]
pub(super) struct Said(mpsc::Receiver<String>);

impl Voice {
    pub(super) fn channel() -> (Self, Said) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(Some(sender)), Said(receiver))
    }

    /// Sends one JSON-RPC message; false if nobody hears it any more.
    pub(super) async fn say(&self, json: String) -> bool {
        match &self.0 {
            Some(sender) => sender.send(json).await.is_ok(),
            None => false,
        }
    }
}

impl Said {
    /// The next message; pending for good when nobody can say any more. Cancel-safe.
    pub(super) async fn next(&mut self) -> String {
        match self.0.recv().await {
            Some(json) => json,
            None => std::future::pending().await,
        }
    }

    /// What was said and not sent yet.
    pub(super) fn left(&mut self) -> Option<String> {
        self.0.try_recv().ok()
    }
}
