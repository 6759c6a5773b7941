//! JSON as text: one canonical form, and digests over it.
//!
//! The canonical form is RFC 8785 wherever its doubles can hold a number. A number that a double
//! would change (an integer over 2^53 that has no exact double, more digits than a double keeps)
//! stays as it was written, so that two inputs that differ in it never share a digest.

mod parse;

use std::{cmp::Ordering, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

pub(crate) use parse::{Node, parse};

use crate::{
    Error,
    ids::{ServerId, ToolId},
    limits,
};

/// SHA-256 of `bytes`.
#[must_use]
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A SHA-256; 64 lower-case hex digits in text and JSON.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Digest(pub [u8; 32]);

impl Sha256Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(digest(bytes))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes or text that are no SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hex digits")]
pub struct NotADigest;

impl FromStr for Sha256Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        // One spelling only: a digest is compared as text too.
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(NotADigest);
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NotADigest)?;
        Ok(Self(bytes))
    }
}

impl TryFrom<&[u8]> for Sha256Digest {
    type Error = NotADigest;

    fn try_from(bytes: &[u8]) -> Result<Self, NotADigest> {
        bytes.try_into().map(Self).map_err(|_| NotADigest)
    }
}

impl From<[u8; 32]> for Sha256Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The canonical form of one JSON text (a `RawValue`'s `get()` too).
///
/// `INVALID_INPUT` for what is no JSON, names a member twice in one object (it has no one meaning),
/// holds a lone surrogate, or nests deeper than [`limits::JSON_DEPTH`].
pub fn canonical(raw: &str) -> Result<Vec<u8>, Error> {
    let mut node = parse(raw, limits::JSON_DEPTH.size())?;
    sort(&mut node);
    let mut out = Vec::with_capacity(raw.len());
    write(&node, Numbers::Canonical, &mut out);
    Ok(out)
}

/// The request that a call stores and is known by: `{"input":…,"sourceId":…,"toolId":…}`,
/// canonical when `input_canonical` is.
#[must_use]
pub fn request_document(input_canonical: &[u8], source: &ServerId, tool: &ToolId) -> Vec<u8> {
    let mut out = Vec::with_capacity(input_canonical.len() + 128);
    out.extend_from_slice(b"{\"input\":");
    out.extend_from_slice(input_canonical);
    out.extend_from_slice(b",\"sourceId\":");
    write_text(source.as_str(), &mut out);
    out.extend_from_slice(b",\"toolId\":");
    write_text(tool.as_str(), &mut out);
    out.push(b'}');
    out
}

impl Node<'_> {
    /// The node as JSON text: members in their order, numbers as they were written.
    pub(crate) fn to_text(&self) -> String {
        let mut out = Vec::new();
        write(self, Numbers::AsWritten, &mut out);
        String::from_utf8(out).expect("made of whole strings alone")
    }
}

/// Sorts the members of every object by the UTF-16 code units of their names (RFC 8785, 3.2.3).
fn sort(node: &mut Node<'_>) {
    match node {
        Node::List(items) => items.iter_mut().for_each(sort),
        Node::Object(members) => {
            members.sort_by(|(one, _), (other, _)| utf16_order(one, other));
            for (_, value) in members {
                sort(value);
            }
        }
        Node::Literal(_) | Node::Number(_) | Node::Text(_) => {}
    }
}

fn utf16_order(one: &str, other: &str) -> Ordering {
    one.encode_utf16().cmp(other.encode_utf16())
}

#[derive(Clone, Copy)]
enum Numbers {
    Canonical,
    AsWritten,
}

fn write(node: &Node<'_>, numbers: Numbers, out: &mut Vec<u8>) {
    match node {
        Node::Literal(text) => out.extend_from_slice(text.as_bytes()),
        Node::Number(token) => match numbers {
            Numbers::AsWritten => out.extend_from_slice(token.as_bytes()),
            Numbers::Canonical => write_number(token, out),
        },
        Node::Text(text) => write_text(text, out),
        Node::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, numbers, out);
            }
            out.push(b']');
        }
        Node::Object(members) => {
            out.push(b'{');
            for (index, (name, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(name, out);
                out.push(b':');
                write(value, numbers, out);
            }
            out.push(b'}');
        }
    }
}

/// `serde_json` escapes exactly what RFC 8785, 3.2.2.2 does.
fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("writing to memory does not fail");
}

fn write_number(token: &str, out: &mut Vec<u8>) {
    let canonical = if is_short_integer(token) { None } else { as_double(token) };
    out.extend_from_slice(canonical.as_deref().unwrap_or(token).as_bytes());
}

/// Digits that every double keeps and RFC 8785 writes as they stand.
fn is_short_integer(token: &str) -> bool {
    let digits = token.strip_prefix('-').unwrap_or(token);
    digits.len() <= 15 && token != "-0" && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number as RFC 8785 writes it, if it still is the same number then.
fn as_double(token: &str) -> Option<String> {
    let value: f64 = token.parse().ok().filter(|value: &f64| value.is_finite())?;
    let shortest = serde_json_canonicalizer::to_string(&value).ok()?;
    (decimal(token)? == decimal(&shortest)?).then_some(shortest)
}

/// A decimal number as sign, digits without outer zeros, and exponent: equal exactly when the
/// numbers are. `None` where the exponent is beyond counting.
fn decimal(token: &str) -> Option<(bool, String, i64)> {
    let (negative, token) = match token.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, token),
    };
    let (mantissa, exponent) = match token.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (token, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let trimmed = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - trimmed.len()).ok()?;
    let significant = trimmed.trim_start_matches('0');
    if significant.is_empty() {
        return Some((false, String::new(), 0));
    }
    let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?.checked_add(zeros)?;
    Some((negative, significant.to_owned(), exponent))
}

#[cfg(test)]
mod tests;
