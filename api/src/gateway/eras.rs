//! Which protocol a request speaks: the stateless one of 2026-07-28, or one that began with
//! `initialize` (MCP 2026-07-28: Versioning, "Backward Compatibility").

use axum::http::HeaderMap;
use rmcp::model::{ErrorCode, ProtocolVersion};
use serde_json::json;

use super::{
    fault::Fault,
    headers::{self, PROTOCOL_VERSION, mismatch},
    message::Message,
    raw,
};

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(super) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";

/// The version without sessions.
pub(super) const MODERN: ProtocolVersion = ProtocolVersion::V_2026_07_28;

/// The versions with `initialize`, newest first.
pub(super) const LEGACY: [ProtocolVersion; 3] =
    [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_03_26];

/// Every version that is served, newest first.
pub(super) fn supported() -> Vec<ProtocolVersion> {
    let mut versions = vec![MODERN];
    versions.extend(LEGACY);
    versions
}

/// The older version of that name, if it is served.
pub(super) fn legacy(name: &str) -> Option<ProtocolVersion> {
    LEGACY.into_iter().find(|version| version.as_str() == name)
}

/// What `initialize` is answered with: the wished version, else the newest one that has `initialize`
/// (MCP 2025-11-25: Lifecycle, "Version Negotiation").
pub(super) fn negotiated(wished: &str) -> ProtocolVersion {
    legacy(wished).unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Modern,
    Legacy,
}

/// Decides by the version that header and `_meta` state, and refuses where they do not fit.
///
/// An `initialize` is of the older era whatever its headers say, unless it is written like a request of
/// the newer one, which has none.
pub(super) fn of(headers: &HeaderMap, message: &Message<'_>) -> Result<Era, Fault> {
    if message.method == "initialize" && !states_version(message) {
        return Ok(Era::Legacy);
    }
    decide(headers, message).map_err(|fault| fault.of(message.id.clone()))
}

/// `_meta` says which version the request is of, and the params do not.
fn states_version(message: &Message<'_>) -> bool {
    let meta = message.params.object("_meta").unwrap_or_default();
    meta.get(META_VERSION).is_some() && message.params.get("protocolVersion").is_none()
}

fn decide(headers: &HeaderMap, message: &Message<'_>) -> Result<Era, Fault> {
    let header = headers::single(headers, PROTOCOL_VERSION)?;
    let meta = message.params.object("_meta").unwrap_or_default();
    let stated = match meta.get(META_VERSION) {
        None => None,
        Some(stated) => Some(raw::string(stated).ok_or_else(|| missing(META_VERSION))?),
    };
    if message.id.is_some() {
        match (header, &stated) {
            (None, Some(_)) => {
                return Err(mismatch("the header MCP-Protocol-Version is missing"));
            }
            (None, None) if message.method == "server/discover" => {
                return Err(mismatch("the header MCP-Protocol-Version is missing"));
            }
            (Some(header), Some(stated)) if header != stated => {
                return Err(mismatch("the header MCP-Protocol-Version does not match the body"));
            }
            _ => {}
        }
    }
    let Some(version) = header else { return Ok(Era::Legacy) };
    if legacy(version).is_some() {
        return Ok(Era::Legacy);
    }
    if version != MODERN.as_str() {
        return Err(unsupported(version));
    }
    if message.id.is_some() {
        if stated.is_none() {
            return Err(missing(META_VERSION));
        }
        if meta.object(META_CAPABILITIES).is_none() {
            return Err(missing(META_CAPABILITIES));
        }
        if meta.get(META_CLIENT).is_some() && meta.object(META_CLIENT).is_none() {
            return Err(missing(META_CLIENT));
        }
        headers::check_standard(headers, message)?;
    }
    Ok(Era::Modern)
}

fn missing(key: &str) -> Fault {
    let words = format!("params._meta[{key:?}] is missing or malformed");
    Fault::new(ErrorCode::INVALID_PARAMS, words).malformed()
}

