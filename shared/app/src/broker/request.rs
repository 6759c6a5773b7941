//! What somebody asks of the broker, and what they get.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{
    Error,
    ids::{ExecutionId, InvocationId, PermissionRequestId, ServerId, SessionId, ToolId},
    invocation::{Origin, PseudoTool},
};
use serde_json::value::RawValue;

use crate::through::{InputRequired, Upstream};

/// What somebody asks for.
#[derive(Debug)]
pub struct CallRequest {
    pub session: SessionId,
    pub asked: Asked,
    /// The JSON of a tool's arguments as it came, which goes to the server byte for byte; of a
    /// pseudo-tool, its params.
    pub arguments: Box<RawValue>,
    pub execution: ExecutionId,
    /// The asker's own id of the call, unique within the execution.
    pub call_id: String,
    pub origin: Origin,
    /// What the call may reach whatever is selected, for the Inspector, which changes no selection.
    /// `None`: the session's effective selection.
    pub allowed_source_ids: Option<Vec<ServerId>>,
    pub asking: Asking,
    /// What else the call must fit, once its tool is known.
    pub fits: Option<Fits>,
    /// What the server learns of the client, and where its words go meanwhile.
    pub upstream: Upstream,
    /// What the client answers to the server's questions: `inputResponses` of this very request, JSON.
    pub responses: Option<Arc<RawValue>>,
    /// Closing the stream cancels the call (2026-07-28); otherwise it goes on without its caller.
    pub cancel_on_hang_up: bool,
}

/// What is called. Everything is looked up, nothing parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A tool, as `tools/list` gave it.
    Agent(String),
    /// A tool, as its server calls it (Inspector, pass-through).
    Original { server: ServerId, name: String },
    /// Something of a server that is no tool.
    Pseudo { server: ServerId, tool: PseudoTool },
}

impl Asked {
    /// The name that the record keeps.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Agent(name) | Self::Original { name, .. } => name,
            Self::Pseudo { tool, .. } => tool.as_str(),
        }
    }
}

/// What becomes of the caller while a person is asked.
#[derive(Debug, Clone)]
pub enum Asking {
    /// It is held. With `attach`, an identical earlier question that nobody holds any more is taken
    /// over.
    Hold { attach: bool },
    /// After `hold` it is answered that the call waits, and comes back with [`Resume`]. (That the server
    /// asks something is answered at once, whoever asks how.)
    Return { hold: Duration, resume: Option<Resume> },
}

impl Asking {
    pub(super) fn resume(&self) -> Option<&Resume> {
        match self {
            Self::Return { resume, .. } => resume.as_ref(),
            Self::Hold { .. } => None,
        }
    }
}

/// Looks at the input schema of a tool, as it was approved, before the input is checked and anybody is
/// asked. Its error ends the call.
pub struct Fits(pub Box<Fit>);

/// See [`Fits`].
pub type Fit = dyn Fn(&RawValue) -> Result<(), Error> + Send + Sync;

impl fmt::Debug for Fits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fits")
    }
}

/// A caller that comes back to a call.
#[derive(Debug, Clone)]
pub struct Resume {
    /// [`Waiting::state`] or [`Inquiry::state`], as it was given out.
    pub state: String,
    /// No person is to be asked any more whether the call may happen, or what the server asked has no
    /// answer: it ends.
    pub declined: bool,
}

/// A call that left its record.
#[derive(Debug)]
pub struct Called {
    pub invocation: InvocationId,
    /// What was asked for led to a tool or server.
    pub known: bool,
    /// A refusal of ours may carry structured content: the tool promises none of its own, against
    /// which clients would check it.
    pub plain: bool,
    /// Code and words of a JSON-RPC error, where the server refused in protocol. The words are the
    /// peer's: bounded and cleaned, but untrusted.
    pub rpc: Option<outbound::mcp::Rpc>,
    pub outcome: Result<Outcome, Error>,
}

/// What came of a call that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done(CallResult),
    /// A person is asked, and nobody holds the line; the record is still open.
    Waiting(Waiting),
    /// The server asks the client something (2026-07-28); the record is still open, too.
    Inquiry(Inquiry),
}

/// What the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// The JSON of the MCP result as the server sent it, a tool's own `isError` included.
    pub raw: Bytes,
    /// The JSON of the normalised result.
    pub normalised: Bytes,
    /// The tool says that it failed.
    pub is_error: bool,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub question: PermissionRequestId,
    /// Whoever made the call, and nobody else, comes back with this.
    pub state: String,
    pub tool: ToolId,
    pub server_name: String,
}

/// A call that goes on when its client has answered the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// What the server asks, as the client may see it.
    pub input: InputRequired,
    /// Whoever made the call, and nobody else, comes back with this; the server's own is in it.
    pub state: String,
}
