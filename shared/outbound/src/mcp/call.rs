//! One request of a caller, and how it ends.

use std::sync::Arc;

use bytes::Bytes;
use domain::Error;
use serde_json::value::RawValue;

use super::{PinnedTool, Relay};
use crate::http::{Failure, Ran};

/// One request to a server.
#[derive(Debug, Clone)]
pub struct Call {
    pub what: What,
    /// Bytes of the result that the caller accepts; the body that carries it may be
    /// [`BODY_CAP_FACTOR`](domain::limits::BODY_CAP_FACTOR) times that.
    pub response_limit: u64,
    /// W3C `traceparent`, for the request's `_meta`.
    pub trace: Option<String>,
    /// What the server says during the call goes here. `None`: its requests are refused, its
    /// notifications dropped.
    pub relay: Option<Relay>,
    /// Declared to a server of 2026-07-28 with this request (JSON of `ClientCapabilities`), which may
    /// then ask something (`input_required`). `None`: none. The older eras declare them when a session begins.
    pub capabilities: Option<Arc<RawValue>>,
    /// Ask for progress: its notifications reach the relay with the params as they came. The token in
    /// them is ours, to be replaced by whoever passes them on.
    pub progress: bool,
    /// `_meta["io.modelcontextprotocol/logLevel"]`, for servers of 2026-07-28.
    pub log_level: Option<String>,
    /// Further members of the request's `_meta`, a JSON object: keys that no specification reserves.
    /// Ours win.
    pub meta: Option<Arc<RawValue>>,
    /// For the authority of the request: what is called. `None`: no tool.
    pub pinned: Option<PinnedTool>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub enum What {
    /// `tools/call`.
    Tool {
        /// The original name, as the server listed it.
        name: String,
        /// Sent as it is.
        arguments: Arc<RawValue>,
        /// The tool's pinned input schema: servers of 2026-07-28 may ask in it (`x-mcp-header`) that
        /// arguments are repeated as `Mcp-Param-*` headers. `None`: nothing is repeated.
        input_schema: Option<Arc<RawValue>>,
        input: Option<Input>,
    },
    /// `resources/read`, `prompts/get`, `completion/complete`, `resources/list` or any other method.
    Request {
        method: &'static str,
        /// A JSON object as the client wrote it: each value is sent as it is, unknown members too.
        /// `_meta`, `inputResponses` and `requestState` in it are left out; they have their own
        /// places. `None`: no params, where the era allows that.
        params: Option<Arc<RawValue>>,
        input: Option<Input>,
    },
}

/// The second and later rounds of a request that was answered with `input_required` (2026-07-28,
/// basic/patterns/mrtr).
#[derive(Debug, Clone)]
pub struct Input {
    /// `inputResponses`; `None` where the server asked nothing and only wants to be asked again.
    pub responses: Option<Arc<RawValue>>,
    /// `requestState` exactly as it came; `None` where none came.
    pub state: Option<String>,
}

/// The server's answer to a call, `isError` or not.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The JSON object `result`, exactly as received.
    pub raw: Bytes,
    /// Requests made for this call; 1 for a warm one.
    pub upstream_requests: u32,
    /// It is an `InputRequiredResult`: not the end. Only where the call declared capabilities.
    pub input_required: bool,
}

/// A call without an answer.
#[derive(Debug)]
pub struct CallFailure {
    pub error: Error,
    pub ran: Ran,
    /// Where the server refused in protocol.
    pub rpc: Option<Rpc>,
}

/// A JSON-RPC error of a server: a peer's words, untrusted.
#[derive(Debug, Clone)]
pub struct Rpc {
    pub code: i64,
    /// Bounded and cleaned.
    pub message: String,
    /// `data` as it came, up to [`ERROR_DATA_BYTES`](domain::limits::ERROR_DATA_BYTES); nothing of a
    /// larger one, nor of one that repeats a secret of ours.
    pub data: Option<Box<RawValue>>,
}

impl CallFailure {
    pub(super) fn not_run(error: Error) -> Self {
        Self { error, ran: Ran::No, rpc: None }
    }
}

impl From<Failure> for CallFailure {
    fn from(Failure { error, ran }: Failure) -> Self {
        Self { error, ran, rpc: None }
    }
}
