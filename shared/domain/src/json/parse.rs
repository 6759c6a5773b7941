//! A JSON text as a tree that loses nothing: order, digits and names stay.

use std::{borrow::Cow, collections::HashSet};

use serde::de::IgnoredAny;

use crate::{Code, Error, tool};

/// One JSON value; numbers and literals as they were written, strings decoded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node<'a> {
    Literal(&'a str),
    Number(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    pub(crate) const NULL: Node<'static> = Node::Literal("null");

    /// The member of this name, where this is an object that has it.
    pub(crate) fn member(&self, name: &str) -> Option<&Node<'a>> {
        let Node::Object(members) = self else { return None };
        members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Node::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Node::Object(_))
    }

    pub(crate) fn is_boolean(&self) -> bool {
        matches!(self, Node::Literal("true" | "false"))
    }
}

/// Reads one JSON text of at most `depth` levels.
pub(crate) fn parse(raw: &str, depth: usize) -> Result<Node<'_>, Error> {
    // The grammar is serde_json's to judge; what follows reads a text that is known to be JSON.
    serde_json::from_str::<IgnoredAny>(raw)
        .map_err(|error| refused(format!("not JSON: line {}", error.line())).because(error))?;
    Reader { raw, at: 0 }.value(depth)
}

fn refused(words: impl Into<String>) -> Error {
    Error::new(Code::InvalidInput, words)
}

struct Reader<'a> {
    raw: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Node<'a>, Error> {
        match self.peek() {
            Some(b'{') => self.object(self.deeper(depth)?),
            Some(b'[') => self.list(self.deeper(depth)?),
            Some(b'"') => self.text().map(Node::Text),
            Some(b'-' | b'0'..=b'9') => Ok(Node::Number(self.token())),
            _ => Ok(Node::Literal(self.token())),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, Error> {
        depth
            .checked_sub(1)
            .ok_or_else(|| refused(format!("JSON nests too deep at byte {}", self.at)))
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>, Error> {
        let mut members: Vec<(Cow<'a, str>, Node<'a>)> = Vec::new();
        self.at += 1;
        while self.peek() != Some(b'}') {
            let name = self.text()?;
            self.skip(b':');
            let value = self.value(depth)?;
            members.push((name, value));
            self.skip(b',');
        }
        self.at += 1;
        refuse_a_name_twice(&members)?;
        Ok(Node::Object(members))
    }

    fn list(&mut self, depth: usize) -> Result<Node<'a>, Error> {
        let mut items = Vec::new();
        self.at += 1;
        while self.peek() != Some(b']') {
            items.push(self.value(depth)?);
            self.skip(b',');
        }
        self.at += 1;
        Ok(Node::List(items))
    }

    fn text(&mut self) -> Result<Cow<'a, str>, Error> {
        self.peek();
        let start = self.at;
        let bytes = self.raw.as_bytes();
        let mut end = start + 1;
        let mut escaped = false;
        while bytes[end] != b'"' {
            if bytes[end] == b'\\' {
                escaped = true;
                end += 1;
            }
            end += 1;
        }
        self.at = end + 1;
        if !escaped {
            return Ok(Cow::Borrowed(&self.raw[start + 1..end]));
        }
        // The grammar alone does not notice half of a surrogate pair.
        serde_json::from_str(&self.raw[start..=end]).map(Cow::Owned).map_err(|error| {
            refused(format!("a JSON string is no Unicode text at byte {start}")).because(error)
        })
    }

    /// A number or a literal.
    fn token(&mut self) -> &'a str {
        let rest = &self.raw[self.at..];
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.')))
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.raw.as_bytes();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn skip(&mut self, byte: u8) {
        if self.peek() == Some(byte) {
            self.at += 1;
        }
    }
}

fn refuse_a_name_twice(members: &[(Cow<'_, str>, Node<'_>)]) -> Result<(), Error> {
    // A set costs more than it saves for the few members that objects mostly have.
    let twice = if members.len() <= 16 {
        members
            .iter()
            .enumerate()
            .find(|(index, (name, _))| members[..*index].iter().any(|(earlier, _)| earlier == name))
    } else {
        let mut seen = HashSet::with_capacity(members.len());
        members.iter().enumerate().find(|(_, (name, _))| !seen.insert(name.as_ref()))
    };
    match twice {
        None => Ok(()),
        Some((_, (name, _))) => {
            Err(refused(format!("JSON names \"{}\" twice in one object", tool::escaped(name, 60))))
        }
    }
}
