//! Who waits for what on a duplex.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use domain::{Code, Error, limits};
use http::StatusCode;
use secrecy::SecretString;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Outgoing, ended};
use crate::{
    http::Failure,
    mcp::{
        FromServer, Relay,
        changes::Hints,
        channel::{Fault, Means},
        wire::{Message, Outcome},
    },
    words,
};

/// Requests under way, listeners, and the server's own questions.
#[derive(Debug)]
pub(in crate::mcp) struct Table {
    /// Of one upstream session that somebody holds: what the server says is for them.
    pub(super) own: bool,
    pub(super) hints: Hints,
    pub(super) tasks: TaskTracker,
    /// Our answers to the server.
    pub(super) answers: mpsc::Sender<Outgoing>,
    /// Questions of the server that may wait.
    pub(super) questions: Arc<Semaphore>,
    secrets: Vec<SecretString>,
    seats: Mutex<Seats>,
    over: CancellationToken,
}

#[derive(Debug, Default)]
pub(super) struct Seats {
    /// By id, so the last is the youngest.
    pub(super) waiting: BTreeMap<u64, Waiting>,
    pub(super) listeners: Vec<Relay>,
    /// By the server's id as it wrote it: cancelled when it takes the question back.
    pub(super) asked: HashMap<String, CancellationToken>,
    end: Option<End>,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) method: &'static str,
    pub(super) relay: Option<Relay>,
    pub(super) cap: u64,
    pub(super) outcome: oneshot::Sender<Result<Bytes, Fault>>,
    /// Its bytes may have reached the server.
    pub(super) begun: bool,
    /// Nobody waits any more.
    pub(super) over: CancellationToken,
}

#[derive(Debug, Clone)]
struct End {
    code: Code,
    words: String,
    untrusted: Option<String>,
}

/// The place of one request. Dropped, it is free; where nothing was written, that is noted.
pub(super) struct Ticket<'a> {
    table: &'a Table,
    id: u64,
    outcome: oneshot::Receiver<Result<Bytes, Fault>>,
    sent: &'a AtomicBool,
    over: CancellationToken,
}

impl Table {
    pub(in crate::mcp) fn new(
        means: &Means,
        own: bool,
        secrets: Vec<SecretString>,
        answers: mpsc::Sender<Outgoing>,
    ) -> Arc<Self> {
        Arc::new(Self {
            own,
            hints: means.hints.clone(),
            tasks: means.tasks.clone(),
            answers,
            questions: Arc::new(Semaphore::new(limits::SERVER_REQUESTS.size())),
            secrets,
            seats: Mutex::default(),
            over: CancellationToken::new(),
        })
    }

