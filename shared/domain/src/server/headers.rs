//! Names and values of headers and environment variables.

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};

use super::{
    AuthMode, Destination, KnownSecrets, SecretForm, SecretText, Variables,
    secrets::nothing_to_keep, validate::Mistakes, variables::references,
};
use crate::{limits, tool};

/// What the entries of a group are measured against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Against<'a> {
    pub known: &'a KnownSecrets,
    pub variables: &'a Variables,
    /// `None`: the form names no address.
    pub destination: Option<&'a Destination>,
    /// The secrets go to somebody else than before.
    pub moved: bool,
}

/// Headers that the connection or the protocol sets: RFC 9110 (7.6.1 and message framing), RFC
/// 9112, and MCP's transport.
const RESERVED: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Of MCP's parameter headers each tool has its own.
const RESERVED_PREFIX: &str = "mcp-param-";

/// A stored value goes to whom it was given for, and to nobody else.
const NOT_KEPT: &str = "its value must be given anew: the server is somewhere else now, and the stored \
                        value was not meant for there";

pub(super) fn check_headers(
    form: &SecretForm,
    against: Against<'_>,
    mode: Option<AuthMode>,
    api_key_header: Option<&str>,
    mistakes: &mut Mistakes,
) {
    check_entries("/headers", form, against, mistakes);
    let mut seen = HashSet::new();
    for (name, value) in form.iter() {
        let path = pointer("/headers", name);
        check_header_name(&path, name, mistakes);
        let lower = name.to_ascii_lowercase();
        if mode.is_some_and(AuthMode::is_personal) && lower == "authorization" {
            mistakes.add(&path, "is the person's own in this auth mode");
        }
        if api_key_header.is_some_and(|header| header.eq_ignore_ascii_case(name)) {
            mistakes.add(&path, "is the header of the API key");
        }
        if !seen.insert(lower) {
            mistakes.add(&path, "stands twice: header names have no case");
        }
        if let Some(value) = value {
            check_header_value(&path, value, mistakes);
        }
    }
}

pub(super) fn check_header_name(path: &str, name: &str, mistakes: &mut Mistakes) {
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        mistakes.add(path, "is no header name");
        return;
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) || lower.starts_with(RESERVED_PREFIX) {
        mistakes.add(path, "is set by the service itself");
    }
}

fn check_header_value(path: &str, value: &SecretText, mistakes: &mut Mistakes) {
    let value = value.expose();
    if HeaderValue::from_str(value).is_err() {
        mistakes.add(path, "holds characters that a header value may not");
    } else if value.trim_ascii() != value {
        mistakes.add(path, "must not begin or end with a blank");
    }
}

pub(super) fn check_env(form: &SecretForm, against: Against<'_>, mistakes: &mut Mistakes) {
    check_entries("/env", form, against, mistakes);
    for (name, value) in form.iter() {
        let path = pointer("/env", name);
        // What no program can have, and what steers loaders, `stdio` refuses.
        if !is_env_name(name) && !name.is_empty() && !name.contains(['=', '\0']) {
            mistakes.add(&path, "is no variable name: letters, digits and _ only");
        }
        if value.as_ref().is_some_and(|value| value.expose().contains(['\0', '\r', '\n'])) {
            mistakes.add(&path, "must hold no NUL or line end");
        }
    }
}

/// What headers and environment have in common.
fn check_entries(path: &str, form: &SecretForm, against: Against<'_>, mistakes: &mut Mistakes) {
    if form.len() > limits::HEADER_ENTRIES.size() {
        mistakes.add(path, format!("at most {} are allowed", limits::HEADER_ENTRIES.default));
    }
    for (name, value) in form.iter() {
        let path = pointer(path, name);
        let Some(value) = value else {
            match against.known.get(name) {
                None => mistakes.add(&path, nothing_to_keep(name)),
                Some(_) if against.moved => mistakes.add(&path, NOT_KEPT),
                Some(used) => check_variables(&path, used, against, mistakes),
            }
            continue;
        };
        if value.expose().len() > limits::HEADER_VALUE_BYTES.size() {
            let most = limits::HEADER_VALUE_BYTES.default;
            mistakes.add(&path, format!("must be at most {most} bytes"));
        }
        check_variables(&path, &references(value.expose()), against, mistakes);
    }
}

fn check_variables(path: &str, used: &[String], against: Against<'_>, mistakes: &mut Mistakes) {
    for name in used {
        if let Some(problem) = against.variables.problem(name, against.destination) {
            mistakes.add(path, problem);
        }
    }
}

/// Bytes of all values that the form brings.
pub(super) fn bytes(form: &SecretForm) -> usize {
    form.iter().filter_map(|(_, value)| value.as_ref()).map(|value| value.expose().len()).sum()
}

fn is_env_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 256
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A JSON pointer to a member (RFC 6901), bounded and escaped for our answer.
fn pointer(path: &str, name: &str) -> String {
    let name = name.replace('~', "~0").replace('/', "~1");
    format!("{path}/{}", tool::escaped(&name, 100))
}
