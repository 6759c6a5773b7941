//! The params of a request, put together from raw parts: nothing that a caller or a server wrote is
//! parsed into numbers and written again.

use std::{borrow::Cow, fmt};

use domain::{Code, Error};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use super::{
    Call, Input, What, mirror,
    wire::{self, Message},
};
use crate::words;

const PROGRESS_TOKEN: &str = "progressToken";
const TRACE_PARENT: &str = "traceparent";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// What every request of the newer era says of its sender.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) version: String,
    /// JSON of `clientInfo`.
    pub(super) client: Box<RawValue>,
}

/// The message of a call. `sender`: in the newer era.
pub(super) fn message(id: u64, call: &Call, sender: Option<&Sender>) -> Result<Message, Error> {
    let meta = Meta {
        sender,
        capabilities: call.capabilities.as_deref(),
        progress: call.progress.then_some(id),
        trace: call.trace.as_deref(),
        log_level: call.log_level.as_deref().filter(|_| sender.is_some()),
        further: call.meta.as_deref().map(|meta| members(meta, "_meta")).transpose()?,
    };
    let (method, body, input) = match &call.what {
        What::Tool { name, arguments, input, .. } => {
            ("tools/call", Body::Tool { name, arguments }, input)
        }
        What::Request { method, params: None, input } => {
            (*method, Body::Members(Members::default()), input)
        }
        What::Request { method, params: Some(params), input } => {
            (*method, Body::Members(members(params, "the params")?), input)
        }
    };
    let none = matches!(call.what, What::Request { params: None, input: None, .. });
    let params = Params { body, input: input.as_ref(), meta };
    let said = !none || !params.meta.is_empty();
    let mut message = wire::message(Some(id), method, said.then_some(&params))?;
    if sender.is_some() {
        match (&call.what, &params.body) {
            (What::Tool { name, arguments, input_schema, .. }, _) => {
                mirror::add(&mut message.headers, name, input_schema.as_deref(), arguments);
            }
            (What::Request { method, .. }, Body::Members(members)) => {
                if let Some(name) = named_by(method).and_then(|name| members.text(name)) {
                    mirror::add_name(&mut message.headers, &name);
                }
            }
            (What::Request { .. }, Body::Tool { .. }) => {}
        }
    }
    Ok(message)
}

/// The member that `Mcp-Name` repeats (2026-07-28, basic/transports/streamable-http).
fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

fn members<'a>(raw: &'a RawValue, what: &str) -> Result<Members<'a>, Error> {
    serde_json::from_str(raw.get()).map_err(|error| {
        Error::new(Code::InvalidInput, format!("{what} of a request must be an object"))
            .because(words::NotAsExpected::from(error))
    })
}

struct Params<'a> {
    body: Body<'a>,
    input: Option<&'a Input>,
    meta: Meta<'a>,
}

enum Body<'a> {
    Tool { name: &'a str, arguments: &'a RawValue },
    Members(Members<'a>),
}

impl Serialize for Params<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.body {
            Body::Tool { name, arguments } => {
                map.serialize_entry("name", name)?;
                map.serialize_entry("arguments", arguments)?;
            }
            Body::Members(Members(members)) => {
                for (name, value) in members {
                    if !matches!(name.as_ref(), "_meta" | "inputResponses" | "requestState") {
                        map.serialize_entry(name, value)?;
                    }
                }
            }
        }
        if let Some(Input { responses, state }) = self.input {
            if let Some(responses) = responses {
                map.serialize_entry("inputResponses", responses)?;
            }
            if let Some(state) = state {
                map.serialize_entry("requestState", state)?;
            }
        }
        if !self.meta.is_empty() {
            map.serialize_entry("_meta", &self.meta)?;
        }
        map.end()
    }
}

/// `_meta` of a request.
#[derive(Default)]
pub(super) struct Meta<'a> {
    sender: Option<&'a Sender>,
    capabilities: Option<&'a RawValue>,
    progress: Option<u64>,
    trace: Option<&'a str>,
    log_level: Option<&'a str>,
    further: Option<Members<'a>>,
}

