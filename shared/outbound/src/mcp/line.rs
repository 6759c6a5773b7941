//! A session on its channel, and long or broken-off requests in it.

use std::{sync::Arc, time::Duration};

use domain::{Code, Error, limits};
use http::StatusCode;
use rmcp::model::ErrorCode;
use serde_json::{json, value::RawValue};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::task::TaskTracker;

use super::{
    Call, FromServer, Relay, What,
    channel::{self, Channel, Fault, Trail},
    exchange::Upstream,
    handshake::Session,
    params, wire,
};

/// What a request needs that is not bound to its client's life. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) channel: Channel,
    pub(super) tasks: TaskTracker,
    pub(super) session: Arc<Session>,
}

/// Told once, when the server speaks or why it does not; with the params of its acknowledgment.
pub(super) type Ready = oneshot::Sender<Result<Option<Box<RawValue>>, Error>>;

impl Line {
    /// Passes on what the server says outside of requests, until it ends that. In the newer era
    /// `filter` chooses; before it everything comes.
    pub(super) async fn hear(&self, filter: &RawValue, relay: &Relay, ready: Ready) {
        match &self.channel {
            _ if !self.session.link.has_sessions() => self.subscribe(filter, relay, ready).await,
            Channel::Http(upstream) => self.stand(upstream, relay, ready).await,
            Channel::Duplex(duplex) => {
                let mut said = duplex.listen();
                // Nobody waits: there is nothing to say to them either.
                let _nobody = ready.send(Ok(None));
                while let Some(message) = said.recv().await {
                    relay.pass(message).await;
                }
            }
        }
    }

    async fn stand(&self, upstream: &Arc<Upstream>, relay: &Relay, ready: Ready) {
        let link = &self.session.link;
        let response = match upstream.open_standing(link, None).await {
            Ok(response) => response,
            Err(fault) => {
                let _nobody = ready.send(Err(not_heard(fault)));
                return;
            }
        };
        let _nobody = ready.send(Ok(None));
        upstream.stand(link, response, relay).await;
    }

    /// `subscriptions/listen` (2026-07-28, basic/patterns/subscriptions): a request whose answer is
    /// the end. One that breaks off is made anew.
    async fn subscribe(&self, filter: &RawValue, relay: &Relay, ready: Ready) {
        let mut ready = Some(ready);
        let (mut quiet, mut failures) = (0, 0);
        loop {
            let began = Instant::now();
            let (spoke, outcome) = self.subscribe_once(filter, relay, &mut ready).await;
            if let Some(ready) = ready.take() {
                let _nobody = ready.send(outcome.map(|()| None).map_err(not_heard));
                return;
            }
            match outcome {
                Err(Fault::Failed { failure, .. }) if failure.error.retryable() => {}
                // Ended in good order, or refused for good.
                _ => return,
            }
            failures = if spoke { 0 } else { failures + 1 };
            if failures > limits::STREAM_RESUMES.default {
                return;
            }
            let lived = spoke && began.elapsed() >= limits::STANDING_QUIET_MS.millis();
            quiet = if lived { 0 } else { quiet + 1 };
            tokio::time::sleep(slower(limits::STREAM_RETRY_MS.millis(), quiet)).await;
        }
    }

    /// Whether the server acknowledged it, and how it ended.
    async fn subscribe_once(
        &self,
        filter: &RawValue,
        relay: &Relay,
        ready: &mut Option<Ready>,
    ) -> (bool, Result<(), Fault>) {
        let message = match self.subscription(filter) {
            Ok(message) => message,
            Err(error) => return (false, Err(error.into())),
        };
        let (inner, mut said) = Relay::channel();
        let trail = Trail::default();
        let mut abandoned = Abandoned::arm(self, message.id);
        let request = self.channel.request(
            &self.session.link,
            &message,
            channel::ENDLESS,
            &trail,
            Some(&inner),
        );
        tokio::pin!(request);
        let mut spoke = false;
        let mut take = |said: FromServer| {
            spoke = true;
            // A request has no place here: dropped, it is refused.
            let FromServer::Notification { method, params } = said else { return };
            let acknowledges = method == "notifications/subscriptions/acknowledged";
            if !acknowledges {
                relay.notify(method, params.clone());
            }
            if let Some(ready) = ready.take() {
                let _nobody = ready.send(Ok(params.filter(|_| acknowledges)));
            }
        };
        let outcome = loop {
            tokio::select! {
                biased;
                Some(said) = said.recv() => take(said),
                outcome = &mut request => break outcome,
            }
        };
        while let Ok(said) = said.try_recv() {
            take(said);
        }
        abandoned.disarm();
        (spoke, outcome.map(|_| ()))
    }

    fn subscription(&self, filter: &RawValue) -> Result<wire::Message, Error> {
        let params = RawValue::from_string(format!(r#"{{"notifications":{filter}}}"#))
            .map_err(Error::internal)?;
        let method = "subscriptions/listen";
        let what = What::Request { method, params: Some(params.into()), input: None };
        let sender = self.session.sender.as_ref();
        params::message(self.channel.next_id(), &Call::plain(what), sender)
    }
}

/// Why nothing can be heard from a server.
fn not_heard(fault: Fault) -> Error {
    match fault {
        Fault::Lost => channel::session_lost(),
        Fault::Rpc { error, .. } if error.code == i64::from(ErrorCode::METHOD_NOT_FOUND.0) => {
            channel::not_offered()
        }
        Fault::Rpc { error, .. } => {
            error.into_error(Code::UpstreamFormat, "the server refused to be listened to")
        }
        Fault::Failed {
            status: Some(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED),
            ..
        } => channel::not_offered(),
        Fault::Failed { failure, .. } => failure.error,
    }
}

/// Twice as long for each time that nothing came of it.
pub(super) fn slower(pause: Duration, times: u32) -> Duration {
    let longest = limits::STANDING_QUIET_MS.millis().max(pause);
    pause.saturating_mul(1 << times.min(10)).min(longest)
}

/// Tells the server that nobody waits for a request any more, if dropped before its end: the caller
/// cancelled, its deadline passed, or it was dropped itself. Over HTTP, in the newer era, closing the
/// connection says it.
pub(super) struct Abandoned {
    line: Line,
    request: Option<u64>,
}

impl Abandoned {
    pub(super) fn arm(line: &Line, request: Option<u64>) -> Self {
        let told = line.session.link.has_sessions() || matches!(line.channel, Channel::Duplex(_));
        Self { line: line.clone(), request: request.filter(|_| told) }
    }

    pub(super) fn disarm(&mut self) {
        self.request = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some(id) = self.request else { return };
        let params = json!({ "requestId": id, "reason": "nobody waits for it any more" });
        let Ok(message) = wire::message(None, "notifications/cancelled", Some(params)) else {
            return;
        };
        let Line { channel, session, tasks } = self.line.clone();
        channel::farewell(&tasks, async move {
            channel.notify(&session.link, &message, &Trail::default()).await
        });
    }
}
