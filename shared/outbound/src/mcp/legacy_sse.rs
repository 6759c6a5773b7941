//! HTTP+SSE of MCP 2024-11-05 (basic/transports, "HTTP with SSE"): one event stream from the server,
//! whose first event names the address that takes our messages.

use std::sync::Arc;

use bytes::Bytes;
use domain::{Code, Error, limits};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    SharedAuthority,
    channel::{Means, Trail},
    door::Door,
    duplex::{Outgoing, Oversize, Table},
    exchange::{error_body, media_type, shared_headers},
    sse::{Event, Parser},
};
use crate::{
    egress::Destination,
    http::{Body, Failure, GuardedHttp, Ran, drain, status_failure},
    words,
};

pub(super) const SESSION_LOST: &str = "the server does not know the session any more";

/// Sends messages.
#[derive(Debug)]
pub(super) struct Poster {
    door: Door,
    endpoint: Url,
    headers: HeaderMap,
}

/// What the server says.
pub(super) struct Stream {
    body: Body,
    parser: Parser,
    skipping: Option<Skip>,
}

/// A message that the server did not take.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: Option<StatusCode>,
    pub(super) failure: Failure,
    pub(super) session_lost: bool,
}

/// Opens the stream and waits for the address of our messages, which must be of the same origin:
/// credentials go nowhere else.
///
/// `UPSTREAM_FORMAT` for anything else than such a stream; `TIMEOUT` where it names no address within
/// [`limits::SSE_ENDPOINT_MS`]; otherwise as any HTTP request.
pub(super) async fn open(
    http: &GuardedHttp,
    url: &Url,
    given: &[(HeaderName, SecretString)],
    secrets: Vec<SecretString>,
    authority: Option<SharedAuthority>,
) -> Result<(Poster, Stream), Error> {
    let shared = shared_headers(given)?;
    let door = Door::new(http.open(url, Destination::Configured)?, authority, secrets);
    let opening = async {
        let mut headers = shared.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let (get, none, trail) = (Method::GET, Bytes::new(), Trail::default());
        let reply = door.send(&get, url, &headers, &none, &trail).await.map_err(|f| f.error)?;
        let status = reply.response.status();
        if !status.is_success() {
            return Err(refused(reply.response, &door.secrets()).await.error);
        }
        if media_type(reply.response.headers()) != "text/event-stream" {
            return Err(unfit("the server answered with no event stream"));
        }
        let mut stream = Stream {
            body: Body::new(reply.response, u64::MAX),
            parser: Parser::default(),
            skipping: None,
        };
        let endpoint = stream.endpoint(&reply.url).await?;
        Ok((stream, endpoint))
    };
    let in_time = tokio::time::timeout(limits::SSE_ENDPOINT_MS.millis(), opening).await;
    let (stream, endpoint) = in_time.unwrap_or_else(|_| {
        let words = "the server did not name the address of its messages in time";
        Err(Error::new(Code::Timeout, words))
    })?;
    let mut headers = shared;
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    Ok((Poster { door, endpoint, headers }, stream))
}

/// Reads the stream until it ends or `stop`.
pub(super) fn attend(
    means: &Means,
    own: bool,
    secrets: Vec<SecretString>,
    poster: Poster,
    stream: Stream,
    stop: CancellationToken,
) -> (Arc<Table>, Arc<Poster>) {
    let (answers, orders) = mpsc::channel(limits::DUPLEX_QUEUE.size());
    let table = Table::new(means, own, secrets, answers);
    let poster = Arc::new(poster);
    means.tasks.spawn(read(Arc::clone(&table), stream, stop));
    means.tasks.spawn(post_answers(Arc::clone(&table), Arc::clone(&poster), orders));
    (table, poster)
}

