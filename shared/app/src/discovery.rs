//! What a server's tools are: asked of the server, compared with what is pinned, pinned.

use std::collections::HashSet;

use domain::{
    Error, Timestamp,
    ids::{ServerId, TenantId, ToolId, UserId},
    limits,
    server::{ServerStatus, Transport},
    tool::{
        Definition, KnownTool, Pin, ToolChange, ToolProblem, UnusableTool, agent_name, reconcile,
    },
};
use outbound::mcp::Discovery;
use serde_json::json;
use store::{Tx, servers::Server, tools::Tool};
use tokio::time::Instant;

use crate::{
    Ctx, audit,
    authority::Who,
    builtin,
    servers::{is_about_person, is_ours, load_target, words},
    target::Aim,
};

/// How a discovery ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovered {
    /// The tools are pinned as the server lists them now.
    Pinned,
    /// The server was configured anew, or a later discovery was faster: the answer was dropped.
    Superseded,
    /// There is no such server, it is switched off, or speaks to people alone: nobody was asked.
    NotWanted,
}

/// Asks an enabled server for its tools and pins what it answers.
///
/// A server with personal connections is asked as `person`, with their account; any other as nobody.
///
/// The first discovery approves; later a changed tool is quarantined, and a new one unless the tenant
/// trusts new tools. A failure keeps tools and pins as they are, is written as the server's status,
/// and is answered with the retry class of its cause.
pub async fn run(
    ctx: &Ctx,
    tenant: TenantId,
    server: &ServerId,
    person: Option<UserId>,
) -> Result<Discovered, Error> {
    let mut tx = ctx.begin(tenant).await?;
    let found = store::servers::find(&mut tx, server.as_str()).await?;
    let Some(server) = found.filter(|found| found.id == *server && found.enabled) else {
        return Ok(Discovered::NotWanted);
    };
    if person.is_none() && server.reach.auth_mode.is_personal() {
        // It speaks to people alone: a superadmin who connects has it asked.
        return Ok(Discovered::NotWanted);
    }
    let who = person.map(|user| Who { user, token: None, session: None });
    let target = load_target(ctx, &mut tx, &server, Aim { who, even_disabled: false }).await;
    tx.commit().await?;
    if let Some(built_in) = domain::builtin::find(&server.id) {
        // Code says what its tools are.
        builtin::sync_one(ctx, tenant, built_in).await?;
        return Ok(Discovered::Pinned);
    }

    let began = ctx.now();
    let answer = match target {
        Ok(target) => {
            let patience = target.patience(limits::DISCOVERY_TIMEOUT_MS.millis());
            let deadline = Instant::now() + patience;
            ctx.mcp.discover(&target, false, deadline).await
        }
        Err(error) => Err(error),
    };
    match answer {
        Ok(answer) => pin(ctx, tenant, &server, began, answer).await,
        Err(error) => {
            if !is_ours(&error) && !is_about_person(&server, &error) {
                save_status(ctx, tenant, &server, began, Some(&error)).await?;
            }
            Err(error)
        }
    }
}

/// Writes what was found out about the server, unless it was configured anew since it was `asked`, or
/// something later is known. False: nothing was written.
pub(crate) async fn save_status(
    ctx: &Ctx,
    tenant: TenantId,
    asked: &Server,
    began: Timestamp,
    failed: Option<&Error>,
) -> Result<bool, Error> {
    let mut tx = ctx.begin(tenant).await?;
    let Some(mut server) = lock_unchanged(&mut tx, asked, began).await? else {
        return Ok(false);
    };
    server.checked_at = Some(began);
    server.status = if failed.is_some() { ServerStatus::Error } else { ServerStatus::Ready };
    server.status_error = failed.map(words);
    store::servers::save(&mut tx, &server).await?;
    tx.commit().await?;
    Ok(true)
}

async fn lock_unchanged(
    tx: &mut Tx,
    asked: &Server,
    began: Timestamp,
) -> Result<Option<Server>, Error> {
    let server = store::servers::lock(tx, asked.id.as_str()).await?;
    Ok(server.filter(|server| {
        server.id == asked.id
            && server.config_revision == asked.config_revision
            && server.checked_at.is_none_or(|checked| checked <= began)
    }))
}

