//! Which addresses may be reached: the operator's rules, judged per address.
//!
//! Three classes. *Never*: link-local, cloud metadata, multicast and the like, whatever is listed.
//! *Special*: loopback, private and every other range that is not plain public unicast (IANA
//! special-purpose registries, RFC 6890), only where the operator listed it. *Public*: the rest.
//! An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4, Teredo) is judged as well.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::LazyLock,
};

use domain::{Code, Error};
use ipnet::IpNet;
use url::{Host, Url};

/// What the operator permits beyond public addresses, and what is ours.
#[derive(Debug, Clone, Default)]
pub struct EgressRules {
    /// Special ranges and hosts that *configured* URLs may reach.
    pub allow: Vec<AllowRule>,
    /// Our own listeners: refused, but for [`Destination::Own`].
    pub own: Vec<SocketAddr>,
}

/// One entry of `BAILIWICK_EGRESS_ALLOW`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowRule {
    Network(IpNet),
    /// A host name or an address, exactly as it stands in the URL; no case, no wildcard.
    Host(String),
}

/// Who named the address; decides what the operator's list is worth.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A URL that a superadmin or the operator configured.
    Configured,
    /// A URL that a peer named (metadata, redirect): public, or on the configured URL's own host.
    Learned { configured_host: String },
    /// One of our own listeners; code alone makes this.
    Own,
}

/// Why an address is not reached. Its words name neither host nor address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("only http and https are reached")]
    Scheme,
    #[error("the URL names no host, or carries a user name")]
    Form,
    #[error("the host has a link-local, metadata or otherwise forbidden address")]
    Forbidden,
    #[error("the host has a loopback or private address that the operator did not list")]
    NotListed,
    #[error("the address is one of our own listeners")]
    Ours,
    #[error("the host has no address")]
    NoAddress,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        let words = format!("the server may not be reached from here: {refused}");
        Error::new(Code::ServerMisconfigured, words).because(refused)
    }
}

impl EgressRules {
    /// Refuses (`SERVER_MISCONFIGURED`) a URL that cannot be reached whatever its name resolves to:
    /// another scheme, user information, a literal address that the rules forbid.
    pub fn judge_url(&self, url: &Url, destination: &Destination) -> Result<(), Error> {
        Ok(self.check_url(url, destination)?)
    }

    /// Refuses (`SERVER_MISCONFIGURED`) an address that `host` resolved to.
    pub fn judge_address(
        &self,
        address: SocketAddr,
        host: &str,
        destination: &Destination,
    ) -> Result<(), Error> {
        Ok(self.check_address(address, host, destination)?)
    }

    pub(crate) fn check_url(&self, url: &Url, destination: &Destination) -> Result<(), Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::Form);
        }
        // The resolver never sees a literal address.
        let literal = match url.host().ok_or(Refused::Form)? {
            Host::Domain(_) => return Ok(()),
            Host::Ipv4(ip) => IpAddr::V4(ip),
            Host::Ipv6(ip) => IpAddr::V6(ip),
        };
        let port = url.port_or_known_default().ok_or(Refused::Form)?;
        let host = url.host_str().ok_or(Refused::Form)?;
        self.check_address(SocketAddr::new(literal, port), host, destination)
    }

    pub(crate) fn check_address(
        &self,
        address: SocketAddr,
        host: &str,
        destination: &Destination,
    ) -> Result<(), Refused> {
        let ip = address.ip().to_canonical();
        let ours =
            self.own.iter().any(|own| is_listener(*own, SocketAddr::new(ip, address.port())));
        match destination {
            Destination::Own if ours => return Ok(()),
            Destination::Own => return Err(Refused::NotListed),
            _ if ours => return Err(Refused::Ours),
            _ => {}
        }
        let listing_counts = match destination {
            Destination::Configured => true,
            Destination::Learned { configured_host } => configured_host.eq_ignore_ascii_case(host),
            Destination::Own => false,
        };
        match class(ip) {
            Class::Never => Err(Refused::Forbidden),
            Class::Public => Ok(()),
            Class::Special if listing_counts && self.lists(ip, host) => Ok(()),
            Class::Special => Err(Refused::NotListed),
        }
    }

    fn lists(&self, ip: IpAddr, host: &str) -> bool {
        let inner = embedded(ip).map(IpAddr::V4);
        self.allow.iter().any(|rule| match rule {
            AllowRule::Network(net) => {
                net.contains(&ip) || inner.is_some_and(|inner| net.contains(&inner))
            }
            AllowRule::Host(name) => name.eq_ignore_ascii_case(host.trim_end_matches('.')),
        })
    }
}

