//! What the headers of a request must say (MCP 2026-07-28: Streamable HTTP, "Request Metadata"; RFC
//! 9110 for Accept and Content-Type).

use app::broker::Fits;
use axum::http::{HeaderMap, StatusCode, header};
use base64::{Engine, prelude::BASE64_STANDARD};
use domain::{Code, Error};
use rmcp::model::ErrorCode;
use serde_json::{Value, json, value::RawValue};

use super::{fault::Fault, message::Message, raw::Members};

pub(super) const PROTOCOL_VERSION: &str = "mcp-protocol-version";
pub(super) const SESSION_ID: &str = "mcp-session-id";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const PARAM_PREFIX: &str = "mcp-param-";

/// 415 unless the body is JSON; 406 unless the client takes both forms of an answer.
pub(super) fn check_media_types(headers: &HeaderMap) -> Result<(), (StatusCode, Error)> {
    let refused = |status, words: &str| Err((status, Error::new(Code::InvalidInput, words)));
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !content_type.is_some_and(|value| essence(value).eq_ignore_ascii_case("application/json")) {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
    }
    if !accepts(headers, "application", "json") || !accepts(headers, "text", "event-stream") {
        return refused(
            StatusCode::NOT_ACCEPTABLE,
            "accept must allow application/json and text/event-stream",
        );
    }
    Ok(())
}

/// 406 unless the client takes a stream of events.
pub(super) fn check_takes_events(headers: &HeaderMap) -> Result<(), (StatusCode, Error)> {
    if accepts(headers, "text", "event-stream") {
        return Ok(());
    }
    let error = Error::new(Code::InvalidInput, "accept must allow text/event-stream");
    Err((StatusCode::NOT_ACCEPTABLE, error))
}

/// Whether Accept allows the type; no Accept allows every type (RFC 9110, section 12.5.1).
fn accepts(headers: &HeaderMap, kind: &str, subtype: &str) -> bool {
    let mut said = false;
    for range in headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()) {
        for range in range.split(',').filter(|range| !range.trim().is_empty()) {
            said = true;
            let (first, second) = essence(range).split_once('/').unwrap_or_default();
            let fits =
                |given: &str, wanted: &str| given == "*" || given.eq_ignore_ascii_case(wanted);
            if fits(first, kind) && fits(second, subtype) && !is_excluded(range) {
                return true;
            }
        }
    }
    !said
}

/// A quality of zero: "not acceptable" (RFC 9110, section 12.4.2).
fn is_excluded(range: &str) -> bool {
    range.split(';').skip(1).filter_map(|parameter| parameter.split_once('=')).any(
        |(name, value)| {
            name.trim().eq_ignore_ascii_case("q")
                && value.trim().parse::<f32>().is_ok_and(|quality| quality <= 0.0)
        },
    )
}

fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// The one value of a header that may stand only once.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Fault> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(mismatch(format!("the header {name} stands there more than once")));
    }
    match first.to_str() {
        Ok(text) => Ok(Some(text.trim())),
        Err(_) => Err(mismatch(format!("the header {name} has characters that it may not have"))),
    }
}

/// `HeaderMismatch`, HTTP 400.
pub(super) fn mismatch(words: impl Into<String>) -> Fault {
    Fault::new(ErrorCode::HEADER_MISMATCH, words).malformed()
}

/// `Mcp-Method` and, for a call, `Mcp-Name` must say what the body says.
pub(super) fn check_standard(headers: &HeaderMap, message: &Message<'_>) -> Result<(), Fault> {
    let checked = check_method(headers, message).and_then(|()| check_name(headers, message));
    checked.map_err(|fault| fault.of(message.id.clone()))
}

fn check_method(headers: &HeaderMap, message: &Message<'_>) -> Result<(), Fault> {
    match single(headers, METHOD)? {
        None => Err(mismatch("the header Mcp-Method is missing")),
        Some(method) if method == message.method => Ok(()),
        Some(_) => Err(mismatch("the header Mcp-Method does not match the body")),
    }
}

