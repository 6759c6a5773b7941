//! `$NAME` in env and header values: a variable of the tenant. `$$` is a literal dollar, and so is
//! a `$` that nothing of both follows.

use std::collections::BTreeMap;

use http::HeaderValue;
use serde::Deserialize;
use url::{Host, Url};

use super::{SecretText, validate::Mistakes};
use crate::{Code, Error, limits, tool};

/// Among the hosts of a variable: programs on our own host. It is no host's name there.
pub const PROGRAMS: &str = "stdio";

/// A piece of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    Literal(&'a str),
    /// A name `[A-Za-z_][A-Za-z0-9_]*`, without its dollar.
    Variable(&'a str),
}

/// The pieces of a value, in order.
#[must_use]
pub fn variables(value: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut literal = 0;
    let mut from = 0;
    while let Some(offset) = value[from..].find('$') {
        let dollar = from + offset;
        let after = &value[dollar + 1..];
        let name = name_at(after);
        if name.is_empty() {
            // The first of two dollars stands for both.
            from = dollar + 1;
            if after.starts_with('$') {
                parts.push(Part::Literal(&value[literal..from]));
                from += 1;
                literal = from;
            }
            continue;
        }
        parts.push(Part::Literal(&value[literal..dollar]));
        parts.push(Part::Variable(name));
        from = dollar + 1 + name.len();
        literal = from;
    }
    parts.push(Part::Literal(&value[literal..]));
    parts.retain(|part| *part != Part::Literal(""));
    parts
}

/// The names of the variables that a value refers to, each once, sorted.
#[must_use]
pub fn references(value: &str) -> Vec<String> {
    let mut names: Vec<String> = variables(value)
        .into_iter()
        .filter_map(|part| match part {
            Part::Variable(name) => Some(name.to_owned()),
            Part::Literal(_) => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The value with its variables in place, as `lookup` gives them.
///
/// `SERVER_MISCONFIGURED` where the whole is more than [`limits::HEADER_VALUE_BYTES`]; what `lookup`
/// refuses is refused.
pub fn expand(
    value: &str,
    mut lookup: impl FnMut(&str) -> Result<String, Error>,
) -> Result<String, Error> {
    let mut out = String::with_capacity(value.len());
    for part in variables(value) {
        match part {
            Part::Literal(text) => out.push_str(text),
            Part::Variable(name) => out.push_str(&lookup(name)?),
        }
        if out.len() > limits::HEADER_VALUE_BYTES.size() {
            let most = limits::HEADER_VALUE_BYTES.default;
            let words = format!("a value has more than {most} bytes with its variables in place");
            return Err(Error::new(Code::ServerMisconfigured, words));
        }
    }
    Ok(out)
}

/// A value refers to a variable that there is not.
#[must_use]
pub fn missing_variable(name: &str) -> Error {
    let name = tool::escaped(name, 60);
    Error::new(Code::ServerMisconfigured, format!("the variable ${name} does not exist"))
}

/// A variable may not go where the server is.
#[must_use]
pub fn variable_elsewhere(name: &str) -> Error {
    let name = tool::escaped(name, 60);
    let words = format!("the variable ${name} is not for where this server is");
    Error::new(Code::ServerMisconfigured, words)
}

/// Where a server's values go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// The host of its URL, as the parser writes it.
    Host(String),
    /// A program on our host.
    Program,
}

impl Destination {
    /// Of a URL; `None`: it has no host.
    #[must_use]
    pub fn of_url(url: &Url) -> Option<Self> {
        let host = url.host_str()?.trim_end_matches('.');
        Some(Self::Host(host.to_ascii_lowercase()))
    }

    /// Whether a variable with these hosts may be sent there.
    #[must_use]
    pub fn is_among(&self, hosts: &[String]) -> bool {
        match self {
            Self::Host(host) => host != PROGRAMS && hosts.contains(host),
            Self::Program => hosts.iter().any(|host| host == PROGRAMS),
        }
    }
}

/// The variables of a tenant: name → hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, Vec<String>>);

impl Variables {
    /// What is wrong with a value that goes there and refers to this variable.
    pub(super) fn problem(&self, name: &str, to: Option<&Destination>) -> Option<String> {
        let shown = tool::escaped(name, 60);
        let Some(hosts) = self.0.get(name) else {
            return Some(format!("the variable ${shown} does not exist; $$ is a dollar"));
        };
        // Without a destination the address has a mistake of its own.
        let allowed = to.is_none_or(|to| to.is_among(hosts));
        (!allowed).then(|| match to {
            Some(Destination::Program) => {
                format!("the variable ${shown} is not for programs: \"{PROGRAMS}\" is not among its hosts")
            }
            _ => format!("the variable ${shown} is not for this server's host"),
        })
    }
}

/// The body of a PUT of a variable.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariableForm {
    pub value: SecretText,
    /// Host names and addresses, without port; `stdio` for programs on our host. None: it is sent nowhere.
    pub hosts: Vec<String>,
}

/// A variable that can be stored; only [`VariableForm::validate`] makes one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ValidVariable {
    pub name: String,
    pub value: SecretText,
    /// As a URL's parser writes them, each once.
    pub hosts: Vec<String>,
}

