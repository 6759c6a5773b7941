//! A definition as the gateway lists it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Definition, definition, visible_text};
use crate::{
    json::{self, Node},
    limits,
    schema::{DATA, MAPS},
};

/// What we say in `_meta` ourselves begins with this; a peer may not.
const OUR_META: &str = "bailiwick/";

/// The definition with our name for it.
///
/// Members stay as the server wrote them, in their order, numbers to the digit, but: `title` and
/// every description is [visible text](visible_text); what would make a client reject the whole
/// list is mended or left out (a bad `outputSchema`, a member of another type than MCP says, `null`,
/// a missing `"type": "object"`, a boolean as the schema of a property); `execution` is left out,
/// since a task of the upstream cannot be reached through us.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "a definition was read from this very text")]
pub fn listed(definition: &Definition, agent_name: &str) -> Box<RawValue> {
    let node = json::parse(&definition.raw, limits::JSON_DEPTH.size())
        .expect("a definition is made by parsing this text");
    let Node::Object(members) = node else { unreachable!("a definition is an object") };
    let members = members
        .into_iter()
        .filter(|(name, value)| is_listed(definition, name, value))
        .map(|(name, value)| {
            let value = member(&name, value, agent_name);
            (name, value)
        })
        .collect();
    RawValue::from_string(Node::Object(members).to_text()).expect("written from a JSON tree")
}

fn is_listed(definition: &Definition, name: &str, value: &Node<'_>) -> bool {
    match name {
        "execution" => false,
        "outputSchema" => definition.output_schema.is_some(),
        "title" | "description" | "annotations" | "icons" | "_meta" if *value == Node::NULL => {
            false
        }
        _ => definition::fits(name, value),
    }
}

fn member<'a>(name: &str, value: Node<'a>, agent_name: &str) -> Node<'a> {
    match (name, value) {
        ("name", _) => Node::Text(Cow::Owned(agent_name.to_owned())),
        ("title" | "description", value) => visible(value),
        ("inputSchema" | "outputSchema", value) => schema(value),
        ("annotations", Node::Object(members)) => {
            Node::Object(members.into_iter().filter_map(annotation).collect())
        }
        ("_meta", Node::Object(mut members)) => {
            members.retain(|(name, _)| !name.starts_with(OUR_META));
            Node::Object(members)
        }
        (_, value) => value,
    }
}

type Member<'a> = (Cow<'a, str>, Node<'a>);

/// Hints are booleans, the title is text (MCP, `ToolAnnotations`); others are nobody's.
fn annotation((name, value): Member<'_>) -> Option<Member<'_>> {
    let fits = match name.as_ref() {
        "title" => value.as_text().is_some(),
        hint if hint.ends_with("Hint") => value.is_boolean(),
        _ => true,
    };
    fits.then(|| (name, visible(value)))
}

fn visible(value: Node<'_>) -> Node<'_> {
    match value {
        Node::Text(text) => Node::Text(Cow::Owned(visible_text(&text))),
        other => other,
    }
}

fn schema(value: Node<'_>) -> Node<'_> {
    let Node::Object(mut members) = words(value) else {
        unreachable!("a definition's schemas are objects")
    };
    if !members.iter().any(|(name, _)| name == "type") {
        members.insert(0, ("type".into(), Node::Text("object".into())));
    }
    for (name, value) in &mut members {
        if let ("properties", Node::Object(properties)) = (name.as_ref(), value) {
            for (_, property) in properties {
                as_object(property);
            }
        }
    }
    Node::Object(members)
}

/// `true` and `false` say the same as these objects, which every client takes.
fn as_object(property: &mut Node<'_>) {
    match property {
        Node::Literal("true") => *property = Node::Object(Vec::new()),
        Node::Literal("false") => {
            *property = Node::Object(vec![("not".into(), Node::Object(Vec::new()))]);
        }
        _ => {}
    }
}

/// The words of a schema are read by a model just as the tool's description is.
fn words(value: Node<'_>) -> Node<'_> {
    match value {
        Node::List(items) => Node::List(items.into_iter().map(words).collect()),
        Node::Object(members) => Node::Object(members.into_iter().map(keyword).collect()),
        other => other,
    }
}

fn keyword((name, value): Member<'_>) -> Member<'_> {
    let value = match (name.as_ref(), value) {
        ("title" | "description" | "$comment", value @ Node::Text(_)) => visible(value),
        (data, value) if DATA.contains(&data) => value,
        (map, Node::Object(named)) if MAPS.contains(&map) => {
            Node::Object(named.into_iter().map(|(name, value)| (name, words(value))).collect())
        }
        (_, value) => words(value),
    };
    (name, value)
}
