//! A part of a JSON text, cut in characters. Values are never read into numbers: what is shown is what
//! is stored.

use std::{borrow::Cow, collections::HashMap};

use domain::{Code, Error};
use serde_json::value::RawValue;

/// Some characters of a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub kind: &'static str,
    pub text: String,
    pub length: usize,
    pub total: usize,
}

/// The characters `offset..offset + length` of the value at `pointer`: of a string itself, else of its
/// JSON.
pub(super) fn cut(json: &[u8], pointer: &str, offset: usize, length: usize) -> Result<Cut, Error> {
    let whole: &RawValue = serde_json::from_slice(json).map_err(Error::internal)?;
    let value = at(whole, pointer)?;
    let (kind, text) = match serde_json::from_str::<String>(value.get()) {
        Ok(text) => ("text", Cow::Owned(text)),
        // Also a string that is no Unicode text: its JSON can be shown.
        Err(_) => ("json", Cow::Borrowed(value.get())),
    };
    let total = text.chars().count();
    let page: String = text.chars().skip(offset).take(length).collect();
    Ok(Cut { kind, length: page.chars().count(), text: page, total })
}

/// RFC 6901.
fn at<'a>(whole: &'a RawValue, pointer: &str) -> Result<&'a RawValue, Error> {
    let nothing =
        || Error::new(Code::InvalidInput, "pointer names nothing in this result (RFC 6901)");
    let Some(tokens) = pointer.strip_prefix('/') else {
        return if pointer.is_empty() { Ok(whole) } else { Err(nothing()) };
    };
    let mut value = whole;
    for token in tokens.split('/') {
        let token = unescaped(token).ok_or_else(nothing)?;
        value = child(value, &token).ok_or_else(nothing)?;
    }
    Ok(value)
}

fn child<'a>(value: &'a RawValue, token: &str) -> Option<&'a RawValue> {
    match value.get().as_bytes().first()? {
        b'{' => {
            let members: HashMap<Cow<'a, str>, &'a RawValue> =
                serde_json::from_str(value.get()).ok()?;
            members.get(token).copied()
        }
        b'[' => {
            // No signs, no leading zeros.
            let index: usize = token.parse().ok()?;
            let items: Vec<&'a RawValue> = serde_json::from_str(value.get()).ok()?;
            (index.to_string() == token).then(|| items.get(index).copied())?
        }
        _ => None,
    }
}

/// `~1` is a slash, `~0` a tilde, another tilde is an error.
fn unescaped(token: &str) -> Option<Cow<'_, str>> {
    if !token.contains('~') {
        return Some(Cow::Borrowed(token));
    }
    let mut text = String::with_capacity(token.len());
    let mut characters = token.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '~' => match characters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str =
        r#"{"n":123456789012345678901234567890,"a/b":{"m~n":[10,"grüße",{"":true}]},"s":"\ud800"}"#;

    fn shown(pointer: &str) -> Option<(&'static str, String)> {
        cut(JSON.as_bytes(), pointer, 0, 1_000).ok().map(|cut| (cut.kind, cut.text))
    }

    #[test]
    fn a_pointer_finds_its_value_as_it_is_stored() {
        let json = |text: &str| Some(("json", text.to_owned()));
        assert_eq!(shown(""), json(JSON));
        assert_eq!(shown("/n"), json("123456789012345678901234567890"));
        assert_eq!(shown("/a~1b/m~0n/0"), json("10"));
        assert_eq!(shown("/a~1b/m~0n/1"), Some(("text", "grüße".to_owned())));
        assert_eq!(shown("/a~1b/m~0n/2/"), json("true"));
        assert_eq!(shown("/s"), json(r#""\ud800""#));
    }

    #[test]
    fn a_pointer_to_nothing_is_refused() {
        for pointer in
            ["n", "/", "/x", "/n/0", "/a~1b/m~0n/3", "/a~1b/m~0n/00", "/a~1b/m~n/0", "/a~2b"]
        {
            let error = cut(JSON.as_bytes(), pointer, 0, 1).unwrap_err();
            assert_eq!(error.code, Code::InvalidInput, "{pointer}");
        }
    }

    #[test]
    fn pages_are_of_whole_characters_and_meet() {
        let pages: Vec<Cut> =
            (0..3).map(|page| cut(JSON.as_bytes(), "/a~1b/m~0n/1", page * 2, 2).unwrap()).collect();
        let texts: Vec<&str> = pages.iter().map(|page| page.text.as_str()).collect();
        assert_eq!(texts, ["gr", "üß", "e"]);
        assert_eq!((pages[2].length, pages[2].total), (1, 5));
        let beyond = cut(JSON.as_bytes(), "/n", 1_000, 5).unwrap();
        assert_eq!((beyond.text.as_str(), beyond.length, beyond.total), ("", 0, 30));
    }
}
