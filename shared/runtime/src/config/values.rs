//! What each setting's text must look like. A problem never repeats the text of a secret.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use base64::{
    Engine,
    engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD},
};
use domain::limits;
use ipnet::IpNet;
use secrecy::SecretString;
use tracing_subscriber::EnvFilter;
use url::{Host, Url};

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// One line for people.
    Text,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err("must be json or text".to_owned()),
        }
    }
}

/// A destination that the operator allows although egress would refuse it as private.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EgressAllow {
    /// Every address of a network; a lone address is a network of one.
    Network(IpNet),
    /// A host by its exact name: lower case, punycode, without a final dot.
    Host(String),
}

/// The text is neither a network, an address nor the name of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither a network such as 10.0.0.0/8, an address, nor the name of a host")]
pub struct NotAnEgressRule;

impl FromStr for EgressAllow {
    type Err = NotAnEgressRule;

    fn from_str(text: &str) -> Result<Self, NotAnEgressRule> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(network.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(address.into()));
        }
        // `Host::parse` also takes forms such as 0x7f.1, which are addresses, and `*`.
        let Ok(Host::Domain(name)) = Host::parse(text) else { return Err(NotAnEgressRule) };
        let name = name.trim_end_matches('.');
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || !name.chars().all(plain) {
            return Err(NotAnEgressRule);
        }
        Ok(Self::Host(name.to_owned()))
    }
}

impl fmt::Display for EgressAllow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Host(name) => f.write_str(name),
        }
    }
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text.into()) }
}

pub(super) fn absolute_paths(text: &str) -> Result<Vec<PathBuf>, String> {
    let paths = text.split(',').map(str::trim).filter(|path| !path.is_empty());
    let checked = paths.map(|path| {
        let absolute = path.starts_with('/');
        absolute.then(|| path.into()).ok_or_else(|| format!("{path:?} must be an absolute path"))
    });
    checked.collect()
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let listened = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    listened
        .as_deref()
        .unwrap_or(text)
        .parse()
        .map_err(|_| "must be an address and a port, such as 127.0.0.1:8080".to_owned())
}

/// A URL that browsers use: nothing but scheme, host and port, and encrypted unless it stays on
/// this machine (cookies are sent with it).
pub(super) fn public_url(text: &str) -> Result<Url, String> {
    let problem = || "must be a URL such as https://bailiwick.example.org".to_owned();
    let url = Url::parse(text).map_err(|_| problem())?;
    if !matches!(url.scheme(), "http" | "https") || has_credentials(&url) {
        return Err(problem());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("must end after host and port: it can have no path".to_owned());
    }
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => return Err(problem()),
    };
    if url.scheme() == "http" && !loopback {
        return Err("must be https unless its host is loopback".to_owned());
    }
    Ok(url)
}

pub(super) fn object_store_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| "must be a URL such as file:///srv/objects")?;
    if url.scheme() != "file" {
        return Err("only file:// is supported by this version".to_owned());
    }
    if url.host().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err("must be file:// and an absolute path, nothing else".to_owned());
    }
    Ok(url)
}

pub(super) fn database_url(text: &str) -> Result<SecretString, String> {
    let known = Url::parse(text)
        .is_ok_and(|url| matches!(url.scheme(), "postgres" | "postgresql") && url.has_host());
    if known {
        Ok(text.into())
    } else {
        Err("must be a URL such as postgres://role@host/database".to_owned())
    }
}

pub(super) fn hosts(text: &str) -> Result<Vec<String>, String> {
    let host = |item: &str| {
        let url = Url::parse(&format!("http://{item}/")).ok()?;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        // `http` drops its own port 80, so the port is taken from the text.
        let port = item.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let name = url.host_str().filter(|name| bare && !name.contains('*'))?;
        let names_it = !has_credentials(&url);
        let whole = port.map_or(name.to_owned(), |(_, port)| format!("{name}:{port}"));
        (names_it && whole.eq_ignore_ascii_case(item)).then_some(whole)
    };
    items(text)
        .map(|item| host(item).ok_or(format!("{item:?} is not a host or host:port")))
        .collect()
}

pub(super) fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    let network = |item: &str| match item.parse::<EgressAllow>() {
        Ok(EgressAllow::Network(network)) => Ok(network),
        _ => Err(format!("{item:?} is neither a network such as 10.0.0.0/8 nor an address")),
    };
    items(text).map(network).collect()
}

pub(super) fn egress_rules(text: &str) -> Result<Vec<EgressAllow>, String> {
    items(text).map(|item| item.parse().map_err(|error| format!("{item:?} is {error}"))).collect()
}

/// Fernet keys: 32 bytes in padded URL-safe base64 each
/// (<https://github.com/fernet/spec/blob/master/Spec.md>, "Key Format").
pub(super) fn encryption_keys(text: &str) -> Result<SecretString, String> {
    let keys: Vec<&str> = items(text).collect();
    if keys.is_empty() {
        return Err("holds no key".to_owned());
    }
    for (index, key) in keys.iter().enumerate() {
        let number = index + 1;
        if !URL_SAFE.decode(key).is_ok_and(|bytes| bytes.len() == 32) {
            return Err(format!("key {number} is not 32 bytes in padded URL-safe base64"));
        }
        if keys[..index].contains(key) {
            return Err(format!("key {number} is there twice"));
        }
    }
    Ok(keys.join(",").into())
}

pub(super) fn seal_key(text: &str) -> Result<SecretString, String> {
    let seed = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
    if !seed.is_ok_and(|bytes| bytes.len() == 32) {
        return Err("is not 32 bytes in URL-safe base64".to_owned());
    }
    Ok(text.into())
}

pub(super) fn certificates(text: &str) -> Result<PathBuf, String> {
    let pem = std::fs::read(text).map_err(|error| format!("cannot be read: {error}"))?;
    let marker = b"-----BEGIN CERTIFICATE-----";
    if !pem.windows(marker.len()).any(|window| window == marker) {
        return Err("holds no PEM certificate".to_owned());
    }
    Ok(text.into())
}

/// A header value: what RFC 9110 section 5.5 lets through without quoting trouble.
pub(super) fn contact(text: &str) -> Result<String, String> {
    let visible = |c: char| c.is_ascii_graphic() || c == ' ';
    let fits = text.len() <= limits::EMAIL_CHARS.size();
    if text.trim().is_empty() || !fits || !text.chars().all(visible) {
        let most = limits::EMAIL_CHARS.default;
        return Err(format!("must be 1 to {most} printable ASCII characters"));
    }
    Ok(text.trim().to_owned())
}

pub(super) fn permission_wait_seconds(text: &str) -> Result<u64, String> {
    let most = limits::PERMISSION_WAIT_SECONDS.default;
    let seconds = text.parse().ok().filter(|seconds| (1..=most).contains(seconds));
    seconds.ok_or_else(|| format!("must be a whole number from 1 to {most}"))
}

pub(super) fn log_filter(text: &str) -> Result<String, String> {
    match EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("must be a filter such as info,app=debug".to_owned()),
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}
