//! JSON-RPC messages as clients send them (MCP: Base protocol, "Messages").

use axum::http::StatusCode;
use domain::limits;
use rmcp::model::ErrorCode;
use serde_json::value::RawValue;

use super::{
    eras::Era,
    fault::Fault,
    input::Input,
    raw::{self, Members},
    through::Reply,
};

/// The id of a request: the JSON of a string or an integer, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestId(String);

impl RequestId {
    /// MCP allows strings and integers, of any size; never `null`.
    pub(super) fn of(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let digits = text.strip_prefix('-').unwrap_or(text);
        let integer = digits.bytes().all(|byte| byte.is_ascii_digit());
        let fits = text.len() <= limits::REQUEST_ID_BYTES.size();
        (fits && (integer || text.starts_with('"'))).then(|| Self(text.to_owned()))
    }

    /// For the answer.
    pub(super) fn json(&self) -> &str {
        &self.0
    }

    /// The same for every way to write the same id; a string and a number are never the same.
    pub(super) fn canonical(&self) -> String {
        match serde_json::from_str::<String>(&self.0) {
            Ok(text) => format!("\"{text}"),
            Err(_) => self.0.clone(),
        }
    }
}

/// A request, or a notification if it has no id.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub id: Option<RequestId>,
    pub method: String,
    pub params: Members<'a>,
}

impl<'a> Message<'a> {
    /// A refusal that names this request.
    pub(super) fn fault(&self, code: ErrorCode, words: impl Into<String>) -> Fault {
        Fault::new(code, words).of(self.id.clone())
    }

    fn parse(json: &'a str) -> Result<Self, Fault> {
        let invalid = |words: &str| Fault::new(ErrorCode::INVALID_REQUEST, words).malformed();
        let members =
            Members::parse(json).ok_or_else(|| invalid("a message must be a JSON object"))?;
        let raw_id = members.get("id");
        let id = raw_id.and_then(RequestId::of);
        let invalid = |words: &str| invalid(words).of(id.clone());
        if members.string("jsonrpc").as_deref() != Some("2.0") {
            return Err(invalid("jsonrpc must be \"2.0\""));
        }
        if raw_id.is_some() && id.is_none() {
            let most = limits::REQUEST_ID_BYTES.default;
            return Err(invalid(&format!(
                "id must be a string or an integer of at most {most} bytes"
            )));
        }
        if members.get("method").is_none()
            && (members.get("result").is_some() || members.get("error").is_some())
        {
            return Err(invalid("no request of this server is waiting for an answer"));
        }
        let method = members.string("method").ok_or_else(|| invalid("method must be a string"))?;
        if id.is_none() && !method.starts_with("notifications/") {
            return Err(invalid("a request needs an id"));
        }
        let params = match members.get("params") {
            None => Members::default(),
            Some(params) => Members::parse(params.get()).ok_or_else(|| {
                Fault::new(ErrorCode::INVALID_PARAMS, "params must be an object")
                    .of(id.clone())
                    .malformed()
            })?,
        };
        Ok(Self { id, method, params })
    }
}

/// What a client answers to questions of a server.
#[derive(Debug)]
pub(super) struct Replies {
    pub each: Vec<(RequestId, Reply)>,
    /// 2025-03-26 alone has batches.
    pub batch: bool,
}

/// Answers of the client to questions of a server, if the body is one, or a batch of nothing else: `result`
/// or `error`, without a method.
pub(super) fn replies(body: &[u8]) -> Option<Replies> {
    let text = std::str::from_utf8(body).ok()?.trim_start();
    if !text.starts_with('[') {
        return Some(Replies { each: vec![reply(text)?], batch: false });
    }
    let messages: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    if messages.is_empty() || messages.len() > limits::BATCH_MESSAGES.size() {
        return None;
    }
    let each: Option<_> = messages.into_iter().map(|one| reply(one.get())).collect();
    Some(Replies { each: each?, batch: true })
}

fn reply(text: &str) -> Option<(RequestId, Reply)> {
    let members = Members::parse(text)?;
    if members.get("method").is_some() || members.string("jsonrpc").as_deref() != Some("2.0") {
        return None;
    }
    let id = RequestId::of(members.get("id")?)?;
    let reply = match (members.get("result"), members.get("error")) {
        (Some(result), None) if result.get().starts_with('{') => Reply::Result(result.to_owned()),
        (None, Some(error)) if error.get().starts_with('{') => Reply::Error(error.to_owned()),
        _ => return None,
    };
    Some((id, reply))
}

