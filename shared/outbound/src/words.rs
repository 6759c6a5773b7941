//! A peer's own words, made fit to be shown as untrusted.

use base64::{
    Engine,
    prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD},
};
use domain::limits;
use secrecy::{ExposeSecret, SecretString};

/// A shorter value is no secret; masking it would only spoil the words.
const MASKED_BYTES: usize = 6;

/// At most [`limits::ERROR_MESSAGE_CHARS`] characters, without control characters and without the
/// format characters that reorder or hide text (bidi, zero width, byte order mark, tags).
pub(crate) fn untrusted(words: &str) -> String {
    words.chars().filter(|char| shown(*char)).take(limits::ERROR_MESSAGE_CHARS.size()).collect()
}

/// The words without the values that we sent to their author: a server that repeats its caller's
/// headers in an error would tell them to whoever reads it. Before [`untrusted`], which may cut a
/// value in half.
pub(crate) fn masked(words: &str, secrets: &[SecretString]) -> String {
    let mut masked = words.to_owned();
    for form in secrets.iter().flat_map(|secret| forms(secret.expose_secret())) {
        if masked.contains(&form) {
            masked = masked.replace(&form, "[secret]");
        }
    }
    masked
}

/// How a value may stand in an error: as it is, without its scheme (`Bearer …`), and each of that
/// inside JSON, a URL, hexadecimal or base64, there at any offset.
fn forms(secret: &str) -> Vec<String> {
    let credentials = secret.split_once(' ').map(|(_, credentials)| credentials);
    let mut forms = Vec::new();
    for value in [Some(secret), credentials].into_iter().flatten() {
        if value.len() < MASKED_BYTES {
            continue;
        }
        let hexadecimal =
            value.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let json = serde_json::Value::from(value).to_string();
        forms.extend([
            value.to_owned(),
            json[1..json.len() - 1].to_owned(),
            url::form_urlencoded::byte_serialize(value.as_bytes()).collect(),
            hexadecimal.to_uppercase(),
            hexadecimal,
        ]);
        forms.extend((0..3).flat_map(|offset| base64_at(value, offset)));
    }
    forms
}

/// The characters of base64 that `value` alone decides when it stands `offset` bytes after a multiple
/// of three.
fn base64_at(value: &str, offset: usize) -> [String; 2] {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(value.as_bytes());
    let decided = (8 * offset).div_ceil(6)..8 * bytes.len() / 6;
    [&BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE_NO_PAD]
        .map(|engine| engine.encode(&bytes)[decided.clone()].to_owned())
}

/// Where a text is not the JSON that it should be, without what stands there: serde repeats it, and a
/// cause goes to the log.
#[derive(Debug, thiserror::Error)]
#[error("{category:?} error at line {line} column {column}")]
pub(crate) struct NotAsExpected {
    category: serde_json::error::Category,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for NotAsExpected {
    fn from(error: serde_json::Error) -> Self {
        Self { category: error.classify(), line: error.line(), column: error.column() }
    }
}

fn shown(char: char) -> bool {
    !char.is_control()
        && !matches!(char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn words_of_a_peer_lose_what_could_hide_or_reorder_them() {
        assert_eq!(untrusted("a\u{1b}[31mb\u{202e}c\r\nd\u{200b}e"), "a[31mbcde");
    }

    #[test]
    fn words_of_a_peer_are_bounded_in_characters() {
        assert_eq!(untrusted(&"ä".repeat(5_000)).chars().count(), 1_000);
    }

    #[test]
    fn what_we_sent_is_masked_in_whatever_form_it_comes_back() {
        let secrets = ["Bearer s3cr\"et+/key".to_owned().into(), "abc".to_owned().into()];
        let encoded = |prefix: &str| BASE64_STANDARD.encode(format!("{prefix}s3cr\"et+/key tail"));
        for words in [
            "bad token s3cr\"et+/key".to_owned(),
            "bad header Bearer s3cr\"et+/key".to_owned(),
            r#"{"token":"s3cr\"et+/key"}"#.to_owned(),
            "?token=s3cr%22et%2B%2Fkey".to_owned(),
            "733363722265742b2f6b6579".to_owned(),
            encoded(""),
            encoded("a"),
            encoded("ab"),
        ] {
            let shown = masked(&words, &secrets);
            assert!(shown.contains("[secret]"), "{words}: {shown}");
            assert!(!shown.contains("s3cr") && !shown.contains("czNjc"), "{words}: {shown}");
        }
        assert_eq!(
            masked("the alphabet begins with abc", &secrets),
            "the alphabet begins with abc"
        );
    }
}
