//! From the ends of requests to one HTTP answer: a JSON object (or array) if all end soon, else an
//! event stream (MCP: Streamable HTTP, "Receiving Messages"; WHATWG: Server-sent events).

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::{Code, Error, limits};
use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use super::{fault::Fault, message::RequestId, voice::Said};

/// How one request ends.
#[derive(Debug)]
pub(super) enum Answer {
    /// A JSON-RPC response, and the HTTP status of an answer that holds nothing else.
    Message(StatusCode, String),
    /// Nothing is said: the client cancelled the request.
    Silent,
    /// No answer of ours: the caller or the session is at fault.
    Refused(RequestId, Error),
}

impl From<Fault> for Answer {
    fn from(fault: Fault) -> Self {
        Self::Message(fault.status, fault.json())
    }
}

/// A request on its way to its answer. Dropped, its caller has hung up.
pub(super) type Work = BoxFuture<'static, Answer>;

/// Whether one message was asked, or a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    One,
    Batch,
}

/// Waits for the work, then answers. What is `said` before its end makes the answer a stream, too.
/// `refuse` renders an error that HTTP has a status for.
pub(super) async fn respond(
    work: Vec<Work>,
    mut said: Said,
    form: Form,
    refuse: impl Fn(&Error) -> Response,
) -> Response {
    let mut work: FuturesUnordered<Work> = work.into_iter().collect();
    let mut messages = VecDeque::new();
    let mut status = StatusCode::OK;
    let cut = sleep(limits::GATEWAY_DIRECT_MS.millis());
    tokio::pin!(cut);
    loop {
        let answer = tokio::select! {
            biased;
            json = said.next() => {
                messages.push_back(json);
                return stream(work, said, messages);
            }
            answer = work.next() => answer,
            () = &mut cut => return stream(work, said, messages),
        };
        if let Some(json) = said.left() {
            messages.push_back(json);
            messages.extend(std::iter::from_fn(|| said.left()));
            messages.extend(answer.and_then(text));
            return stream(work, said, messages);
        }
        match answer {
            None => break,
            Some(Answer::Refused(_, error)) if has_status(error.code) => return refuse(&error),
            Some(answer) => {
                if let Answer::Message(own, _) = &answer {
                    status = *own;
                }
                messages.extend(text(answer));
            }
        }
    }
    if messages.is_empty() {
        // A request was made, so there must be a body; a stream may end without a response.
        return stream(work, said, messages);
    }
    match form {
        Form::One => json(status, messages.pop_front().unwrap_or_default()),
        Form::Batch => json(StatusCode::OK, format!("[{}]", Vec::from(messages).join(","))),
    }
}

/// A stream that lasts as long as its work, whose answer is its end.
pub(super) fn open(work: Work, said: Said) -> Response {
    stream(std::iter::once(work).collect(), said, VecDeque::new())
}

/// Errors that clients know as a status of HTTP: sign in, or begin a new session.
fn has_status(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::Denied | Code::NotFound)
}

/// The JSON-RPC response, if one is to be sent.
fn text(answer: Answer) -> Option<String> {
    match answer {
        Answer::Message(_, text) => Some(text),
        Answer::Silent => None,
        Answer::Refused(id, error) => {
            if error.code == Code::Internal {
                tracing::error!(error = &error as &dyn std::error::Error, "gateway request failed");
            }
            Some(Fault::from_error(&error, Some(id)).json())
        }
    }
}

/// One JSON-RPC message, or an array of them.
pub(super) fn json(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text)
        .into_response()
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        json(self.status, self.json())
    }
}

struct Open {
    work: FuturesUnordered<Work>,
    said: Said,
    ready: VecDeque<String>,
    beat: Interval,
}

