//! A form as a client shows it: what is judged is what is passed on.

use std::borrow::Cow;

use serde_json::{Value, value::RawValue};

use super::{malformed, secrets};
use crate::{
    Code, Error,
    json::{self, Node},
    limits,
    tool::{is_hidden, visible_text},
};

/// Members of a schema whose strings are part of an answer, or say what one must be. They are compared
/// with what a person sent, so they cannot be changed.
const VALUES: &[&str] =
    &["const", "default", "enum", "examples", "format", "pattern", "required", "type"];

/// The form with whatever nobody sees taken out of its words, and everything else as it was written.
///
/// `UPSTREAM_FORMAT` for what is no flat object. `PERMISSION_DENIED` for a form that asks for a secret, and
/// for one that hides characters in a name or a value, which cannot be taken out: the server would get
/// another answer than the one it asked for.
pub(super) fn screened(schema: &RawValue) -> Result<Box<RawValue>, Error> {
    let parsed = json::parse(schema.get(), limits::JSON_DEPTH.size());
    let mut form =
        parsed.map_err(|error| malformed("the server's form is not readable").because(error))?;
    clean(&mut form)?;
    let text = form.to_text();
    check(&serde_json::from_str(&text).map_err(Error::internal)?)?;
    RawValue::from_string(text).map_err(Error::internal)
}

/// A schema, or any object of words.
fn clean(node: &mut Node<'_>) -> Result<(), Error> {
    match node {
        Node::Text(text) if text.chars().any(is_hidden) => *text = Cow::Owned(visible_text(text)),
        Node::Text(_) | Node::Literal(_) | Node::Number(_) => {}
        Node::List(items) => items.iter_mut().try_for_each(clean)?,
        Node::Object(members) => {
            for (name, value) in members {
                shows(name)?;
                match value {
                    Node::Object(fields) if name == "properties" => {
                        for (name, field) in fields {
                            shows(name)?;
                            clean(field)?;
                        }
                    }
                    value if VALUES.contains(&name.as_ref()) => all_shows(value)?,
                    value => clean(value)?,
                }
            }
        }
    }
    Ok(())
}

fn all_shows(node: &Node<'_>) -> Result<(), Error> {
    match node {
        Node::Text(text) => shows(text),
        Node::Literal(_) | Node::Number(_) => Ok(()),
        Node::List(items) => items.iter().try_for_each(all_shows),
        Node::Object(members) => members.iter().try_for_each(|(name, value)| {
            shows(name)?;
            all_shows(value)
        }),
    }
}

fn shows(text: &str) -> Result<(), Error> {
    if text.chars().any(is_hidden) {
        let words = "the server's form hides characters in a name or a value";
        return Err(Error::new(Code::PermissionDenied, words));
    }
    Ok(())
}

/// A flat object of which no field asks for a secret.
fn check(schema: &Value) -> Result<(), Error> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let Some(properties) = properties.filter(|fields| fields.len() <= limits::FORM_FIELDS.size())
    else {
        return Err(malformed("the server's form has no fields, or too many"));
    };
    for (name, field) in properties {
        // MCP: Elicitation, "Requested Schema": primitive fields, and lists of given values.
        let kind = field.get("type").and_then(Value::as_str);
        let flat = matches!(kind, Some("string" | "number" | "integer" | "boolean"));
        if !flat && !secrets::is_chosen(field) {
            return Err(malformed(
                "the server's form has a field that is neither a single value nor a choice",
            ));
        }
        if secrets::asks_for_secret(name, field) {
            let name: String = name.chars().take(40).collect();
            let words = format!(
                "the server asks for a secret in a form (field {name:?}): secrets do not pass through here"
            );
            return Err(Error::new(Code::PermissionDenied, words));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(schema: &Value) -> Result<Value, Code> {
        let raw = serde_json::value::to_raw_value(schema).unwrap();
        let shown = screened(&raw).map_err(|error| error.code)?;
        Ok(serde_json::from_str(shown.get()).unwrap())
    }

    fn field(name: &str, field: &Value) -> Result<Value, Code> {
        of(&json!({ "type": "object", "properties": { name: field } }))
            .map(|form| form["properties"][name].clone())
    }

    #[test]
    fn words_lose_what_nobody_sees() {
        let form = json!({
            "type": "object",
            "title": "Ci\u{200b}ty",
            "properties": {
                "city": {
                    "type": "string", "title": "\u{202e}Ci\u{feff}ty", "description": "a\u{e0041}b\nc",
                    "default": "Köln", "placeholder": "x\u{2060}y",
                },
                "title": {
                    "type": "string", "enum": ["a", "b"], "enumNames": ["A\u{200d}", "B"],
                },
                "pick": {
                    "type": "array",
                    "items": { "anyOf": [{ "const": "a", "title": "A\u{200f}" }] },
                },
            },
            "required": ["city"],
        });
        assert_eq!(
            of(&form).unwrap(),
            json!({
                "type": "object",
                "title": "City",
                "properties": {
                    "city": {
                        "type": "string", "title": "City", "description": "ab\nc",
                        "default": "Köln", "placeholder": "xy",
                    },
                    "title": { "type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"] },
                    "pick": { "type": "array", "items": { "anyOf": [{ "const": "a", "title": "A" }] } },
                },
                "required": ["city"],
            })
        );
    }

    #[test]
    fn names_and_values_that_hide_something_are_refused() {
        let text = json!({ "type": "string" });
        assert_eq!(field("ci\u{200b}ty", &text), Err(Code::PermissionDenied));
        for hidden in [
            json!({ "type": "string", "enum": ["a\u{200b}"] }),
            json!({ "type": "string", "oneOf": [{ "const": "\u{202e}a", "title": "A" }] }),
            json!({ "type": "array", "items": { "enum": ["a", "\u{e0041}"] } }),
            json!({ "type": "string", "default": "a\u{2066}" }),
            json!({ "type": "string", "ti\u{200b}tle": "City" }),
        ] {
            assert_eq!(field("city", &hidden), Err(Code::PermissionDenied), "{hidden}");
        }
        let form = json!({ "properties": { "city": text }, "required": ["ci\u{200b}ty"] });
        assert_eq!(of(&form), Err(Code::PermissionDenied));
    }

    #[test]
    fn nothing_hides_a_question_for_a_secret() {
        for words in [
            json!({ "type": "string", "title": "Pass\u{200b}word" }),
            json!({ "type": "string", "description": "your api\u{ad} key" }),
            json!({ "type": "string", "title": "\u{e0041}API key" }),
        ] {
            assert_eq!(field("value", &words), Err(Code::PermissionDenied), "{words}");
        }
        // One name with two meanings would be judged by the one and shown by the other.
        let twice = r#"{"properties":{"a":{"type":"string","title":"Password","title":"City"}}}"#;
        let twice: &RawValue = serde_json::from_str(twice).unwrap();
        assert_eq!(screened(twice).unwrap_err().code, Code::UpstreamFormat);
    }
}
