//! What a server asked on a stream and nobody has answered yet.

use domain::limits;
use futures::{
    StreamExt,
    future::{AbortHandle, Abortable, BoxFuture, FutureExt},
    stream::FuturesUnordered,
};
use serde_json::value::RawValue;

use super::{Relay, Reply};

/// A request of the server that is settled: with its answer, or refused.
pub(super) struct Settled {
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) reply: Option<Reply>,
}

/// Dropping it takes every open question back.
#[derive(Default)]
pub(super) struct Questions {
    open: FuturesUnordered<Abortable<BoxFuture<'static, Settled>>>,
    taken_back: Vec<(Box<RawValue>, AbortHandle)>,
}

impl Questions {
    /// Passes a question on; it comes back settled from [`next`](Self::next). False: too many are
    /// open.
    pub(super) fn ask(
        &mut self,
        relay: &Relay,
        id: &RawValue,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> bool {
        if self.open.len() >= limits::SERVER_REQUESTS.size() {
            return false;
        }
        let (handle, registration) = AbortHandle::new_pair();
        self.taken_back.push((id.to_owned(), handle));
        let (relay, id, method) = (relay.clone(), id.to_owned(), method.to_owned());
        let asking = async move {
            let reply = relay.ask(method.clone(), params).await;
            Settled { id, method, reply }
        };
        self.open.push(Abortable::new(asking.boxed(), registration));
        true
    }

    /// The server does not want to know any more: it gets no answer.
    pub(super) fn take_back(&mut self, id: &RawValue) {
        for (_, handle) in self.taken_back.iter().filter(|(open, _)| open.get() == id.get()) {
            handle.abort();
        }
    }

    /// The next one that is settled; never while none is open. Cancel-safe.
    pub(super) async fn next(&mut self) -> Settled {
        loop {
            match self.open.next().await {
                Some(Ok(settled)) => {
                    self.taken_back.retain(|(open, _)| open.get() != settled.id.get());
                    return settled;
                }
                Some(Err(_)) => self.taken_back.retain(|(_, handle)| !handle.is_aborted()),
                None => std::future::pending().await,
            }
        }
    }
}
