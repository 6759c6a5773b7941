//! A peer's own words, made fit to be shown as untrusted.

use domain::limits;

/// At most [`limits::ERROR_MESSAGE_CHARS`] characters, without control characters and without the
/// format characters that reorder or hide text (bidi, zero width, byte order mark, tags).
pub(crate) fn untrusted(words: &str) -> String {
    words.chars().filter(|char| shown(*char)).take(limits::ERROR_MESSAGE_CHARS.size()).collect()
}

fn shown(char: char) -> bool {
    !char.is_control()
        && !matches!(char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_peer_lose_what_could_hide_or_reorder_them() {
        assert_eq!(untrusted("a\u{1b}[31mb\u{202e}c\r\nd\u{200b}e"), "a[31mbcde");
    }

    #[test]
    fn words_of_a_peer_are_bounded_in_characters() {
        assert_eq!(untrusted(&"ä".repeat(5_000)).chars().count(), 1_000);
    }
}