async fn pin(
    ctx: &Ctx,
    tenant: TenantId,
    asked: &Server,
    began: Timestamp,
    answer: Discovery,
) -> Result<Discovered, Error> {
    let truncated = answer.truncated;
    let reach = asked.reach.transport;
    // Reading definitions compiles their schemas: off the async threads.
    let seen = tokio::task::spawn_blocking(move || {
        answer.tools.iter().map(|raw| read(raw.get(), reach, &answer)).collect::<Vec<_>>()
    });
    let seen = seen.await.map_err(Error::internal)?;

    let mut tx = ctx.begin(tenant).await?;
    let Some(mut server) = lock_unchanged(&mut tx, asked, began).await? else {
        return Ok(Discovered::Superseded);
    };
    let tools = store::tools::of_server(&mut tx, &server.id).await?;
    let known: Vec<KnownTool> = tools.iter().map(|tool| tool.known.clone()).collect();
    let tenant_row = store::tenants::get(&mut tx).await?;
    let trusts = tenant_row.is_some_and(|tenant| tenant.auto_approve_new_tools);
    let found = reconcile(&known, seen, trusts, server.pinned_at.is_none());
    save_changes(ctx, &mut tx, &server, &found.changes).await?;
    record_changes(ctx, &mut tx, &server, &tools, &found.changes).await?;
    server.checked_at = Some(began);
    server.pinned_at = server.pinned_at.or(Some(began));
    server.status = ServerStatus::Ready;
    server.status_error = incomplete(truncated, &found.problems);
    store::servers::save(&mut tx, &server).await?;
    tx.commit().await?;
    Ok(Discovered::Pinned)
}

/// One tool of a server's list, as it could be called.
pub(crate) fn read_tool(
    raw: &str,
    transport: Transport,
    list: &Discovery,
) -> Result<Definition, UnusableTool> {
    if transport == Transport::Http && list.protocol_version == MIRRORING {
        Definition::parse_with_headers(raw)
    } else {
        Definition::parse(raw)
    }
}

/// The version in which arguments are repeated in headers.
const MIRRORING: &str = "2026-07-28";

/// The database keeps no NUL, so a name with one is no name.
fn read(raw: &str, transport: Transport, list: &Discovery) -> Result<Definition, UnusableTool> {
    let nameless = || UnusableTool { name: None, definition: None, problem: ToolProblem::NoName };
    match read_tool(raw, transport, list) {
        Ok(definition) if definition.name.contains('\0') => Err(nameless()),
        Err(unusable @ UnusableTool { problem: ToolProblem::Header(..), .. }) => {
            let (tool, problem) = (unusable.shown_name(), &unusable.problem);
            tracing::warn!(tool, %problem, "a tool is left out");
            Err(unusable)
        }
        Err(unusable) if unusable.name.as_deref().is_some_and(|name| name.contains('\0')) => {
            Err(nameless())
        }
        read => read,
    }
}

/// What a superadmin should know of a list that could not be taken as a whole.
fn incomplete(truncated: bool, problems: &[ToolProblem]) -> Option<String> {
    if truncated {
        let (tools, pages) = (limits::TOOLS_PER_SERVER.default, limits::TOOL_PAGES.default);
        return Some(format!(
            "the server lists more than {tools} tools or {pages} pages; the rest is left out"
        ));
    }
    let count = problems.len();
    (count > 0).then(|| format!("{count} tools are left out: they have no usable name"))
}

pub(crate) async fn save_changes(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &Server,
    changes: &[ToolChange],
) -> Result<(), Error> {
    let now = ctx.now();
    for change in changes {
        match change {
            ToolChange::Added(tool) => {
                let name = agent_name(&server.slug, &server.id, &tool.tool_id);
                store::tools::insert(tx, &server.id, tool, &name, now).await?;
            }
            ToolChange::Changed(tool) => store::tools::save(tx, &server.id, tool).await?,
            ToolChange::Removed(tool) => {
                store::tools::mark_removed(tx, &server.id, tool, now).await?;
            }
        }
    }
    Ok(())
}

/// Leaves a record of what a discovery changed, and one more of what it put into quarantine.
pub(crate) async fn record_changes(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &Server,
    before: &[Tool],
    changes: &[ToolChange],
) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let count = |wanted: fn(&ToolChange) -> bool| changes.iter().filter(|one| wanted(one)).count();
    let details = json!({
        "added": count(|change| matches!(change, ToolChange::Added(_))),
        "changed": count(|change| matches!(change, ToolChange::Changed(_))),
        "removed": count(|change| matches!(change, ToolChange::Removed(_))),
    });
    audit::record_service(ctx, tx, "server.tools_pinned", server.id.as_str(), details).await?;
    let was: HashSet<&ToolId> = before
        .iter()
        .filter(|tool| tool.known.pin == Pin::Quarantined)
        .map(|tool| &tool.known.tool_id)
        .collect();
    let quarantined: Vec<&ToolId> = changes
        .iter()
        .filter_map(|change| match change {
            ToolChange::Added(tool) | ToolChange::Changed(tool) => Some(tool),
            ToolChange::Removed(_) => None,
        })
        .filter(|tool| tool.pin == Pin::Quarantined && !was.contains(&tool.tool_id))
        .map(|tool| &tool.tool_id)
        .collect();
    if quarantined.is_empty() {
        return Ok(());
    }
    tracing::warn!(server = %server.id, count = quarantined.len(), "tools were put into quarantine");
    let details = json!({ "tools": quarantined });
    audit::record_service(ctx, tx, "server.tools_quarantined", server.id.as_str(), details).await
}
