//! Lists of a server, so that one bad entry costs its siblings nothing: the SDKs' clients refuse a whole
//! list for it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::gateway::raw::{self, Members, Object};

/// The list of a method's result, and the texts that each entry must have (MCP, schema).
fn list_of(method: &str) -> Option<(&'static str, &'static [&'static str])> {
    Some(match method {
        "resources/list" => ("resources", &["uri", "name"]),
        "resources/templates/list" => ("resourceTemplates", &["uriTemplate", "name"]),
        "prompts/list" => ("prompts", &["name"]),
        _ => return None,
    })
}

type Fits = fn(&RawValue) -> bool;

/// What an entry may have besides, and need not.
const OPTIONAL: &[(&str, Fits)] = &[
    ("title", is_text),
    ("description", is_text),
    ("mimeType", is_text),
    ("size", |raw| raw.get().starts_with(|first: char| first == '-' || first.is_ascii_digit())),
    ("annotations", is_object),
    ("_meta", is_object),
    ("icons", |raw| is_list_of(raw, |icon| icon.string("src").is_some())),
    ("arguments", |raw| is_list_of(raw, |argument| argument.string("name").is_some())),
];

/// The result without entries that are none, and without what is no such member of the others. What is
/// left keeps its bytes and its place; a list of good entries keeps all of them.
pub(super) fn sound<'a>(method: &str, result: &'a [u8]) -> Cow<'a, [u8]> {
    mended(method, result).map_or(Cow::Borrowed(result), |text| Cow::Owned(text.into_bytes()))
}

fn mended(method: &str, result: &[u8]) -> Option<String> {
    let (list, required) = list_of(method)?;
    let members = Members::parse(std::str::from_utf8(result).ok()?)?;
    let entries: Vec<&RawValue> = serde_json::from_str(members.get(list)?.get()).ok()?;
    let kept: Vec<_> = entries.iter().filter_map(|entry| sound_entry(entry, required)).collect();
    let as_they_came = kept.iter().all(|entry| matches!(entry, Cow::Borrowed(_)));
    if as_they_came && kept.len() == entries.len() {
        return None;
    }
    let mut object = Object::with_capacity(result.len());
    for (key, value) in members.iter() {
        if raw::is_named(key, list) {
            object.member(key.get(), &format!("[{}]", kept.join(",")));
        } else {
            object.member(key.get(), value.get());
        }
    }
    Some(object.end())
}

fn sound_entry<'a>(entry: &'a RawValue, required: &[&str]) -> Option<Cow<'a, str>> {
    let members = Members::parse(entry.get())?;
    if required.iter().any(|name| members.string(name).is_none()) {
        return None;
    }
    let bad: Vec<&str> = OPTIONAL
        .iter()
        .filter(|(name, fits)| members.get(name).is_some_and(|value| !fits(value)))
        .map(|(name, _)| *name)
        .collect();
    if bad.is_empty() {
        return Some(Cow::Borrowed(entry.get()));
    }
    Some(Cow::Owned(members.without(&bad)))
}

fn is_text(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

fn is_list_of(raw: &RawValue, fits: impl Fn(&Members<'_>) -> bool) -> bool {
    serde_json::from_str::<Vec<Members<'_>>>(raw.get()).is_ok_and(|all| all.iter().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound_text(method: &str, result: &str) -> String {
        String::from_utf8(sound(method, result.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn a_bad_entry_costs_its_siblings_nothing() {
        let good = r#"{ "uri":"a:b","name":"n","size":1e999, "x":[ ]}"#;
        let result = format!(
            r#"{{"nextCursor":"2","resources":[null,{good},{{"uri":"a:b"}},"x",{{"uri":7,"name":"n"}}]}}"#
        );
        let expected = format!(r#"{{"nextCursor":"2","resources":[{good}]}}"#);
        assert_eq!(sound_text("resources/list", &result), expected);
        let result = r#"{"resourceTemplates":[{"uriTemplate":"a:{b}","name":"n"},{"name":"n"}]}"#;
        let expected = r#"{"resourceTemplates":[{"uriTemplate":"a:{b}","name":"n"}]}"#;
        assert_eq!(sound_text("resources/templates/list", result), expected);
    }

    #[test]
    fn a_bad_member_costs_its_entry_nothing() {
        let result = r#"{"prompts":[{"name":"p","description":null,"title":7,"arguments":[{"title":"x"}],"icons":[{}],"_meta":[],"own":null}]}"#;
        assert_eq!(sound_text("prompts/list", result), r#"{"prompts":[{"name":"p","own":null}]}"#);
    }

    #[test]
    fn what_is_good_or_no_list_stays_as_it_came() {
        for result in [r#"{ "prompts" : [ {"name":"p"} ] }"#, r#"{"prompts":7}"#, "{}", "7"] {
            assert!(
                matches!(sound("prompts/list", result.as_bytes()), Cow::Borrowed(_)),
                "{result}"
            );
        }
        assert!(matches!(sound("ping", br#"{"prompts":[7]}"#), Cow::Borrowed(_)));
    }
}
