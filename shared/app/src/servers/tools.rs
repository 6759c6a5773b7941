//! A server's tools: what is known of them, their switches and policies.

use domain::{
    Caller, Code, Error, Role, Scope, ids::ToolId, json::Sha256Digest, limits,
    permission::ToolPolicy,
};
use serde_json::json;
pub use store::tools::Tool;
use store::tools::Wanted;

use super::{configures, find, grants, lock};
use crate::{Ctx, audit, discovery, events};

/// What a superadmin sets on a tool; `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolChange {
    pub enabled: Option<bool>,
    pub policy: Option<ToolPolicy>,
}

/// How a refresh went.
#[derive(Debug)]
pub enum Refreshed {
    /// It ended; these are the tools now.
    Ended(Vec<Tool>),
    /// It goes on without its caller.
    Running,
}

/// A page of the tools that a server lists, by id: all of them, with pins and problems, for
/// superadmins; for others those that agents may see, of a server that is switched on.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    after: Option<&ToolId>,
    rows: i64,
) -> Result<Vec<Tool>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = find(&mut tx, caller, server).await?;
    let wanted = Wanted { usable: !configures(caller), after, rows };
    let tools = store::tools::page(&mut tx, &server.id, wanted).await?;
    tx.commit().await?;
    Ok(tools)
}

/// Asks an enabled server for its tools now. For superadmins.
///
/// `SOURCE_DISABLED` for one that is switched off; whatever stopped the discovery, in fixed words.
/// It goes on when its caller leaves, and after [`limits::DISCOVERY_TIMEOUT_MS`].
pub async fn refresh(ctx: &Ctx, caller: &Caller, server: &str) -> Result<Refreshed, Error> {
    caller.require_role(Role::Superadmin)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = find(&mut tx, caller, server).await?;
    tx.commit().await?;
    if !server.enabled {
        return Err(Error::new(Code::SourceDisabled, "the server is switched off"));
    }
    let (own, tenant, id) = (ctx.clone(), caller.tenant, server.id.clone());
    let person = server.reach.auth_mode.is_personal().then_some(caller.user);
    let work = ctx.tasks.spawn(async move { discovery::run(&own, tenant, &id, person).await });
    let Ok(ended) = tokio::time::timeout(limits::DISCOVERY_TIMEOUT_MS.millis(), work).await else {
        return Ok(Refreshed::Running);
    };
    if let Err(error) = ended.map_err(Error::internal)? {
        return Err(in_fixed_words(error));
    }
    let all = i64::try_from(limits::TOOLS_PER_SERVER.ceiling).unwrap_or(i64::MAX);
    Ok(Refreshed::Ended(list(ctx, caller, server.id.as_str(), None, all).await?))
}

fn in_fixed_words(error: Error) -> Error {
    if super::is_ours(&error) {
        return error;
    }
    Error::new(error.code, super::words(&error)).because(error)
}

/// Releases a tool from quarantine, with the definition that the person saw; idempotent. For
/// superadmins with the scope `approve`.
///
/// `CONFLICT` where another definition waits by now, or none. Grants on another definition of the tool
/// end: they were given to something else.
pub async fn approve(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    tool: &ToolId,
    seen: Sha256Digest,
) -> Result<Tool, Error> {
    caller.require_role(Role::Superadmin)?;
    caller.require_scope(Scope::Approve)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = lock(&mut tx, caller, server).await?;
    let found = store::tools::lock(&mut tx, &server.id, tool).await?;
    let found = found.filter(|tool| !tool.known.removed);
    let mut tool = found.ok_or_else(|| Error::not_found("tool"))?;
    let before = tool.known.clone();
    tool.known = tool.known.approve(seen)?;
    let mut revoked = Vec::new();
    if tool.known != before {
        let id = &tool.known.tool_id;
        store::tools::save(&mut tx, &server.id, &tool.known).await?;
        let class = format!("{}/{id}", server.id);
        revoked = grants::revoke_other_definitions(ctx, &mut tx, &class, seen).await?;
        let details = json!({
            "definitionHash": seen,
            "before": before.approved().map(|pinned| pinned.hash),
            "sessionsWithGrants": revoked.len(),
        });
        audit::record(ctx, &mut tx, caller, "tool.approved", &class, details).await?;
    }
    tx.commit().await?;
    for session in revoked {
        events::hint(ctx, session);
    }
    Ok(tool)
}

/// Switches a tool, or sets its policy. For superadmins; idempotent.
///
/// A policy, and switching a tool on, are approvals: they need the scope `approve`.
pub async fn change(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    tool: &ToolId,
    change: ToolChange,
) -> Result<Tool, Error> {
    caller.require_role(Role::Superadmin)?;
    if change.policy.is_some() || change.enabled == Some(true) {
        caller.require_scope(Scope::Approve)?;
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = lock(&mut tx, caller, server).await?;
    let found = store::tools::lock(&mut tx, &server.id, tool).await?;
    let mut tool = found.ok_or_else(|| Error::not_found("tool"))?;
    let before = (tool.enabled, tool.policy);
    tool.enabled = change.enabled.unwrap_or(tool.enabled);
    tool.policy = change.policy.unwrap_or(tool.policy);
    if before != (tool.enabled, tool.policy) {
        let id = &tool.known.tool_id;
        store::tools::save_switches(&mut tx, &server.id, id, tool.enabled, tool.policy).await?;
        let details = json!({ "enabled": tool.enabled, "policy": tool.policy });
        let subject = format!("{}/{id}", server.id);
        audit::record(ctx, &mut tx, caller, "tool.updated", &subject, details).await?;
    }
    tx.commit().await?;
    Ok(tool)
}
