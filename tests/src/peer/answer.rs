//! What a peer can answer, and how it is put on the wire.

use std::io::Write;

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Response, StatusCode, header};

/// An answer to one request. In raw texts `$ID` stands for the request's id.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A result whose structured content is the arguments as they came, and a text that repeats them.
    Echo,
    /// Raw JSON of `result`.
    Result(String),
    /// A JSON-RPC error with status 200.
    Error { code: i64, message: String },
    /// Any status, with headers and body.
    Status { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// 200 with any content.
    Content { kind: &'static str, body: String },
    /// A result with a text of this many bytes.
    Large(usize),
    /// The same, compressed; the peer cares about no `Accept-Encoding`.
    Compressed(usize),
    /// A stream of these pieces, whole or broken off at its end.
    Stream { pieces: Vec<String>, broken: bool },
    /// A stream that ends after an event with an id; GET with `Last-Event-ID` gives the answer.
    Resumable(Box<Answer>),
    /// A stream that does this and that; `$REPLY` stands for what it waited for.
    Talk(Vec<Step>),
    /// Waits for [`release`](super::Peer::release) first.
    Hold(Box<Answer>),
    /// The connection ends without a byte.
    Cut,
}

/// What happens in a stream.
#[derive(Debug, Clone)]
pub enum Step {
    /// A message.
    Say(String),
    /// Anything, as it is.
    Raw(String),
    /// Waits until the client answered the request with this id (raw JSON).
    Reply(&'static str),
    /// Waits for [`release`](super::Peer::release).
    Release,
    /// The connection breaks.
    Break,
}

impl Step {
    #[must_use]
    pub fn say(message: &str) -> Self {
        Self::Say(message.to_owned())
    }
}

impl Answer {
    /// A result that nobody's model knows: a content type of the future, unknown members at every
    /// level, numbers beyond 64 bits and of odd form, an empty key, a repeated key's order.
    #[must_use]
    pub fn odd_result() -> String {
        r#"{ "content":[{"type":"hologram","depth":3,"payload":{"b":1,"a":[ ]}},{"type":"text","text":"ok","unknown":null}],
 "structuredContent":{"huge":123456789012345678901234567890,"tiny":1.0e-400,"minus":-0.0,"exact":1.10,"":"\u00e9/\/"},
 "_meta":{"vendor/x":18446744073709551616},"isError":false,"later":{"z":1,"a":2}}"#
            .to_owned()
    }

    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Status { status, headers: Vec::new(), body: String::new() }
    }

    #[must_use]
    pub fn redirect(status: u16, location: &str) -> Self {
        let headers = vec![("location", location.to_owned())];
        Self::Status { status, headers, body: String::new() }
    }

    #[must_use]
    pub fn held(self) -> Self {
        Self::Hold(Box::new(self))
    }
}

/// How a JSON-RPC message is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Json,
    /// One event, LF.
    Sse,
    /// CRLF, a comment and a notification before the answer.
    SseCrlf,
    /// The message over several `data` lines, cut at its own line ends and between its tokens.
    SseLines,
}

pub(super) fn framed(framing: Framing, message: &str) -> Response<Body> {
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}"#;
    let events = match framing {
        Framing::Json => return content("application/json", message.to_owned()),
        Framing::Sse => format!("event: message\ndata: {}\n\n", one_line(message)),
        Framing::SseCrlf => format!(
            ": hello\r\n\r\nevent: message\r\ndata: {notification}\r\n\r\nid: 7\r\nevent: message\r\ndata: {}\r\n\r\n",
            one_line(message)
        ),
        Framing::SseLines => {
            let cut = message.replacen('{', "{\n", 1);
            let lines: Vec<String> = cut.lines().map(|line| format!("data: {line}\n")).collect();
            format!("{}\n", lines.concat())
        }
    };
    // In small pieces, so that line ends and characters are cut as well.
    let piece = if events.len() < 65_536 { 5 } else { 16_384 };
    let pieces: Vec<Bytes> = events.as_bytes().chunks(piece).map(Bytes::copy_from_slice).collect();
    let pieces = stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
    respond("text/event-stream; charset=utf-8", Body::from_stream(pieces))
}

/// An event's data cannot hold a line end.
fn one_line(message: &str) -> String {
    message.replace('\n', " ")
}

pub(super) fn content(kind: &str, body: String) -> Response<Body> {
    respond(kind, Body::from(body))
}

pub(super) fn respond(kind: &str, body: Body) -> Response<Body> {
    Response::builder().header(header::CONTENT_TYPE, kind).body(body).expect("a legal content type")
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    Response::builder().status(status).body(Body::empty()).expect("nothing can be wrong with it")
}

pub(super) fn streamed(pieces: Vec<String>, broken: bool) -> Response<Body> {
    let whole = stream::iter(pieces.into_iter().map(|piece| Ok(Bytes::from(piece))));
    let end = stream::iter(broken.then(|| Err(std::io::Error::other("broken on purpose"))));
    respond("text/event-stream", Body::from_stream(whole.chain(end)))
}

pub(super) fn compressed(message: &str) -> Response<Body> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(message.as_bytes()).expect("memory takes it");
    let mut response =
        respond("application/json", Body::from(encoder.finish().expect("memory takes it")));
    response
        .headers_mut()
        .insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    response
}