/// Whether an address is refused whatever the operator lists.
#[must_use]
pub fn is_never_reached(ip: IpAddr) -> bool {
    class(ip.to_canonical()) == Class::Never
}

/// Whether connecting to `address` would reach the listener `own`.
fn is_listener(own: SocketAddr, address: SocketAddr) -> bool {
    if own.port() != address.port() {
        return false;
    }
    let own_ip = own.ip().to_canonical();
    if !own_ip.is_unspecified() {
        return own_ip == address.ip();
    }
    // A listener on the unspecified address has every address of this machine: those are the ones
    // that can be bound.
    address.ip().is_loopback() || UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Public,
    Special,
    Never,
}

fn class(ip: IpAddr) -> Class {
    let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&ip));
    let outer = if within(&NEVER) {
        Class::Never
    } else if within(&SPECIAL) || matches!(ip, IpAddr::V6(v6) if v6.segments()[0] >> 13 != 1) {
        // Of IPv6 only 2000::/3 is global unicast; NAT64's well-known prefix counts as what it holds.
        if within(&NAT64) { Class::Public } else { Class::Special }
    } else {
        Class::Public
    };
    let inner = embedded(ip).map_or(Class::Public, |v4| class(IpAddr::V4(v4)));
    outer.max(inner)
}

/// The IPv4 address inside an IPv6 one, for the transition mechanisms that carry one.
fn embedded(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else { return None };
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match v6.segments() {
        // IPv4-compatible (RFC 4291, deprecated); ::1 and :: are not.
        [0, 0, 0, 0, 0, 0, high, low] if v6 > Ipv6Addr::LOCALHOST => v4(high, low),
        // IPv4-translated (RFC 2765); NAT64, the well-known prefix and networks' own (RFC 6052, 8215); 6to4 (RFC 3056).
        [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        // Teredo (RFC 4380): the client's address, inverted.
        [0x2001, 0, .., high, low] => v4(!high, !low),
        _ => None,
    }
}

fn nets(list: &[&str]) -> Vec<IpNet> {
    list.iter().map(|net| net.parse().expect("a literal of this file")).collect()
}

static NAT64: LazyLock<Vec<IpNet>> = LazyLock::new(|| nets(&["64:ff9b::/96"]));

/// Refused even when listed.
static NEVER: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    nets(&[
        "0.0.0.0/8",          // this network (RFC 791)
        "169.254.0.0/16",     // link-local, and the metadata service of most clouds
        "168.63.129.16/32",   // Azure's host agent
        "100.100.100.200/32", // Alibaba's metadata service
        "192.0.0.192/32",     // Oracle's metadata service
        "224.0.0.0/4",        // multicast
        "240.0.0.0/4",        // reserved, broadcast
        "::/128",             // unspecified
        "fe80::/10",          // link-local
        "fd00:ec2::/32",      // Amazon's metadata service and its kin
        "fd20:ce::254/128",   // Google's metadata service
        "ff00::/8",           // multicast
    ])
});

/// Reached only where the operator listed it.
static SPECIAL: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    nets(&[
        "10.0.0.0/8",
        "100.64.0.0/10", // carrier-grade NAT (RFC 6598)
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.0.0.0/24",   // IETF protocol assignments
        "192.0.2.0/24",   // documentation
        "192.88.99.0/24", // 6to4 relay
        "192.168.0.0/16",
        "198.18.0.0/15",   // benchmarking
        "198.51.100.0/24", // documentation
        "203.0.113.0/24",  // documentation
        "2001::/23",       // IETF protocol assignments, Teredo among them
        "2001:db8::/32",   // documentation
        "2002::/16",       // 6to4
        "3fff::/20",       // documentation
    ])
});

#[cfg(test)]
mod tests;
