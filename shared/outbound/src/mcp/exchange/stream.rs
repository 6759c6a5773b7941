//! The event stream that answers a request, and what the server says on it meanwhile.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{Code, limits};
use futures::FutureExt;
use http::StatusCode;
use serde_json::value::RawValue;

use super::{
    Fault, Link, Relay, Trail, Upstream, pause,
    questions::{Questions, Settled},
    unavailable,
};
use crate::{
    http::{Body, Failure},
    mcp::{
        channel::ENDLESS,
        sse::Parser,
        wire::{self, Outcome, Spoken},
    },
};

/// One stream, from the first response to the last that resumes it.
pub(super) struct Conversation<'a> {
    pub(super) upstream: &'a Arc<Upstream>,
    pub(super) link: &'a Link,
    /// The request that the stream answers; `None`: it answers none.
    pub(super) id: Option<u64>,
    pub(super) relay: Option<&'a Relay>,
    pub(super) questions: Questions,
    /// Messages so far.
    pub(super) heard: u64,
    framing: Framing,
}

/// How messages are told apart.
enum Framing {
    Events,
    /// One message a line, as no specification knows it.
    Lines {
        at_start: bool,
    },
}

/// Why a stream is not read any further.
pub(super) enum Ended {
    Answered(Outcome),
    /// It ended or broke before that.
    Broken(Failure),
}

impl Upstream {
    /// Reads events until one answers the request. A stream that breaks is resumed where the server
    /// gave its events ids and the era knows that; the request is never posted again.
    pub(super) async fn read_stream(
        self: &Arc<Self>,
        mut talk: Conversation<'_>,
        response: reqwest::Response,
        cap: u64,
        trail: &Trail,
    ) -> Result<Bytes, Fault> {
        let link = talk.link;
        let event_cap = if cap == ENDLESS { limits::RESPONSE_BYTES.default } else { cap };
        let mut parser = Parser::default();
        let mut body = Body::new(response, cap);
        let (mut resumes, mut resumed_at) = (0, None);
        loop {
            let broken = match talk.read(&mut parser, &mut body, event_cap).await? {
                Ended::Answered(outcome) => {
                    self.finish(body);
                    return match outcome {
                        Outcome::Result(result) => Ok(result),
                        Outcome::Error(error) => Err(self.refused(StatusCode::OK, error)),
                    };
                }
                Ended::Broken(broken) => broken,
            };
            let last = parser.last_event_id.clone().filter(|_| link.has_sessions());
            let Some(last) = last else { return Err(broken.into()) };
            // A server may close and let us poll, as long as it gets on.
            resumes = if resumed_at.as_ref() == Some(&last) { resumes + 1 } else { 1 };
            if resumes > limits::STREAM_RESUMES.default {
                return Err(broken.into());
            }
            talk.answer_for(pause(parser.retry)).await;
            resumed_at = Some(last.clone());
            parser = parser.restart();
            body = Body::new(self.resume(link, &last, trail).await?, body.left());
        }
    }

    /// Reads a stream to its end, which comes right after the answer: only then its connection can
    /// be used again.
    fn finish(&self, mut body: Body) {
        let rest = async move {
            while body.chunk().await?.is_some() {}
            Ok(())
        };
        let mut rest = Box::pin(rest);
        if rest.as_mut().now_or_never().is_none() {
            self.farewell(rest);
        }
    }

    async fn resume(
        &self,
        link: &Link,
        last_event_id: &str,
        trail: &Trail,
    ) -> Result<reqwest::Response, Failure> {
        let resumed = self.get(link, Some(last_event_id), trail).await;
        // Whatever stops us now, the request that we wait for was sent before.
        resumed
            .map_err(|failure| Failure { ran: crate::http::Ran::Unknown, ..failure })?
            .map_err(|_| unavailable("the server broke the stream and does not resume it"))
    }
}

impl<'a> Conversation<'a> {
    pub(super) fn new(
        upstream: &'a Arc<Upstream>,
        link: &'a Link,
        id: Option<u64>,
        relay: Option<&'a Relay>,
    ) -> Self {
        let questions = Questions::default();
        Self { upstream, link, id, relay, questions, heard: 0, framing: Framing::Events }
    }

    pub(super) fn in_lines(self) -> Self {
        Self { framing: Framing::Lines { at_start: true }, ..self }
    }

