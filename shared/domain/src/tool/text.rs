//! Text of a peer, for a model and for a screen.

use std::fmt::Write as _;

use crate::limits;

/// A description as a model may read it: without control, bidirectional, tag and zero-width
/// characters (`\n` and `\t` stay), cut to [`limits::DESCRIPTION_BYTES`] at a character.
#[must_use]
pub fn visible_text(text: &str) -> String {
    let limit = limits::DESCRIPTION_BYTES.size();
    let mut out = String::with_capacity(text.len().min(limit));
    for c in text.chars().filter(|c| !is_hidden(*c)) {
        if out.len() + c.len_utf8() > limit {
            break;
        }
        out.push(c);
    }
    out
}

/// A peer's text inside words of ours: control, hidden and non-ASCII characters as `\u{…}`, at most
/// `chars` characters, an ellipsis in place of the rest.
#[must_use]
pub fn escaped(text: &str, chars: usize) -> String {
    let mut out = String::new();
    let mut written = 0;
    for c in text.chars() {
        let printable = c == ' ' || c.is_ascii_graphic();
        let width = if printable { 1 } else { c.escape_unicode().len() };
        if written + width > chars {
            out.push('…');
            break;
        }
        written += width;
        if printable {
            out.push(c);
        } else {
            write!(out, "{}", c.escape_unicode()).expect("a String takes all");
        }
    }
    out
}

/// A peer's text for a person who decides by it: nothing is taken out; what would not be seen, or
/// would reorder what is seen, is spelled out as `\u{…}`. At most `chars` characters, an ellipsis in
/// place of the rest.
#[must_use]
pub fn revealed(text: &str, chars: usize) -> String {
    let mut out = String::new();
    let mut written = 0;
    for c in text.chars() {
        let width = if is_hidden(c) { c.escape_unicode().len() } else { 1 };
        if written + width > chars {
            out.push('…');
            break;
        }
        written += width;
        if is_hidden(c) {
            write!(out, "{}", c.escape_unicode()).expect("a String takes all");
        } else {
            out.push(c);
        }
    }
    out
}

/// Characters that a reader does not see, or that reorder what is seen: C0 and C1 controls but
/// `\n` and `\t`, Unicode's format characters (bidirectional, joiners, tags), fillers and
/// variation selectors' supplement, all of which have carried hidden instructions.
pub(crate) fn is_hidden(c: char) -> bool {
    if c == '\n' || c == '\t' {
        return false;
    }
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}
