//! A server at the other end of one pipe: a child's standard input and output, or the stream of
//! 2024-11-05. What is expected of it stands in [`super::channel`].

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use domain::{Code, Error};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, sync::DropGuard};

use super::{
    FromServer, Reach, Relay, Target,
    channel::{Answered, Fault, Link, Means, Trail},
    legacy_sse::{self, Poster},
    wire::Message,
};
use crate::{
    http::{Failure, Ran},
    stdio::{Holder, Life, Work},
};

mod child;
mod lines;
mod messages;
mod sniff;
mod table;

pub(super) use sniff::Oversize;
pub(super) use table::Table;

use table::Ticket;

#[derive(Debug)]
pub(super) struct Duplex {
    table: Arc<Table>,
    pipe: Pipe,
    next_id: AtomicU64,
}

/// How messages get to the server; what it says comes in by a task of its own.
#[derive(Debug)]
enum Pipe {
    Child { life: Life, outbox: mpsc::Sender<Outgoing> },
    Sse { poster: Arc<Poster>, stop: DropGuard },
}

/// A message to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Of a request: it is not written where nobody waits for it any more.
    id: Option<u64>,
    body: Bytes,
}

impl Outgoing {
    fn of(message: &Message) -> Self {
        Self { id: message.id, body: message.body.clone() }
    }

    pub(super) fn body(&self) -> &Bytes {
        &self.body
    }
}

impl Duplex {
    /// Starts the program or opens the stream; no message is sent yet. Dropped midway it leaves
    /// nothing behind.
    pub(super) async fn open(means: &Means, target: &Target) -> Result<Arc<Self>, Error> {
        let own = target.key.session.is_some();
        let (table, pipe) = match &target.reach {
            Reach::Stdio(program) => {
                let person = target.key.session.map(|session| session.person);
                let holder = Holder { tenant: target.key.tenant, person };
                let child = means.stdio.start(program, holder, &means.tasks).await?;
                let (table, life, outbox) = child::attend(means, own, target.secrets(), child);
                (table, Pipe::Child { life, outbox })
            }
            Reach::Sse { url, headers } => {
                let (secrets, authority) = (target.secrets(), target.authority.clone());
                let (poster, stream) =
                    legacy_sse::open(&means.http, url, headers, secrets.clone(), authority).await?;
                let stop = CancellationToken::new();
                let (table, poster) =
                    legacy_sse::attend(means, own, secrets, poster, stream, stop.clone());
                (table, Pipe::Sse { poster, stop: stop.drop_guard() })
            }
            Reach::Http { .. } | Reach::Own { .. } => {
                return Err(Error::internal("HTTP is no pipe"));
            }
        };
        Ok(Arc::new(Self { table, pipe, next_id: AtomicU64::new(1) }))
    }

    pub(super) async fn request(
        &self,
        _link: &Link,
        message: &Message,
        cap: u64,
        trail: &Trail,
        relay: Option<&Relay>,
    ) -> Result<Answered, Fault> {
        let _work = self.work(message)?;
        let mut ticket = self.table.expect(message, cap, relay, &trail.sent)?;
        let result = match &self.pipe {
            Pipe::Child { outbox, .. } => {
                trail.requests.fetch_add(1, Ordering::Relaxed);
                tokio::select! {
                    biased;
                    outcome = ticket.outcome() => outcome,
                    written = outbox.send(Outgoing::of(message)) => match written {
                        Ok(()) => ticket.outcome().await,
                        Err(_) => Err(Failure::not_run(closed()).into()),
                    },
                }
            }
            Pipe::Sse { poster, .. } => self.post(poster, message, &mut ticket, trail).await,
        };
        Ok(Answered { result: result?, session: None, endpoint: None })
    }

    /// Keeps a program from having to go while the request is under way. Who listens does nothing in it.
    fn work(&self, message: &Message) -> Result<Option<Work>, Fault> {
        let Pipe::Child { life, .. } = &self.pipe else { return Ok(None) };
        if message.method == Some(messages::SUBSCRIBE) {
            return Ok(None);
        }
        match life.begin() {
            Some(work) => Ok(Some(work)),
            // What its holder did in it is gone with it.
            None if self.table.own => Err(Fault::Lost),
            None => Err(Failure::not_run(closed()).into()),
        }
    }

    /// Posts a request. Its answer comes on the stream, and may do so before the post is answered.
    async fn post(
        &self,
        poster: &Poster,
        message: &Message,
        ticket: &mut Ticket<'_>,
        trail: &Trail,
    ) -> Result<Bytes, Fault> {
        ticket.begin();
        let posting = poster.post(&message.body, self.table.largest(), trail);
        tokio::select! {
            biased;
            outcome = ticket.outcome() => return outcome,
            response = posting => match response {
                Ok(Some(answer)) => self.table.take(&answer),
                Ok(None) => {}
                Err(refusal) => {
                    if refusal.session_lost {
                        self.table.end(Code::UpstreamUnavailable, legacy_sse::SESSION_LOST, None);
                    }
                    return Err(Fault::Failed { status: refusal.status, failure: refusal.failure });
                }
            },
        }
        ticket.outcome().await
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, message: &Message) -> Result<(), Failure> {
        if self.is_broken() {
            return Err(Failure::not_run(closed()));
        }
        match &self.pipe {
            Pipe::Child { outbox, .. } => {
                outbox.send(Outgoing::of(message)).await.map_err(|_| Failure::not_run(closed()))
            }
            Pipe::Sse { poster, .. } => {
                let posted = poster.post(&message.body, 0, &Trail::default()).await;
                posted.map(drop).map_err(|refusal| refusal.failure)
            }
        }
    }

    /// Ends child or stream and returns when that is done.
    pub(super) async fn close(&self) {
        self.table.end(Code::UpstreamUnavailable, "the connection to the server was closed", None);
        match &self.pipe {
            Pipe::Child { life, .. } => {
                life.stop();
                life.gone().await;
            }
            Pipe::Sse { stop, .. } => stop.token().cancel(),
        }
    }

    /// An id that no other request here has.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Nothing can be sent any more.
    pub(super) fn is_broken(&self) -> bool {
        let written_to = match &self.pipe {
            Pipe::Child { outbox, .. } => !outbox.is_closed(),
            Pipe::Sse { .. } => true,
        };
        self.table.has_ended() || !written_to
    }

    /// Whether no more requests begin here, though those under way go on.
    pub(super) fn must_go(&self) -> bool {
        match &self.pipe {
            Pipe::Child { life, .. } => life.must_go(),
            Pipe::Sse { .. } => false,
        }
    }

    /// What the server says outside of any request; a later listener of an own duplex takes the
    /// place of the one before. Ends with the pipe.
    pub(super) fn listen(&self) -> mpsc::Receiver<FromServer> {
        self.table.listen()
    }
}

fn closed() -> Error {
    Error::new(Code::UpstreamUnavailable, "the connection to the server is closed")
}

/// The end of a pipe, for a request that waited.
fn ended(code: Code, words: &str, untrusted: Option<&str>, begun: bool) -> Failure {
    let mut error = Error::new(code, words);
    if let Some(untrusted) = untrusted.filter(|untrusted| !untrusted.is_empty()) {
        error = error.with_untrusted(untrusted);
    }
    Failure { error, ran: if begun { Ran::Unknown } else { Ran::No } }
}
