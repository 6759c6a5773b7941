//! An authorization server as its metadata describes it, and which addresses it may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use domain::limits;
use rmcp::transport::auth::AuthorizationMetadata;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::{Host, Url};

use super::{AuthMethod, OAuthFailure, step};
use crate::egress::{Destination, EgressRules};

/// What discovery found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// `resource` of the resource metadata, byte for byte: what goes into every request as `resource` (RFC 8707). The
    /// server's own URL where it publishes no such metadata (MCP 2025-03-26).
    pub resource: String,
    pub server: AuthorizationServer,
    /// `scope` of the server's challenge.
    pub challenge_scopes: Vec<String>,
    /// `scopes_supported` of the resource metadata.
    pub resource_scopes: Vec<String>,
}

/// An authorization server (RFC 8414; OpenID Connect Discovery). Kept with attempts and credentials, so that code
/// exchange and refresh go where the consent was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationServer {
    /// As the metadata writes it; `iss` of a callback is compared with it byte for byte (RFC 9207).
    pub issuer: String,
    pub authorization_endpoint: Url,
    pub token_endpoint: Url,
    pub registration_endpoint: Option<Url>,
    pub revocation_endpoint: Option<Url>,
    pub scopes_supported: Vec<String>,
    /// Empty where the metadata does not say: then it is `client_secret_basic` (RFC 8414, section 2).
    pub token_endpoint_auth_methods_supported: Vec<String>,
    /// A callback without `iss` is refused (RFC 9207).
    pub authorization_response_iss_parameter_supported: bool,
    /// A client id may be the URL of our metadata document.
    pub client_id_metadata_document_supported: bool,
    /// The host that a person configured: the only one at which a learned URL may be private.
    pub configured_host: String,
}

impl AuthorizationServer {
    /// What the metadata says, where its addresses are ones that may be used at all, and PKCE is listed.
    pub(super) fn new(
        metadata: AuthorizationMetadata,
        configured_host: String,
        rules: &EgressRules,
    ) -> Result<Self, OAuthFailure> {
        let AuthorizationMetadata { code_challenge_methods_supported, .. } = &metadata;
        let methods = code_challenge_methods_supported.as_deref().unwrap_or_default();
        if !methods.iter().any(|method| method == "S256") {
            return Err(OAuthFailure::at(step::PKCE));
        }
        Self::described(metadata, configured_host, rules)
    }

    /// The same of an issuer that people sign in at: many take PKCE and do not list it (OpenID Connect
    /// Discovery has no member for it), and the nonce protects the code besides.
    pub(super) fn described(
        metadata: AuthorizationMetadata,
        configured_host: String,
        rules: &EgressRules,
    ) -> Result<Self, OAuthFailure> {
        let more = &metadata.additional_fields;
        let flag = |name: &str| more.get(name).and_then(Value::as_bool).unwrap_or(false);
        let destination = Destination::Learned { configured_host: configured_host.clone() };
        let endpoint = |text: &str| {
            let url: Url = text.parse().map_err(|_| OAuthFailure::at(step::INSECURE_URL))?;
            judge(&url, &destination, rules)?;
            Ok::<_, OAuthFailure>(url)
        };
        let optional = |text: Option<&str>| text.map(endpoint).transpose();
        Ok(Self {
            authorization_endpoint: endpoint(&metadata.authorization_endpoint)?,
            token_endpoint: endpoint(&metadata.token_endpoint)?,
            registration_endpoint: optional(metadata.registration_endpoint.as_deref())?,
            revocation_endpoint: optional(more.get("revocation_endpoint").and_then(Value::as_str))?,
            scopes_supported: capped(metadata.scopes_supported.unwrap_or_default()),
            token_endpoint_auth_methods_supported: strings(
                more.get("token_endpoint_auth_methods_supported"),
            ),
            authorization_response_iss_parameter_supported: flag(
                "authorization_response_iss_parameter_supported",
            ),
            client_id_metadata_document_supported: flag("client_id_metadata_document_supported"),
            issuer: metadata.issuer.ok_or(OAuthFailure::at(step::ISSUER_MISMATCH))?,
            configured_host,
        })
    }

    /// How a client with or without a secret shows who it is: the first method of the metadata that it is able to use.
    #[must_use]
    pub fn auth_method(&self, has_secret: bool) -> AuthMethod {
        let listed = self.token_endpoint_auth_methods_supported.iter();
        let known = listed.filter_map(|name| AuthMethod::named(name));
        let default = if has_secret { AuthMethod::Basic } else { AuthMethod::None };
        known.into_iter().find(|method| method.needs_secret() == has_secret).unwrap_or(default)
    }

