//! MCP servers as a client: one pooled client per (tenant, server, revision, identity), and one of
//! its own per upstream session that somebody holds.
//!
//! Streamable HTTP in both eras: 2026-07-28 (stateless, `server/discover`) and session-based
//! (2025-11-25, 2025-06-18, 2025-03-26); HTTP+SSE of 2024-11-05; stdio. Arguments and results are
//! never parsed into typed models: what the caller gave is what the server reads, and what the server
//! answered is what the caller gets, byte for byte. The protocol's own messages and names come from
//! rmcp's model; its transport is not used (docs/decisions).

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{
    Error,
    ids::{ServerId, TenantId, UserId},
    limits,
};
use http::HeaderName;
use secrecy::SecretString;
use serde_json::value::RawValue;
use url::Url;
use uuid::Uuid;

mod authority;
mod call;
mod changes;
mod channel;
mod client;
mod deadline;
mod discovery;
mod door;
mod duplex;
mod exchange;
mod handshake;
mod legacy_sse;
mod line;
mod listen;
mod mirror;
mod params;
mod pool;
mod relay;
mod rounds;
mod sse;
mod standing;
mod wire;

pub use authority::{
    Authority, Behalf, Mark, Outgoing, Pass, PinnedTool, Refusal, RefusalKind, SharedAuthority,
    Verdict,
};
pub use call::{Answer, Call, CallFailure, Input, Rpc, What};
pub use changes::ListChanges;
pub use deadline::{Clocks, Deadline, Pause};
pub use listen::Listening;
pub use pool::McpClients;
pub use relay::{FromServer, Relay, Reply};

pub(crate) use wire::{METHOD, PROTOCOL_VERSION, SESSION_ID};

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
    /// An upstream session of its own, that [`McpClients::open`] begins and nobody shares; `None`: the
    /// pooled client, which declares no client capabilities.
    pub session: Option<SessionKey>,
}

/// An upstream session that one person holds for a client of theirs, or to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub id: Uuid,
    /// Counted for them, where it takes a program of its own.
    pub person: UserId,
}

/// As whom the server is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Without any credential.
    Anonymous,
    /// With the headers that the superadmin configured.
    Shared,
    /// With the person's own credential, of which [`Target::authority`] supplies the present state for
    /// each request. Another `generation` may be another account: its client is another one.
    User { user: UserId, generation: i64 },
}

/// Where a call goes.
#[derive(Debug, Clone)]
pub struct Target {
    pub key: ClientKey,
    pub reach: Reach,
    /// With an own session: how a process that does not hold it goes on with it.
    pub resume: Option<Resume>,
    /// Secrets that are only a part of what is sent; like the whole values, they must not come back to
    /// others in the server's words.
    pub parts: Vec<SecretString>,
    /// Asked before each HTTP request. `None`: none is asked, and no credential is added.
    pub authority: Option<SharedAuthority>,
}

impl Target {
    /// Until when a client should be waited for that may have to be connected first and then takes
    /// `work`: a program that was never run may have to be downloaded.
    #[must_use]
    pub fn patience(&self, work: Duration) -> Duration {
        match self.reach {
            Reach::Stdio(_) => limits::STDIO_START_MS.millis() + work,
            Reach::Http { .. } | Reach::Sse { .. } | Reach::Own { .. } => work,
        }
    }

    /// All that the server's words are masked of.
    fn secrets(&self) -> Vec<SecretString> {
        let sent: Vec<&SecretString> = match &self.reach {
            Reach::Http { headers, .. } | Reach::Sse { headers, .. } => {
                headers.iter().map(|(_, secret)| secret).collect()
            }
            Reach::Own { .. } => Vec::new(),
            Reach::Stdio(program) => program.env.iter().map(|(_, secret)| secret).collect(),
        };
        sent.into_iter().chain(&self.parts).cloned().collect()
    }
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Reach {
    /// Streamable HTTP. The headers are sent on every request of this client; the protocol's own, and
    /// those that frame a request, win over them.
    Http { url: Url, headers: Vec<(HeaderName, SecretString)> },
    /// HTTP+SSE of 2024-11-05; `url` is that of the stream. Headers as above.
    Sse { url: Url, headers: Vec<(HeaderName, SecretString)> },
    /// Streamable HTTP, on a listener of our own, which code alone names. What is sent besides the
    /// protocol's headers is the authority's.
    Own { url: Url },
    /// A program of this machine that speaks on its standard input and output.
    Stdio(Program),
}

/// A program to run. Whether it may be run was decided before; its environment is `env` alone.
#[derive(Debug, Clone)]
pub struct Program {
    pub command: PathBuf,
    pub args: Vec<String>,
    pub cwd: Option<PathBuf>,
    pub env: Vec<(String, SecretString)>,
}

/// All that a process must know to go on with an own session that another one opened. To be kept as
/// a secret: whoever knows the id of a session may use it.
#[derive(Debug, Clone)]
pub struct Resume {
    /// `Mcp-Session-Id`; `None` where the server keeps no session.
    pub session_id: Option<SecretString>,
    /// The protocol version that was agreed.
    pub version: String,
}

/// What a server says of itself.
#[derive(Debug, Clone)]
pub struct About {
    /// The protocol version that is spoken with it.
    pub version: String,
    /// `ServerCapabilities` as they came; `{}` where it names none.
    pub capabilities: Arc<RawValue>,
    /// `serverInfo` as it came, from the result or, in the newer era, from its `_meta`.
    pub server_info: Option<Arc<RawValue>>,
    pub instructions: Option<String>,
    /// The whole result: of `server/discover` for `2026-07-28`, else of `initialize`.
    pub raw: Bytes,
}

/// An own session that was begun.
#[derive(Debug, Clone)]
pub struct Opened {
    pub about: About,
    /// `None`: it lives in this process alone (stdio, HTTP+SSE).
    pub resume: Option<Resume>,
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

/// Whether an error says that an own upstream session is no more: only a new
/// [`open`](McpClients::open) helps, and its holder must hear of it (to a legacy client of ours: 404
/// for its `Mcp-Session-Id`). Code `NOT_FOUND`.
#[must_use]
pub fn is_session_lost(error: &Error) -> bool {
    channel::reason(error) == Some(channel::SESSION_LOST)
}

/// Whether an error says that the server offers no stream of its own messages
/// ([`listen`](McpClients::listen)). Code `NOT_FOUND`.
#[must_use]
pub fn is_not_offered(error: &Error) -> bool {
    channel::reason(error) == Some(channel::NOT_OFFERED)
}
