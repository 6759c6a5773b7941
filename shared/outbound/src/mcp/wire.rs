//! JSON-RPC on the wire: what we write, and the envelope of what we read.

use bytes::Bytes;
use domain::{Code, Error};
use http::{HeaderMap, HeaderName};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Reply;
use crate::{http::Failure, words};

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A message ready to be sent, with the headers that only it has.
#[derive(Debug)]
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

/// Our answer to a request of the server. Without a `reply` it is a pong, or that we offer no such
/// thing.
pub(super) fn answer(id: &RawValue, method: &str, reply: Option<&Reply>) -> Message {
    let outcome = match reply {
        Some(Reply::Result(result)) => format!(r#""result":{result}"#),
        Some(Reply::Error(error)) => format!(r#""error":{error}"#),
        None if method == "ping" => r#""result":{}"#.to_owned(),
        None => r#""error":{"code":-32601,"message":"not offered by this client"}"#.to_owned(),
    };
    // A line end inside would end the message on a pipe.
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#).replace(['\r', '\n'], " ");
    Message { id: None, method: None, body: body.into(), headers: HeaderMap::new() }
}

/// One message of a server.
#[derive(Debug)]
pub(super) enum Spoken {
    /// `id` is `None` where it is not one of ours; a server that could not read an id leaves it out of
    /// its error.
    Answer {
        id: Option<u64>,
        outcome: Outcome,
    },
    /// A request to us.
    Request {
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// JSON, and no message.
    Nothing,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// The JSON of `result`, shared with the body that it came in.
    Result(Bytes),
    Error(RpcError),
}

impl Spoken {
    /// The answer to request `id`, or everything else back. On a response of its own, an error without
    /// an id belongs to the request.
    pub(super) fn answering(self, id: u64) -> Result<Outcome, Self> {
        match self {
            Self::Answer { id: Some(given), outcome } if given == id => Ok(outcome),
            Self::Answer { id: None, outcome: outcome @ Outcome::Error(_) } => Ok(outcome),
            other => Err(other),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct RpcError {
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) data: Option<Box<RawValue>>,
}

impl RpcError {
    /// Without what of our secrets it repeats.
    pub(super) fn masked(mut self, secrets: &[SecretString]) -> Self {
        self.message = words::masked(&self.message, secrets);
        self.data = self.data.filter(|data| words::masked(data.get(), secrets) == data.get());
        self
    }

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
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// The messages of a body: one, or those of a batch, which 2025-03-26 has us receive.
///
/// A byte order mark before them is ignored, as RFC 8259 (section 8.1) allows.
pub(super) fn messages(body: &Bytes) -> Result<Vec<Bytes>, Failure> {
    let body =
        &body.strip_prefix(b"\xEF\xBB\xBF").map_or(body.clone(), |rest| body.slice_ref(rest));
    if body.trim_ascii_start().first() != Some(&b'[') {
        return Ok(vec![body.clone()]);
    }
    let batch: Vec<&RawValue> = serde_json::from_slice(body).map_err(malformed)?;
    Ok(batch.into_iter().map(|message| body.slice_ref(message.get().as_bytes())).collect())
}

fn malformed(error: serde_json::Error) -> Failure {
    Failure::unknown(
        Error::new(Code::UpstreamFormat, "the server's answer is not a JSON-RPC message")
            .because(words::NotAsExpected::from(error)),
    )
}

/// Reads the envelope alone; `result` stays as it came. `UPSTREAM_FORMAT` where it is none.
pub(super) fn spoken(body: &Bytes) -> Result<Spoken, Failure> {
    let envelope: Envelope<'_> = serde_json::from_slice(body).map_err(malformed)?;
    let owned = |params: Option<&RawValue>| params.map(ToOwned::to_owned);
    Ok(match envelope {
        Envelope { method: Some(method), id: Some(id), params, .. } => {
            Spoken::Request { id: id.to_owned(), method, params: owned(params) }
        }
        Envelope { method: Some(method), params, .. } => {
            Spoken::Notification { method, params: owned(params) }
        }
        Envelope { result: Some(result), id: Some(id), .. } => Spoken::Answer {
            id: number(id),
            outcome: Outcome::Result(body.slice_ref(result.get().as_bytes())),
        },
        Envelope { error: Some(error), id, .. } => {
            let error = serde_json::from_str(error.get()).map_err(malformed)?;
            match id.map(number) {
                // Somebody else's.
                Some(None) => Spoken::Nothing,
                ours => Spoken::Answer { id: ours.flatten(), outcome: Outcome::Error(error) },
            }
        }
        _ => Spoken::Nothing,
    })
}

/// The error in the body of a refused request. The response itself says whose it is: some servers
/// put another id.
pub(super) fn refusal(body: &[u8]) -> Option<RpcError> {
    let envelope: Envelope<'_> = serde_json::from_slice(body).ok()?;
    serde_json::from_str(envelope.error?.get()).ok()
}

/// An id that we gave. Some servers give a number back as text.
fn number(given: &RawValue) -> Option<u64> {
    let text = given.get();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.parse().ok()
}

/// What a message of the server says of its belonging.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Belonging<'a> {
    #[serde(borrow, default)]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<Marked<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Marked<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<&'a RawValue>,
}

/// The request of ours that a progress notification is about: our tokens are ids of requests.
pub(super) fn progress_of(params: Option<&RawValue>) -> Option<u64> {
    number(belonging(params).progress_token?)
}

/// The `subscriptions/listen` that a notification comes from.
pub(super) fn subscription_of(params: Option<&RawValue>) -> Option<u64> {
    number(belonging(params).meta?.subscription?)
}

/// The request of its own that a server takes back (`notifications/cancelled`), as it wrote the id.
pub(super) fn cancelled_by(params: Option<&RawValue>) -> Option<Box<RawValue>> {
    belonging(params).request_id.map(ToOwned::to_owned)
}

fn belonging(params: Option<&RawValue>) -> Belonging<'_> {
    params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &'static str) -> Result<Outcome, Spoken> {
        spoken(&Bytes::from_static(body.as_bytes())).unwrap().answering(7)
    }

    #[test]
    fn a_result_stays_as_it_came() {
        let result = r#"{ "n" : 123456789012345678901234567890, "n":1e400,"x":{"y":[ ]} }"#;
        let body = format!(r#"{{"result": {result} ,"extra":1,"id":7,"jsonrpc":"2.0"}}"#);
        let Ok(Outcome::Result(raw)) = spoken(&body.into()).unwrap().answering(7) else { panic!() };
        assert_eq!(raw, result);
    }

    #[test]
    fn an_answer_to_another_request_is_not_ours() {
        assert!(read(r#"{"id":8,"result":{}}"#).is_err());
        assert!(read(r#"{"id":"x","error":{"code":1}}"#).is_err());
        assert!(matches!(read(r#"{"result":{}}"#), Err(Spoken::Nothing)));
        assert!(matches!(read(r#"{"id":"7","result":{}}"#), Ok(Outcome::Result(_))));
    }

    #[test]
    fn an_error_without_an_id_is_ours() {
        let read = read(r#"{"id":null,"error":{"code":-32600,"message":"no"}}"#);
        assert!(matches!(read, Ok(Outcome::Error(RpcError { code: -32600, .. }))));
    }

    #[test]
    fn requests_and_notifications_of_the_server_are_told_apart() {
        let request = read(r#"{"id":"a\"b","method":"ping","params":{"n":1e999}}"#);
        let Err(Spoken::Request { id, method, params }) = request else { panic!() };
        assert_eq!(answer(&id, &method, None).body, r#"{"jsonrpc":"2.0","id":"a\"b","result":{}}"#);
        assert_eq!(params.unwrap().get(), r#"{"n":1e999}"#);
        let progress = read(r#"{"method":"notifications/progress","params":{"progressToken":7}}"#);
        let Err(Spoken::Notification { params, .. }) = progress else { panic!() };
        assert_eq!(progress_of(params.as_deref()), Some(7));
    }

    #[test]
    fn an_answer_to_a_server_is_one_line_with_the_result_as_it_was_given() {
        let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
        let reply = Reply::Result(raw("{\n\"n\": 18446744073709551616}"));
        let written = answer(&raw("3"), "roots/list", Some(&reply)).body;
        assert_eq!(written, r#"{"jsonrpc":"2.0","id":3,"result":{ "n": 18446744073709551616}}"#);
        let refused = answer(&raw("3"), "roots/list", None).body;
        assert!(refused.starts_with(br#"{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"#));
    }

    #[test]
    fn a_notification_tells_the_subscription_that_it_comes_from() {
        let params = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"12"}}"#;
        let params = RawValue::from_string(params.to_owned()).unwrap();
        assert_eq!(subscription_of(Some(&params)), Some(12));
        assert_eq!(subscription_of(None), None);
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
            let failure = spoken(&Bytes::from(body)).err().map(|failure| failure.error.code);
            assert_eq!(failure, Some(Code::UpstreamFormat), "{body}");
        }
    }
}
