//! What 2026-07-28 repeats in headers, so that middle boxes need not read bodies (SEP-2243):
//! `Mcp-Name`, and the arguments that a tool's schema marks with `x-mcp-header`.

use std::{borrow::Cow, collections::HashMap};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

type Object<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// Adds the headers of a call.
pub(super) fn add(
    headers: &mut HeaderMap,
    name: &str,
    schema: Option<&RawValue>,
    arguments: &RawValue,
) {
    add_name(headers, name);
    if let Some(schema) = schema {
        add_arguments(headers, schema, arguments);
    }
}

/// What is called or read, of a request that is named by it.
pub(super) fn add_name(headers: &mut HeaderMap, name: &str) {
    insert(headers, "mcp-name", name);
}

fn add_arguments(headers: &mut HeaderMap, schema: &RawValue, arguments: &RawValue) {
    #[derive(Deserialize)]
    struct Schema<'a> {
        #[serde(borrow, default)]
        properties: Object<'a>,
    }
    #[derive(Deserialize)]
    struct Property<'a> {
        #[serde(borrow, default, rename = "x-mcp-header")]
        header: Option<Cow<'a, str>>,
    }
    // Most schemas ask for nothing: one search is cheaper than reading them.
    if !schema.get().contains("x-mcp-header") {
        return;
    }
    let (Ok(schema), Ok(arguments)) = (
        serde_json::from_str::<Schema<'_>>(schema.get()),
        serde_json::from_str::<Object<'_>>(arguments.get()),
    ) else {
        return;
    };
    for (name, property) in &schema.properties {
        let Some(argument) = arguments.get(name) else { continue };
        if let Ok(Property { header: Some(header) }) = serde_json::from_str(property.get())
            && let Some(text) = primitive(argument)
        {
            insert(headers, &format!("mcp-param-{header}"), &text);
        }
        add_arguments(headers, property, argument);
    }
}

/// A primitive as the header shows it; numbers keep their digits.
fn primitive(value: &RawValue) -> Option<Cow<'_, str>> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok().map(Cow::Owned),
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(value.get())),
    }
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(mut value)) =
        (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&encoded(value)))
    {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// As it is where a header can carry it, else base64 between marks.
fn encoded(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    if plain {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("=?base64?{}?=", BASE64_STANDARD.encode(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrored(name: &str, schema: &str, arguments: &str) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        let schema: Box<RawValue> = serde_json::from_str(schema).unwrap();
        let arguments: Box<RawValue> = serde_json::from_str(arguments).unwrap();
        add(&mut headers, name, Some(&schema), &arguments);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut list: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        list.sort();
        list
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn marked_arguments_are_repeated_with_all_their_digits() {
        let schema = r#"{"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
            "plain": {"type": "string"},
            "inner": {"type": "object", "properties": {"deep": {"type": "boolean", "x-mcp-header": "Deep"}}}}}"#;
        let arguments = r#"{"region": "eu", "count": 123456789012345678901234567890, "plain": "x", "inner": {"deep": true}}"#;
        let expected = [
            pair("mcp-name", "find"),
            pair("mcp-param-count", "123456789012345678901234567890"),
            pair("mcp-param-deep", "true"),
            pair("mcp-param-region", "eu"),
        ];
        assert_eq!(mirrored("find", schema, arguments), expected);
    }

    #[test]
    fn what_no_header_can_carry_is_wrapped_in_base64() {
        assert_eq!(mirrored("ツ", "{}", "{}"), [pair("mcp-name", "=?base64?44OE?=")]);
        assert_eq!(mirrored(" a", "{}", "{}"), [pair("mcp-name", "=?base64?IGE=?=")]);
        assert_eq!(
            mirrored("=?base64?x?=", "{}", "{}"),
            [pair("mcp-name", "=?base64?PT9iYXNlNjQ/eD89?=")]
        );
    }
}
