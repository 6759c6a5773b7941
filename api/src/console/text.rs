//! Texts of others, and times, as a page shows them.

use domain::{Timestamp, tool::revealed};

/// A text that somebody else wrote, for a person who decides by it: nothing hides in it, and all of it
/// is there.
pub(super) fn shown(text: &str) -> String {
    revealed(text, usize::MAX)
}

/// To the second, in UTC, in whatever language.
pub(super) fn time(at: Timestamp) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A time for machines and for people.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) datetime: String,
    pub(super) time: String,
}

pub(super) fn moment(at: Timestamp) -> Moment {
    Moment { datetime: datetime(at), time: time(at) }
}

/// For machines: RFC 3339.
pub(super) fn datetime(at: Timestamp) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// JSON on lines of its own, without another change: numbers of any size stay as they were written, and
/// so does a text that was cut in the middle.
pub(super) fn on_lines(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    while let Some(c) = characters.next() {
        if quoted {
            out.push(c);
            (quoted, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        match c {
            '"' => {
                quoted = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                if characters.peek().is_some_and(|next| matches!(next, '}' | ']')) {
                    out.extend(characters.next());
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

/// Deeper than this, nobody sees the difference, and indentation would be most of the page.
const DEEPEST: usize = 16;

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth.min(DEEPEST)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stands_on_lines_and_says_the_same() {
        let input =
            r#"{"a":[1,{"b":"x,{y}:\"z\\"}],"big":123456789012345678901234567890,"c":{},"d":[]}"#;
        let lines = on_lines(input);
        assert_eq!(
            lines,
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,{y}:\\\"z\\\\\"\n    }\n  ],\n  \
             \"big\": 123456789012345678901234567890,\n  \"c\": {},\n  \"d\": []\n}"
        );
        let (before, after): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(input).unwrap(), serde_json::from_str(&lines).unwrap());
        assert_eq!(before, after);
    }

    #[test]
    fn what_was_cut_is_shown_as_far_as_it_goes() {
        assert_eq!(on_lines(r#"{"a":"b, {c"#), "{\n  \"a\": \"b, {c");
        assert_eq!(on_lines(&"[".repeat(100)).lines().last().unwrap().len(), 2 * DEEPEST);
    }

    #[test]
    fn nothing_hides_in_a_shown_text() {
        assert_eq!(
            shown("in\u{202e}voice\u{200b}.pdf\u{0}"),
            "in\\u{202e}voice\\u{200b}.pdf\\u{0}"
        );
        assert_eq!(shown("Größe 漢字"), "Größe 漢字");
    }
}