    pub(super) fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a request that is about to be sent. Fails where the pipe has ended.
    pub(super) fn expect<'a>(
        &'a self,
        message: &Message,
        cap: u64,
        relay: Option<&Relay>,
        sent: &'a AtomicBool,
    ) -> Result<Ticket<'a>, Fault> {
        let id = message.id.ok_or_else(|| Error::internal("a request without an id"))?;
        let method = message.method.unwrap_or_default();
        let (sender, outcome) = oneshot::channel();
        let over = CancellationToken::new();
        let mut seats = self.seats();
        if let Some(end) = &seats.end {
            return Err(ended(end.code, &end.words, end.untrusted.as_deref(), false).into());
        }
        let waiting = Waiting {
            method,
            relay: relay.cloned(),
            cap,
            outcome: sender,
            begun: false,
            over: over.clone(),
        };
        seats.waiting.insert(id, waiting);
        drop(seats);
        Ok(Ticket { table: self, id, outcome, sent, over })
    }

    /// To be asked right before a request is written: whether somebody still waits for it.
    pub(super) fn begin(&self, id: u64) -> bool {
        let mut seats = self.seats();
        let Some(waiting) = seats.waiting.get_mut(&id) else { return false };
        waiting.begun = true;
        true
    }

    /// Bytes of the largest message that anybody waits for.
    pub(in crate::mcp) fn largest(&self) -> u64 {
        let floor = limits::BODY_CAP_FLOOR_BYTES.default;
        self.seats().waiting.values().map(|waiting| waiting.cap).max().unwrap_or(0).max(floor)
    }

    /// Ends one request with what was learned about it, `Ran::Unknown`.
    pub(super) fn fail(&self, id: u64, code: Code, words: &str) {
        self.settle(id, Err(Failure::unknown(Error::new(code, words)).into()));
    }

    /// The answer to a request, if somebody still waits for it.
    pub(super) fn answered(&self, id: u64, outcome: Outcome, bytes: usize) {
        let cap = self.seats().waiting.get(&id).map_or(0, |waiting| waiting.cap);
        let outcome = match outcome {
            _ if bytes as u64 > cap => return self.too_large(id),
            Outcome::Result(result) => Ok(result),
            Outcome::Error(mut error) => {
                error.message = words::masked(&error.message, &self.secrets);
                Err(Fault::Rpc { status: StatusCode::OK, error })
            }
        };
        self.settle(id, outcome);
    }

    pub(super) fn too_large(&self, id: u64) {
        self.fail(id, Code::ResponseTooLarge, "the server's answer is larger than the limit");
    }

    fn settle(&self, id: u64, outcome: Result<Bytes, Fault>) {
        let waiting = self.seats().waiting.remove(&id);
        let Some(waiting) = waiting else {
            return tracing::debug!("an answer that nobody waits for was dropped");
        };
        // Gone in this moment: nobody to tell.
        drop(waiting.outcome.send(outcome));
    }

    /// The pipe has ended: so does everything that hung on it. Only the first end counts.
    pub(in crate::mcp) fn end(&self, code: Code, words: &str, untrusted: Option<&str>) {
        let mut seats = self.seats();
        if seats.end.is_some() {
            return;
        }
        seats.end = Some(End {
            code,
            words: words.to_owned(),
            untrusted: untrusted.map(ToOwned::to_owned),
        });
        let waiting = std::mem::take(&mut seats.waiting);
        let listeners = std::mem::take(&mut seats.listeners);
        drop(seats);
        self.over.cancel();
        drop(listeners);
        for Waiting { outcome, begun, .. } in waiting.into_values() {
            drop(outcome.send(Err(ended(code, words, untrusted, begun).into())));
        }
    }

    pub(in crate::mcp) fn has_ended(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Waits until the pipe has ended.
    pub(in crate::mcp) async fn ended(&self) {
        self.over.cancelled().await;
    }

    pub(super) fn listen(&self) -> mpsc::Receiver<FromServer> {
        let (listener, receiver) = Relay::channel();
        let mut seats = self.seats();
        if self.own {
            seats.listeners.clear();
        }
        seats.listeners.retain(Relay::is_heard);
        if seats.end.is_none() {
            seats.listeners.push(listener);
        }
        receiver
    }
}

impl Seats {
    /// On an own duplex: whom the server talks to, and when that is over.
    pub(super) fn spoken_to(&self) -> Option<(&Relay, Option<&CancellationToken>)> {
        let youngest =
            self.waiting.values().rev().find_map(|waiting| {
                waiting.relay.as_ref().map(|relay| (relay, Some(&waiting.over)))
            });
        youngest.or_else(|| self.listeners.last().map(|listener| (listener, None)))
    }

    /// The relay of the only request under way.
    pub(super) fn only_relay(&self) -> Option<&Relay> {
        let mut waiting = self.waiting.values();
        let only = waiting.next().filter(|_| waiting.next().is_none())?;
        only.relay.as_ref()
    }
}

impl Ticket<'_> {
    /// From now on it may reach the server.
    pub(super) fn begin(&self) {
        self.table.begin(self.id);
    }

    /// Waits for the answer, or the end of the pipe. To be asked for once.
    pub(super) async fn outcome(&mut self) -> Result<Bytes, Fault> {
        (&mut self.outcome).await.unwrap_or_else(|_| {
            Err(Failure::unknown(Error::internal("a request lost its place")).into())
        })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.over.cancel();
        let left = self.table.seats().waiting.remove(&self.id);
        if left.is_some_and(|waiting| !waiting.begun) {
            self.sent.store(false, Ordering::Relaxed);
        }
    }
}
