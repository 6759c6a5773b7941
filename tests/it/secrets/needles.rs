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
}

/// The first of them that stands there: which, in which form, and where. The bytes are read once, however many
/// secrets there are.
pub(crate) fn find<'a>(
    secrets: &'a [Secret],
    bytes: &[u8],
) -> Option<(&'a Secret, &'static str, usize)> {
    // By their first two bytes.
    let mut places = vec![0_u16; 1 << 16];
    let mut lists: Vec<Vec<(&Secret, &'static str, &[u8])>> = vec![Vec::new()];
    for secret in secrets {
        for (form, needle) in &secret.forms {
            let needle = needle.as_bytes();
            let place = &mut places[start(needle)];
            if *place == 0 {
                *place = u16::try_from(lists.len()).expect("there are fewer forms");
                lists.push(Vec::new());
            }
            lists[usize::from(*place)].push((secret, form, needle));
        }
    }
    bytes.windows(2).enumerate().find_map(|(at, two)| {
        let list = &lists[usize::from(places[start(two)])];
        let here = list.iter().find(|(_, _, needle)| bytes[at..].starts_with(needle));
        here.map(|(secret, form, _)| (*secret, *form, at))
    })
}

fn start(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
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
    let secrets = [Secret::new("another", "n0t-th3re-at-all-0"), Secret::new("it", value)];
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
        assert!(find(&secrets, text.as_bytes()).is_some(), "{text}");
    }
    assert!(find(&secrets, b"pl4nted things are no secret").is_none());
}
