//! The one stream of a server's own messages that a shared client keeps, and all who listen to it.
//! Many servers allow a session no second one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Code, Error, limits};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::Instant,
};

use super::{FromServer, Relay, channel, is_not_offered, line::Line};

#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Option<Stream>>);

#[derive(Debug)]
struct Stream {
    listeners: Listeners,
    opened: Opened,
    reading: AbortHandle,
    began_at: Instant,
}

type Opened = Shared<BoxFuture<'static, Result<(), Arc<Error>>>>;

/// `None` once the stream ended.
type Listeners = Arc<Mutex<Option<Vec<Relay>>>>;

impl Standing {
    /// The stream is read, or the server has none.
    pub(super) fn is_settled(&self) -> bool {
        self.stream().as_ref().is_some_and(Stream::is_settled)
    }

    /// Begins to read the stream where that is not done yet; one that ended just now waits
    /// [`limits::STANDING_QUIET_MS`].
    pub(super) fn begin(&self, line: Line) {
        let mut stream = self.stream();
        let rests = stream.as_ref().is_some_and(|stream| {
            stream.is_settled() || stream.began_at.elapsed() < limits::STANDING_QUIET_MS.millis()
        });
        if !rests {
            *stream = Some(Stream::begin(line));
        }
    }

    /// Listens to it: notifications alone. `NOT_FOUND` (not offered) or why it cannot be read.
    pub(super) async fn join(&self, line: Line) -> Result<mpsc::Receiver<FromServer>, Error> {
        self.begin(line);
        let (opened, listeners) = match self.stream().as_ref() {
            Some(stream) => (stream.opened.clone(), Arc::clone(&stream.listeners)),
            None => return Err(over()),
        };
        opened.await.map_err(|error| {
            if is_not_offered(&error) {
                return channel::not_offered();
            }
            Error::new(error.code, error.public.clone()).because(Arc::clone(&error))
        })?;
        let (relay, said) = Relay::channel();
        let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(listeners) = listeners.as_mut() else { return Err(over()) };
        listeners.retain(Relay::is_heard);
        listeners.push(relay);
        Ok(said)
    }

    pub(super) fn end(&self) {
        if let Some(stream) = self.stream().take() {
            stream.reading.abort();
            end(&stream.listeners);
        }
    }

    fn stream(&self) -> MutexGuard<'_, Option<Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    fn begin(line: Line) -> Self {
        let listeners = Listeners::new(Mutex::new(Some(Vec::new())));
        let (ready, opened) = oneshot::channel();
        let opened = opened.map(|opened| match opened {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Arc::new(error)),
            Err(_) => Err(Arc::new(over())),
        });
        let opened = opened.boxed().shared();
        let (told, shared) = (Arc::clone(&listeners), opened.clone());
        let reading = tokio::spawn(async move {
            let (relay, mut said) = Relay::channel();
            let filter = changes_of_tools();
            let hearing = line.hear(&filter, &relay, ready);
            let telling = async {
                while let Some(message) = said.recv().await {
                    tell(&told, message);
                }
            };
            tokio::select! {
                () = hearing => {}
                () = telling => {}
            }
            // Whoever peeks must see how it began.
            let _opened = shared.await;
            end(&told);
        });
        let reading = reading.abort_handle();
        Self { listeners, opened, reading, began_at: Instant::now() }
    }

    fn is_settled(&self) -> bool {
        let refused = matches!(self.opened.peek(), Some(Err(error)) if is_not_offered(error));
        refused || !self.reading.is_finished()
    }
}

/// What a shared client wants to hear on its own account.
fn changes_of_tools() -> Box<RawValue> {
    RawValue::from_string(r#"{"toolsListChanged":true}"#.to_owned()).expect("it is JSON")
}

/// Requests of the server are refused: it is nobody's own session.
fn tell(listeners: &Listeners, message: FromServer) {
    let FromServer::Notification { method, params } = message else { return };
    let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
    for relay in listeners.iter_mut().flatten() {
        relay.notify(method.clone(), params.clone());
    }
}

fn end(listeners: &Listeners) {
    listeners.lock().unwrap_or_else(PoisonError::into_inner).take();
}

fn over() -> Error {
    Error::new(Code::UpstreamUnavailable, "the server ended the stream of its own messages")
}