/// An event for each response as it comes; comments keep the connection alive meanwhile. Dropping the
/// stream drops the work: that is how hanging up is noticed.
fn stream(work: FuturesUnordered<Work>, said: Said, ready: VecDeque<String>) -> Response {
    let period: Duration = limits::SSE_COMMENT_MS.millis();
    let mut beat = interval_at(Instant::now() + period, period);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let open = Open { work, said, ready, beat };
    let events = stream::unfold(open, |mut open| async {
        let frame = next_frame(&mut open).await?;
        Some((Ok::<_, Infallible>(frame), open))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        // Proxies must not gather events (MCP: Streamable HTTP, "Receiving Messages").
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(events)).into_response()
}

async fn next_frame(open: &mut Open) -> Option<Bytes> {
    if let Some(text) = open.ready.pop_front() {
        return Some(event(&text));
    }
    loop {
        tokio::select! {
            biased;
            json = open.said.next() => return Some(event(&json)),
            answer = open.work.next() => {
                // What its author said before comes before it.
                open.ready.extend(std::iter::from_fn(|| open.said.left()));
                open.ready.extend(answer.and_then(text));
                // Without either, that was the end of the work, or one that ends without a word.
                match open.ready.pop_front() {
                    Some(json) => return Some(event(&json)),
                    None if open.work.is_empty() => return None,
                    None => {}
                }
            }
            _ = open.beat.tick() => return Some(Bytes::from_static(b": waiting\n\n")),
        }
    }
}

/// One `message` event. JSON may hold line ends between its values; each line is a `data` field, and
/// the reader joins them again.
fn event(json: &str) -> Bytes {
    let mut frame = String::with_capacity(json.len() + 32);
    frame.push_str("event: message\n");
    for line in json.split(['\n', '\r']) {
        frame.push_str("data: ");
        frame.push_str(line);
        frame.push('\n');
    }
    frame.push('\n');
    Bytes::from(frame)
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use http_body_util::BodyExt;

    use super::{super::voice::Voice, *};

    fn ended(text: &str) -> Work {
        let answer = Answer::Message(StatusCode::OK, text.to_owned());
        Box::pin(async { answer })
    }

    fn late(text: &str, after: u64) -> Work {
        let answer = Answer::Message(StatusCode::OK, text.to_owned());
        Box::pin(async move {
            sleep(Duration::from_millis(after)).await;
            answer
        })
    }

    async fn told(work: Vec<Work>, form: Form) -> (String, String) {
        said(work, Voice::channel().1, form).await
    }

    async fn said(work: Vec<Work>, said: Said, form: Form) -> (String, String) {
        let response = respond(work, said, form, |_| StatusCode::NOT_FOUND.into_response()).await;
        let content_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (content_type, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn what_ends_soon_is_one_json_object() {
        let answer = told(vec![ended("{}")], Form::One).await;
        assert_eq!(answer, ("application/json".into(), "{}".into()));
    }

    #[tokio::test]
    async fn a_batch_is_an_array_even_of_one() {
        let answer = told(vec![ended("{}")], Form::Batch).await;
        assert_eq!(answer, ("application/json".into(), "[{}]".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_late_is_an_event_after_comments() {
        let answer = told(vec![late("{\"a\":\r\n1}", 31_000)], Form::One).await;
        let comments = ": waiting\n\n".repeat(2);
        let events = format!("{comments}event: message\ndata: {{\"a\":\ndata: \ndata: 1}}\n\n");
        assert_eq!(answer, ("text/event-stream".into(), events));
    }

    #[tokio::test(start_paused = true)]
    async fn the_early_answers_of_a_batch_are_the_first_events() {
        let (_, events) = told(vec![late("2", 1_000), ended("1")], Form::Batch).await;
        assert_eq!(events, "event: message\ndata: 1\n\nevent: message\ndata: 2\n\n");
    }

    #[tokio::test]
    async fn what_is_said_before_the_answer_comes_before_it() {
        let (voice, heard) = Voice::channel();
        let work: Work = Box::pin(async move {
            assert!(voice.say("1".to_owned()).await && voice.say("2".to_owned()).await);
            Answer::Message(StatusCode::OK, "3".to_owned())
        });
        let (kind, events) = said(vec![work], heard, Form::One).await;
        assert_eq!(kind, "text/event-stream");
        let expected = ["1", "2", "3"].map(|data| format!("event: message\ndata: {data}\n\n"));
        assert_eq!(events, expected.concat());
    }

    #[tokio::test]
    async fn a_cancelled_request_is_answered_by_an_empty_stream() {
        let silent: Work = Box::pin(async { Answer::Silent });
        let answer = told(vec![silent], Form::One).await;
        assert_eq!(answer, ("text/event-stream".into(), String::new()));
    }
}
