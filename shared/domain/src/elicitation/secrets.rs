//! Whether a field of a form asks for something that grants access or authorises a payment.

use serde_json::Value;

/// Words that stand for a secret as a whole name, or at its end: `github_token`, `client-secret`.
const LAST: &[&str] = &[
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "passcode",
    "pin",
    "secret",
    "secrets",
    "token",
    "credential",
    "credentials",
    "cvv",
    "cvc",
    "cvv2",
    "apikey",
    "accesskey",
    "privatekey",
    "otp",
    "totp",
];

/// Ends of words that are written together: `myAPItoken`.
const ENDS: &[&str] =
    &["apitoken", "accesstoken", "authtoken", "password", "passwd", "apikey", "clientsecret"];

/// Words in a row that stand for a secret wherever they are.
const ROWS: &[&[&str]] = &[
    &["password"],
    &["passphrase"],
    &["api", "key"],
    &["apikey"],
    &["access", "key"],
    &["private", "key"],
    &["secret", "key"],
    &["signing", "key"],
    &["encryption", "key"],
    &["access", "token"],
    &["api", "token"],
    &["token", "for"],
    &["token", "of"],
    &["auth", "token"],
    &["bearer", "token"],
    &["refresh", "token"],
    &["client", "secret"],
    &["card", "number"],
    &["cardnumber"],
    &["credit", "card"],
    &["creditcard"],
    &["debit", "card"],
    &["security", "code"],
    &["recovery", "code"],
    &["verification", "code"],
    &["seed", "phrase"],
    &["recovery", "phrase"],
];

/// Judged by name, title, description and format of a field that takes free text or a number; nothing hides
/// in them any more.
pub(super) fn asks_for_secret(name: &str, field: &Value) -> bool {
    let text = |key: &str| field.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("format").eq_ignore_ascii_case("password")
        || field.get("writeOnly") == Some(&Value::Bool(true))
    {
        return true;
    }
    if is_chosen(field) || text("type") == "boolean" {
        return false;
    }
    let (name, title) = (words(name), words(text("title")));
    let ends = |words: &[String]| {
        words.last().is_some_and(|last| LAST.contains(&last.as_str()))
            || words.iter().any(|word| ENDS.iter().any(|end| word.ends_with(end)))
    };
    ends(&name)
        || ends(&title)
        || [name, title, words(text("description"))].iter().any(|words| holds_row(words))
}

/// Whether its values are given, and nothing is typed.
pub(super) fn is_chosen(field: &Value) -> bool {
    let given = |of: &Value, keys: &[&str]| {
        let list = keys.iter().filter_map(|key| of.get(key)?.as_array());
        list.into_iter().any(|list| !list.is_empty())
    };
    if field.get("type").and_then(Value::as_str) == Some("array") {
        return field.get("items").is_some_and(|items| given(items, &["enum", "anyOf", "oneOf"]));
    }
    given(field, &["enum", "oneOf"])
}

fn holds_row(words: &[String]) -> bool {
    ROWS.iter().any(|row| words.windows(row.len()).any(|window| window == *row))
}

/// The words of `snake_case`, `kebab-case`, `camelCase` and plain text, in lower case.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in text.chars() {
        let begins = c.is_uppercase() && before.is_lowercase();
        if begins || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}