async fn read(table: Arc<Table>, mut stream: Stream, stop: CancellationToken) {
    let reading = async {
        loop {
            match stream.next(|| table.largest()).await {
                Ok(Some(Said::Event(Event { kind, data }))) => {
                    if matches!(kind.as_str(), "" | "message") {
                        table.take(&data);
                    }
                }
                Ok(Some(Said::TooLong(message))) => {
                    if !table.take_oversize(&message) {
                        let words = "the server sent a message that is larger than any limit";
                        return table.end(Code::ResponseTooLarge, words, None);
                    }
                }
                Ok(None) => {
                    let words = "the server ended the stream without an answer";
                    return table.end(Code::UpstreamUnavailable, words, None);
                }
                Err(failure) => {
                    tracing::debug!(error = %failure.error, "a stream of a server broke");
                    return table.end(failure.error.code, &failure.error.public, None);
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {
            table.end(Code::UpstreamUnavailable, "the connection to the server was closed", None);
        }
        () = table.ended() => {}
        () = reading => {}
    }
}

/// What nobody waits for: our answers to requests of the server, one after the other.
async fn post_answers(
    table: Arc<Table>,
    poster: Arc<Poster>,
    mut orders: mpsc::Receiver<Outgoing>,
) {
    let work = async {
        while let Some(order) = orders.recv().await {
            let trail = Trail::default();
            let posting = poster.post(order.body(), 0, &trail);
            match tokio::time::timeout(limits::FAREWELL_TIMEOUT_MS.millis(), posting).await {
                Ok(Ok(_)) => {}
                Ok(Err(refusal)) => {
                    tracing::debug!(error = %refusal.failure.error, "not told to the server");
                }
                Err(_) => tracing::debug!("not told to the server: it does not answer"),
            }
        }
    };
    tokio::select! {
        () = table.ended() => {}
        () = work => {}
    }
}

impl Poster {
    /// Sends one message. The answer comes on the stream; a server that puts it into the response
    /// instead gets it back from here, where it is at most `cap` bytes.
    pub(super) async fn post(
        &self,
        body: &Bytes,
        cap: u64,
        trail: &Trail,
    ) -> Result<Option<Bytes>, Refusal> {
        let sending = self.door.send(&Method::POST, &self.endpoint, &self.headers, body, trail);
        let response = sending.await.map_err(Refusal::of)?.response;
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            drain(response).await;
            // It did not look at the message: there is nobody to have got it.
            let error = Error::new(Code::UpstreamUnavailable, SESSION_LOST);
            let failure = Failure { error, ran: Ran::No };
            return Err(Refusal { status: Some(status), failure, session_lost: true });
        }
        if !status.is_success() {
            let failure = refused(response, &self.door.secrets()).await;
            return Err(Refusal { status: Some(status), failure, session_lost: false });
        }
        if cap == 0 || media_type(response.headers()) != "application/json" {
            drain(response).await;
            return Ok(None);
        }
        let answer = Body::new(response, cap).read().await.map_err(Refusal::of)?;
        // Some say "Accepted" as JSON.
        Ok(Some(answer).filter(|answer| answer.trim_ascii_start().first() == Some(&b'{')))
    }
}

impl Refusal {
    fn of(failure: Failure) -> Self {
        Self { status: None, failure, session_lost: false }
    }
}

/// What a status other than 2xx means.
async fn refused(response: reqwest::Response, secrets: &[SecretString]) -> Failure {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = error_body(response).await;
    // A page is nobody's words.
    let is_page = media_type(&headers) == "text/html";
    let text = if is_page { String::new() } else { String::from_utf8_lossy(&body).into_owned() };
    status_failure(status, &headers, words::masked(&text, secrets).as_bytes())
}

enum Said {
    Event(Event),
    /// Over the cap, and not kept.
    TooLong(Oversize),
}

impl Stream {
    /// Waits for the address of our messages. Relative to where the stream came from.
    async fn endpoint(&mut self, base: &Url) -> Result<Url, Error> {
        let cap = || limits::URL_CHARS.default;
        loop {
            match self.next(cap).await.map_err(|failure| failure.error)? {
                Some(Said::Event(Event { kind, data })) if kind == "endpoint" => {
                    let named = String::from_utf8_lossy(&data);
                    let Ok(endpoint) = base.join(named.trim()) else {
                        return Err(unfit("the server names an address that is no URL"));
                    };
                    if endpoint.origin() != base.origin() {
                        return Err(unfit("the server wants its messages sent elsewhere"));
                    }
                    return Ok(endpoint);
                }
                Some(_) => {}
                None => return Err(unfit("the server names no address for messages")),
            }
        }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self, cap: impl Fn() -> u64) -> Result<Option<Said>, Failure> {
        loop {
            if let Some(event) = self.parser.next() {
                return Ok(Some(Said::Event(event)));
            }
            if self.skipping.is_none() && self.parser.held() > cap() {
                self.skipping = Some(Skip::begun(&self.parser));
                self.parser = Parser::default();
            }
            let Some(chunk) = self.body.chunk().await? else { return Ok(None) };
            let Some(skip) = &mut self.skipping else {
                self.parser.feed(&chunk);
                continue;
            };
            if let Some(next) = skip.eat(&chunk) {
                let skipped = self.skipping.take().map(|skip| Said::TooLong(skip.oversize));
                self.parser.feed(&chunk[next..]);
                return Ok(skipped);
            }
        }
    }
}

/// An event that is too long to keep: up to the blank line that ends it.
struct Skip {
    oversize: Oversize,
    /// Bytes of the present line.
    line: usize,
    after_cr: bool,
}

impl Skip {
    fn begun(parser: &Parser) -> Self {
        let (data, line) = parser.unfinished();
        let rest = line.strip_prefix(b"data:").unwrap_or(line);
        let mut oversize = Oversize::begun(if data.is_empty() { rest } else { data });
        if !data.is_empty() {
            oversize.extend(rest);
        }
        Self { oversize, line: line.len(), after_cr: false }
    }

    /// Where the next event begins, if this one ends here.
    fn eat(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            let after_cr = std::mem::replace(&mut self.after_cr, *byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' if self.line == 0 => {
                    // The LF of a CRLF goes with it.
                    let crlf = *byte == b'\r' && bytes.get(at + 1) == Some(&b'\n');
                    return Some(at + 1 + usize::from(crlf));
                }
                b'\n' | b'\r' => {
                    self.oversize.extend(&bytes[at.saturating_sub(self.line)..at]);
                    self.line = 0;
                }
                _ => self.line += 1,
            }
        }
        self.oversize.extend(&bytes[bytes.len().saturating_sub(self.line)..]);
        None
    }
}

fn unfit(words: &str) -> Error {
    Error::new(Code::UpstreamFormat, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_event_ends_at_its_blank_line_whatever_the_line_ends() {
        for end in ["\n", "\r\n", "\r"] {
            let mut parser = Parser::default();
            parser.feed(format!("event: message{end}data: {{\"jsonrpc\":\"2.0\",").as_bytes());
            let rest = format!("\"id\":7,\"result\":\"xx\"}}{end}{end}data: next");
            for size in [1, 3, 100] {
                let mut skip = Skip::begun(&parser);
                let mut eaten = 0;
                let found = rest.as_bytes().chunks(size).find_map(|piece| {
                    let found = skip.eat(piece).map(|at| eaten + at);
                    eaten += piece.len();
                    found
                });
                let next = rest[found.unwrap()..].trim_start_matches('\n');
                assert_eq!(next, "data: next", "{end:?} {size}");
            }
        }
    }
}