impl VariableForm {
    /// Checks name and form; `INVALID_INPUT` with every mistake.
    pub fn validate(self, name: &str) -> Result<ValidVariable, Error> {
        let mut mistakes = Mistakes::default();
        if !is_variable_name(name) {
            let most = limits::VARIABLE_NAME_CHARS.default;
            let words = format!(
                "must be 1 to {most} letters, digits and _, and must not begin with a digit"
            );
            mistakes.add("/name", words);
        }
        let value = self.value.expose();
        let most = limits::HEADER_VALUE_BYTES;
        if value.is_empty() || value.len() > most.size() {
            mistakes.add("/value", format!("must be 1 to {} bytes", most.default));
        } else if HeaderValue::from_str(value).is_err() {
            mistakes.add("/value", "holds characters that a header value may not");
        } else if value.trim_ascii() != value {
            mistakes.add("/value", "must not begin or end with a blank");
        }
        let mut hosts: Vec<String> = Vec::new();
        if self.hosts.len() > limits::VARIABLE_HOSTS.size() {
            let words = format!("at most {} are allowed", limits::VARIABLE_HOSTS.default);
            mistakes.add("/hosts", words);
        }
        for (index, host) in self.hosts.iter().take(limits::VARIABLE_HOSTS.size()).enumerate() {
            match read_host(host) {
                Some(host) if !hosts.contains(&host) => hosts.push(host),
                Some(_) => {}
                None => {
                    let words = "is no host: a name or an address, without scheme, port and *";
                    mistakes.add(&format!("/hosts/{index}"), words);
                }
            }
        }
        mistakes.refuse("the variable")?;
        Ok(ValidVariable { name: name.to_owned(), value: self.value, hosts })
    }
}

/// `[A-Za-z_][A-Za-z0-9_]*`, at most [`limits::VARIABLE_NAME_CHARS`].
#[must_use]
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= limits::VARIABLE_NAME_CHARS.size() && name_at(name) == name
}

/// A host as the parser writes it; IPv6 with or without brackets.
fn read_host(text: &str) -> Option<String> {
    let bracketed = match text.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("[{text}]"),
        Err(_) => text.to_owned(),
    };
    let host = Host::parse(&bracketed).ok()?;
    let written = host.to_string();
    let written = written.trim_end_matches('.');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let named = !matches!(host, Host::Domain(_)) || written.chars().all(plain);
    (!written.is_empty() && named).then(|| written.to_owned())
}

fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let name = &text[..end];
    if name.starts_with(|c: char| c.is_ascii_digit()) { "" } else { name }
}
