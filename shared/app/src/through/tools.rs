//! The pinned tools of one server under its own names.

use std::sync::Arc;

use domain::{Caller, Error, json::Sha256Digest};
use serde::Deserialize;
use serde_json::value::RawValue;
use store::tools::UsableTool;

use super::Source;
use crate::{Ctx, definitions::DefinitionCache};

/// Definitions as they were approved, of the tools that the caller may call: switched on, approved,
/// not denied by policy, within the token's reach.
pub async fn tools(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
) -> Result<Vec<Arc<RawValue>>, Error> {
    let usable = usable(ctx, caller, source).await?;
    let definitions = ctx.definitions.clone();
    // Reading a definition for the first time compiles its schemas: off the async threads.
    let definitions = tokio::task::spawn_blocking(move || {
        usable.iter().filter_map(|tool| render(&definitions, tool)).collect()
    });
    definitions.await.map_err(Error::internal)
}

/// Another one means that [`tools`] gives another list.
pub async fn tools_digest(
    ctx: &Ctx,
    caller: &Caller,
    source: &Source,
) -> Result<Sha256Digest, Error> {
    let usable = usable(ctx, caller, source).await?;
    let hashes: Vec<u8> = usable.iter().flat_map(|tool| tool.definition_hash.0).collect();
    Ok(Sha256Digest::of(&hashes))
}

async fn usable(ctx: &Ctx, caller: &Caller, source: &Source) -> Result<Vec<UsableTool>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut usable = store::tools::usable(&mut tx, std::slice::from_ref(&source.server)).await?;
    tx.commit().await?;
    usable.retain(|tool| caller.reach.covers_tool(&tool.agent_name));
    Ok(usable)
}

/// `None` for a definition that an earlier version approved and this one cannot use.
fn render(definitions: &DefinitionCache, tool: &UsableTool) -> Option<Arc<RawValue>> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let Named { name } = serde_json::from_str(&tool.definition).ok()?;
    match definitions.listed(tool.definition_hash, &name, &tool.definition) {
        Ok(definition) => Some(definition),
        Err(problem) => {
            let problem = problem.to_string();
            tracing::warn!(server = %tool.server, tool = %tool.tool, problem, "an approved tool is unusable");
            None
        }
    }
}