    pub(super) fn destination(&self) -> Destination {
        Destination::Learned { configured_host: self.configured_host.clone() }
    }
}

/// The same issuer: byte for byte, but for the slash of an issuer without a path, which half of the world writes.
#[must_use]
pub fn same_issuer(one: &str, other: &str) -> bool {
    one == other || bare(one) == bare(other)
}

fn bare(issuer: &str) -> &str {
    let Some(without) = issuer.strip_suffix('/') else { return issuer };
    let authority = without.split_once("://").map_or("", |(_, rest)| rest);
    if authority.is_empty() || authority.contains(['/', '?', '#']) { issuer } else { without }
}

/// Refuses an address of an authorization server that is neither https nor loopback http that the operator listed, and
/// what the egress rules refuse whatever the name resolves to.
pub(super) fn judge(
    url: &Url,
    destination: &Destination,
    rules: &EgressRules,
) -> Result<(), OAuthFailure> {
    let secure = match url.scheme() {
        "https" => true,
        "http" => listed_loopback(url, destination, rules),
        _ => false,
    };
    if !secure || url.fragment().is_some() {
        return Err(OAuthFailure::at(step::INSECURE_URL));
    }
    rules.judge_url(url, destination).map_err(OAuthFailure::Egress)
}

fn listed_loopback(url: &Url, destination: &Destination, rules: &EgressRules) -> bool {
    let addresses: &[IpAddr] = match url.host() {
        Some(Host::Ipv4(ip)) if ip.is_loopback() => &[IpAddr::V4(ip)],
        Some(Host::Ipv6(ip)) if ip.is_loopback() => &[IpAddr::V6(ip)],
        Some(Host::Domain("localhost")) => {
            &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        }
        _ => return false,
    };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return false;
    };
    addresses.iter().any(|ip| {
        rules.check_address(SocketAddr::new(*ip, port), host, destination)
            != Err(crate::egress::Refused::NotListed)
    })
}

/// The strings of a list, as many as we read.
pub(super) fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    capped(list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
}

fn capped(mut scopes: Vec<String>) -> Vec<String> {
    scopes.truncate(limits::OAUTH_SCOPES.size());
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::AllowRule;

    #[test]
    fn an_issuer_is_the_same_byte_for_byte_but_for_the_slash_of_a_root() {
        for (one, other) in [
            ("https://a.test", "https://a.test"),
            ("https://a.test", "https://a.test/"),
            ("https://a.test/t/", "https://a.test/t/"),
        ] {
            assert!(same_issuer(one, other) && same_issuer(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("https://a.test/t", "https://a.test/t/"),
            ("https://a.test", "https://A.test"),
            ("https://a.test", "https://a.test:443"),
            ("https://a.test", "http://a.test"),
            ("https://a.test//", "https://a.test"),
            ("https://", "https:///"),
        ] {
            assert!(!same_issuer(one, other) && !same_issuer(other, one), "{one} {other}");
        }
    }

    #[test]
    fn plain_http_is_for_listed_loopback_alone() {
        let rules = |allow: &[AllowRule]| EgressRules { allow: allow.to_vec(), own: Vec::new() };
        let listed = rules(&[
            AllowRule::Network("127.0.0.0/8".parse().unwrap()),
            AllowRule::Network("10.0.0.0/8".parse().unwrap()),
            AllowRule::Host("intranet".into()),
        ]);
        let allowed = |url: &str, host: &str, rules: &EgressRules| {
            let destination = Destination::Learned { configured_host: host.to_owned() };
            judge(&url.parse().unwrap(), &destination, rules).is_ok()
        };
        assert!(allowed("https://a.test/t", "other.test", &rules(&[])));
        assert!(allowed("http://localhost:1/t", "localhost", &listed));
        assert!(allowed("http://127.0.0.1:1/t", "127.0.0.1", &listed));
        assert!(!allowed("http://localhost:1/t", "localhost", &rules(&[])));
        assert!(
            !allowed("http://localhost:1/t", "127.0.0.1", &listed),
            "learned from another host"
        );
        assert!(!allowed("http://intranet/t", "intranet", &listed), "listed, but no loopback");
        assert!(!allowed("http://10.1.1.1/t", "10.1.1.1", &listed));
        assert!(!allowed("https://10.1.1.1/t", "a.test", &listed));
        assert!(!allowed("javascript:alert(1)", "a.test", &listed));
        assert!(!allowed("https://user@a.test/t", "a.test", &listed));
        assert!(!allowed("https://169.254.169.254/t", "169.254.169.254", &listed));
    }
}
