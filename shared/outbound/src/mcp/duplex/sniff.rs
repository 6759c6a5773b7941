//! What can be told of a message without reading it: whose answer it is.
//!
//! Servers write `id` first (python, go, Rust) or last (TypeScript), beside `jsonrpc`.

/// A message that was too long to keep: its beginning and its end.
#[derive(Debug)]
pub(in crate::mcp) struct Oversize {
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// What a message is, as far as can be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// To this request.
    Answer(u64),
    /// The server's own request or notification, or no message at all: nobody waits for it.
    Unawaited,
    Nothing,
}

/// Enough for the members beside the content, whatever blanks stand between them.
const KEPT: usize = 512;

impl Oversize {
    pub(in crate::mcp) fn begun(message: &[u8]) -> Self {
        let head = message[..message.len().min(KEPT)].to_vec();
        let mut begun = Self { head, tail: Vec::new() };
        begun.extend(message);
        begun
    }

    pub(in crate::mcp) fn extend(&mut self, more: &[u8]) {
        self.tail.extend_from_slice(&more[more.len().saturating_sub(KEPT)..]);
        let surplus = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..surplus);
    }

    pub(super) fn told(&self) -> Told {
        told(&self.head, &self.tail)
    }
}

/// Whether a line may be a message: an object, or a batch.
pub(super) fn is_json(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// The same of a message that was kept and cannot be read.
pub(super) fn told_of(message: &[u8]) -> Told {
    let tail = &message[message.len().saturating_sub(KEPT)..];
    told(&message[..message.len().min(KEPT)], tail)
}

fn told(head: &[u8], tail: &[u8]) -> Told {
    let Some(mut rest) = head.trim_ascii_start().strip_prefix(b"{") else {
        return if is_json(head) { Told::Nothing } else { Told::Unawaited };
    };
    let mut id = None;
    // Members until the one whose value is the long one.
    while let Some((key, value)) = member(rest) {
        match key {
            b"method" => return Told::Unawaited,
            b"result" | b"error" => break,
            b"id" => id = number(value).map(|(id, _)| id),
            _ => {}
        }
        let Some(next) = scalar_end(value) else { break };
        rest = next;
    }
    match id.or_else(|| id_at_end(tail)) {
        Some(id) => Told::Answer(id),
        None => Told::Nothing,
    }
}

/// `"key" : value…`, and the value with all that follows.
fn member(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start().strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| *byte == b'"')?;
    let value = text[end + 1..].trim_ascii_start().strip_prefix(b":")?;
    Some((&text[..end], value.trim_ascii_start()))
}

/// A number, also one written as text, and what follows.
fn number(value: &[u8]) -> Option<(u64, &[u8])> {
    let unquoted = value.strip_prefix(b"\"");
    let digits = unquoted.unwrap_or(value);
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&digits[..length]).ok()?.parse().ok()?;
    let rest = &digits[length..];
    Some((number, if unquoted.is_some() { rest.strip_prefix(b"\"")? } else { rest }))
}

/// What follows a number or a plain text and its comma.
fn scalar_end(value: &[u8]) -> Option<&[u8]> {
    let rest = if let Some((_, rest)) = number(value) {
        rest
    } else {
        let text = value.strip_prefix(b"\"")?;
        let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        text[end..].strip_prefix(b"\"")?
    };
    rest.trim_ascii_start().strip_prefix(b",")
}

/// `… , "id": 7, "jsonrpc": "2.0" }` in either order: members of the outermost object, since nothing
/// but its own brace follows, and inside a text their quotes would be escaped.
fn id_at_end(tail: &[u8]) -> Option<u64> {
    let mut rest = tail.trim_ascii_end().strip_suffix(b"}")?;
    for _ in 0..2 {
        rest = rest.trim_ascii_end();
        if let Some(before) = before(rest, b"\"2.0\"", b"\"jsonrpc\"") {
            rest = before;
            continue;
        }
        let unquoted = rest.strip_suffix(b"\"").unwrap_or(rest);
        let length = unquoted.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (start, digits) = unquoted.split_at(unquoted.len() - length);
        let start = if unquoted.len() < rest.len() { start.strip_suffix(b"\"")? } else { start };
        before(start, b"", b"\"id\"")?;
        return std::str::from_utf8(digits).ok()?.parse().ok();
    }
    None
}

/// What stands before `key : value` and the comma that separates it.
fn before<'a>(text: &'a [u8], value: &[u8], key: &[u8]) -> Option<&'a [u8]> {
    let text = text.strip_suffix(value)?.trim_ascii_end().strip_suffix(b":")?;
    text.trim_ascii_end().strip_suffix(key)?.trim_ascii_end().strip_suffix(b",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: &str) -> Told {
        let mut oversize = Oversize::begun(&message.as_bytes()[..message.len().min(20)]);
        oversize.extend(&message.as_bytes()[message.len().min(20)..]);
        // Both ways of keeping a message tell the same.
        let told = told_of(message.as_bytes());
        if message.len() > 2 * KEPT {
            let again = Oversize { head: message.as_bytes()[..KEPT].to_vec(), tail: oversize.tail };
            assert_eq!(again.told(), told, "{message}");
        }
        told
    }

    #[test]
    fn an_id_is_found_at_either_end() {
        let long = "é\\\"}".repeat(2_000);
        for message in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{long}"}}}}"#),
            format!(r#" {{ "id" : "7" , "jsonrpc" : "2.0" , "error":{{"a":"{long}"}}}}"#),
            format!(r#"{{"result":{{"a":"{long}"}},"jsonrpc":"2.0","id":7}}"#),
            format!(r#"{{"result":{{"a":"{long}"}} , "id" : "7" , "jsonrpc" : "2.0" }} "#),
            format!(r#"{{"jsonrpc":"2.0","result":{{"a":"{long}"}},"id":7}}"#),
        ] {
            assert_eq!(of(&message), Told::Answer(7), "{message}");
        }
    }

    #[test]
    fn an_id_inside_the_content_is_none() {
        let long = "x".repeat(2_000);
        for message in [
            format!(r#"{{"result":{{"a":"{long}","id":7}},"x":1}}"#),
            format!(r#"{{"result":{{"a":"{long}","id":7}}}}"#),
            format!(r#"{{"result":"{long},\"id\":7}}"}}"#),
            format!(r#"{{"result":"{long}"}}"#),
            format!(r#"[{{"id":7,"result":"{long}"}}]"#),
        ] {
            assert_eq!(of(&message), Told::Nothing, "{message}");
        }
    }

    #[test]
    fn what_nobody_waits_for_is_told_apart() {
        let long = "x".repeat(2_000);
        for message in [
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":"{long}"}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"sampling/x","params":"{long}"}}"#),
            format!(r#"{{"method":"x","params":"{long}","jsonrpc":"2.0","id":7}}"#),
            format!("DEBUG {long}"),
        ] {
            assert_eq!(of(&message), Told::Unawaited, "{message}");
        }
    }
}
