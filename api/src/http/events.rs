//! What happened in a session: a page of JSON, or a stream that goes on.

use std::{collections::VecDeque, convert::Infallible};

use app::{
    Ctx,
    events::{self, EventId},
    signals::{Hint, Listener},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header},
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use domain::{Caller, Code, Error, Timestamp, ids::SessionId, limits};
use futures::{Stream, stream};
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    id::Id,
    page::{List, Page, PageQuery},
};
use crate::{
    Api,
    caller::Authenticated,
    paths,
    problem::{BadQuery, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Something that happened in a session.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Event {
    /// Opaque; grows within the session.
    #[schema(value_type = String, example = "734-12")]
    pub id: EventId,
    #[schema(example = "permission.requested")]
    pub r#type: String,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub at: Timestamp,
    #[schema(value_type = Object)]
    pub data: Value,
}

impl From<events::Event> for Event {
    fn from(event: events::Event) -> Self {
        Self { id: event.id, r#type: event.kind, at: event.at, data: event.data }
    }
}

/// The events of one's own session that are later than `after`, oldest first: a page, or with
/// `Accept: text/event-stream` all of them and then the coming ones, each as one JSON `Event`.
///
/// A stream begins after `Last-Event-ID`, where that is sent, and no event is left out or sent twice.
/// It has a comment each 15 s, and ends when the token does.
#[utoipa::path(get, path = paths::SESSION_EVENTS, tag = "sessions",
    params(
        ("session" = Uuid, Path),
        PageQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Goes before `after`"),
    ),
    responses(
        (status = 200, content((List<Event> = "application/json"), (String = "text/event-stream"))),
        Refused, Missing, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(session): Id<SessionId>,
    mut page: Page,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Some(last) = headers.get("last-event-id").filter(|last| !last.is_empty()) {
        page.after = Some(String::from_utf8_lossy(last.as_bytes()).into_owned());
    }
    let after: Option<EventId> = page.after()?;
    // Before the first look, so that nothing falls between.
    let listener = ctx.signals.listen();
    let found = events::page(&ctx, &caller, session, after, page.rows()).await?;
    if !wants_stream(&headers) {
        return Ok(
            Json(List::<Event>::of(&page, found, |event| event.id.to_string())).into_response()
        );
    }
    let checked_at = Instant::now();
    let feed = Feed { ctx, caller, session, after, listener, checked_at, ready: found.into() };
    let alive = KeepAlive::new().interval(limits::SSE_COMMENT_MS.millis());
    Ok(Sse::new(feed.stream()).keep_alive(alive).into_response())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok())
        .flat_map(|accept| accept.split(','))
        .any(|range| {
            let media_type = range.split(';').next().unwrap_or_default();
            media_type.trim().eq_ignore_ascii_case("text/event-stream")
        })
}

/// One reader's place in a session.
struct Feed {
    ctx: Ctx,
    caller: Caller,
    session: SessionId,
    /// What was sent last.
    after: Option<EventId>,
    listener: Listener,
    /// When the caller was last known to be allowed this.
    checked_at: Instant,
    /// Read and not yet sent.
    ready: VecDeque<events::Event>,
}

impl Feed {
    /// Ends with the right to read, or with this process.
    fn stream(self) -> impl Stream<Item = Result<sse::Event, Infallible>> {
        stream::unfold(self, |mut feed| async move {
            let event = feed.next().await?;
            Some((Ok(render(event)), feed))
        })
    }

    async fn next(&mut self) -> Option<events::Event> {
        loop {
            if self.ctx.draining.is_cancelled() || !self.still_allowed().await {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                self.after = Some(event.id);
                return Some(event);
            }
            self.ready = self.read().await?;
            if self.ready.is_empty() {
                self.wait().await;
            }
        }
    }

    /// `None`: there is nothing to read here any more.
    async fn read(&self) -> Option<VecDeque<events::Event>> {
        let rows = i64::try_from(limits::PAGE_ITEMS.ceiling).unwrap_or(i64::MAX);
        match events::page(&self.ctx, &self.caller, self.session, self.after, rows).await {
            Ok(events) => Some(events.into()),
            Err(error) if error.code == Code::Unavailable => Some(VecDeque::new()),
            Err(error) => {
                ended(&error);
                None
            }
        }
    }

    async fn wait(&mut self) {
        let session = self.session;
        tokio::select! {
            () = self.listener.wait(|hint| hint == Hint::Events(session)) => {}
            // Also finds what was held back by a transaction that has ended since.
            () = sleep(limits::EVENT_POLL_MS.millis()) => {}
            () = self.ctx.draining.cancelled() => {}
        }
    }

    async fn still_allowed(&mut self) -> bool {
        if self.checked_at.elapsed() < limits::SSE_COMMENT_MS.millis() {
            return true;
        }
        match app::identity::recheck(&self.ctx, &self.caller).await {
            Ok(caller) => {
                self.caller = caller;
                self.checked_at = Instant::now();
                true
            }
            // Without a database there is nothing to read either.
            Err(error) if error.code == Code::Unavailable => true,
            Err(error) => {
                ended(&error);
                false
            }
        }
    }
}

fn ended(error: &Error) {
    tracing::debug!(code = %error.code, error = error as &dyn std::error::Error, "event stream ended");
}

fn render(event: events::Event) -> sse::Event {
    let id = event.id.to_string();
    let data = serde_json::to_string(&Event::from(event)).unwrap_or_default();
    sse::Event::default().id(id).data(data)
}
