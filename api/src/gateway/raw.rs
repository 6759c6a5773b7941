//! JSON that is passed on as it came: objects are taken apart only as far as their members, and every
//! value keeps its bytes.

use std::fmt;

use domain::ids::InvocationId;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Where the id of the invocation stands in a result's `_meta`.
pub(super) const INVOCATION_KEY: &str = "bailiwick/invocationId";

/// Where a refusal of ours stands in a result's `_meta`.
pub(super) const ERROR_KEY: &str = "bailiwick/error";

/// What a tool in a list has in its `_meta` where the person is not connected to its server.
const CONNECTION_REQUIRED_KEY: &str = "bailiwick/connectionRequired";

/// The members of a JSON object in their order, names and values as they were written. Of two members
/// with one name the later counts, as most JSON readers have it.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'a> Members<'a> {
    /// `None` unless `json` is one JSON object.
    pub(super) fn parse(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Names, with their quotes, and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a RawValue, &'a RawValue)> + '_ {
        self.0.iter().copied()
    }

    /// JSON of the object without the members of these names.
    pub(super) fn without(&self, names: &[&str]) -> String {
        let mut object = Object::with_capacity(256);
        for (key, value) in &self.0 {
            if !names.iter().any(|name| is_named(key, name)) {
                object.member(key.get(), value.get());
            }
        }
        object.end()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| is_named(key, name)).map(|(_, value)| *value)
    }

    /// The member as an object; `None` where it is missing or something else.
    pub(super) fn object(&self, name: &str) -> Option<Members<'a>> {
        Members::parse(self.get(name)?.get())
    }

    /// The member as a string; `None` where it is missing or something else.
    pub(super) fn string(&self, name: &str) -> Option<String> {
        string(self.get(name)?)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(&'de RawValue, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Object).map(Members)
    }
}

/// The string that a JSON string stands for; `None` for another value, and for one that is no Unicode
/// text (a lone surrogate).
pub(super) fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// `name` must be one that JSON writes without escapes.
pub(super) fn is_named(key: &RawValue, name: &str) -> bool {
    let quoted = key.get();
    if quoted.contains('\\') {
        return string(key).is_some_and(|key| key == name);
    }
    quoted.strip_prefix('"').and_then(|key| key.strip_suffix('"')) == Some(name)
}

/// The result with `_meta["bailiwick/invocationId"]`; every other value keeps its bytes and its place.
/// A key of that name from the server is replaced. With `complete`, a result that does not say its
/// `resultType` is marked `complete`, as 2026-07-28 requires of it.
///
/// `None` if `result` is no JSON object.
pub(super) fn with_invocation(
    result: &str,
    invocation: InvocationId,
    complete: bool,
) -> Option<String> {
    let members = Members::parse(result)?;
    let mut object = marked(&members, INVOCATION_KEY, &format!("\"{invocation}\""), result.len());
    if complete && members.get("resultType").is_none() {
        object.member("\"resultType\"", "\"complete\"");
    }
    Some(object.end())
}

/// A tool's definition with `_meta["bailiwick/connectionRequired"]: true`: it is used with an account of
/// the person's own, and there is none now.
pub(super) fn with_connection_required(definition: &str) -> Option<String> {
    let members = Members::parse(definition)?;
    Some(marked(&members, CONNECTION_REQUIRED_KEY, "true", definition.len()).end())
}

/// The members, and in `_meta` this one; `len` is about as long as they are.
fn marked(members: &Members<'_>, name: &str, mark: &str, len: usize) -> Object {
    let mut object = Object::with_capacity(len + 128);
    let mut has_meta = false;
    for (key, value) in &members.0 {
        if is_named(key, "_meta") {
            let inside = Members::parse(value.get()).unwrap_or_default();
            object.member(key.get(), &meta(&inside, name, mark));
            has_meta = true;
        } else {
            object.member(key.get(), value.get());
        }
    }
    if !has_meta {
        object.member("\"_meta\"", &meta(&Members::default(), name, mark));
    }
    object
}

fn meta(members: &Members<'_>, name: &str, mark: &str) -> String {
    let mut object = Object::with_capacity(96);
    for (key, value) in &members.0 {
        if !is_named(key, name) {
            object.member(key.get(), value.get());
        }
    }
    object.member(&format!("\"{name}\""), mark);
    object.end()
}

/// Writes an object from members that are JSON already.
pub(super) struct Object(String);

