//! What a server says, and who is to hear it.

use std::sync::Arc;

use bytes::Bytes;
use domain::Code;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::{
    Outgoing, Oversize, Table,
    sniff::{self, Told},
};
use crate::mcp::{
    Relay,
    wire::{self, Outcome, Spoken},
};

/// A server tells by it that it ends a subscription, or that it takes a question back.
const CANCELLED: &str = "notifications/cancelled";
pub(super) const SUBSCRIBE: &str = "subscriptions/listen";

impl Table {
    /// Takes one message, or a batch of them (2025-03-26), to whoever waits for it. Never waits.
    pub(in crate::mcp) fn take(self: &Arc<Self>, message: &Bytes) {
        if message.trim_ascii_start().first() == Some(&b'[')
            && let Ok(batch) = serde_json::from_slice::<Vec<&RawValue>>(message)
        {
            for one in batch {
                self.take_one(&message.slice_ref(one.get().as_bytes()));
            }
            return;
        }
        self.take_one(message);
    }

    fn take_one(self: &Arc<Self>, message: &Bytes) {
        match wire::spoken(message) {
            Ok(Spoken::Answer { id: Some(id), outcome }) => {
                self.answered(id, outcome, message.len());
            }
            Ok(Spoken::Answer { id: None, outcome: outcome @ Outcome::Error(_) }) => {
                self.refused_somebody(outcome, message.len());
            }
            Ok(Spoken::Request { id, method, params }) => self.asked(id, method, params),
            Ok(Spoken::Notification { method, params }) => self.notified(method, params),
            Ok(Spoken::Answer { .. } | Spoken::Nothing) => {
                tracing::debug!("a message of a server that is none was dropped");
            }
            Err(_) => match sniff::told_of(message) {
                Told::Answer(id) => {
                    let words = "the server's answer is not a JSON-RPC message";
                    self.fail(id, Code::UpstreamFormat, words);
                }
                Told::Unawaited | Told::Nothing => {
                    tracing::debug!("a message of a server that cannot be read was dropped");
                }
            },
        }
    }

    /// A message over every cap: the request that it answers fails. False where that cannot be told.
    pub(in crate::mcp) fn take_oversize(&self, message: &Oversize) -> bool {
        match message.told() {
            Told::Answer(id) => self.too_large(id),
            Told::Unawaited => tracing::debug!("a message of a server was too large, and dropped"),
            Told::Nothing => return false,
        }
        true
    }

    /// An error without an id is for a request that the server could not read. Where several are
    /// under way, nobody can tell which.
    fn refused_somebody(&self, outcome: Outcome, bytes: usize) {
        let only = {
            let seats = self.seats();
            let mut begun = seats.waiting.iter().filter(|(_, waiting)| waiting.begun);
            let first = begun.next().map(|(id, _)| *id);
            first.filter(|_| begun.next().is_none())
        };
        let Some(id) = only else {
            return tracing::debug!("a server refused something without saying what");
        };
        self.answered(id, outcome, bytes);
    }

    fn notified(&self, method: String, params: Option<Box<RawValue>>) {
        self.hints.heard(&method);
        if method == CANCELLED {
            return self.cancelled(params.as_deref());
        }
        let mut seats = self.seats();
        if method == "notifications/progress" {
            let about = wire::progress_of(params.as_deref());
            if let Some(relay) = about.and_then(|id| seats.waiting.get(&id)?.relay.as_ref()) {
                relay.notify(method, params);
            }
            return;
        }
        if let Some(id) = wire::subscription_of(params.as_deref()) {
            if let Some(relay) = seats.waiting.get(&id).and_then(|one| one.relay.as_ref()) {
                relay.notify(method, params);
            }
            return;
        }
        seats.listeners.retain(Relay::is_heard);
        if self.own {
            if let Some((relay, _)) = seats.spoken_to() {
                relay.notify(method, params);
            }
        } else if method == "notifications/message" {
            // It may be about anybody's request: only where there is one alone it is that one's.
            if let Some(relay) = seats.only_relay() {
                relay.notify(method, params);
            }
        } else {
            for listener in &seats.listeners {
                listener.notify(method.clone(), params.clone());
            }
        }
    }

    fn cancelled(&self, params: Option<&RawValue>) {
        let Some(named) = wire::cancelled_by(params) else { return };
        let question = self.seats().asked.remove(named.get());
        if let Some(question) = question {
            return question.cancel();
        }
        let Ok(id) = named.get().trim_matches('"').parse() else { return };
        let subscribed =
            self.seats().waiting.get(&id).is_some_and(|waiting| waiting.method == SUBSCRIBE);
        if subscribed {
            self.fail(id, Code::UpstreamUnavailable, "the server ended the subscription");
        }
    }

    fn asked(self: &Arc<Self>, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) {
        if method == "ping" || !self.own {
            return self.answer(&id, &method);
        }
        let permit = Arc::clone(&self.questions).try_acquire_owned();
        let relay = {
            let mut seats = self.seats();
            seats.listeners.retain(Relay::is_heard);
            seats
                .spoken_to()
                .map(|(relay, over)| (relay.clone(), over.cloned().unwrap_or_default()))
        };
        let (Ok(permit), Some((relay, over))) = (permit, relay) else {
            return self.answer(&id, &method);
        };
        let taken_back = CancellationToken::new();
        self.seats().asked.insert(id.get().to_owned(), taken_back.clone());
        let question = Question { id, method, relay, over, taken_back, _permit: permit };
        let table = Arc::clone(self);
        self.tasks.spawn(async move { question.ask(&table, params).await });
    }

    /// A pong, or a refusal. A server that does not read does not get it.
    fn answer(&self, id: &RawValue, method: &str) {
        if self.answers.try_send(Outgoing::of(&wire::answer(id, method, None))).is_err() {
            tracing::debug!("a server asks faster than it reads: not answered");
        }
    }
}

/// A request of the server that somebody is asked.
struct Question {
    id: Box<RawValue>,
    method: String,
    relay: Relay,
    /// The call that it belongs to is over.
    over: CancellationToken,
    /// By the server.
    taken_back: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl Question {
    async fn ask(self, table: &Table, params: Option<Box<RawValue>>) {
        let asked = self.relay.ask(self.method.clone(), params);
        let reply = tokio::select! {
            reply = asked => Some(reply),
            () = self.over.cancelled() => Some(None),
            () = self.taken_back.cancelled() => None,
            () = table.ended() => None,
        };
        table.seats().asked.remove(self.id.get());
        let Some(reply) = reply else { return };
        let answer = wire::answer(&self.id, &self.method, reply.as_ref());
        tokio::select! {
            // The pipe has ended: nobody to tell.
            sent = table.answers.send(Outgoing::of(&answer)) => drop(sent),
            () = table.ended() => {}
        }
    }
}
