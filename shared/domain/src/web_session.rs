//! Browser sessions: what one may do, and where somebody tries to sign in from.

use std::{fmt, net::IpAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{Role, Scope, Scopes};

/// What a person may do who is signed in: all that their role allows, but for calling tools at the
/// gateway. Whoever permits does not call.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "only approve beside mcp:call could not stand")]
pub fn scopes(role: Role) -> Scopes {
    let own = [Scope::ApiRead, Scope::ApiWrite, Scope::Approve];
    let admin = (role >= Role::Admin).then_some(Scope::Admin);
    Scopes::new(own.into_iter().chain(admin)).expect("these scopes may stand together")
}

/// The network that an address counts as, where attempts to sign in are counted: what one customer of
/// a provider usually has, /24 (IPv4) or /56 (IPv6, RFC 6177).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(Option<IpNet>);

impl Network {
    /// Where the address is not known; all of these count as one.
    pub const UNKNOWN: Self = Self(None);
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => Ipv4Net::new(address, 24).map(IpNet::V4),
            IpAddr::V6(address) => Ipv6Net::new(address, 56).map(IpNet::V6),
        };
        Self(network.ok().map(|network| network.trunc()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(network) => network.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_count_as_one() {
        let network = |text: &str| Network::from(text.parse::<IpAddr>().unwrap()).to_string();
        assert_eq!(network("192.0.2.77"), "192.0.2.0/24");
        assert_eq!(network("::ffff:192.0.2.78"), "192.0.2.0/24");
        assert_eq!(network("2001:db8:1:2ff:3::4"), "2001:db8:1:200::/56");
        assert_eq!(Network::UNKNOWN.to_string(), "unknown");
    }

    #[test]
    fn a_signed_in_person_permits_and_never_calls() {
        for role in [Role::Member, Role::Admin, Role::Superadmin] {
            let scopes = scopes(role);
            assert!(scopes.has(Scope::Approve) && !scopes.has(Scope::McpCall));
            assert_eq!(scopes.has(Scope::Admin), role != Role::Member);
        }
    }
}