fn check_name(headers: &HeaderMap, message: &Message<'_>) -> Result<(), Fault> {
    let member = match message.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    // A request without a name is refused for that, in words that help more.
    let Some(expected) = message.params.string(member) else { return Ok(()) };
    match single(headers, NAME)? {
        None => Err(mismatch("the header Mcp-Name is missing")),
        Some(name) if decoded(name).as_deref() == Some(&expected) => Ok(()),
        Some(_) => Err(mismatch("the header Mcp-Name does not match the body")),
    }
}

/// Undoes `=?base64?…?=`; `None` if what it holds is no base64 of UTF-8.
fn decoded(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="))
    else {
        return Some(value.to_owned());
    };
    String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok()
}

/// The mark of an error that a call's headers are at fault for.
const MISMATCH: &str = "header_mismatch";

/// The check that the request's `Mcp-Param-*` headers repeat its arguments as the tool's schema asks,
/// for when the tool is known. `INVALID_INPUT`, which [`mismatched`] knows again.
pub(super) fn fits(headers: &HeaderMap, arguments: &RawValue) -> Fits {
    let params = headers.iter().filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX));
    let params: HeaderMap = params.map(|(name, value)| (name.clone(), value.clone())).collect();
    let arguments = arguments.to_owned();
    Fits(Box::new(move |schema| {
        // Nearly no schema asks for it, and reading one costs something.
        if !schema.get().contains("x-mcp-header") {
            return Ok(());
        }
        let schema: Value = serde_json::from_str(schema.get()).map_err(Error::internal)?;
        check_params(&params, &schema, Some(&arguments)).map_err(|fault| {
            Error::new(Code::InvalidInput, fault.message)
                .with_details(json!({ "reason": MISMATCH }))
        })
    }))
}

/// The fault of the protocol, if the headers of a call were why it was refused.
pub(super) fn mismatched(error: &Error) -> Option<Fault> {
    let reason = error.details.as_ref()?.get("reason")?.as_str()?;
    (error.code == Code::InvalidInput && reason == MISMATCH).then(|| mismatch(error.public.clone()))
}

/// Each argument that the tool's schema marks must stand in its `Mcp-Param-*` header, and no other
/// value (MCP 2026-07-28: Streamable HTTP, "Server Behavior for Custom Headers"); headers that no
/// `x-mcp-header` names are ignored.
fn check_params(
    headers: &HeaderMap,
    schema: &Value,
    arguments: Option<&RawValue>,
) -> Result<(), Fault> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let arguments = arguments.and_then(|arguments| Members::parse(arguments.get()));
    for (property, schema) in properties.into_iter().flatten() {
        let argument = arguments.as_ref().and_then(|arguments| arguments.get(property));
        if let Some(name) = schema.get("x-mcp-header").and_then(Value::as_str) {
            let given = single(headers, &format!("{PARAM_PREFIX}{name}").to_ascii_lowercase())?;
            let wanted = argument.filter(|argument| argument.get() != "null");
            // A definition may mark only primitive values; such a one says nothing of headers.
            if wanted.is_some_and(|wanted| wanted.get().starts_with(['{', '['])) {
                continue;
            }
            match (given, wanted) {
                (None, None) => {}
                (None, Some(_)) => {
                    return Err(mismatch(format!("the header Mcp-Param-{name} is missing")));
                }
                (Some(given), Some(wanted))
                    if decoded(given).is_some_and(|given| is_same(&given, wanted)) => {}
                (Some(_), _) => {
                    let words = format!("the header Mcp-Param-{name} does not match the body");
                    return Err(mismatch(words));
                }
            }
        }
        if schema.get("properties").is_some() {
            check_params(headers, schema, argument)?;
        }
    }
    Ok(())
}

