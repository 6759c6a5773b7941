//! What changed between two definitions of a tool, for a person who decides about it.

use std::collections::HashMap;

use super::revealed;
use crate::{
    json::{self, Node},
    limits,
};

/// One place where two definitions differ. Texts are revealed: what hides in them is escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// JSON pointer (RFC 6901) into the definition.
    pub path: String,
    /// JSON, or the plain text of a text; `None`: there was nothing.
    pub before: Option<String>,
    /// `None`: there is nothing any more.
    pub after: Option<String>,
}

/// The changes in the order of the new definition, at most [`limits::DIFF_CHANGES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    pub changes: Vec<Change>,
    /// How many more there are.
    pub more: usize,
}

/// Compares two definitions as they were sent. `None` as the old one: there never was any. One that
/// cannot be read counts as one text.
#[must_use]
pub fn diff(old: Option<&str>, new: &str) -> Diff {
    let mut diff = Diff::default();
    let new = read(new);
    match old {
        None => diff.add("", None, Some(&new)),
        Some(old) => diff.compare("", &read(old), &new),
    }
    diff
}

/// The definition with every text in it revealed; `None` where it is too large to repeat, or no JSON.
#[must_use]
pub fn reveal_definition(text: &str) -> Option<String> {
    if text.len() > limits::DIFF_DEFINITION_BYTES.size() {
        return None;
    }
    let mut node = json::parse(text, limits::JSON_DEPTH.size()).ok()?;
    reveal(&mut node);
    Some(node.to_text())
}

fn read(text: &str) -> Node<'_> {
    json::parse(text, limits::JSON_DEPTH.size()).unwrap_or_else(|_| Node::Text(text.into()))
}

fn reveal(node: &mut Node<'_>) {
    match node {
        Node::Text(text) => *text = revealed(text, usize::MAX).into(),
        Node::List(items) => items.iter_mut().for_each(reveal),
        Node::Object(members) => {
            for (name, value) in members {
                *name = revealed(name, usize::MAX).into();
                reveal(value);
            }
        }
        Node::Literal(_) | Node::Number(_) => {}
    }
}

impl Diff {
    fn add(&mut self, path: &str, before: Option<&Node<'_>>, after: Option<&Node<'_>>) {
        if self.changes.len() >= limits::DIFF_CHANGES.size() {
            self.more += 1;
            return;
        }
        let path = revealed(path, limits::DIFF_TEXT_CHARS.size());
        self.changes.push(Change { path, before: before.map(side), after: after.map(side) });
    }

    fn compare(&mut self, path: &str, old: &Node<'_>, new: &Node<'_>) {
        match (old, new) {
            (Node::Object(before), Node::Object(after)) => {
                let known: HashMap<&str, &Node<'_>> =
                    before.iter().map(|(name, value)| (name.as_ref(), value)).collect();
                let now: HashMap<&str, &Node<'_>> =
                    after.iter().map(|(name, value)| (name.as_ref(), value)).collect();
                for (name, value) in after {
                    let path = below(path, name);
                    match known.get(name.as_ref()) {
                        Some(before) => self.compare(&path, before, value),
                        None => self.add(&path, None, Some(value)),
                    }
                }
                for (name, value) in
                    before.iter().filter(|(name, _)| !now.contains_key(name.as_ref()))
                {
                    self.add(&below(path, name), Some(value), None);
                }
            }
            (Node::List(before), Node::List(after)) => {
                for index in 0..before.len().max(after.len()) {
                    let path = format!("{path}/{index}");
                    match (before.get(index), after.get(index)) {
                        (Some(before), Some(after)) => self.compare(&path, before, after),
                        (before, after) => self.add(&path, before, after),
                    }
                }
            }
            _ if old == new => {}
            _ => self.add(path, Some(old), Some(new)),
        }
    }
}

fn side(node: &Node<'_>) -> String {
    let text = match node {
        Node::Text(text) => return revealed(text, limits::DIFF_TEXT_CHARS.size()),
        node => node.to_text(),
    };
    revealed(&text, limits::DIFF_TEXT_CHARS.size())
}

fn below(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(path: &str, before: Option<&str>, after: Option<&str>) -> Change {
        let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
        Change { path: path.to_owned(), before: owned(before), after: owned(after) }
    }

    #[test]
    fn each_place_that_changed_is_named() {
        let old = json!({
            "name": "echo", "description": "old", "gone": 1, "same": {"a": [1, 2]},
            "inputSchema": { "type": "object", "properties": { "a/b": { "type": "string" } }, "required": ["a"] },
        });
        let new = json!({
            "name": "echo", "description": "new", "same": {"a": [1, 2]}, "added": { "x": true },
            "inputSchema": { "type": "object", "properties": { "a/b": { "type": "number" } }, "required": ["a", "b"] },
        });
        let mut found = diff(Some(&old.to_string()), &new.to_string());
        found.changes.sort_by(|one, other| one.path.cmp(&other.path));
        assert_eq!(
            found.changes,
            [
                change("/added", None, Some(r#"{"x":true}"#)),
                change("/description", Some("old"), Some("new")),
                change("/gone", Some("1"), None),
                change("/inputSchema/properties/a~1b/type", Some("string"), Some("number")),
                change("/inputSchema/required/1", None, Some("b")),
            ]
        );
        assert_eq!(found.more, 0);
        assert_eq!(diff(Some(&old.to_string()), &old.to_string()), Diff::default());
        assert_eq!(diff(None, "{}").changes, [change("", None, Some("{}"))]);
    }

    #[test]
    fn what_hides_is_shown() {
        let new = "{\"description\":\"a\u{202e}b\u{e0041}c\",\"x\u{200b}\":\"\\u200b\"}";
        let found = diff(Some("{\"description\":\"abc\"}"), new);
        assert_eq!(found.changes[0].after.as_deref(), Some("a\\u{202e}b\\u{e0041}c"));
        assert_eq!(found.changes[1], change("/x\\u{200b}", None, Some("\\u{200b}")));
        let revealed = reveal_definition(new).unwrap();
        assert!(!revealed.contains(['\u{202e}', '\u{200b}', '\u{e0041}']), "{revealed}");
    }

    #[test]
    fn a_diff_is_bounded() {
        let many = |value: u32| {
            let members: serde_json::Map<String, serde_json::Value> =
                (0..250).map(|index| (format!("m{index}"), json!(value))).collect();
            serde_json::Value::Object(members).to_string()
        };
        let found = diff(Some(&many(1)), &many(2));
        assert_eq!((found.changes.len(), found.more), (100, 150));
        let long = json!({ "description": "x".repeat(100_000) }).to_string();
        let found = diff(Some("{}"), &long);
        assert_eq!(found.changes[0].after.as_ref().unwrap().chars().count(), 2_001);
        assert_eq!(reveal_definition(&long), None);
        assert_eq!(diff(Some("no JSON"), "{}").changes.len(), 1);
    }
}
