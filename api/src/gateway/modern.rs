//! MCP 2026-07-28: every request stands for itself.

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use domain::Error;
use rmcp::model::ErrorCode;

use super::{
    Scene, about,
    answer::{self, Answer, Form, Work},
    calls,
    fault::Fault,
    message::{Message, RequestId},
    through, tools,
    voice::Voice,
};

/// Its version and headers were checked before.
pub(super) async fn serve(
    scene: &Scene,
    headers: &HeaderMap,
    message: &Message<'_>,
    refuse: impl Fn(&Error) -> Response,
) -> Response {
    // No notification is defined from client to server; one is taken and means nothing.
    let Some(id) = message.id.clone() else { return StatusCode::ACCEPTED.into_response() };
    if scene.through.is_some() && message.method == "subscriptions/listen" {
        return through::streams::subscribe(scene, message, &id, refuse).await;
    }
    let (voice, said) = Voice::channel();
    let scene = &Scene { voice, ..scene.clone() };
    match work(scene, headers, message, id) {
        Ok(work) => answer::respond(vec![work], said, Form::One, refuse).await,
        Err(fault) => fault.into_response(),
    }
}

fn work(
    scene: &Scene,
    headers: &HeaderMap,
    message: &Message<'_>,
    id: RequestId,
) -> Result<Work, Fault> {
    if scene.through.is_some() {
        return through::work(scene, headers, message, &id)
            .unwrap_or_else(|| Err(no_method(message)));
    }
    match message.method.as_str() {
        "server/discover" => Ok(discover(scene, id)),
        "tools/list" => tools::list(scene, message, id),
        "tools/call" => calls::call(scene, headers, message, id),
        _ => Err(no_method(message)),
    }
}

fn no_method(message: &Message<'_>) -> Fault {
    let mut fault = message.fault(ErrorCode::METHOD_NOT_FOUND, "no such method");
    fault.status = StatusCode::NOT_FOUND;
    fault
}

fn discover(scene: &Scene, id: RequestId) -> Work {
    let scene = scene.clone();
    Box::pin(async move {
        match discovered(&scene).await {
            Ok(result) => Answer::result(&id, &result),
            Err(error) => Answer::Refused(id, error),
        }
    })
}

async fn discovered(scene: &Scene) -> Result<String, Error> {
    // A session of the path must be there; the default one can wait for its first call.
    scene.check_named_session().await?;
    serde_json::to_string(&about::discover(about::capabilities())).map_err(Error::internal)
}
