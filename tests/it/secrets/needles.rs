//! One secret in all the ways in which it may be written.

use base64::{
    Engine,
    prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD},
};

/// A value that may be found nowhere.
#[derive(Debug, Clone)]
pub(crate) struct Secret {
    pub(crate) name: &'static str,
    /// How it is written, and that.
    forms: Vec<(&'static str, String)>,
}

impl Secret {
    pub(crate) fn new(name: &'static str, value: &str) -> Self {
        assert!(value.len() >= 16, "{name} could be found by chance");
        let hex = value.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let percent =
            value.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
        let json = serde_json::Value::from(value).to_string();
        let twice = serde_json::Value::from(json.as_str()).to_string();
        let debug = format!("{value:?}");
        let inner = |quoted: &str| quoted[1..quoted.len() - 1].to_owned();
        let mut forms = vec![
            ("itself", value.to_owned()),
            ("JSON", inner(&json)),
            ("JSON in JSON", inner(&twice).trim_matches(['\\', '"']).to_owned()),
            ("Debug", inner(&debug)),
            ("form encoding", url::form_urlencoded::byte_serialize(value.as_bytes()).collect()),
            ("percent encoding", percent),
            ("upper hexadecimal", hex.to_uppercase()),
            ("hexadecimal", hex),
            ("bytes in decimal", format!("{:?}", value.as_bytes())),
            // A value that was cut is told all the same.
            ("its first half", value[..value.len().max(32) / 2].to_owned()),
        ];
        for offset in 0..3 {
            forms.push(("base64", base64_at(&BASE64_STANDARD_NO_PAD, value, offset)));
            forms.push(("base64url", base64_at(&BASE64_URL_SAFE_NO_PAD, value, offset)));
        }
        Self { name, forms }
    }

    /// The first form that stands there, and where.
    pub(crate) fn find(&self, text: &str) -> Option<(&'static str, usize)> {
        self.forms.iter().find_map(|(form, needle)| Some((*form, text.find(needle.as_str())?)))
    }
}

/// The characters that `value` alone decides, `offset` bytes after a multiple of three.
fn base64_at(engine: &impl Engine, value: &str, offset: usize) -> String {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(value.as_bytes());
    let decided = (8 * offset).div_ceil(6)..8 * bytes.len() / 6;
    engine.encode(&bytes)[decided].to_owned()
}

#[test]
fn a_secret_is_found_however_it_is_written() {
    let value = "pl4nted/+=\"&%secret";
    let secret = Secret::new("it", value);
    for text in [
        format!("x{value}x"),
        serde_json::json!({ "a": format!("b{value}c") }).to_string(),
        serde_json::json!(serde_json::json!({ "a": value }).to_string()).to_string(),
        BASE64_STANDARD_NO_PAD.encode(format!("{value} and more")),
        BASE64_URL_SAFE_NO_PAD.encode(format!("a{value} and more")),
        BASE64_STANDARD_NO_PAD.encode(format!("ab{value} and more")),
        format!("{:?}", Some(value)),
        format!("{:x?}", value.as_bytes()).replace(", ", ""),
    ] {
        assert!(secret.find(&text).is_some(), "{text}");
    }
    assert!(secret.find("pl4nted things are no secret").is_none());
}