impl<'a> Meta<'a> {
    /// What every request says.
    pub(super) fn of(sender: Option<&'a Sender>) -> Self {
        Self { sender, ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.sender.is_none()
            && self.progress.is_none()
            && self.trace.is_none()
            && self.further().next().is_none()
    }

    /// What others put into it, without what is ours to say.
    fn further(&self) -> impl Iterator<Item = &(Cow<'_, str>, &RawValue)> {
        let all = self.further.iter().flat_map(|further| &further.0);
        all.filter(|(name, _)| match name.as_ref() {
            PROGRESS_TOKEN | VERSION | CLIENT | CAPABILITIES | LOG_LEVEL => false,
            TRACE_PARENT => self.trace.is_none(),
            _ => true,
        })
    }
}

impl Serialize for Meta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(sender) = self.sender {
            map.serialize_entry(VERSION, &sender.version)?;
            map.serialize_entry(CLIENT, &sender.client)?;
            match self.capabilities {
                Some(capabilities) => map.serialize_entry(CAPABILITIES, capabilities)?,
                None => map.serialize_entry(CAPABILITIES, &serde_json::Map::new())?,
            }
        }
        if let Some(level) = self.log_level {
            map.serialize_entry(LOG_LEVEL, level)?;
        }
        if let Some(token) = self.progress {
            map.serialize_entry(PROGRESS_TOKEN, &token)?;
        }
        if let Some(trace) = self.trace {
            map.serialize_entry(TRACE_PARENT, trace)?;
        }
        for (name, value) in self.further() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// An object's members in their order, each value as it was written.
#[derive(Debug, Default)]
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl Members<'_> {
    /// A member that is a string.
    fn text(&self, name: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(found, _)| found == name)?;
        serde_json::from_str(value.get()).ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Object).map(Members)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn raw(json: &str) -> Arc<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap().into()
    }

    fn call(what: What) -> Call {
        Call {
            what,
            response_limit: 1,
            trace: None,
            relay: None,
            capabilities: None,
            progress: false,
            log_level: None,
            meta: None,
            pinned: None,
        }
    }

    fn request(method: &'static str, params: &str) -> What {
        What::Request { method, params: Some(raw(params)), input: None }
    }

    fn written(call: &Call, sender: Option<&Sender>) -> String {
        let message = message(7, call, sender).unwrap();
        String::from_utf8(message.body.to_vec()).unwrap()
    }

    fn newer() -> Sender {
        let client = RawValue::from_string(r#"{"name":"us"}"#.to_owned()).unwrap();
        Sender { version: "2026-07-28".to_owned(), client }
    }

    #[test]
    fn params_keep_their_order_their_numbers_and_what_nobody_knows() {
        let params = r#"{"uri":"a:b","n":123456789012345678901234567890, "x\u0079":1e999,"_meta":{"progressToken":"theirs"},"requestState":"forged","uri":[ 1 ]}"#;
        assert_eq!(
            written(&call(request("resources/read", params)), None),
            r#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"a:b","n":123456789012345678901234567890,"xy":1e999,"uri":[ 1 ]}}"#
        );
    }

    #[test]
    fn a_request_without_params_has_none_where_nothing_must_be_said() {
        let what = What::Request { method: "resources/list", params: None, input: None };
        assert_eq!(
            written(&call(what), None),
            r#"{"jsonrpc":"2.0","id":7,"method":"resources/list"}"#
        );
    }

    #[test]
    fn meta_says_what_is_ours_and_lets_unreserved_keys_through() {
        let mut call = call(request("prompts/get", r#"{"name":"p"}"#));
        call.capabilities = Some(raw(r#"{"elicitation": {}}"#));
        call.progress = true;
        call.log_level = Some("info".to_owned());
        call.trace = Some("00-1".to_owned());
        call.meta = Some(raw(
            r#"{"vendor/x":1e999,"traceparent":"00-2","progressToken":1,"io.modelcontextprotocol/clientInfo":{}}"#,
        ));
        let text = written(&call, Some(&newer()));
        assert!(
            text.ends_with(r#""params":{"name":"p","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"us"},"io.modelcontextprotocol/clientCapabilities":{"elicitation": {}},"io.modelcontextprotocol/logLevel":"info","progressToken":7,"traceparent":"00-1","vendor/x":1e999}}}"#),
            "{text}"
        );
    }

    #[test]
    fn a_second_round_carries_what_the_server_asked_for() {
        let input =
            Input { responses: Some(raw(r#"{"a": {"n": 1e999}}"#)), state: Some("s".to_owned()) };
        let what = What::Tool {
            name: "t".to_owned(),
            arguments: raw("{}"),
            input_schema: None,
            input: Some(input),
        };
        let text = written(&call(what), None);
        assert!(
            text.ends_with(r#"{"name":"t","arguments":{},"inputResponses":{"a": {"n": 1e999}},"requestState":"s"}}"#),
            "{text}"
        );
    }

    #[test]
    fn the_newer_era_names_in_a_header_what_is_read() {
        let header = |what: What| {
            let message = message(7, &call(what), Some(&newer())).unwrap();
            let value = message.headers.get("mcp-name")?.to_str().unwrap().to_owned();
            Some(value)
        };
        let read = request("resources/read", r#"{"uri":"demo:\u00e9"}"#);
        assert_eq!(header(read).as_deref(), Some("=?base64?ZGVtbzrDqQ==?="));
        assert_eq!(header(request("prompts/get", r#"{"name":"p"}"#)).as_deref(), Some("p"));
        assert_eq!(header(request("completion/complete", r#"{"name":"p"}"#)), None);
    }

    #[test]
    fn params_that_are_no_object_are_refused() {
        let refused = message(7, &call(request("prompts/get", "[1]")), None).unwrap_err();
        assert_eq!(refused.code, Code::InvalidInput);
    }
}
