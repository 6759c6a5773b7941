//! Names and values of headers and environment variables.

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};

use super::{
    AuthMode, Part, SecretForm, SecretText, secrets::nothing_to_keep, validate::Mistakes, variables,
};
use crate::{limits, tool};

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

/// Variables that make a loader or an interpreter run something else (connections, "stdio").
const REFUSED_ENV: &[&str] = &["PATH", "NODE_OPTIONS", "BASH_ENV", "ENV", "IFS", "SHELLOPTS"];
const REFUSED_ENV_PREFIXES: &[&str] = &["LD_", "DYLD_", "PYTHON", "GIT_", "PERL5", "RUBY", "JAVA_"];

pub(super) fn check_headers(
    form: &SecretForm,
    known: &[String],
    mode: AuthMode,
    api_key_header: Option<&str>,
    mistakes: &mut Mistakes,
) {
    check_entries("/headers", form, known, mistakes);
    let mut seen = HashSet::new();
    for (name, value) in form.iter() {
        let path = pointer("/headers", name);
        check_header_name(&path, name, mistakes);
        let lower = name.to_ascii_lowercase();
        if mode.is_personal() && lower == "authorization" {
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

pub(super) fn check_env(form: &SecretForm, known: &[String], mistakes: &mut Mistakes) {
    check_entries("/env", form, known, mistakes);
    for (name, value) in form.iter() {
        let path = pointer("/env", name);
        if !is_env_name(name) {
            mistakes.add(&path, "is no variable name: letters, digits and _ only");
        }
        let upper = name.to_ascii_uppercase();
        if REFUSED_ENV.contains(&upper.as_str())
            || REFUSED_ENV_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        {
            mistakes.add(&path, "steers loaders or interpreters and may not be set");
        }
        if value.as_ref().is_some_and(|value| value.expose().contains(['\0', '\r', '\n'])) {
            mistakes.add(&path, "must hold no NUL or line end");
        }
    }
}

/// What headers and environment have in common.
fn check_entries(path: &str, form: &SecretForm, known: &[String], mistakes: &mut Mistakes) {
    if form.len() > limits::HEADER_ENTRIES.size() {
        mistakes.add(path, format!("at most {} are allowed", limits::HEADER_ENTRIES.default));
    }
    for (name, value) in form.iter() {
        let path = pointer(path, name);
        let Some(value) = value else {
            if !known.contains(name) {
                mistakes.add(&path, nothing_to_keep(name));
            }
            continue;
        };
        if value.expose().len() > limits::HEADER_VALUE_BYTES.size() {
            let most = limits::HEADER_VALUE_BYTES.default;
            mistakes.add(&path, format!("must be at most {most} bytes"));
        }
        for part in variables(value.expose()) {
            // There are no tenant variables yet, so each one is missing.
            if let Part::Variable(variable) = part {
                let variable = tool::escaped(variable, 60);
                mistakes
                    .add(&path, format!("the variable ${variable} does not exist; $$ is a dollar"));
            }
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
