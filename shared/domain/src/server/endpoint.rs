//! Which URLs a server may have.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use super::validate::Mistakes;
use crate::limits;

/// What the operator allows: hosts and networks that may be reached by plain http.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UrlRules {
    /// Host names, lower case.
    pub hosts: Vec<String>,
    pub networks: Vec<IpNet>,
}

impl UrlRules {
    /// Whether the operator listed this host (of a parsed URL, so lower case already).
    #[must_use]
    pub fn lists(&self, host: &Host<&str>) -> bool {
        let address = match host {
            Host::Domain(name) => {
                let name = name.trim_end_matches('.');
                return self.hosts.iter().any(|listed| listed.eq_ignore_ascii_case(name));
            }
            Host::Ipv4(address) => IpAddr::V4(*address),
            Host::Ipv6(address) => IpAddr::V6(*address).to_canonical(),
        };
        self.networks.iter().any(|network| network.contains(&address))
            || self.hosts.iter().any(|listed| listed.parse() == Ok(address))
    }
}

/// Adds what is wrong with the URL of a server.
pub(super) fn check(text: &str, rules: &UrlRules, mistakes: &mut Mistakes) {
    const PATH: &str = "/url";
    if text.is_empty() {
        mistakes.add(PATH, "is needed for this transport");
        return;
    }
    if !mistakes.at_most(PATH, text, limits::URL_CHARS) {
        return;
    }
    // The parser drops or turns these silently, and then it is another URL.
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        mistakes.add(PATH, "must hold no blanks, control characters or backslashes");
        return;
    }
    let Ok(url) = Url::parse(text) else {
        mistakes.add(PATH, "is no URL");
        return;
    };
    if !matches!(url.scheme(), "http" | "https") {
        mistakes.add(PATH, "must begin with https:// or http://");
        return;
    }
    let authority = authority(text);
    if authority.contains('@') {
        mistakes.add(PATH, "must hold no user name or password: use headers or an auth mode");
    } else if authority.contains('%') {
        mistakes.add(PATH, "must hold no % in the host");
    }
    if url.fragment().is_some() {
        mistakes.add(PATH, "must have no fragment");
    }
    match url.host() {
        None => mistakes.add(PATH, "must have a host"),
        Some(host) if url.scheme() == "http" && !is_loopback(&host) && !rules.lists(&host) => {
            mistakes.add(
                PATH,
                "must be https: http is for loopback and hosts that the operator listed",
            );
        }
        Some(_) => {}
    }
}

/// What stands between the slashes and the path, as it was written.
fn authority(text: &str) -> &str {
    let rest = text.split_once(':').map_or(text, |(_, rest)| rest).trim_start_matches('/');
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        // RFC 6761, 6.3.
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => IpAddr::V6(*address).to_canonical().is_loopback(),
    }
}
