//! Why a tool is hidden or quarantined.

use crate::{limits, schema::SchemaProblem};

/// `Display` is public; what a peer wrote stands in it escaped and bounded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolProblem {
    #[error("the definition is larger than {} bytes", limits::DEFINITION_BYTES.default)]
    TooLarge,
    /// No JSON object with one meaning; the words say why.
    #[error("the definition cannot be read: {0}")]
    Unreadable(String),
    #[error("the tool has no usable name of 1 to {} characters", limits::TOOL_NAME_CHARS.default)]
    NoName,
    /// A member of the definition has another type than MCP says.
    #[error("\"{0}\" of the definition is not what MCP says it is")]
    Malformed(&'static str),
    #[error("input schema: {0}")]
    InputSchema(SchemaProblem),
    /// The header as the schema names it, and why it cannot be sent.
    #[error("input schema: the x-mcp-header {0} {1}")]
    Header(String, &'static str),
    #[error("the server lists the name \"{0}\" more than once")]
    ListedTwice(String),
    /// Another tool of the server would get the same id.
    #[error("the name collides with \"{0}\"")]
    Collides(String),
    #[error("the name looks like \"{0}\"")]
    LooksLike(String),
    #[error("the name \"{0}\" mixes scripts")]
    MixesScripts(String),
    #[error("the name \"{0}\" holds characters that cannot be seen")]
    HidesCharacters(String),
}
