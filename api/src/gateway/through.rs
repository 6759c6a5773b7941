//! The pass-through form, `?prefix=off&sources=<one>`: one server under its own names, with resources,
//! prompts, completion, log messages, subscriptions, and its questions to the client.
//!
//! ```text
//! client ──▶ door ──▶ source (reach, selection, switch) ──┬▶ calls ──▶ broker ──▶ server
//!    ◀── voice ◀── ears (screened, renamed) ◀─────────────┤
//!                                                         └▶ asks, streams ─────▶ server
//! ```
//!
//! Clients of 2026-07-28 use the shared upstream connection and say with each request what they can be
//! asked. Older clients hold an upstream session of their own, named by their `Mcp-Session-Id`.

mod asks;
pub(super) mod begin;
mod calls;
mod ears;
mod entries;
mod errors;
mod holders;
mod question;
mod results;
pub(super) mod streams;
mod wish;

use app::through::{OwnSession, Source};
use axum::http::{HeaderMap, StatusCode};
use domain::{Code, Error, elicitation::Asker, invocation::PseudoTool};
use rmcp::model::ErrorCode;

pub(super) use ears::Ears;
pub(super) use holders::Holders;
pub(super) use question::{Questions, Reply};
pub(super) use wish::Wish;

use super::{
    Scene,
    answer::{Answer, Work},
    eras::Era,
    fault::Fault,
    message::{Message, RequestId},
};

/// A request to the one server. `None`: the method is none that is passed through.
pub(super) fn work(
    scene: &Scene,
    headers: &HeaderMap,
    message: &Message<'_>,
    id: &RequestId,
) -> Option<Result<Work, Fault>> {
    let work = match (message.method.as_str(), scene.era) {
        ("tools/list", _) => asks::tools(scene, message, id),
        ("tools/call", _) => calls::tool(scene, headers, message, id),
        ("resources/read", _) => calls::pseudo(scene, message, id, PseudoTool::ResourceRead),
        ("prompts/get", _) => calls::pseudo(scene, message, id, PseudoTool::PromptGet),
        ("completion/complete", _) => calls::pseudo(scene, message, id, PseudoTool::Completion),
        ("resources/list", _) => asks::ask(scene, message, id, "resources/list"),
        ("resources/templates/list", _) => {
            asks::ask(scene, message, id, "resources/templates/list")
        }
        ("prompts/list", _) => asks::ask(scene, message, id, "prompts/list"),
        ("logging/setLevel", Era::Legacy) => asks::ask(scene, message, id, "logging/setLevel"),
        ("resources/subscribe", Era::Legacy) => {
            asks::ask(scene, message, id, "resources/subscribe")
        }
        ("resources/unsubscribe", Era::Legacy) => {
            asks::ask(scene, message, id, "resources/unsubscribe")
        }
        ("server/discover", Era::Modern) => Ok(begin::discover(scene, id)),
        _ => return None,
    };
    Some(work)
}

/// The endpoint's server as it is now, if the client's upstream session is one of it.
async fn source(scene: &Scene) -> Result<Source, Error> {
    let name = scene.through.as_deref().unwrap_or_default();
    let session = scene.session().await?;
    let source = app::through::enter(&scene.api.ctx, &scene.caller, session, name).await?;
    if let Some(own) = &scene.own {
        source.check_own(own)?;
        hold(scene, &source, own).await;
    }
    Ok(source)
}

/// What an older client tells the server of its upstream session: that its roots changed. Nothing is
/// answered, whatever becomes of it; the next request shows it.
pub(super) async fn told(scene: &Scene, message: &Message<'_>) {
    if message.id.is_some() || message.method != "notifications/roots/list_changed" {
        return;
    }
    let Some(own) = &scene.own else { return };
    let telling = async {
        let source = source(scene).await?;
        app::through::roots_changed(&scene.api.ctx, &scene.caller, &source, own).await
    };
    if let Err(error) = telling.await {
        tracing::debug!(error = &error as &dyn std::error::Error, "a server was not told");
    }
}

/// Who asks this client.
fn asker<'a>(scene: &'a Scene, source: &'a Source, wish: &Wish) -> Asker<'a> {
    // What was declared when an upstream session began may have been switched off since.
    let askable = wish.askable.with_sampling(source.relays_sampling);
    Asker { server_name: &source.name, askable, urls: &scene.api.ctx.url_rules }
}

/// Notes a use of an upstream session; the one that has to give way for it is ended.
async fn hold(scene: &Scene, source: &Source, own: &OwnSession) {
    if let Some(surplus) = scene.memory.holders.used(&scene.caller, own) {
        scene.memory.ended.end(surplus.id);
        // One of an earlier configuration has nothing to say to whatever stands there now.
        if source.check_own(&surplus).is_ok() {
            app::through::end(&scene.api.ctx, source, &surplus).await;
        }
    }
}

/// The method is the protocol's, and the server does not have it.
fn no_method(id: &RequestId, era: Era) -> Answer {
    let mut fault = Fault::new(ErrorCode::METHOD_NOT_FOUND, "no such method").of(Some(id.clone()));
    if era == Era::Modern {
        fault.status = StatusCode::NOT_FOUND;
    }
    fault.into()
}

/// What makes an older client begin anew: its upstream session is lost, or the server is not what it
/// was.
pub(super) fn is_over(error: &Error) -> bool {
    app::through::is_session_lost(error)
        || matches!(error.code, Code::NotFound | Code::SourceDisabled | Code::ServerChanged)
}

/// Ends an older client's upstream session.
pub(super) async fn end(scene: &Scene) -> Result<(), Error> {
    let source = source(scene).await?;
    if let Some(own) = &scene.own {
        scene.memory.holders.ended(&scene.caller, own);
        app::through::end(&scene.api.ctx, &source, own).await;
    }
    Ok(())
}
