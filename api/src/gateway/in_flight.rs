//! The calls of older clients that can still be cancelled: `notifications/cancelled` names one by the
//! id of its request. Those that another node runs are not here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::{
    Caller,
    ids::{TenantId, TokenId},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::message::RequestId;

/// The calls of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlight(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    by_key: HashMap<Key, Entry>,
    /// Counts up; tells apart two calls with one key, which a client may not make.
    made: u64,
    /// So many entries make it worth looking for ended ones.
    sweep_at: usize,
}

/// Who may cancel what: the same token, in the same MCP session, by the request's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    tenant: TenantId,
    token: Option<TokenId>,
    session: Uuid,
    request: String,
}

impl Key {
    pub(super) fn new(caller: &Caller, session: Uuid, request: &RequestId) -> Self {
        Self { tenant: caller.tenant, token: caller.token(), session, request: request.canonical() }
    }
}

#[derive(Debug)]
struct Entry {
    number: u64,
    /// The call's own token: cancelling it ends the call, and it is cancelled when the call is over.
    call: CancellationToken,
    told: CancellationToken,
}

/// Fewer entries than this are never swept.
const SWEEP_FLOOR: usize = 64;

impl InFlight {
    /// Lists a call whose own token is `call`.
    pub(super) fn enter(&self, key: Key, call: CancellationToken) -> Held {
        let told = CancellationToken::new();
        let mut calls = self.lock();
        if calls.by_key.len() >= calls.sweep_at.max(SWEEP_FLOOR) {
            // Left by clients that hung up: the call went on, and has ended since.
            calls.by_key.retain(|_, entry| !entry.call.is_cancelled());
            calls.sweep_at = calls.by_key.len() * 2;
        }
        calls.made += 1;
        let number = calls.made;
        calls.by_key.insert(key.clone(), Entry { number, call, told: told.clone() });
        drop(calls);
        Held { calls: self.clone(), key, number, told }
    }

    /// Cancels the call; nothing happens if there is none, as MCP wants it (Cancellation, "Error
    /// Handling").
    pub(super) fn cancel(&self, key: &Key) {
        if let Some(entry) = self.lock().by_key.remove(key) {
            entry.told.cancel();
            entry.call.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listed call. Dropped before [`Held::ended`], its client has hung up: the call goes on, and can
/// still be cancelled.
#[derive(Debug)]
pub(super) struct Held {
    calls: InFlight,
    key: Key,
    number: u64,
    told: CancellationToken,
}

impl Held {
    /// Ends when the client cancels the call.
    pub(super) async fn told(&self) {
        self.told.cancelled().await;
    }

    /// Nothing is left to cancel.
    pub(super) fn ended(self) {
        let mut calls = self.calls.lock();
        if calls.by_key.get(&self.key).is_some_and(|entry| entry.number == self.number) {
            calls.by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::TenantId;

    use super::*;

    fn key(request: &str) -> Key {
        Key {
            tenant: TenantId(Uuid::nil()),
            token: None,
            session: Uuid::nil(),
            request: request.to_owned(),
        }
    }

    fn listed(in_flight: &InFlight) -> usize {
        in_flight.lock().by_key.len()
    }

    #[test]
    fn cancelling_reaches_the_call_of_that_key_alone() {
        let in_flight = InFlight::default();
        let (one, other) = (CancellationToken::new(), CancellationToken::new());
        let held = in_flight.enter(key("1"), one.clone());
        let _other = in_flight.enter(key("\"1"), other.clone());
        in_flight.cancel(&key("1"));
        in_flight.cancel(&key("7"));
        assert!(one.is_cancelled() && held.told.is_cancelled());
        assert!(!other.is_cancelled());
    }

    #[test]
    fn an_ended_call_leaves_nothing() {
        let in_flight = InFlight::default();
        in_flight.enter(key("1"), CancellationToken::new()).ended();
        assert_eq!(listed(&in_flight), 0);
    }

    #[test]
    fn a_call_whose_client_hung_up_can_still_be_cancelled() {
        let in_flight = InFlight::default();
        let call = CancellationToken::new();
        drop(in_flight.enter(key("1"), call.clone()));
        in_flight.cancel(&key("1"));
        assert!(call.is_cancelled());
    }

    #[test]
    fn ended_calls_of_clients_that_hung_up_do_not_pile_up() {
        let in_flight = InFlight::default();
        for request in 0..10_000 {
            let call = CancellationToken::new();
            drop(in_flight.enter(key(&request.to_string()), call.clone()));
            call.cancel();
        }
        assert!(listed(&in_flight) <= SWEEP_FLOOR, "{}", listed(&in_flight));
    }

    #[test]
    fn the_end_of_a_call_does_not_unlist_a_later_one() {
        let in_flight = InFlight::default();
        let first = in_flight.enter(key("1"), CancellationToken::new());
        let later = CancellationToken::new();
        let _later = in_flight.enter(key("1"), later.clone());
        first.ended();
        in_flight.cancel(&key("1"));
        assert!(later.is_cancelled());
    }
}
