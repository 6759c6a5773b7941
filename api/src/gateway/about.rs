//! What we say of ourselves.

use domain::limits;
use rmcp::model::{
    CacheScope, DiscoverResult, Implementation, InitializeResult, ProtocolVersion,
    ServerCapabilities, ToolsCapability,
};
use serde_json::{Value, json};

use super::eras;

const INSTRUCTIONS: &str = "The tools here belong to servers that this organisation chose; every call is checked against its permissions, limited and recorded. A call may be held until a person approves it: wait for its answer instead of making it again.";

fn server_info() -> Implementation {
    Implementation::new("bailiwick", env!("CARGO_PKG_VERSION")).with_title("Bailiwick")
}

/// Of the form with all servers: tools alone; their list changes without notice, so clients go by
/// `ttlMs`.
pub(super) fn capabilities() -> ServerCapabilities {
    let mut tools = ToolsCapability::default();
    tools.list_changed = Some(false);
    let mut capabilities = ServerCapabilities::default();
    capabilities.tools = Some(tools);
    capabilities
}

/// The `_meta` of results that are ours and not a server's.
pub(super) fn meta() -> Value {
    json!({ "io.modelcontextprotocol/serverInfo": server_info() })
}

pub(super) fn discover(capabilities: ServerCapabilities) -> DiscoverResult {
    let mut result = DiscoverResult::new(eras::supported(), capabilities)
        .with_ttl_ms(limits::GATEWAY_TOOLS_TTL_MS.default)
        .with_cache_scope(CacheScope::Private)
        .with_server_info(server_info());
    result.instructions = Some(INSTRUCTIONS.to_owned());
    result
}

pub(super) fn initialize(
    version: ProtocolVersion,
    capabilities: ServerCapabilities,
) -> InitializeResult {
    InitializeResult::new(capabilities)
        .with_protocol_version(version)
        .with_server_info(server_info())
        .with_instructions(INSTRUCTIONS)
}
