//! The one function through which a peer's words reach a terminal or a log.

use std::{borrow::Cow, fmt::Write};

/// `text` with every character that could drive a terminal, forge a line or reorder what is shown
/// written as `\n`, `\t` or `\uXXXX` (UTF-16 units, as in JSON, so that a JSON text stays one).
///
/// These are the control characters (ESC of ANSI and OSC sequences, and their one-character C1
/// forms, among them), line and paragraph separators, the bidirectional controls of Unicode
/// UAX #9, and the invisible tag characters.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(hostile) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            c if hostile(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(escaped, "\\u{unit:04x}").expect("writing to a String cannot fail");
                }
            }
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

fn hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{2028}' | '\u{2029}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn words_that_would_drive_a_terminal_are_spelled_out() {
        assert_eq!(escape("\u{1b}]0;title\u{7}"), "\\u001b]0;title\\u0007");
        assert_eq!(escape("\u{9b}31m"), "\\u009b31m");
        assert_eq!(escape("one\nERROR two\t\r"), "one\\nERROR two\\t\\u000d");
        assert_eq!(escape("\u{202e}fdp.exe\u{2066}"), "\\u202efdp.exe\\u2066");
        assert_eq!(escape("\u{e0041}"), "\\udb40\\udc41");
    }

    #[test]
    fn ordinary_words_stay_as_they_are() {
        assert_eq!(escape("Größe 漢字 🙂 \"q\" \\n"), "Größe 漢字 🙂 \"q\" \\n");
    }
}
