//! One governed call: `waiting → queued → running → succeeded | failed | cancelled`.

use serde::{Deserialize, Serialize};

use crate::{
    Code, Error,
    caller::names,
    ids::{ServerId, ToolId, UserId},
    json::Sha256Digest,
};

/// Where a call stands. The last three are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// For a person.
    Waiting,
    /// For a slot of the server.
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

names!(Status, "status", Waiting => "waiting", Queued => "queued", Running => "running",
    Succeeded => "succeeded", Failed => "failed", Cancelled => "cancelled");

impl Status {
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// Who asked for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Run,
    Gateway,
    Inspector,
}

names!(Origin, "origin", Run => "run", Gateway => "gateway", Inspector => "inspector");

/// What the broker calls of a server besides its tools. No tool can have one of these ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PseudoTool {
    /// `resources/read`.
    #[serde(rename = "resource.read")]
    ResourceRead,
    /// `prompts/get`.
    #[serde(rename = "prompt.get")]
    PromptGet,
    /// `completion/complete`.
    #[serde(rename = "completion")]
    Completion,
}

names!(PseudoTool, "pseudo-tool", ResourceRead => "resource.read", PromptGet => "prompt.get",
    Completion => "completion");

/// What a call was resolved to, fixed at that moment and compared at every send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogEntry {
    pub server: ServerId,
    pub tool: ToolId,
    /// Goes on the wire.
    pub original_name: String,
    pub user: UserId,
    pub config_revision: i64,
    pub auth_mode: String,
    /// `None`: a [`PseudoTool`], which has no definition.
    pub definition_hash: Option<Sha256Digest>,
}

/// The present state of what an entry names, read in one query before anything is sent.
#[derive(Debug, Clone)]
pub struct ReadBack {
    /// The person, and the token that the call came with.
    pub user_active: bool,
    /// `None`: the server is gone.
    pub server: Option<ServerNow>,
}

/// See [`ReadBack`].
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, compared by name")]
pub struct ServerNow {
    pub enabled: bool,
    pub config_revision: i64,
    pub auth_mode: String,
    pub tool_present: bool,
    pub tool_enabled: bool,
    pub tool_denied: bool,
    pub tool_approved: bool,
    pub definition_hash: Option<Sha256Digest>,
}

impl CatalogEntry {
    /// Whether the call may still be sent as it was resolved.
    pub fn still_holds(&self, now: &ReadBack) -> Result<(), Error> {
        now.person_holds()?;
        let server = now.server_holds(self.config_revision, &self.auth_mode)?;
        server.is_on()?;
        self.definition_hash.map_or(Ok(()), |hash| server.tool_holds(hash))
    }
}

impl ReadBack {
    /// Refuses (`PERMISSION_DENIED`) for a person or token that may do nothing any more.
    pub fn person_holds(&self) -> Result<(), Error> {
        if self.user_active {
            return Ok(());
        }
        let words = "this account is disabled, or its token is no longer valid";
        Err(Error::new(Code::PermissionDenied, words))
    }

    /// The server, if it is still configured as it was (`SERVER_CHANGED`).
    pub fn server_holds(&self, revision: i64, auth_mode: &str) -> Result<&ServerNow, Error> {
        let Some(server) = &self.server else {
            return Err(Error::new(Code::ServerChanged, "the server was removed"));
        };
        if server.config_revision != revision || server.auth_mode != auth_mode {
            let words = "the server's configuration changed since this call was resolved";
            return Err(Error::new(Code::ServerChanged, words));
        }
        Ok(server)
    }
}

impl ServerNow {
    /// Refuses with `SOURCE_DISABLED`.
    pub fn is_on(&self) -> Result<(), Error> {
        if self.enabled {
            return Ok(());
        }
        Err(Error::new(Code::SourceDisabled, "the server is switched off"))
    }

    /// Whether its tool is still the one that was approved, and may be called.
    pub fn tool_holds(&self, definition_hash: Sha256Digest) -> Result<(), Error> {
        if !self.tool_present {
            return Err(Error::new(Code::ToolChanged, "the tool is no longer offered"));
        }
        if !self.tool_enabled {
            return Err(Error::new(Code::SourceDisabled, "the tool is switched off"));
        }
        if self.tool_denied {
            return Err(Error::new(Code::PermissionDenied, "the tool is denied by policy"));
        }
        if !self.tool_approved || self.definition_hash != Some(definition_hash) {
            let words = "the tool's definition differs from the approved one";
            return Err(Error::new(Code::ToolChanged, words));
        }
        Ok(())
    }
}
