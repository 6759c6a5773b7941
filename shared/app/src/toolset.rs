//! Which tools a session has: what the gateway lists, and what a run is given.

use std::{collections::HashMap, sync::Arc};

use domain::{
    Caller, Error,
    connection::ConnectionState,
    ids::{ServerId, SessionId, ToolId},
    session::effective_selection,
};
use serde_json::value::RawValue;
use store::tools::UsableTool;

use crate::{Ctx, connections, definitions::DefinitionCache};

/// A tool as an agent sees it.
#[derive(Debug)]
pub struct ListedTool {
    pub server: ServerId,
    pub tool: ToolId,
    /// `mcp__<source>__<tool>`; what a call names.
    pub agent_name: String,
    /// The definition under that name.
    pub definition: Arc<RawValue>,
    /// The server is used with an account of the caller's own, and there is none now.
    pub connection_required: bool,
}

/// The tools that the caller may call in a session of their own, by agent name: of the servers of its
/// effective selection, switched on, approved and not denied by policy, within the token's reach.
///
/// `sources` narrows to these ids or slugs; one that is not there adds nothing. `NOT_FOUND` for a
/// session that is not the caller's.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    sources: Option<&[String]>,
) -> Result<Vec<ListedTool>, Error> {
    let unknown = || Error::not_found("session");
    if !caller.reach.covers_session(session) {
        return Err(unknown());
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    let lists = store::sessions::selection(&mut tx, session, caller.user).await?;
    let lists = lists.ok_or_else(unknown)?;
    let selection =
        effective_selection(&lists.tenant, lists.project.as_deref(), lists.session.as_deref());
    let tools = store::tools::usable(&mut tx, selection).await?;
    let personal = tools.iter().any(|tool| tool.auth_mode.is_personal());
    let own = if personal {
        connections::states(ctx, &mut tx, caller.user).await?
    } else {
        HashMap::new()
    };
    tx.commit().await?;

    let within_reach = |tool: &UsableTool| {
        caller.reach.covers_source(&tool.server)
            && caller.reach.covers_tool(&tool.agent_name)
            && sources.is_none_or(|sources| {
                sources.iter().any(|name| *name == tool.slug || name == tool.server.as_str())
            })
    };
    let tools: Vec<UsableTool> = tools.into_iter().filter(within_reach).collect();
    // Reading a definition for the first time compiles its schemas: off the async threads.
    let definitions = ctx.definitions.clone();
    let list = tokio::task::spawn_blocking(move || {
        tools.into_iter().filter_map(|tool| render(&definitions, tool, &own)).collect()
    });
    list.await.map_err(Error::internal)
}

/// `None` for a definition that an earlier version approved and this one cannot use.
fn render(
    definitions: &DefinitionCache,
    tool: UsableTool,
    own: &HashMap<ServerId, ConnectionState>,
) -> Option<ListedTool> {
    let connected = own.get(&tool.server) == Some(&ConnectionState::Connected);
    match definitions.listed(tool.definition_hash, &tool.agent_name, &tool.definition) {
        Ok(definition) => Some(ListedTool {
            definition,
            connection_required: tool.auth_mode.is_personal() && !connected,
            server: tool.server,
            tool: tool.tool,
            agent_name: tool.agent_name,
        }),
        Err(problem) => {
            let problem = problem.to_string();
            tracing::warn!(server = %tool.server, tool = %tool.tool, problem, "an approved tool is unusable");
            None
        }
    }
}
