//! One tool as its server describes it.

use serde::Deserialize;

use super::{Pinned, ToolProblem, names::shown};
use crate::{
    json::{self, Node, Sha256Digest},
    limits,
    schema::{Schema, SchemaProblem, Warning},
};

/// A definition that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The JSON object as the server sent it.
    pub raw: String,
    /// Goes on the wire; see [`assign_ids`](super::assign_ids) for what we call it.
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    /// JSON text; an object.
    pub input_schema: String,
    /// JSON text of an object with `"type": "object"`; one that is not is left out with a warning,
    /// since clients reject a whole list for it.
    pub output_schema: Option<String>,
    /// Over everything that a model or a screen may see: the canonical form of the whole object.
    pub hash: Sha256Digest,
    pub warnings: Vec<Warning>,
}

/// A tool that is hidden, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableTool {
    /// Where one can be read.
    pub name: Option<String>,
    /// Where it has a digest.
    pub definition: Option<Pinned>,
    pub problem: ToolProblem,
}

type Fits = fn(&Node<'_>) -> bool;

/// Members that MCP describes and that are left out of a list where they have another type.
const ADVISORY: &[(&str, Fits)] = &[
    ("title", |node| node.as_text().is_some()),
    ("annotations", |node| node.is_object()),
    ("icons", |node| matches!(node, Node::List(icons) if icons.iter().all(is_icon))),
];

impl Definition {
    /// Reads one tool of a `tools/list` answer.
    pub fn parse(raw: &str) -> Result<Self, UnusableTool> {
        let unusable = |problem| UnusableTool { name: name_of(raw), definition: None, problem };
        if raw.len() > limits::DEFINITION_BYTES.size() {
            return Err(unusable(ToolProblem::TooLarge));
        }
        let unreadable =
            |error: crate::Error| unusable(ToolProblem::Unreadable(error.public.clone()));
        let hash = Sha256Digest::of(&json::canonical(raw).map_err(unreadable)?);
        let node = json::parse(raw, limits::JSON_DEPTH.size()).map_err(unreadable)?;
        Self::read(raw, &node, hash).map_err(|problem| UnusableTool {
            definition: Some(Pinned { text: raw.to_owned(), hash }),
            ..unusable(problem)
        })
    }

    fn read(raw: &str, node: &Node<'_>, hash: Sha256Digest) -> Result<Self, ToolProblem> {
        if !node.is_object() {
            return Err(ToolProblem::Unreadable("not a JSON object".to_owned()));
        }
        let name = node.member("name").and_then(Node::as_text).unwrap_or_default();
        if !is_name(name) {
            return Err(ToolProblem::NoName);
        }
        let description = match present(node, "description") {
            None => None,
            Some(Node::Text(text)) => Some(text.clone().into_owned()),
            Some(_) => return Err(ToolProblem::Malformed("description")),
        };
        if present(node, "_meta").is_some_and(|meta| !meta.is_object()) {
            return Err(ToolProblem::Malformed("_meta"));
        }
        let Some(input_schema) = present(node, "inputSchema").filter(|schema| schema.is_object())
        else {
            return Err(ToolProblem::Malformed("inputSchema"));
        };
        let mut warnings = advisory_warnings(node);
        let input_schema = input_schema.to_text();
        let (_, found) = Schema::compile(&input_schema).map_err(ToolProblem::InputSchema)?;
        warnings.extend(found.into_iter().map(|warning| within("input schema", &warning)));
        let output_schema = present(node, "outputSchema").and_then(|schema| {
            output_schema(schema).map_err(|problem| warnings.push(not_offered(&problem))).ok()
        });
        let title = node.member("title").and_then(Node::as_text).map(ToOwned::to_owned);
        Ok(Self {
            raw: raw.to_owned(),
            name: name.to_owned(),
            title,
            description,
            input_schema,
            output_schema,
            hash,
            warnings,
        })
    }
}

impl UnusableTool {
    /// The name as our words may show it.
    #[must_use]
    pub fn shown_name(&self) -> Option<String> {
        self.name.as_deref().map(shown)
    }
}

/// A member that is there and not `null`: careless servers write `null` for "none".
pub(super) fn present<'a, 'b>(node: &'a Node<'b>, name: &str) -> Option<&'a Node<'b>> {
    node.member(name).filter(|value| **value != Node::NULL)
}

/// Whether a member of a definition may stand in a list of ours.
pub(super) fn fits(name: &str, value: &Node<'_>) -> bool {
    ADVISORY.iter().find(|(known, _)| *known == name).is_none_or(|(_, fits)| fits(value))
}

fn advisory_warnings(node: &Node<'_>) -> Vec<Warning> {
    ADVISORY
        .iter()
        .filter(|(name, fits)| present(node, name).is_some_and(|value| !fits(value)))
        .map(|(name, _)| Warning(format!("\"{name}\" is not what MCP says it is and is left out")))
        .collect()
}

/// MCP's `Icon`: clients reject a whole list for one of another form.
fn is_icon(node: &Node<'_>) -> bool {
    let is_text = |node: &Node<'_>| node.as_text().is_some();
    let all = |name: &str, fits: &dyn Fn(&Node<'_>) -> bool| node.member(name).is_none_or(fits);
    node.member("src").is_some_and(is_text)
        && all("mimeType", &is_text)
        && all("sizes", &|sizes| matches!(sizes, Node::List(sizes) if sizes.iter().all(is_text)))
        && all("theme", &|theme| matches!(theme.as_text(), Some("light" | "dark")))
}

fn output_schema(node: &Node<'_>) -> Result<String, SchemaProblem> {
    if node.member("type").and_then(Node::as_text) != Some("object") {
        return Err(SchemaProblem::NotAnObject);
    }
    let text = node.to_text();
    Schema::compile(&text)?;
    Ok(text)
}

fn not_offered(problem: &SchemaProblem) -> Warning {
    Warning(format!("the output schema is left out: {problem}"))
}

fn within(place: &str, warning: &Warning) -> Warning {
    Warning(format!("{place}: {warning}"))
}

/// The name alone, of a definition that cannot be read as a whole.
fn name_of(raw: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let Named { name } = serde_json::from_str(raw).ok()?;
    is_name(&name).then_some(name)
}

/// What can be stored and shown; NUL cannot.
fn is_name(name: &str) -> bool {
    (1..=limits::TOOL_NAME_CHARS.size()).contains(&name.chars().count()) && !name.contains('\0')
}
