//! JSON-RPC on the wire: what we write, and the envelope of what we read.

use bytes::Bytes;
use domain::{Code, Error};
use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{http::Failure, words};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A message ready to be sent, with the headers that only it has.
pub(super) struct Message {
    /// `None` for a notification.
    pub(super) id: Option<u64>,
    /// `None` for an answer to the server.
    pub(super) method: Option<&'static str>,
    pub(super) body: Bytes,
    pub(super) headers: HeaderMap,
}

#[derive(Serialize)]
struct Written<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

/// A request, or without `id` a notification.
pub(super) fn message<P: Serialize>(
    id: Option<u64>,
    method: &'static str,
    params: Option<P>,
) -> Result<Message, Error> {
    let written = Written { jsonrpc: "2.0", id, method, params };
    let body = serde_json::to_vec(&written).map_err(Error::internal)?.into();
    Ok(Message { id, method: Some(method), body, headers: HeaderMap::new() })
}

/// Our answer to a request of the server: a pong, or that we offer no such thing.
pub(super) fn reply(id: &RawValue, method: &str) -> Message {
    let answer = if method == "ping" {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    } else {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"not offered by this client"}}}}"#
        )
    };
    Message { id: None, method: None, body: answer.into(), headers: HeaderMap::new() }
}

/// What a server sent on a response to request `id`.
#[derive(Debug)]
pub(super) enum Incoming {
    /// The JSON of `result`, shared with the body that it came in.
    Result(Bytes),
    Error(RpcError),
    /// A request to us.
    Request {
        id: Box<RawValue>,
        method: String,
    },
    /// A notification, or an answer to something else.
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct RpcError {
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

impl RpcError {
    /// The versions that a server names when it refuses ours (`data.supported`).
    pub(super) fn supported_versions(&self) -> Vec<String> {
        #[derive(Deserialize)]
        struct Data {
            supported: Vec<String>,
        }
        let data = self.data.as_deref().and_then(|data| serde_json::from_str(data.get()).ok());
        data.map_or_else(Vec::new, |data: Data| data.supported)
    }

    /// An error of this code with the peer's words as untrusted.
    pub(super) fn into_error(self, code: Code, words: &str) -> Error {
        Error::new(code, words).with_untrusted(words::untrusted(&self.message))
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads the envelope alone; `result` stays as it came. `UPSTREAM_FORMAT` where it is none.
pub(super) fn incoming(body: &Bytes, id: u64) -> Result<Incoming, Failure> {
    let malformed = |error: serde_json::Error| {
        Failure::unknown(
            Error::new(Code::UpstreamFormat, "the server's answer is not a JSON-RPC message")
                .because(words::NotAsExpected::from(error)),
        )
    };
    let envelope: Envelope<'_> = serde_json::from_slice(body).map_err(malformed)?;
    let ours = envelope.id.is_some_and(|given| answers(given, id));
    Ok(match envelope {
        Envelope { method: Some(method), id: Some(id), .. } => {
            Incoming::Request { id: id.to_owned(), method }
        }
        Envelope { result: Some(result), .. } if ours => {
            Incoming::Result(body.slice_ref(result.get().as_bytes()))
        }
        // A server that could not read the id leaves it out.
        Envelope { error: Some(error), id: given, .. } if ours || given.is_none() => {
            Incoming::Error(serde_json::from_str(error.get()).map_err(malformed)?)
        }
        _ => Incoming::Other,
    })
}

/// The error in the body of a refused request. The response itself says whose it is: some servers
/// put another id.
pub(super) fn refusal(body: &[u8]) -> Option<RpcError> {
    let envelope: Envelope<'_> = serde_json::from_slice(body).ok()?;
    serde_json::from_str(envelope.error?.get()).ok()
}

/// Some servers give a number back as text.
fn answers(given: &RawValue, id: u64) -> bool {
    let text = given.get();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.parse() == Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &'static str) -> Incoming {
        incoming(&Bytes::from_static(body.as_bytes()), 7).unwrap()
    }

    #[test]
    fn a_result_stays_as_it_came() {
        let result = r#"{ "n" : 123456789012345678901234567890, "n":1e400,"x":{"y":[ ]} }"#;
        let body = format!(r#"{{"result": {result} ,"extra":1,"id":7,"jsonrpc":"2.0"}}"#);
        let Incoming::Result(raw) = incoming(&body.into(), 7).unwrap() else { panic!() };
        assert_eq!(raw, result);
    }

    #[test]
    fn an_answer_to_another_request_is_not_ours() {
        assert!(matches!(read(r#"{"id":8,"result":{}}"#), Incoming::Other));
        assert!(matches!(read(r#"{"result":{}}"#), Incoming::Other));
        assert!(matches!(read(r#"{"id":"7","result":{}}"#), Incoming::Result(_)));
    }

    #[test]
    fn an_error_without_an_id_is_ours() {
        let read = read(r#"{"id":null,"error":{"code":-32600,"message":"no"}}"#);
        assert!(matches!(read, Incoming::Error(RpcError { code: -32600, .. })));
    }

    #[test]
    fn requests_and_notifications_of_the_server_are_told_apart() {
        let request = read(r#"{"id":"a\"b","method":"ping"}"#);
        let Incoming::Request { id, method } = request else { panic!() };
        assert_eq!(reply(&id, &method).body, r#"{"jsonrpc":"2.0","id":"a\"b","result":{}}"#);
        assert!(matches!(read(r#"{"method":"notifications/progress"}"#), Incoming::Other));
    }

    #[test]
    fn arguments_are_written_as_they_were_given() {
        let raw: Box<RawValue> =
            serde_json::from_str(r#"{"n":1e999, "n": 18446744073709551616}"#).unwrap();
        let message = message(Some(1), "tools/call", Some(&raw)).unwrap();
        let written = std::str::from_utf8(&message.body).unwrap();
        assert!(
            written.ends_with(r#""params":{"n":1e999, "n": 18446744073709551616}}"#),
            "{written}"
        );
    }

    #[test]
    fn what_is_not_json_rpc_is_a_format_error() {
        for body in ["", "7", "<html>", r#"{"id":7"#, "{\"id\":7,\"result\":\"\u{0}\"}"] {
            let failure = incoming(&Bytes::from(body), 7).err().map(|failure| failure.error.code);
            assert_eq!(failure, Some(Code::UpstreamFormat), "{body}");
        }
    }
}
