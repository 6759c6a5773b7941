//! The cookie of a browser session.

use axum::http::{HeaderMap, HeaderValue, header};
use domain::limits;
use secrecy::{ExposeSecret, SecretString};

use crate::NodeSettings;

/// `__Host-`: only we can set it, for this host alone and over TLS alone (RFC 6265bis, 4.1.3.2).
/// Browsers keep none so named on plain http, which there is on this machine only.
fn name(node: &NodeSettings) -> &'static str {
    if is_encrypted(node) { "__Host-blw-session" } else { "blw-session" }
}

fn is_encrypted(node: &NodeSettings) -> bool {
    node.public_url.scheme() == "https"
}

/// The session's secret that a browser sent. `None` beside a bearer token: a request with both is the
/// token's; and where there are several, of which nobody knows which one is ours.
pub(crate) fn sent<'a>(headers: &'a HeaderMap, node: &NodeSettings) -> Option<&'a str> {
    if has_bearer(headers) {
        return None;
    }
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = pairs
        .flat_map(|pairs| pairs.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(key, value)| (key == name(node)).then_some(value));
    let value = values.next()?;
    (values.next().is_none() && is_secret(value)).then_some(value)
}

/// The cookie of one sign-in at a provider: several may be under way in one browser.
fn attempt_name(node: &NodeSettings, suffix: &str) -> String {
    let prefix = if is_encrypted(node) { "__Host-" } else { "" };
    format!("{prefix}blw-oauth-{suffix}")
}

/// The secret of the sign-in at a provider that this browser began.
pub(crate) fn attempt(
    headers: &HeaderMap,
    node: &NodeSettings,
    suffix: &str,
) -> Option<SecretString> {
    let wanted = attempt_name(node, suffix);
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = pairs
        .flat_map(|pairs| pairs.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(key, value)| (key == wanted).then_some(value));
    let value = values.next()?;
    (values.next().is_none() && is_secret(value)).then(|| SecretString::from(value))
}

pub(crate) fn set_attempt(node: &NodeSettings, suffix: &str, secret: &SecretString) -> HeaderValue {
    let seconds = limits::OAUTH_ATTEMPT_SECONDS.default;
    header_value(node, &attempt_name(node, suffix), secret.expose_secret(), seconds)
}

pub(crate) fn clear_attempt(node: &NodeSettings, suffix: &str) -> HeaderValue {
    header_value(node, &attempt_name(node, suffix), "", 0)
}

/// 256 bits in base64url without padding.
fn is_secret(value: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    value.len() == 43 && value.bytes().all(digit)
}

fn has_bearer(headers: &HeaderMap) -> bool {
    headers.get_all(header::AUTHORIZATION).iter().any(|value| {
        let scheme = value.as_bytes().get(..6);
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))
    })
}

/// Lax: a link to a question opens it; no other site's form carries it.
pub(crate) fn set(node: &NodeSettings, secret: &SecretString) -> HeaderValue {
    header_value(node, name(node), secret.expose_secret(), limits::WEB_SESSION_SECONDS.default)
}

pub(crate) fn clear(node: &NodeSettings) -> HeaderValue {
    header_value(node, name(node), "", 0)
}

fn header_value(node: &NodeSettings, name: &str, value: &str, seconds: u64) -> HeaderValue {
    let secure = if is_encrypted(node) { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    let mut value = HeaderValue::try_from(text).expect("base64url and words of ours");
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn node(url: &str) -> NodeSettings {
        NodeSettings {
            public_url: url.parse().unwrap(),
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_cookie_is_bound_to_host_and_tls_where_there_is_tls() {
        let secret = SecretString::from(SECRET);
        let text = |url: &str| set(&node(url), &secret).to_str().unwrap().to_owned();
        assert_eq!(
            text("https://bailiwick.example"),
            format!(
                "__Host-blw-session={SECRET}; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax; Secure"
            )
        );
        assert_eq!(
            text("http://127.0.0.1:8080"),
            format!("blw-session={SECRET}; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax")
        );
    }

    #[test]
    fn the_one_cookie_of_ours_is_taken_and_never_beside_a_bearer_token() {
        let node = node("https://bailiwick.example");
        let ours = format!("a=b; __Host-blw-session={SECRET}; c=d");
        assert_eq!(sent(&headers(&[("cookie", &ours)]), &node), Some(SECRET));
        for pairs in [
            vec![("cookie", ours.as_str()), ("authorization", "bearer x")],
            vec![("cookie", ours.as_str()), ("cookie", ours.as_str())],
            vec![("cookie", "__Host-blw-session=short")],
            vec![("cookie", &format!("blw-session={SECRET}"))],
            vec![],
        ] {
            let mut all = HeaderMap::new();
            for (name, value) in pairs {
                all.append(name, value.parse().unwrap());
            }
            assert_eq!(sent(&all, &node), None, "{all:?}");
        }
        // A proxy's own password is none of ours.
        let basic = headers(&[("cookie", &ours), ("authorization", "Basic eA==")]);
        assert_eq!(sent(&basic, &node), Some(SECRET));
    }
}
