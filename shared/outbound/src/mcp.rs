//! MCP servers as a client: one pooled client per (tenant, server, revision, identity).
//!
//! Streamable HTTP in both eras: 2026-07-28 (stateless, `server/discover`) and session-based
//! (2025-11-25, 2025-06-18, 2025-03-26). Arguments and results are never parsed into typed models:
//! what the caller gave is what the server reads, and what the server answered is what the caller
//! gets, byte for byte. The protocol's own messages and names come from rmcp's model; its transport
//! is not used (docs/decisions).

use std::sync::Arc;

use bytes::Bytes;
use domain::{
    Error,
    ids::{ServerId, TenantId, UserId},
};
use http::HeaderName;
use secrecy::SecretString;
use serde_json::value::RawValue;
use url::Url;

mod client;
mod discovery;
mod exchange;
mod handshake;
mod mirror;
mod pool;
mod sse;
mod wire;

pub use pool::McpClients;

pub use crate::http::Ran;

/// Who shares a client. Another revision or another identity is another client: a session never
/// outlives the configuration or the person that it was made for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientKey {
    pub tenant: TenantId,
    pub server: ServerId,
    /// `config_revision` of the server.
    pub revision: i64,
    pub identity: Identity,
}

/// As whom the server is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Without any credential.
    Anonymous,
    /// With the headers that the superadmin configured.
    Shared,
    User(UserId),
}

/// Where a call goes.
#[derive(Debug, Clone)]
pub struct Target {
    pub key: ClientKey,
    pub url: Url,
    /// Sent on every request of this client. The protocol's own headers, and those that frame a
    /// request, win over them.
    pub headers: Vec<(HeaderName, SecretString)>,
}

/// One `tools/call`.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The original name, as the server listed it.
    pub name: String,
    /// Sent as it is.
    pub arguments: Arc<RawValue>,
    /// The tool's pinned input schema: servers of 2026-07-28 may ask in it (`x-mcp-header`) that
    /// arguments are repeated as `Mcp-Param-*` headers. `None`: nothing is repeated.
    pub input_schema: Option<Arc<RawValue>>,
    /// Bytes of the result that the caller accepts; the body that carries it may be
    /// [`BODY_CAP_FACTOR`](domain::limits::BODY_CAP_FACTOR) times that.
    pub response_limit: u64,
    /// W3C `traceparent`, for the request's `_meta`.
    pub trace: Option<String>,
}

/// The server's answer to a call, `isError` or not.
#[derive(Debug, Clone)]
pub struct ToolAnswer {
    /// The JSON object `result`, exactly as received.
    pub raw: Bytes,
    /// HTTP requests made for this call; 1 for a warm one.
    pub upstream_requests: u32,
}

/// A call without an answer.
#[derive(Debug)]
pub struct CallFailure {
    pub error: Error,
    pub ran: Ran,
    /// Code and words of a JSON-RPC error, where the server refused in protocol. The words are the
    /// peer's: bounded and cleaned, but untrusted.
    pub rpc: Option<(i64, String)>,
}

/// What a server says about itself.
#[derive(Debug)]
pub struct Discovery {
    pub protocol_version: String,
    pub server_name: Option<String>,
    pub server_version: Option<String>,
    /// Each definition as the server wrote it, in its order. Nothing is checked.
    pub tools: Vec<Box<RawValue>>,
    /// The server lists more than [`TOOLS_PER_SERVER`](domain::limits::TOOLS_PER_SERVER) tools or
    /// [`TOOL_PAGES`](domain::limits::TOOL_PAGES) pages.
    pub truncated: bool,
}
