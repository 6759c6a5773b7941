//! What a server says outside of any request, for whoever wants to hear it.

use std::sync::Arc;

use domain::{Code, Error};
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

use super::{FromServer, Relay, channel::Channel, client::Client};

/// A server that is listened to, until this is dropped.
#[derive(Debug)]
pub struct Listening {
    said: mpsc::Receiver<FromServer>,
    acknowledged: Option<Box<RawValue>>,
    /// The client stays as long as somebody listens.
    client: Arc<Client>,
    reading: Option<AbortHandle>,
}

impl Listening {
    /// What the server says next. `None`: it ended the stream, lost the session or cannot be reached
    /// any more, or it was configured anew. Cancel-safe.
    pub async fn next(&mut self) -> Option<FromServer> {
        tokio::select! {
            biased;
            said = self.said.recv() => said,
            () = self.client.left.cancelled() => None,
        }
    }

    /// The params of `notifications/subscriptions/acknowledged` (2026-07-28): what of the filter the
    /// server honours. `None` in the older eras, where everything comes.
    #[must_use]
    pub fn acknowledged(&self) -> Option<&RawValue> {
        self.acknowledged.as_deref()
    }

    pub(super) async fn begin(client: Arc<Client>, filter: &RawValue) -> Result<Self, Error> {
        let session = client.session();
        let line = client.line(&session);
        let shared_stream = matches!(client.channel, Channel::Http(_))
            && session.link.has_sessions()
            && !client.is_own();
        if shared_stream {
            let said = client.standing.join(line).await?;
            return Ok(Self { said, acknowledged: None, client, reading: None });
        }
        let (relay, said) = Relay::channel();
        let relay = relay.of_session(&client.under_way);
        let (ready, opened) = oneshot::channel();
        let filter = filter.to_owned();
        let reading = tokio::spawn(async move {
            tokio::select! {
                () = line.hear(&filter, &relay, ready) => {}
                () = relay.closed() => {}
            }
        });
        let mut listening =
            Self { said, acknowledged: None, client, reading: Some(reading.abort_handle()) };
        listening.acknowledged = opened.await.unwrap_or_else(|_| {
            Err(Error::new(Code::UpstreamUnavailable, "the server cannot be listened to"))
        })?;
        Ok(listening)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}
