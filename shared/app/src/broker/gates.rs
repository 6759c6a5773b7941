//! What a call has to pass before anybody is asked and anything is sent, in its order.
//!
//! One list for both: the broker stops at the first refusal, [`access`](crate::access) tells all of them.
//! Nothing here has an effect.

use domain::{
    Caller, Code, Error, Role,
    ids::{ServerId, SessionId},
    invocation::{Origin, PseudoTool},
    json::Sha256Digest,
    permission::{ApprovalMode, Situation, ToolPolicy, Verdict, decide},
    session::effective_selection,
};
use store::calls::{Context, ContextTool};

use super::Asked;

/// One thing that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The token that a call comes with, before the broker.
    Token,
    /// The token reaches the session.
    Session,
    Account,
    Archived,
    /// There is such a tool.
    Tool,
    Selection,
    /// The token reaches server and tool.
    Reach,
    ServerSwitch,
    ToolSwitch,
    Definition,
    Connection,
    Configuration,
    Input,
    Permission,
    Limits,
    /// The stored credential opens.
    Credential,
}

/// All that is known of a call before it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub caller: &'a Caller,
    pub session: SessionId,
    pub asked: &'a Asked,
    /// In the place of the effective selection.
    pub allowed: Option<&'a [ServerId]>,
    pub context: &'a Context,
}

impl Gate {
    pub const ALL: &[Self] = &[
        Self::Token,
        Self::Session,
        Self::Account,
        Self::Archived,
        Self::Tool,
        Self::Selection,
        Self::Reach,
        Self::ServerSwitch,
        Self::ToolSwitch,
        Self::Definition,
        Self::Connection,
        Self::Configuration,
        Self::Input,
        Self::Permission,
        Self::Limits,
        Self::Credential,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Session => "session",
            Self::Account => "account",
            Self::Archived => "archived",
            Self::Tool => "tool",
            Self::Selection => "selection",
            Self::Reach => "reach",
            Self::ServerSwitch => "server_switch",
            Self::ToolSwitch => "tool_switch",
            Self::Definition => "definition",
            Self::Connection => "connection",
            Self::Configuration => "configuration",
            Self::Input => "input",
            Self::Permission => "permission",
            Self::Limits => "limits",
            Self::Credential => "credential",
        }
    }
}

pub(crate) type Judge = fn(&View<'_>) -> Result<(), Error>;

/// Where it is refused here it was no call, and leaves no record.
pub(crate) const DOOR: &[(Gate, Judge)] =
    &[(Gate::Session, session), (Gate::Account, account), (Gate::Archived, not_archived)];

pub(crate) const WAY: &[(Gate, Judge)] = &[
    (Gate::Tool, known),
    (Gate::Selection, selected),
    (Gate::Reach, reached),
    (Gate::ServerSwitch, server_on),
    (Gate::ToolSwitch, tool_on),
    (Gate::Definition, approved),
];

/// The first refusal.
pub(super) fn pass(gates: &[(Gate, Judge)], view: &View<'_>) -> Result<(), Error> {
    gates.iter().try_for_each(|(_, judge)| judge(view))
}

fn session(view: &View<'_>) -> Result<(), Error> {
    let reached = view.caller.reach.covers_session(view.session);
    if reached { Ok(()) } else { Err(Error::not_found("session")) }
}

fn account(view: &View<'_>) -> Result<(), Error> {
    if view.context.user_active {
        return Ok(());
    }
    Err(Error::new(Code::Unauthenticated, "this account is disabled"))
}

fn not_archived(view: &View<'_>) -> Result<(), Error> {
    if !view.context.session_archived {
        return Ok(());
    }
    Err(Error::new(Code::SessionArchived, "the session is archived"))
}

impl View<'_> {
    fn pseudo(&self) -> Option<PseudoTool> {
        match self.asked {
            Asked::Pseudo { tool, .. } => Some(*tool),
            Asked::Agent(_) | Asked::Original { .. } => None,
        }
    }

    /// What this person does not see does not exist for them: one error for all of it.
    pub(super) fn unknown(&self) -> Error {
        Error::not_found(if self.pseudo().is_some() { "server" } else { "tool" })
    }
}

fn known(view: &View<'_>) -> Result<(), Error> {
    let there = view.context.tool.as_ref().is_some_and(|tool| !tool.removed);
    let known = view.context.server.is_some() && (view.pseudo().is_some() || there);
    if known { Ok(()) } else { Err(view.unknown()) }
}

fn selected(view: &View<'_>) -> Result<(), Error> {
    let context = view.context;
    let selection = view.allowed.unwrap_or_else(|| {
        effective_selection(
            &context.tenant_sources,
            context.project_sources.as_deref(),
            context.session_sources.as_deref(),
        )
    });
    let server = context.server.as_ref();
    let selected = server.is_some_and(|server| selection.contains(&server.server));
    if selected { Ok(()) } else { Err(view.unknown()) }
}

fn reached(view: &View<'_>) -> Result<(), Error> {
    let reach = &view.caller.reach;
    let server = view.context.server.as_ref();
    let source = server.is_some_and(|server| reach.covers_source(&server.server));
    let tool = match (view.pseudo(), &view.context.tool) {
        // A token of single tools reaches nothing else.
        (Some(_), _) => reach.tools.is_none(),
        (None, Some(tool)) => reach.covers_tool(&tool.agent_name),
        (None, None) => false,
    };
    if source && tool { Ok(()) } else { Err(view.unknown()) }
}

fn server_on(view: &View<'_>) -> Result<(), Error> {
    let server = view.context.server.as_ref().ok_or_else(|| view.unknown())?;
    if server.enabled {
        return Ok(());
    }
    Err(Error::new(Code::SourceDisabled, "the server is switched off"))
}

fn tool_on(view: &View<'_>) -> Result<(), Error> {
    if view.pseudo().is_some() {
        return Ok(());
    }
    let tool = view.context.tool.as_ref().ok_or_else(|| view.unknown())?;
    if tool.enabled {
        return Ok(());
    }
    Err(Error::new(Code::SourceDisabled, "the tool is switched off"))
}

fn approved(view: &View<'_>) -> Result<(), Error> {
    if view.pseudo().is_some() {
        return Ok(());
    }
    let tool = view.context.tool.as_ref().ok_or_else(|| view.unknown())?;
    definition(tool, view.caller).map(|_| ())
}

/// The approved definition of a tool.
pub(super) fn definition(tool: &ContextTool, caller: &Caller) -> Result<Sha256Digest, Error> {
    tool.definition_hash.filter(|_| tool.approved).ok_or_else(|| {
        let hint = if caller.role == Role::Superadmin {
            "the tool's definition differs from the approved one: look at it in the server's tools"
        } else {
            "the tool's definition differs from the approved one: a superadmin must look at it"
        };
        Error::new(Code::ToolChanged, hint)
    })
}

/// Whether a call may happen, by rule or by asking.
pub(crate) fn permission(
    policy: ToolPolicy,
    mode: ApprovalMode,
    origin: Origin,
    granted: bool,
) -> Verdict {
    decide(Situation {
        policy,
        mode,
        inspector: origin == Origin::Inspector,
        // Whatever a custom server is asked for is, whatever its annotations say.
        dangerous: true,
        granted,
    })
}

/// What a call says that the policy denies.
pub(crate) fn denied_by_policy() -> Error {
    Error::new(Code::PermissionDenied, "the tool is denied by policy")
}
