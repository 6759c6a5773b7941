//! Results of a server, as the client's protocol version has them.

use domain::{Error, ids::InvocationId};
use serde_json::value::RawValue;

use crate::gateway::{
    about,
    eras::Era,
    raw::{self, Members, Object},
};

/// What must stand in the result of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// MCP 2026-07-28: Caching, "Cacheable Results".
    pub(super) cacheable: bool,
}

/// The result with what the client's version demands; everything else keeps its bytes and its place.
///
/// In the newer era a result says what kind it is, whose it is, and how long it may be kept: only by
/// its caller, whatever the server said, because who may ask is decided for each.
pub(super) fn shaped(
    result: &[u8],
    kind: Kind,
    invocation: Option<InvocationId>,
    era: Era,
) -> Result<String, Error> {
    let unfit = || Error::internal("a result that is no JSON object");
    let text = std::str::from_utf8(result).map_err(|_| unfit())?;
    let text = match invocation {
        Some(invocation) => {
            raw::with_invocation(text, invocation, era == Era::Modern).ok_or_else(unfit)?
        }
        None => text.to_owned(),
    };
    if era == Era::Legacy {
        return Ok(text);
    }
    let members = Members::parse(&text).ok_or_else(unfit)?;
    let complete = members.string("resultType").is_none_or(|kind| kind == "complete");
    let caching = kind.cacheable && complete;
    let mut object = Object::with_capacity(text.len() + 128);
    for (key, value) in members.iter() {
        let caching_hint = raw::is_named(key, "ttlMs") || raw::is_named(key, "cacheScope");
        if !(kind.cacheable && caching_hint) {
            object.member(key.get(), value.get());
        }
    }
    if members.get("resultType").is_none() {
        object.member("\"resultType\"", "\"complete\"");
    }
    if caching {
        object.member("\"ttlMs\"", members.get("ttlMs").and_then(ttl).unwrap_or("0"));
        object.member("\"cacheScope\"", "\"private\"");
    }
    if members.get("_meta").is_none() {
        object.member("\"_meta\"", &about::meta().to_string());
    }
    Ok(object.end())
}

/// A number of milliseconds that is one.
fn ttl(raw: &RawValue) -> Option<&str> {
    let text = raw.get();
    (text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn modern(result: &str, cacheable: bool) -> Value {
        let shaped = shaped(result.as_bytes(), Kind { cacheable }, None, Era::Modern).unwrap();
        let mut value: Value = serde_json::from_str(&shaped).unwrap();
        value.as_object_mut().unwrap().remove("_meta");
        value
    }

    #[test]
    fn a_newer_client_gets_what_its_version_demands() {
        assert_eq!(
            modern(r#"{"messages":[]}"#, false),
            json!({"messages": [], "resultType": "complete"})
        );
        assert_eq!(
            modern(r#"{"contents":[],"ttlMs":5000,"cacheScope":"public"}"#, true),
            json!({"contents": [], "resultType": "complete", "ttlMs": 5000, "cacheScope": "private"})
        );
        for odd in ["-1", "1.5", "\"x\"", "null"] {
            let value = modern(&format!(r#"{{"ttlMs":{odd}}}"#), true);
            assert_eq!(value["ttlMs"], 0, "{odd}");
        }
    }

    #[test]
    fn what_is_not_finished_is_not_kept() {
        let value = modern(r#"{"resultType":"input_required","requestState":"x"}"#, true);
        assert_eq!(value, json!({"resultType": "input_required", "requestState": "x"}));
    }

    #[test]
    fn an_older_client_gets_what_came() {
        let odd = r#"{ "contents":[ ],"n":1.50}"#;
        assert_eq!(
            shaped(odd.as_bytes(), Kind { cacheable: true }, None, Era::Legacy).unwrap(),
            odd
        );
    }
}
