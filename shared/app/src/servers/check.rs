//! Trying a server out: connect, list its tools, change nothing.

use std::{collections::HashSet, time::Duration};

use domain::{
    Caller, Code, Error,
    json::Sha256Digest,
    limits,
    server::ServerStatus,
    tool::{Definition, Pin, UnusableTool, visible_text},
};
use outbound::mcp::{Discovery, Target};
use serde_json::value::RawValue;
use store::{Tx, servers::Server};
use tokio::time::Instant;

use super::{configures, find};
use crate::{Ctx, discovery, target::target};

/// What a check found out.
#[derive(Debug)]
pub struct Checked {
    /// `Ready` or `Error`.
    pub status: ServerStatus,
    /// Code and fixed words of ours.
    pub error: Option<(Code, &'static str)>,
    pub duration: Duration,
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

/// Connects with a client of its own and lists the tools, whether or not the server is switched on.
/// A server that cannot be reached is an answer, not an error.
///
/// A superadmin's check writes the status, and nothing besides; anybody else's writes nothing.
pub async fn check(ctx: &Ctx, caller: &Caller, server: &str) -> Result<Checked, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = find(&mut tx, caller, server).await?;
    let target = load_target(ctx, &mut tx, &server).await;
    let visible = if configures(caller) { None } else { Some(approved(&mut tx, &server).await?) };
    tx.commit().await?;

    let began = ctx.now();
    let clock = Instant::now();
    let found = match target {
        Ok(target) => {
            let deadline = clock + limits::DISCOVERY_TIMEOUT_MS.millis();
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
    if visible.is_none() {
        discovery::save_status(ctx, caller.tenant, &server, began, found.as_ref().err()).await?;
    }
    match found {
        Ok(found) => Ok(Checked {
            status: ServerStatus::Ready,
            error: None,
            duration,
            tools: shown(found, visible).await?,
        }),
        Err(error) => Ok(Checked {
            status: ServerStatus::Error,
            error: Some((error.code, fixed_words(error.code))),
            duration,
            tools: Vec::new(),
        }),
    }
}

/// The server's address and opened headers.
pub(crate) async fn load_target(ctx: &Ctx, tx: &mut Tx, server: &Server) -> Result<Target, Error> {
    let headers = store::servers::sealed_headers(tx, &server.id).await?;
    target(
        &ctx.vault,
        tx.tenant(),
        &server.id,
        &server.reach.url,
        server.config_revision,
        server.reach.auth_mode.as_str(),
        &headers,
    )
}

/// A fault of this node says nothing about the server.
pub(crate) fn is_ours(error: &Error) -> bool {
    matches!(error.code, Code::Internal | Code::Unavailable)
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
    visible: Option<HashSet<Sha256Digest>>,
) -> Result<Vec<CheckedTool>, Error> {
    let read = move || {
        let tools = found.tools.iter().map(|raw| Definition::parse(raw.get()));
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