    fn feed(&mut self, parser: &mut Parser, bytes: &[u8]) {
        let Framing::Lines { at_start } = &mut self.framing else { return parser.feed(bytes) };
        // Each line as an event of its own.
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if std::mem::replace(at_start, line.ends_with(b"\n")) {
                parser.feed(b"data:");
            }
            parser.feed(line);
            if *at_start {
                parser.feed(b"\n");
            }
        }
    }

    /// The last line has no end yet.
    fn ends_line(&self) -> bool {
        matches!(self.framing, Framing::Lines { at_start: false })
    }

    /// Reads one response. No single event may be larger than `event_cap`.
    pub(super) async fn read(
        &mut self,
        parser: &mut Parser,
        body: &mut Body,
        event_cap: u64,
    ) -> Result<Ended, Failure> {
        loop {
            while let Some(event) = parser.next() {
                if !matches!(event.kind.as_str(), "" | "message") {
                    continue;
                }
                if let Some(outcome) = self.hear(&event.data)? {
                    return Ok(Ended::Answered(outcome));
                }
            }
            if parser.held() > event_cap {
                return Err(crate::http::too_large());
            }
            let chunk = tokio::select! {
                biased;
                chunk = body.chunk() => chunk,
                settled = self.questions.next() => {
                    self.settle(&settled);
                    continue;
                }
            };
            match chunk {
                Ok(Some(chunk)) => self.feed(parser, &chunk),
                Ok(None) if self.ends_line() => self.feed(parser, b"\n"),
                Ok(None) => {
                    // WHATWG drops such an event; some servers end right after their answer.
                    let left = parser.left().and_then(|data| self.hear(&data).ok().flatten());
                    if let Some(outcome) = left {
                        return Ok(Ended::Answered(outcome));
                    }
                    let words = "the server ended the stream without an answer";
                    return Ok(Ended::Broken(unavailable(words)));
                }
                Err(failure) if failure.error.code == Code::UpstreamUnavailable => {
                    return Ok(Ended::Broken(failure));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Goes on answering while nothing is read.
    pub(super) async fn answer_for(&mut self, pause: Duration) {
        let over = tokio::time::sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return,
                settled = self.questions.next() => self.settle(&settled),
            }
        }
    }

    /// What one event or body holds; `Some`: the answer to our request.
    pub(super) fn hear(&mut self, data: &Bytes) -> Result<Option<Outcome>, Failure> {
        let mut answer = None;
        for message in wire::messages(data)? {
            answer = self.take(&message)?.or(answer);
        }
        Ok(answer)
    }

    /// One message; `Some`: the answer to our request.
    fn take(&mut self, data: &Bytes) -> Result<Option<Outcome>, Failure> {
        let spoken = wire::spoken(data)?;
        let spoken = match self.id {
            Some(id) => match spoken.answering(id) {
                Ok(outcome) => return Ok(Some(outcome)),
                Err(spoken) => spoken,
            },
            None => spoken,
        };
        self.heard += 1;
        match spoken {
            Spoken::Request { id, method, params } => self.asked(&id, &method, params),
            Spoken::Notification { method, params } => self.told(method, params),
            Spoken::Answer { .. } | Spoken::Nothing => {}
        }
        Ok(None)
    }

    fn told(&mut self, method: String, params: Option<Box<RawValue>>) {
        self.upstream.hints.heard(&method);
        match method.as_str() {
            "notifications/cancelled" => {
                if let Some(id) = wire::cancelled_by(params.as_deref()) {
                    self.questions.take_back(&id);
                }
                return;
            }
            // Of another request, or of none.
            "notifications/progress" if wire::progress_of(params.as_deref()) != self.id => return,
            _ => {}
        }
        if let Some(relay) = self.relay {
            relay.notify(method, params);
        }
    }

    fn asked(&mut self, id: &RawValue, method: &str, params: Option<Box<RawValue>>) {
        // From 2026-07-28 servers ask nothing on streams, and clients send no answers.
        if !self.link.has_sessions() {
            return;
        }
        let relay = self.relay.filter(|_| method != "ping");
        let passed_on = relay.is_some_and(|relay| self.questions.ask(relay, id, method, params));
        if !passed_on {
            self.upstream.answer(self.link, id, method, None);
        }
    }

    fn settle(&self, Settled { id, method, reply }: &Settled) {
        self.upstream.answer(self.link, id, method, reply.as_ref());
    }
}
