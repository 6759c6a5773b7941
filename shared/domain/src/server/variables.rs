//! `$NAME` in env and header values: a variable of the tenant. `$$` is a literal dollar, and so is
//! a `$` that nothing of both follows.

use crate::{Code, Error};

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

/// The value with its variables in place. `SERVER_MISCONFIGURED` names the one that `lookup` has
/// not.
pub fn expand(
    value: &str,
    mut lookup: impl FnMut(&str) -> Option<String>,
) -> Result<String, Error> {
    let mut out = String::with_capacity(value.len());
    for part in variables(value) {
        match part {
            Part::Literal(text) => out.push_str(text),
            Part::Variable(name) => out.push_str(&lookup(name).ok_or_else(|| missing(name))?),
        }
    }
    Ok(out)
}

fn missing(name: &str) -> Error {
    Error::new(Code::ServerMisconfigured, format!("the variable ${name} does not exist"))
}

fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let name = &text[..end];
    if name.starts_with(|c: char| c.is_ascii_digit()) { "" } else { name }
}
