//! Trying a server out: connect, list its tools, change nothing.

use std::{collections::HashSet, time::Duration};

use coordination::{Entry, Group, Queue, Slot};
use domain::{
    Caller, Code, Error, Role, Scope,
    json::Sha256Digest,
    limits,
    server::{Contact, ServerStatus, Transport},
    tool::{Definition, Pin, UnusableTool, visible_text},
};
use outbound::{
    mcp::{Discovery, Target},
    stdio::is_about_program,
};
use serde::Serialize;
use serde_json::{json, value::RawValue};
use store::{Tx, calls::OwnConnection, servers::Server};
use tokio::time::Instant;

use super::{configures, find, hold, lock, one_configured};
use crate::{
    Ctx, audit,
    authority::Who,
    connections::personal,
    discovery,
    target::{Aim, Stored, target},
};

/// What a check found out.
#[derive(Debug)]
pub struct Checked {
    /// `Ready` or `Error`.
    pub status: ServerStatus,
    /// Code and words of ours.
    pub error: Option<(Code, String)>,
    pub duration: Duration,
    /// Whom the check contacted, and with what; for superadmins.
    pub contact: Option<Contact>,
    /// What the server lists; for others than superadmins what is approved of it.
    pub tools: Vec<CheckedTool>,
}

/// A tool as the server lists it now.
#[derive(Debug)]
pub struct CheckedTool {
    /// As the server calls it, where it can be read.
    pub name: Option<String>,
    pub description: Option<String>,
    pub input_schema: Option<Box<RawValue>>,
    /// Why it could not be used; public words.
    pub problem: Option<String>,
}

/// Whether somebody looked at what a check of an imported server would contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Nobody did: the first check answers what there is to agree to.
    Ask,
    /// The caller did, at the configuration of this revision.
    Confirmed { config_revision: i64 },
}

/// What somebody is asked to agree to.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToConfirm<'a> {
    /// The agreement must name it: a configuration that was changed since then was not shown.
    config_revision: i64,
    #[serde(flatten)]
    contact: &'a Contact,
}

/// Connects with a client of its own and lists the tools, whether or not the server is switched on.
/// A server that cannot be reached is an answer, not an error.
///
/// A superadmin's check writes the status, and nothing besides; anybody else's writes nothing, and
/// comes at most every [`limits::MEMBER_TEST_INTERVAL_MS`]: `LIMITED`. The check of an imported server
/// whose present configuration nobody agreed to is `CONFLICT` with `details.confirm`, which says what it
/// contacts. To agree takes the scope `approve` and the revision that was shown; another one by now is
/// `REVISION_CONFLICT`, with what there is to agree to instead.
pub async fn check(ctx: &Ctx, caller: &Caller, server: &str, asks: Asks) -> Result<Checked, Error> {
    try_out(ctx, caller, server, asks, What::Server).await
}

/// The same of the caller's own connection: it says nothing about the server, and writes nothing.
/// `CONFLICT` where the server needs no account of the caller's.
pub async fn check_own(ctx: &Ctx, caller: &Caller, server: &str) -> Result<Checked, Error> {
    caller.require_scope(Scope::Approve)?;
    try_out(ctx, caller, server, Asks::Ask, What::Connection).await
}

/// What is tried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Server,
    Connection,
}