/// Strings as they are, numbers by their value, booleans by their word.
fn is_same(header: &str, argument: &RawValue) -> bool {
    match serde_json::from_str::<Value>(argument.get()) {
        Ok(Value::String(text)) => header == text,
        Ok(Value::Bool(yes)) => header == if yes { "true" } else { "false" },
        Ok(Value::Number(number)) => {
            header == argument.get()
                || header.parse::<f64>().ok().is_some_and(|value| number.as_f64() == Some(value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::{
        super::message::{self, Body},
        *,
    };

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn status(list: &[(&'static str, &str)]) -> u16 {
        check_media_types(&headers(list)).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn both_forms_of_an_answer_must_be_accepted() {
        for (accept, expected) in [
            ("application/json, text/event-stream", 200),
            ("text/event-stream;q=0.5,APPLICATION/JSON", 200),
            ("*/*", 200),
            ("application/*, text/*", 200),
            ("application/json", 406),
            ("text/event-stream", 406),
            ("application/json, text/event-stream;q=0", 406),
            ("text/html", 406),
        ] {
            let list = [("content-type", "application/json; charset=utf-8"), ("accept", accept)];
            assert_eq!(status(&list), expected, "{accept}");
        }
        assert_eq!(status(&[("content-type", "application/json")]), 200);
    }

    #[test]
    fn another_body_than_json_is_refused() {
        for content_type in ["text/plain", "application/jsonp", "application/x-www-form-urlencoded"]
        {
            assert_eq!(status(&[("content-type", content_type), ("accept", "*/*")]), 415);
        }
        assert_eq!(status(&[("accept", "*/*")]), 415);
    }

    fn checked(list: &[(&'static str, &str)], body: &str) -> Option<i32> {
        let Ok(Body::One(message)) = message::parse(body.as_bytes()) else { panic!("{body}") };
        check_standard(&headers(list), &message).err().map(|fault| {
            assert_eq!(fault.status, StatusCode::BAD_REQUEST);
            assert!(fault.id.is_some());
            fault.code.0
        })
    }

    #[test]
    fn method_and_name_must_repeat_the_body() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"Größe"}}"#;
        let method = ("mcp-method", "tools/call");
        assert_eq!(checked(&[method, ("mcp-name", "=?base64?R3LDtsOfZQ==?=")], call), None);
        assert_eq!(checked(&[method, ("mcp-name", "Groesse")], call), Some(-32020));
        assert_eq!(checked(&[method, ("mcp-name", "=?base64?%%?=")], call), Some(-32020));
        assert_eq!(checked(&[method], call), Some(-32020));
        assert_eq!(checked(&[("mcp-name", "Größe")], call), Some(-32020));
        assert_eq!(checked(&[("mcp-method", "tools/list")], call), Some(-32020));
        assert_eq!(checked(&[method, method], call), Some(-32020));

        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        assert_eq!(checked(&[("mcp-method", "tools/list")], list), None);
    }

    #[test]
    fn a_repeated_argument_must_be_the_argument() {
        let schema = serde_json::json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        }});
        let arguments: &RawValue =
            serde_json::from_str(r#"{"region":"eu","deep":{"n":42}}"#).unwrap();
        let schema = serde_json::value::to_raw_value(&schema).unwrap();
        let checked = |list: &[(&'static str, &str)], arguments: &RawValue| {
            let Fits(fits) = fits(&headers(list), arguments);
            fits(&schema).err().map(|error| mismatched(&error).unwrap().code.0)
        };
        let (region, n) = (("mcp-param-region", "eu"), ("mcp-param-n", "42.0"));
        assert_eq!(checked(&[region, n, ("mcp-param-other", "x")], arguments), None);
        assert_eq!(checked(&[region], arguments), Some(-32020), "one is missing");
        assert_eq!(checked(&[("mcp-param-region", "us"), n], arguments), Some(-32020));
        assert_eq!(checked(&[region, ("mcp-param-n", "41")], arguments), Some(-32020));
        let none: &RawValue = serde_json::from_str(r#"{"region":null}"#).unwrap();
        assert_eq!(checked(&[], none), None);
        assert_eq!(checked(&[n], none), Some(-32020), "there is no such argument");
    }
}
