//! `tools/list`, of both eras.

use std::borrow::Cow;

use app::{
    results,
    toolset::{self, ListedTool},
};
use axum::http::StatusCode;
use domain::{Caller, Error, ids::ServerId, limits};
use rmcp::model::ErrorCode;

use super::{
    Scene, about,
    answer::{Answer, Work},
    eras::Era,
    fault::{self, Fault},
    message::{Message, RequestId},
    raw,
};

/// All tools in one page: the list is what the person, the session and the token leave of it.
pub(super) fn list(scene: &Scene, message: &Message<'_>, id: RequestId) -> Result<Work, Fault> {
    if message.params.get("cursor").is_some_and(|cursor| cursor.get() != "null") {
        let words = "params.cursor is not one of this server: the list has one page";
        return Err(message.fault(ErrorCode::INVALID_PARAMS, words));
    }
    let scene = scene.clone();
    Ok(Box::pin(async move {
        match listed(&scene).await {
            Ok(tools) => Answer::result(&id, &result(&scene, &tools)),
            Err(error) => Answer::Refused(id, scene.explained(error)),
        }
    }))
}

async fn listed(scene: &Scene) -> Result<Vec<ListedTool>, Error> {
    let session = scene.session().await?;
    toolset::list(&scene.api.ctx, &scene.caller, session, scene.sources.as_deref()).await
}

/// The caller, with no more in reach than the request's `?sources=` names.
pub(super) async fn narrowed(scene: &Scene) -> Result<Caller, Error> {
    let mut caller = (*scene.caller).clone();
    if scene.sources.is_some() {
        // The list is of what the token reaches, too: nothing is added here.
        let mut servers: Vec<ServerId> =
            listed(scene).await?.into_iter().map(|tool| tool.server).collect();
        servers.dedup();
        caller.reach.sources = Some(servers);
    }
    Ok(caller)
}

/// The servers' definitions go out as they are stored, but for our mark on those that a person has to
/// connect for; our own tools come last, as their names do.
fn result(scene: &Scene, tools: &[ListedTool]) -> String {
    let own = results::is_offered(&scene.caller, scene.sources.as_deref());
    let own = own.then(|| results::definition().get());
    let tools = tools.iter().map(|tool| {
        let definition = tool.definition.get();
        let marked = tool.connection_required.then(|| raw::with_connection_required(definition));
        marked.flatten().map_or(Cow::Borrowed(definition), Cow::Owned)
    });
    let tools: Vec<Cow<'_, str>> = tools.chain(own.map(Cow::Borrowed)).collect();
    let tools = tools.join(",");
    match scene.era {
        Era::Legacy => format!(r#"{{"tools":[{tools}]}}"#),
        Era::Modern => format!(
            r#"{{"resultType":"complete","tools":[{tools}],"ttlMs":{},"cacheScope":"private","_meta":{}}}"#,
            limits::GATEWAY_TOOLS_TTL_MS.default,
            about::meta(),
        ),
    }
}

impl Answer {
    /// The response with this result, which must be JSON.
    pub(super) fn result(id: &RequestId, result: &str) -> Self {
        Self::Message(StatusCode::OK, fault::response(id, result))
    }
}