async fn try_out(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    asks: Asks,
    what: What,
) -> Result<Checked, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = find(&mut tx, caller, server).await?;
    let configures = configures(caller);
    let _slot = if configures { None } else { Some(seldom(ctx, caller, &server)?) };
    // From here on what is shown, agreed to and contacted is one configuration.
    let mut server = match asks {
        Asks::Ask => hold(&mut tx, caller, server.id.as_str()).await?,
        Asks::Confirmed { .. } => lock(&mut tx, caller, server.id.as_str()).await?,
    };
    if what == What::Connection {
        personal(&server)?;
    }
    let contact = contact(&mut tx, &server).await?;
    if server.unconfirmed {
        confirm(ctx, &mut tx, caller, &mut server, &contact, asks).await?;
    }
    let aim = Aim { who: Some(Who::of(caller, None)), even_disabled: true };
    let target = load_target(ctx, &mut tx, &server, aim).await;
    let visible = if configures { None } else { Some(approved(&mut tx, &server).await?) };
    tx.commit().await?;

    let began = ctx.now();
    let clock = Instant::now();
    let found = match target {
        Ok(target) => {
            let deadline = clock + target.patience(limits::DISCOVERY_TIMEOUT_MS.millis());
            ctx.mcp.discover(&target, true, deadline).await
        }
        Err(error) => Err(error),
    };
    let duration = clock.elapsed();
    if let Err(error) = &found {
        if is_ours(error) {
            return Err(found.expect_err("it was just looked at"));
        }
        tracing::info!(server = %server.id, code = %error.code, "a server failed its check");
    }
    let told = found.as_ref().err().is_none_or(|error| !is_about_person(&server, error));
    if visible.is_none() && what == What::Server && told {
        discovery::save_status(ctx, caller.tenant, &server, began, found.as_ref().err()).await?;
    }
    let contact = configures.then_some(contact);
    match found {
        Ok(found) => Ok(Checked {
            status: ServerStatus::Ready,
            error: None,
            duration,
            contact,
            tools: shown(found, server.reach.transport, visible).await?,
        }),
        Err(error) => {
            let words = if configures { words(&error) } else { fixed_words(error.code).to_owned() };
            Ok(Checked {
                status: ServerStatus::Error,
                error: Some((error.code, words)),
                duration,
                contact,
                tools: Vec::new(),
            })
        }
    }
}

/// Each check makes a connection: not every second, for somebody who has nothing to set up.
fn seldom(ctx: &Ctx, caller: &Caller, server: &Server) -> Result<Slot, Error> {
    let pause = limits::MEMBER_TEST_INTERVAL_MS.millis();
    let group = Group {
        key: format!("test/{}/{}/{}", caller.tenant, server.id, caller.user),
        max_concurrent: 1,
        max_queue_depth: 0,
        queue_timeout: pause,
        min_interval: pause,
    };
    match ctx.admission.enter(&group, Queue::Bounded) {
        Entry::Admitted(slot) => Ok(slot),
        Entry::Queued(_) | Entry::Refused => {
            Err(Error::new(Code::Limited, "this server was tested a moment ago").retry_after(pause))
        }
    }
}

/// What a check contacts.
async fn contact(tx: &mut Tx, server: &Server) -> Result<Contact, Error> {
    let configured = one_configured(tx, server.clone()).await?;
    let reach = &configured.server.reach;
    Ok(Contact::of_stored(reach, &configured.env, &configured.headers, &configured.variables))
}

/// Asks before an imported server is contacted; `server` is locked where the caller agrees.
async fn confirm(
    ctx: &Ctx,
    tx: &mut Tx,
    caller: &Caller,
    server: &mut Server,
    contact: &Contact,
    asks: Asks,
) -> Result<(), Error> {
    let config_revision = server.config_revision;
    let asked = |code: Code, words: &str| {
        let confirm = ToConfirm { config_revision, contact };
        Err(Error::new(code, words).with_details(json!({ "confirm": confirm })))
    };
    let Asks::Confirmed { config_revision: seen } = asks else {
        let words = "this server was imported: look at what a test contacts, and confirm it";
        return asked(Code::Conflict, words);
    };
    // Whoever may look without configuring agrees to nothing.
    caller.require_role(Role::Superadmin)?;
    caller.require_scope(Scope::Approve)?;
    if seen != config_revision {
        let words = "what a test contacts is not what was confirmed: look at it again";
        return asked(Code::RevisionConflict, words);
    }
    server.unconfirmed = false;
    store::servers::save(tx, server).await?;
    let details = json!({ "configRevision": config_revision });
    audit::record(ctx, tx, caller, "server.confirmed", server.id.as_str(), details).await
}