/// The body of a POST.
#[derive(Debug)]
pub(super) enum Body<'a> {
    One(Message<'a>),
    /// 2025-03-26 alone has batches.
    Batch(Vec<Result<Message<'a>, Fault>>),
}

/// Reads a body; what is no message is refused with HTTP 400 and the JSON-RPC error that says why.
pub(super) fn parse(body: &[u8]) -> Result<Body<'_>, Fault> {
    let no_json = |_| Fault::new(ErrorCode::PARSE_ERROR, "the body is no JSON").malformed();
    let text = std::str::from_utf8(body)
        .map_err(|_| Fault::new(ErrorCode::PARSE_ERROR, "the body is no UTF-8").malformed())?;
    let whole: &RawValue = serde_json::from_str(text).map_err(no_json)?;
    if !whole.get().starts_with('[') {
        return Message::parse(whole.get()).map(Body::One);
    }
    let messages: Vec<&RawValue> = serde_json::from_str(whole.get()).map_err(no_json)?;
    if messages.is_empty() || messages.len() > limits::BATCH_MESSAGES.size() {
        let most = limits::BATCH_MESSAGES.default;
        let words = format!("a batch must have from 1 to {most} messages");
        return Err(Fault::new(ErrorCode::INVALID_REQUEST, words).malformed());
    }
    Ok(Body::Batch(messages.into_iter().map(|one| Message::parse(one.get())).collect()))
}

/// What `tools/call` asks for, taken out of the request's text.
#[derive(Debug)]
pub(super) struct ToolCall {
    pub id: RequestId,
    pub name: String,
    /// The JSON object of the arguments as it came; `{}` where there is none.
    pub arguments: Box<RawValue>,
    /// What the client can be asked, and what it answered.
    pub input: Input,
}

impl ToolCall {
    pub(super) fn of(message: &Message<'_>, id: RequestId, era: Era) -> Result<Self, Fault> {
        let invalid = |words: &str| message.fault(ErrorCode::INVALID_PARAMS, words);
        let name = message
            .params
            .get("name")
            .and_then(raw::string)
            .ok_or_else(|| invalid("params.name must be a string"))?;
        let input = Input::of(message, era)?;
        let arguments = match message.params.get("arguments") {
            Some(given) if given.get() != "null" => given,
            _ => serde_json::from_str("{}").expect("it is JSON"),
        };
        if !arguments.get().starts_with('{') {
            return Err(invalid("params.arguments must be an object"));
        }
        // No tool has such a name, and no record could hold it.
        let most = limits::TOOL_NAME_CHARS.size();
        if name.is_empty() || name.chars().count() > most || name.chars().any(char::is_control) {
            return Err(unknown_tool(message));
        }
        Ok(Self { id, name, arguments: arguments.to_owned(), input })
    }
}

fn unknown_tool(message: &Message<'_>) -> Fault {
    let mut fault = message.fault(ErrorCode::INVALID_PARAMS, "no such tool");
    fault.data = Some(serde_json::json!({ "code": domain::Code::NotFound }));
    fault
}

