use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Code;

fn text(raw: &str) -> String {
    String::from_utf8(canonical(raw).unwrap()).unwrap()
}

#[test]
fn members_are_sorted_by_utf16_and_blanks_are_gone() {
    // RFC 8785, 3.2.3: its own example of the order.
    let raw = r#"{ "€": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "😀": "Emoji: Grinning Face", "\u0080": "Control", "ö": "O" }"#;
    assert_eq!(
        text(raw),
        "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"O\",\
         \"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\
         \"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
    );
}

#[test]
fn numbers_that_doubles_hold_are_written_as_rfc_8785_does() {
    let raw = "[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001,-0,1.0,100,1e21]";
    assert_eq!(text("[1E30,4.50,2e-3,0.000000000000000000000000001]"), "[1e+30,4.5,0.002,1e-27]");
    assert_eq!(text(raw), "[333333333.33333329,1e+30,4.5,0.002,1e-27,0,1,100,1e+21]");
    assert_eq!(text("0.30000000000000004"), "0.30000000000000004");
    assert_eq!(text("9007199254740994"), "9007199254740994");
}

#[test]
fn inputs_that_differ_in_a_large_integer_never_share_a_digest() {
    assert_eq!(text("9007199254740993"), "9007199254740993");
    assert_ne!(canonical("9007199254740993").unwrap(), canonical("9007199254740992").unwrap());
    assert_ne!(
        canonical("[123456789012345678901]").unwrap(),
        canonical("[123456789012345678902]").unwrap()
    );
    assert_eq!(text("1e400"), "1e400");
    assert_eq!(text("1e-400"), "1e-400");
    assert_eq!(text("1e99999999999999999999"), "1e99999999999999999999");
    assert_eq!(text("0.1234567890123456789"), "0.1234567890123456789");
}

#[test]
fn a_name_twice_in_one_object_is_refused() {
    for raw in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"x":{"b":0,"c":1,"b":2}}]"#] {
        let error = canonical(raw).unwrap_err();
        assert_eq!(error.code, Code::InvalidInput, "{raw}");
        assert!(error.public.contains("twice"), "{}", error.public);
    }
    let mut many = String::from("{");
    for index in 0..40 {
        write!(many, "\"k{index}\":0,").unwrap();
    }
    assert!(canonical(&format!("{many}\"k7\":1}}")).is_err());
    assert!(canonical(&format!("{many}\"l\":1}}")).is_ok());
    assert!(canonical(r#"{"a":{"a":1}}"#).is_ok());
}

#[test]
fn depth_is_bounded_where_the_json_reader_ends_too() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    assert!(canonical(&nested(127)).is_ok());
    assert!(serde_json::from_str::<Value>(&nested(127)).is_ok());
    assert!(canonical(&nested(128)).is_err());
    assert!(serde_json::from_str::<Value>(&nested(128)).is_err());
    assert!(canonical(&nested(1_000_000)).is_err());
}

#[test]
fn what_is_no_json_is_refused() {
    for raw in ["", "{", "[1,]", "{\"a\"}", "01", "nul", "\"\\ud800\"", "1 2", "'a'", "\"\u{1}\""] {
        assert_eq!(canonical(raw).unwrap_err().code, Code::InvalidInput, "{raw}");
    }
}

#[test]
fn the_request_document_is_canonical() {
    let document = request_document(
        &canonical(r#"{"b": 1.0, "a": "x"}"#).unwrap(),
        &"custom-0123456789ab".into(),
        &"echo".into(),
    );
    let document = String::from_utf8(document).unwrap();
    assert_eq!(
        document,
        r#"{"input":{"a":"x","b":1},"sourceId":"custom-0123456789ab","toolId":"echo"}"#
    );
    assert_eq!(text(&document), document);
}

#[test]
fn a_digest_is_hex_in_text_and_json() {
    let digest = Sha256Digest::of(b"abc");
    let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(digest.to_string(), hex);
    assert_eq!(hex.parse(), Ok(digest));
    assert_eq!(serde_json::to_value(digest).unwrap(), json!(hex));
    assert_eq!(serde_json::from_value::<Sha256Digest>(json!(hex)).unwrap(), digest);
    assert_eq!(Sha256Digest::try_from(digest.as_bytes()), Ok(digest));
    assert_eq!(Sha256Digest::try_from(&[0; 31][..]), Err(NotADigest));
    assert_eq!(hex.to_uppercase().parse::<Sha256Digest>(), Err(NotADigest));
    assert_eq!("ba78".parse::<Sha256Digest>(), Err(NotADigest));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn the_canonical_form_is_a_fixed_point(value in values()) {
        let once = text(&value.to_string());
        prop_assert_eq!(text(&once), once.clone());
        prop_assert_eq!(text(&serde_json::to_string_pretty(&value).unwrap()), once);
    }

    #[test]
    fn it_is_the_other_implementation_of_rfc_8785_where_doubles_hold(
        numbers in prop::collection::vec(prop::num::f64::NORMAL, 0..8),
        texts in prop::collection::btree_map(any::<String>(), any::<String>(), 0..8),
    ) {
        let value = json!({ "numbers": numbers, "texts": texts, "small": [0, -7, 1e15, 0.5] });
        let other = serde_json_canonicalizer::to_string(&value).unwrap();
        prop_assert_eq!(text(&value.to_string()), other);
    }

    #[test]
    fn two_integers_share_a_form_only_when_equal(one in any::<u128>(), other in any::<u128>()) {
        let near = one ^ (other & 3);
        prop_assert_eq!(text(&one.to_string()) == text(&near.to_string()), one == near);
        prop_assert_eq!(text(&one.to_string()) == text(&other.to_string()), one == other);
    }

    #[test]
    fn a_node_written_again_says_the_same(value in values()) {
        let raw = value.to_string();
        prop_assert_eq!(parse(&raw, 127).unwrap().to_text(), raw);
    }
}
