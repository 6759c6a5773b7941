//! A proxy that keeps every message which passes, of both sides.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, header};
use serde_json::Value;
use tokio::net::TcpListener;
use url::Url;

/// Who said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Client => "Client",
            Self::Server => "Server",
        }
    }
}

/// A message, and under which version it was said.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) hop: &'static str,
    pub(super) version: String,
    pub(super) from: Side,
    /// The method of the request that it answers.
    pub(super) answers: Option<String>,
    pub(super) message: Value,
}

impl fmt::Display for Seen {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.message.to_string();
        let short: String = text.chars().take(600).collect();
        write!(to, "{} {} {}: {short}", self.hop, self.version, self.from.name())
    }
}

#[derive(Debug, Default)]
struct Corpus {
    seen: Vec<Seen>,
    /// By MCP session.
    versions: HashMap<String, String>,
    /// What servers asked, by MCP session and id.
    asked: HashMap<(String, String), String>,
}

#[derive(Debug, Clone)]
pub(super) struct Tap {
    hop: &'static str,
    /// Scheme, host and port.
    to: Url,
    http: reqwest::Client,
    corpus: Arc<Mutex<Corpus>>,
}

/// One exchange over HTTP.
#[derive(Debug, Clone)]
struct Exchange {
    tap: Tap,
    session: String,
    version: Option<String>,
    posted: Option<(Value, String)>,
}

impl Tap {
    /// In front of `to`; and where it listens, with the path of `to`.
    pub(super) async fn before(hop: &'static str, to: &Url) -> (Self, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut url = to.clone();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let tap = Self { hop, to: to.clone(), http, corpus: Arc::default() };
        let router = axum::Router::new().fallback(pass).with_state(tap.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (tap, url)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.corpus.lock().unwrap().seen.clone()
    }
}

async fn pass(State(tap): State<Tap>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 24).await.unwrap();
    let word = |name: &str| Some(parts.headers.get(name)?.to_str().unwrap().to_owned());
    let session = word("mcp-session-id").unwrap_or_default();
    let mut exchange =
        Exchange { tap: tap.clone(), session, version: word("mcp-protocol-version"), posted: None };
    if let Ok(message) = serde_json::from_slice::<Value>(&body) {
        exchange.said(Side::Client, message);
    }
    let mut url = tap.to.clone();
    url.set_path(parts.uri.path());
    url.set_query(parts.uri.query());
    let mut headers = parts.headers;
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    let request = tap.http.request(parts.method, url).headers(headers).body(body);
    let answer = request.send().await.unwrap();
    exchange.answer(answer).await
}

impl Exchange {
    async fn answer(mut self, answer: reqwest::Response) -> Response {
        let mut response = Response::builder().status(answer.status());
        let headers: &mut HeaderMap = response.headers_mut().unwrap();
        headers.extend(answer.headers().clone());
        headers.remove(header::TRANSFER_ENCODING);
        let media_type = |of: &str| {
            let media = answer.headers().get(header::CONTENT_TYPE);
            media.is_some_and(|media| media.to_str().unwrap().starts_with(of))
        };
        if self.session.is_empty()
            && let Some(session) = answer.headers().get("mcp-session-id")
        {
            self.session = session.to_str().unwrap().to_owned();
        }
        if media_type("text/event-stream") {
            let mut events = Events::default();
            let stream = answer.bytes_stream().inspect(move |piece| {
                let Ok(piece) = piece else { return };
                for message in events.read(piece) {
                    self.said(Side::Server, message);
                }
            });
            return response.body(Body::from_stream(stream)).unwrap();
        }
        let json = media_type("application/json");
        let body: Bytes = answer.bytes().await.unwrap();
        if json {
            self.said(Side::Server, serde_json::from_slice(&body).unwrap());
        }
        response.body(body.into()).unwrap()
    }

    fn said(&mut self, from: Side, message: Value) {
        let mut corpus = self.tap.corpus.lock().unwrap();
        let method = message["method"].as_str().map(str::to_owned);
        let id = message["id"].clone();
        let asked = (self.session.clone(), id.to_string());
        let answers = match (&method, from) {
            (Some(method), Side::Client) => {
                self.posted = Some((id, method.clone()));
                None
            }
            (Some(method), Side::Server) => {
                corpus.asked.insert(asked, method.clone());
                None
            }
            (None, Side::Client) => corpus.asked.get(&asked).cloned(),
            (None, Side::Server) => self
                .posted
                .as_ref()
                .filter(|(posted, _)| *posted == id)
                .map(|(_, method)| method.clone()),
        };
        let agreed = message["result"]["protocolVersion"].as_str();
        if let Some(agreed) = agreed {
            corpus.versions.insert(self.session.clone(), agreed.to_owned());
        }
        let offered = message["params"]["protocolVersion"].as_str();
        let version = agreed
            .or(offered)
            .or(corpus.versions.get(&self.session).map(String::as_str))
            .or(self.version.as_deref());
        let version = version.unwrap_or("unknown").to_owned();
        corpus.seen.push(Seen { hop: self.tap.hop, version, from, answers, message });
    }
}

/// Events of a stream that came in pieces.
#[derive(Debug, Default)]
pub(super) struct Events(Vec<u8>);

impl Events {
    /// The messages that are whole now; an event without data is none.
    pub(super) fn read(&mut self, piece: &[u8]) -> Vec<Value> {
        self.0.extend(piece.iter().filter(|byte| **byte != b'\r'));
        let mut messages = Vec::new();
        while let Some(end) = self.0.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.0.drain(..end + 2).collect();
            let event = String::from_utf8(event).unwrap();
            let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
            let data = data.map(str::trim_start).collect::<Vec<_>>().join("\n");
            if !data.is_empty() {
                messages.push(serde_json::from_str(&data).unwrap());
            }
        }
        messages
    }
}