impl Fault {
    /// The message itself is at fault: HTTP 400 besides the JSON-RPC error.
    pub(super) fn malformed(mut self) -> Self {
        self.status = StatusCode::BAD_REQUEST;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(body: &str) -> Message<'_> {
        match parse(body.as_bytes()) {
            Ok(Body::One(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    fn refused(body: &[u8]) -> (i32, Option<String>) {
        let fault = parse(body).unwrap_err();
        assert_eq!(fault.status, StatusCode::BAD_REQUEST);
        (fault.code.0, fault.id.map(|id| id.json().to_owned()))
    }

    #[test]
    fn ids_stay_as_they_were_written() {
        for id in ["1", "-7", "\"a\\u0062\"", "\"\"", "123456789012345678901234567890"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            assert_eq!(one(&body).id.unwrap().json(), id);
        }
    }

    #[test]
    fn other_ids_are_no_ids() {
        let long = format!("\"{}\"", "x".repeat(300));
        for id in ["null", "1.5", "1e3", "true", "[1]", "{}", &long] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            assert_eq!(refused(body.as_bytes()), (-32600, None), "{id}");
        }
    }

    #[test]
    fn one_id_is_one_key_however_it_is_written() {
        let canonical = |id: &str| {
            let raw: &RawValue = serde_json::from_str(id).unwrap();
            RequestId::of(raw).unwrap().canonical()
        };
        assert_eq!(canonical(r#""ab""#), canonical(r#""\u0061b""#));
        assert_ne!(canonical(r#""1""#), canonical("1"));
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_code_that_says_why() {
        for (body, code, id) in [
            (&b""[..], -32700, None),
            (b"{", -32700, None),
            (b"\xff\xfe", -32700, None),
            (b"{\"jsonrpc\":\"2.0\"} x", -32700, None),
            (b"3", -32600, None),
            (b"null", -32600, None),
            (b"[]", -32600, None),
            (b"{}", -32600, None),
            (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600, Some("1")),
            (br#"{"jsonrpc":"2.0","id":1}"#, -32600, Some("1")),
            (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600, Some("1")),
            (br#"{"jsonrpc":"2.0","id":"x","result":{}}"#, -32600, Some("\"x\"")),
            (br#"{"jsonrpc":"2.0","method":"tools/call"}"#, -32600, None),
            (br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, -32602, Some("1")),
            (br#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, -32600, Some("1")),
        ] {
            assert_eq!(
                refused(body),
                (code, id.map(str::to_owned)),
                "{}",
                String::from_utf8_lossy(body)
            );
        }
    }

    #[test]
    fn an_answer_has_a_result_or_an_error_and_no_method() {
        let id = |body: &str| {
            let replies = replies(body.as_bytes())?;
            let ids = replies.each.iter().map(|(id, _)| id.json().to_owned());
            Some((ids.collect::<Vec<_>>().join(" "), replies.batch))
        };
        let found = |ids: &str, batch: bool| Some((ids.to_owned(), batch));
        let (one, two) =
            (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, r#"{"jsonrpc":"2.0","id":1,"error":{}}"#);
        assert_eq!(id(one), found("\"a\"", false));
        assert_eq!(id(two), found("1", false));
        assert_eq!(id(&format!(" [{one},{two}]")), found("\"a\" 1", true));
        let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
        for body in ["[]".to_owned(), format!("[{one},{ping}]"), format!("[{one},7]")] {
            assert_eq!(id(&body), None, "{body}");
        }
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"result":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
        ] {
            assert_eq!(id(body), None, "{body}");
        }
    }

    #[test]
    fn a_repeated_member_is_no_fault() {
        assert_eq!(one(r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"ping"}"#).method, "ping");
    }

    #[test]
    fn a_batch_keeps_its_bad_messages_apart() {
        let body = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}, 7]"#;
        let Ok(Body::Batch(messages)) = parse(body) else { panic!("no batch") };
        assert!(messages[0].is_ok() && messages[1].is_err());
    }

    #[test]
    fn arguments_stay_as_they_were_written() {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{ "n": 1.50, "n": 12345678901234567890123 }}}"#;
        let message = one(body);
        let call = ToolCall::of(&message, message.id.clone().unwrap(), Era::Legacy).unwrap();
        assert_eq!(call.arguments.get(), r#"{ "n": 1.50, "n": 12345678901234567890123 }"#);
    }

    #[test]
    fn a_call_without_arguments_has_empty_ones() {
        for params in [r#"{"name":"t"}"#, r#"{"name":"t","arguments":null}"#] {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            let message = one(&body);
            let call = ToolCall::of(&message, message.id.clone().unwrap(), Era::Legacy).unwrap();
            assert_eq!(call.arguments.get(), "{}");
        }
    }

    #[test]
    fn a_call_that_names_no_possible_tool_is_refused() {
        for params in [
            "{}",
            r#"{"name":7}"#,
            r#"{"name":""}"#,
            r#"{"name":"a\u0000"}"#,
            r#"{"name":"t","arguments":[]}"#,
            r#"{"name":"t","requestState":"x"}"#,
        ] {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            let message = one(&body);
            let fault =
                ToolCall::of(&message, message.id.clone().unwrap(), Era::Legacy).unwrap_err();
            assert_eq!(fault.code, ErrorCode::INVALID_PARAMS, "{params}");
        }
    }
}
