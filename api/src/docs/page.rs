//! The OpenAPI document as one page: operations by tag, then the schemas, each with an anchor.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::{Map, Value};
use utoipa::openapi::OpenApi;

/// The document as HTML.
pub(super) fn render(document: &OpenApi) -> Result<String, Box<dyn std::error::Error>> {
    Ok(Page::of(&serde_json::to_value(document)?).render()?)
}

#[derive(Template)]
#[template(path = "docs.html")]
struct Page {
    title: String,
    version: String,
    description: Vec<Word>,
    groups: Vec<Group>,
    schemas: Vec<Schema>,
}

struct Group {
    tag: String,
    operations: Vec<Operation>,
}

struct Operation {
    anchor: String,
    method: String,
    path: String,
    /// Needs no token.
    open: bool,
    words: Vec<Word>,
    parameters: Vec<Member>,
    body: Option<Vec<Piece>>,
    answers: Vec<Answer>,
}

struct Answer {
    status: String,
    words: Vec<Word>,
    content: Vec<(String, Vec<Piece>)>,
}

struct Schema {
    name: String,
    words: Vec<Word>,
    shape: Vec<Piece>,
    members: Vec<Member>,
}

/// A parameter, or a member of an object.
struct Member {
    name: String,
    place: String,
    required: bool,
    shape: Vec<Piece>,
    words: Vec<Word>,
    example: Option<String>,
}

/// A part of a type: text, or the name of a schema.
struct Piece {
    text: String,
    schema: bool,
}

/// A part of a sentence.
struct Word {
    text: String,
    code: bool,
}

impl Page {
    fn of(document: &Value) -> Self {
        let info = &document["info"];
        let schemas = members(&document["components"]["schemas"]);
        Self {
            title: text(&info["title"]),
            version: text(&info["version"]),
            description: words(&info["description"]),
            groups: groups(document),
            schemas: schemas.map(|(name, schema)| Schema::of(name, schema)).collect(),
        }
    }
}

fn groups(document: &Value) -> Vec<Group> {
    let mut groups = BTreeMap::<String, Vec<Operation>>::new();
    for (path, item) in members(&document["paths"]) {
        for (method, operation) in members(item) {
            let tag = text(&operation["tags"][0]);
            groups.entry(tag).or_default().push(Operation::of(method, path, operation));
        }
    }
    groups.into_iter().map(|(tag, operations)| Group { tag, operations }).collect()
}

impl Operation {
    fn of(method: &str, path: &str, operation: &Value) -> Self {
        let content = &operation["requestBody"]["content"];
        let needs = operation["security"].as_array();
        let said = [&operation["summary"], &operation["description"]];
        Self {
            anchor: text(&operation["operationId"]),
            method: method.to_uppercase(),
            path: path.to_owned(),
            open: needs.is_some_and(|needs| needs.iter().all(|need| members(need).count() == 0)),
            words: said.into_iter().flat_map(words).collect(),
            parameters: list(&operation["parameters"]).map(Member::of_parameter).collect(),
            body: members(content).next().map(|(_, body)| shape(&body["schema"])),
            answers: members(&operation["responses"])
                .map(|(status, answer)| Answer {
                    status: status.clone(),
                    words: words(&answer["description"]),
                    content: members(&answer["content"])
                        .map(|(media, content)| (media.clone(), shape(&content["schema"])))
                        .collect(),
                })
                .collect(),
        }
    }
}

impl Schema {
    fn of(name: &str, schema: &Value) -> Self {
        let mut found = Vec::new();
        collect_members(schema, &mut found);
        Self {
            name: name.to_owned(),
            words: words(&schema["description"]),
            shape: shape(schema),
            members: found,
        }
    }
}

/// The members of an object, and of those that it is put together from.
fn collect_members(schema: &Value, found: &mut Vec<Member>) {
    let required: Vec<&str> = list(&schema["required"]).filter_map(Value::as_str).collect();
    for (name, member) in members(&schema["properties"]) {
        found.push(Member::of(name, required.contains(&name.as_str()), member));
    }
    for part in list(&schema["allOf"]) {
        collect_members(part, found);
    }
}

impl Member {
    fn of(name: &str, required: bool, schema: &Value) -> Self {
        Self {
            name: name.to_owned(),
            place: String::new(),
            required,
            shape: shape(schema),
            words: words(&schema["description"]),
            example: schema.get("example").map(plain),
        }
    }

    fn of_parameter(parameter: &Value) -> Self {
        let required = parameter["required"] == Value::Bool(true);
        Self {
            place: text(&parameter["in"]),
            words: words(&parameter["description"]),
            ..Self::of(&text(&parameter["name"]), required, &parameter["schema"])
        }
    }
}

/// What a value looks like, in words.
fn shape(schema: &Value) -> Vec<Piece> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return vec![Piece { text: name.to_owned(), schema: true }];
    }
    for (member, between) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " with ")] {
        if schema[member].is_array() {
            return joined(list(&schema[member]).map(shape), between);
        }
    }
    if schema["enum"].is_array() {
        return joined(list(&schema["enum"]).map(|one| said(plain(one))), " or ");
    }
    match &schema["type"] {
        Value::String(kind) => of_type(kind, schema),
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            joined(kinds.map(|kind| of_type(kind, schema)), " or ")
        }
        _ => said("any JSON"),
    }
}

fn of_type(kind: &str, schema: &Value) -> Vec<Piece> {
    match kind {
        "array" => joined([said("list of"), shape(&schema["items"])].into_iter(), " "),
        "object" if schema["additionalProperties"].is_object() => {
            joined([said("map of"), shape(&schema["additionalProperties"])].into_iter(), " ")
        }
        _ => {
            let mut words = kind.to_owned();
            if let (Some(format), true) = (schema["format"].as_str(), kind != "null") {
                words = format!("{words} ({format})");
            }
            if let (Some(least), Some(most)) =
                (schema["minimum"].as_i64(), schema["maximum"].as_i64())
            {
                words = format!("{words} from {least} to {most}");
            }
            said(words)
        }
    }
}

fn said(words: impl Into<String>) -> Vec<Piece> {
    vec![Piece { text: words.into(), schema: false }]
}

fn joined(parts: impl Iterator<Item = Vec<Piece>>, between: &str) -> Vec<Piece> {
    let mut whole = Vec::new();
    for (index, part) in parts.enumerate() {
        if index > 0 {
            whole.extend(said(between));
        }
        whole.extend(part);
    }
    whole
}

/// A text with `code` in it.
fn words(text: &Value) -> Vec<Word> {
    let parts = text.as_str().unwrap_or_default().split('`').enumerate();
    let mut words: Vec<Word> = parts
        .filter(|(_, text)| !text.is_empty())
        .map(|(index, text)| Word { text: text.to_owned(), code: index % 2 == 1 })
        .collect();
    if !words.is_empty() {
        words.push(Word { text: " ".to_owned(), code: false });
    }
    words
}

fn members(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flat_map(Map::iter)
}

fn list(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A string without its quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
