//! The stream of what a server says outside of any request (GET, 2025-03-26 to 2025-11-25).

use std::sync::Arc;

use bytes::Bytes;
use domain::limits;
use http::{HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;

use super::{Fault, Link, Relay, Trail, Upstream, media_type, pause, stream::Conversation, unfit};
use crate::{
    http::{Body, Failure, drain},
    mcp::{channel, line::slower, sse::Parser, wire},
};

/// No event of it may be larger.
const EVENT_CAP: u64 = limits::RESPONSE_BYTES.default;

impl Upstream {
    /// A GET that a stream answers; inside: its response, or another than a stream.
    pub(super) async fn get(
        &self,
        link: &Link,
        last_event_id: Option<&str>,
        trail: &Trail,
    ) -> Result<Result<reqwest::Response, reqwest::Response>, Failure> {
        let mut headers = self.addressed(link);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last_event_id {
            let last = HeaderValue::from_str(last)
                .map_err(|_| unfit("the server's event id cannot stand in a header"))?;
            headers.insert(wire::LAST_EVENT_ID, last);
        }
        let none = Bytes::new();
        let reply = self.door.send(&Method::GET, self.at(link), &headers, &none, trail).await?;
        let response = reply.response;
        let streams =
            response.status().is_success() && media_type(response.headers()) == "text/event-stream";
        Ok(if streams { Ok(response) } else { Err(response) })
    }

    /// Opens the stream. `NOT_FOUND` with the mark of [`channel::not_offered`] where the server has
    /// none, [`Fault::Lost`] where it does not know the session.
    pub(in crate::mcp) async fn open_standing(
        &self,
        link: &Link,
        last_event_id: Option<&str>,
    ) -> Result<reqwest::Response, Fault> {
        let refused = match self.get(link, last_event_id, &Trail::default()).await? {
            Ok(response) => return Ok(response),
            Err(refused) => refused,
        };
        match refused.status() {
            StatusCode::NOT_FOUND if link.session.is_some() => {
                drain(refused).await;
                Err(Fault::Lost)
            }
            status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
                Err(self.refusal(refused).await)
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
                Err(self.refusal(refused).await)
            }
            _ => {
                drain(refused).await;
                Err(channel::not_offered().into())
            }
        }
    }

    /// Reads the stream, and opens it again where it ended, as long as the server allows that.
    pub(in crate::mcp) async fn stand(
        self: &Arc<Self>,
        link: &Link,
        mut response: reqwest::Response,
        relay: &Relay,
    ) {
        let mut talk = Conversation::new(self, link, None, Some(relay));
        let mut parser = Parser::default();
        let mut quiet = 0;
        loop {
            let (began, heard) = (Instant::now(), talk.heard);
            let mut body = Body::new(response, channel::ENDLESS);
            if let Err(failure) = talk.read(&mut parser, &mut body, EVENT_CAP).await {
                tracing::debug!(error = %failure.error, "a server's own stream cannot be read");
                return;
            }
            let lived = talk.heard > heard || began.elapsed() >= limits::STANDING_QUIET_MS.millis();
            quiet = if lived { 0 } else { quiet + 1 };
            parser = parser.restart();
            let mut failures = 0;
            response = loop {
                talk.answer_for(slower(pause(parser.retry), quiet + failures)).await;
                match self.open_standing(link, parser.last_event_id.as_deref()).await {
                    Ok(response) => break response,
                    Err(Fault::Failed { failure, .. })
                        if failure.error.retryable()
                            && u64::from(failures) < limits::STREAM_RESUMES.default =>
                    {
                        failures += 1;
                    }
                    Err(_) => return,
                }
            };
        }
    }
}