/// The server's address and opened values.
pub(crate) async fn load_target(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &Server,
    aim: Aim,
) -> Result<Target, Error> {
    let values = store::servers::values(tx, &server.id).await?;
    let own = match aim.who.filter(|_| server.reach.auth_mode.is_personal()) {
        Some(who) => store::connections::find(tx, &server.id, who.user).await?,
        None => None,
    };
    let stored = Stored {
        tenant: tx.tenant(),
        server: &server.id,
        transport: server.reach.transport.as_str(),
        url: &server.reach.url,
        revision: server.config_revision,
        auth_mode: server.reach.auth_mode.as_str(),
        values: &values,
        api_key_header: server.reach.api_key_header.as_deref().unwrap_or_default(),
        own: own.map(|own| OwnConnection {
            generation: own.generation,
            state: own.state,
            reason: own.reason,
        }),
    };
    target(ctx, &stored, aim)
}

/// What a superadmin is told of a server that failed: of its configuration, which is ours, all; of what
/// it said, nothing.
pub(crate) fn words(error: &Error) -> String {
    if error.code == Code::ServerMisconfigured || is_about_program(error) {
        return error.public.clone();
    }
    fixed_words(error.code).to_owned()
}

/// A fault of this node says nothing about the server.
pub(crate) fn is_ours(error: &Error) -> bool {
    matches!(error.code, Code::Internal | Code::Unavailable)
}

/// Nor does it say anything about a server with personal connections that whoever asked has none, or
/// one with too few rights.
pub(crate) fn is_about_person(server: &Server, error: &Error) -> bool {
    server.reach.auth_mode.is_personal()
        && matches!(
            error.code,
            Code::ConnectionRequired | Code::ReconnectRequired | Code::InsufficientScope
        )
}

/// What is said about a server that failed, by code alone: its own words are not to be trusted.
pub(crate) fn fixed_words(code: Code) -> &'static str {
    match code {
        Code::Timeout => "the server did not answer in time",
        Code::UpstreamUnavailable => "the server could not be reached",
        Code::UpstreamFormat => "the server answered something else than MCP",
        Code::ResponseTooLarge => "the server answered more than is accepted",
        Code::Unauthorized => "the server refused the credential",
        Code::InsufficientScope | Code::Denied | Code::PermissionDenied => {
            "the server refused access"
        }
        Code::NotFound => "there is no MCP server at this address",
        Code::RateLimited => "the server says that it was asked too often",
        Code::CredentialsUnreadable => "a stored secret of the server cannot be opened",
        Code::ServerMisconfigured => "the configuration cannot be used as it stands",
        _ => "the check failed",
    }
}

/// The definitions that others than superadmins may see.
async fn approved(tx: &mut Tx, server: &Server) -> Result<HashSet<Sha256Digest>, Error> {
    let tools = store::tools::of_server(tx, &server.id).await?;
    let usable = tools
        .iter()
        .filter(|tool| tool.enabled && tool.known.pin == Pin::Approved && !tool.known.removed);
    Ok(usable.filter_map(|tool| tool.known.approved()).map(|pinned| pinned.hash).collect())
}

/// Reading definitions compiles their schemas: off the async threads.
async fn shown(
    found: Discovery,
    transport: Transport,
    visible: Option<HashSet<Sha256Digest>>,
) -> Result<Vec<CheckedTool>, Error> {
    let read = move || {
        let read = |raw: &RawValue| discovery::read_tool(raw.get(), transport, &found);
        let tools = found.tools.iter().map(|raw| read(raw));
        let tools = tools.filter(|tool| match (&visible, tool) {
            (None, _) => true,
            (Some(visible), Ok(definition)) => visible.contains(&definition.hash),
            (Some(_), Err(_)) => false,
        });
        tools.map(CheckedTool::from).collect()
    };
    tokio::task::spawn_blocking(read).await.map_err(Error::internal)
}

impl From<Result<Definition, UnusableTool>> for CheckedTool {
    fn from(tool: Result<Definition, UnusableTool>) -> Self {
        match tool {
            Ok(definition) => Self {
                name: Some(definition.name),
                description: definition.description.as_deref().map(visible_text),
                input_schema: RawValue::from_string(definition.input_schema).ok(),
                problem: None,
            },
            Err(unusable) => Self {
                name: unusable.shown_name(),
                description: None,
                input_schema: None,
                problem: Some(unusable.problem.to_string()),
            },
        }
    }
}