impl Object {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes);
        text.push('{');
        Self(text)
    }

    pub(super) fn member(&mut self, key: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(key);
        self.0.push(':');
        self.0.push_str(value);
    }

    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ID: &str = "00000000-0000-0000-0000-000000000000";

    #[test]
    fn a_tool_is_marked_and_stays_what_it_is() {
        assert_eq!(
            with_connection_required(r#"{"name":"a","n":1.50,"_meta":{"x/y":[]}}"#).unwrap(),
            r#"{"name":"a","n":1.50,"_meta":{"x/y":[],"bailiwick/connectionRequired":true}}"#
        );
        assert_eq!(
            with_connection_required(r#"{"name":"a"}"#).unwrap(),
            r#"{"name":"a","_meta":{"bailiwick/connectionRequired":true}}"#
        );
    }

    fn spliced(result: &str) -> String {
        with_invocation(result, InvocationId(Uuid::nil()), false).unwrap()
    }

    #[test]
    fn a_result_without_meta_gets_one_at_its_end() {
        assert_eq!(
            spliced(r#"{"content":[],"isError":false}"#),
            format!(
                r#"{{"content":[],"isError":false,"_meta":{{"bailiwick/invocationId":"{ID}"}}}}"#
            )
        );
        assert_eq!(spliced("{}"), format!(r#"{{"_meta":{{"bailiwick/invocationId":"{ID}"}}}}"#));
    }

    #[test]
    fn a_result_with_meta_keeps_it_in_its_place() {
        assert_eq!(
            spliced(r#"{"_meta":{"a/b":{"_meta":{}}},"content":[]}"#),
            format!(
                r#"{{"_meta":{{"a/b":{{"_meta":{{}}}},"bailiwick/invocationId":"{ID}"}},"content":[]}}"#
            )
        );
    }

    #[test]
    fn every_other_value_keeps_its_bytes() {
        let odd = r#"{ "n" : 123456789012345678901234567890.10e+400 , "s":"\u00e9\ud800 }{\"_meta\":", "content" : [ {"type":"hologram","x": 1.0 } ] , "n":2}"#;
        assert_eq!(
            spliced(odd),
            format!(
                r#"{{"n":123456789012345678901234567890.10e+400,"s":"\u00e9\ud800 }}{{\"_meta\":","content":[ {{"type":"hologram","x": 1.0 }} ],"n":2,"_meta":{{"bailiwick/invocationId":"{ID}"}}}}"#
            )
        );
    }

    #[test]
    fn the_servers_own_key_of_that_name_is_replaced() {
        for meta in [
            r#"{"bailiwick/invocationId":"forged"}"#,
            r#"{"bailiwick\/invocationId":"forged"}"#,
            r#"{"bailiwick/invocationI\u0064":{"forged":1}}"#,
            r#""forged""#,
            "null",
        ] {
            assert_eq!(
                spliced(&format!(r#"{{"_meta":{meta}}}"#)),
                format!(r#"{{"_meta":{{"bailiwick/invocationId":"{ID}"}}}}"#)
            );
        }
    }

    #[test]
    fn a_meta_that_is_written_with_escapes_is_found() {
        let result = spliced(r#"{"_m\u0065ta":{"k":1}}"#);
        let value: serde_json::Value = serde_json::from_str(&result).unwrap();
        assert_eq!(value, serde_json::json!({"_meta": {"k": 1, "bailiwick/invocationId": ID}}));
    }

    #[test]
    fn only_a_result_without_a_type_is_marked_complete() {
        let complete = |result| with_invocation(result, InvocationId(Uuid::nil()), true).unwrap();
        assert!(complete("{}").ends_with(r#","resultType":"complete"}"#));
        assert!(!complete(r#"{"resultType":"task"}"#).contains("complete"));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for result in ["", "[]", "null", "{", "{}{}", "\"{}\""] {
            assert!(
                with_invocation(result, InvocationId(Uuid::nil()), false).is_none(),
                "{result}"
            );
        }
    }

    #[test]
    fn deep_nesting_needs_no_stack() {
        let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(500_000), "]".repeat(500_000));
        assert!(spliced(&deep).len() > deep.len());
    }

    #[test]
    fn of_two_members_with_one_name_the_later_counts() {
        let members = Members::parse(r#"{"a":"1","a":"2"}"#).unwrap();
        assert_eq!(members.string("a").as_deref(), Some("2"));
    }
}
