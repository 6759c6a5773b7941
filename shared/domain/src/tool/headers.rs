//! Arguments that a tool wants repeated in headers (MCP 2026-07-28, basic/transports/streamable-http,
//! "Custom Headers from Tool Parameters").

use std::collections::HashSet;

use super::{Definition, Pinned, ToolProblem, UnusableTool, names::shown};
use crate::{
    json::{self, Node},
    limits,
    schema::{DATA, MAPS},
};

const MARK: &str = "x-mcp-header";

impl Definition {
    /// Reads one tool of a server that is spoken to in 2026-07-28 over HTTP. There a client has to leave
    /// a tool out whose marks are not legal: the headers would not be those that the server expects.
    pub fn parse_with_headers(raw: &str) -> Result<Self, UnusableTool> {
        let definition = Self::parse(raw)?;
        match check(&definition.input_schema) {
            Ok(()) => Ok(definition),
            Err(problem) => Err(UnusableTool {
                name: Some(definition.name),
                definition: Some(Pinned { text: definition.raw, hash: definition.hash }),
                problem,
            }),
        }
    }
}

fn check(schema: &str) -> Result<(), ToolProblem> {
    // Most schemas mark nothing: one search is cheaper than reading them. It may stand there escaped.
    if !schema.contains(MARK) && !schema.contains("\\u") {
        return Ok(());
    }
    let Ok(root) = json::parse(schema, limits::JSON_DEPTH.size()) else { return Ok(()) };
    let mut marks = Marks::default();
    if let Some(mark) = root.member(MARK) {
        return Err(problem(mark, OUT_OF_REACH));
    }
    marks.look(&root, true)
}

const OUT_OF_REACH: &str =
    "does not stand on an argument that is reached through \"properties\" alone";

#[derive(Default)]
struct Marks {
    /// Headers are the same in any case.
    seen: HashSet<String>,
}

impl Marks {
    /// `reached`: over nothing but `properties` from the root.
    fn look(&mut self, schema: &Node<'_>, reached: bool) -> Result<(), ToolProblem> {
        let Node::Object(members) = schema else {
            let Node::List(schemas) = schema else { return Ok(()) };
            return schemas.iter().try_for_each(|schema| self.look(schema, false));
        };
        for (keyword, value) in members {
            match (keyword.as_ref(), value) {
                (MARK, mark) if !reached => return Err(problem(mark, OUT_OF_REACH)),
                (MARK, mark) => self.take(mark, schema)?,
                (data, _) if DATA.contains(&data) => {}
                (map, Node::Object(schemas)) if MAPS.contains(&map) => {
                    let reached = reached && map == "properties";
                    for (_, schema) in schemas {
                        self.look(schema, reached)?;
                    }
                }
                (_, schema) => self.look(schema, false)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, mark: &Node<'_>, property: &Node<'_>) -> Result<(), ToolProblem> {
        let Some(name) = mark.as_text() else { return Err(problem(mark, "is no text")) };
        if name.is_empty() {
            return Err(problem(mark, "is empty"));
        }
        if !name.bytes().all(is_token) {
            return Err(problem(mark, "is no legal name of a header"));
        }
        let kind = property.member("type").and_then(Node::as_text);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err(problem(mark, "marks an argument that is no string, integer or boolean"));
        }
        if !self.seen.insert(name.to_ascii_lowercase()) {
            return Err(problem(mark, "is there twice"));
        }
        Ok(())
    }
}

/// `tchar` (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn problem(mark: &Node<'_>, why: &'static str) -> ToolProblem {
    ToolProblem::Header(shown(&mark.to_text()), why)
}