/// `UnsupportedProtocolVersionError`, with the versions to choose from.
pub(super) fn unsupported(requested: &str) -> Fault {
    let mut fault =
        Fault::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, "unsupported protocol version")
            .malformed();
    fault.data = Some(json!({ "supported": supported(), "requested": requested }));
    fault
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, StatusCode};
    use serde_json::Value;

    use super::{
        super::message::{self, Body},
        *,
    };

    fn decided(header: Option<&str>, method: &str, meta: &Value) -> Result<Era, i32> {
        let mut headers = HeaderMap::new();
        if let Some(version) = header {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_str(version).unwrap());
        }
        headers.insert("mcp-method", HeaderValue::from_str(method).unwrap());
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}});
        let body = body.to_string();
        let Ok(Body::One(message)) = message::parse(body.as_bytes()) else { panic!("{body}") };
        of(&headers, &message).map_err(|fault| {
            assert_eq!(fault.status, StatusCode::BAD_REQUEST);
            assert!(fault.id.is_some());
            fault.code.0
        })
    }

    fn meta(version: &str) -> Value {
        json!({META_VERSION: version, META_CAPABILITIES: {}})
    }

    #[test]
    fn a_request_that_states_2026_07_28_twice_is_modern() {
        assert_eq!(decided(Some("2026-07-28"), "tools/list", &meta("2026-07-28")), Ok(Era::Modern));
    }

    #[test]
    fn a_request_that_states_an_older_version_or_none_is_legacy() {
        for header in [None, Some("2025-11-25"), Some("2025-06-18"), Some("2025-03-26")] {
            assert_eq!(decided(header, "tools/list", &json!({})), Ok(Era::Legacy));
        }
        assert_eq!(decided(Some("2025-11-25"), "tools/list", &meta("2025-11-25")), Ok(Era::Legacy));
    }

    #[test]
    fn initialize_is_legacy_whatever_its_headers_say() {
        assert_eq!(decided(Some("2026-07-28"), "initialize", &json!({})), Ok(Era::Legacy));
        assert_eq!(decided(Some("1900-01-01"), "initialize", &json!({})), Ok(Era::Legacy));
    }

    #[test]
    fn an_initialize_with_the_newer_meta_is_a_request_of_the_newer_era() {
        let meta = meta("2026-07-28");
        assert_eq!(decided(Some("2026-07-28"), "initialize", &meta), Ok(Era::Modern));
    }

    #[test]
    fn header_and_body_must_state_the_same_version() {
        assert_eq!(decided(None, "tools/list", &meta("2026-07-28")), Err(-32020));
        assert_eq!(decided(Some("2025-11-25"), "tools/list", &meta("2026-07-28")), Err(-32020));
        assert_eq!(decided(None, "server/discover", &json!({})), Err(-32020));
    }

    #[test]
    fn a_version_that_is_not_served_is_refused_with_those_that_are() {
        assert_eq!(decided(Some("1900-01-01"), "tools/list", &meta("1900-01-01")), Err(-32022));
        assert_eq!(decided(Some("2024-11-05"), "tools/list", &json!({})), Err(-32022));
        assert_eq!(
            unsupported("1900-01-01").data,
            Some(json!({
                "supported": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"],
                "requested": "1900-01-01",
            }))
        );
    }

    #[test]
    fn a_modern_request_without_its_meta_is_malformed() {
        let modern = Some("2026-07-28");
        assert_eq!(decided(modern, "tools/list", &json!({})), Err(-32602));
        assert_eq!(
            decided(modern, "tools/list", &json!({META_VERSION: "2026-07-28"})),
            Err(-32602)
        );
        assert_eq!(decided(modern, "tools/list", &json!({META_VERSION: 7})), Err(-32602));
    }

    #[test]
    fn initialize_is_answered_with_the_wished_version_or_the_newest_that_has_it() {
        assert_eq!(negotiated("2025-03-26"), ProtocolVersion::V_2025_03_26);
        for wished in ["2024-11-05", "2026-07-28", "1900-01-01"] {
            assert_eq!(negotiated(wished), ProtocolVersion::V_2025_11_25);
        }
    }
}
