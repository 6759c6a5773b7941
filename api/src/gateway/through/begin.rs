//! What a client learns first: what the server offers, as far as we pass it on.

use app::through;
use axum::http::HeaderValue;
use domain::{Error, elicitation::Askable};
use rmcp::model::{ProtocolVersion, ServerCapabilities};
use serde_json::Value;

use super::{hold, source};
use crate::gateway::{
    Scene, about,
    answer::{Answer, Work},
    message::RequestId,
};

pub(super) fn discover(scene: &Scene, id: &RequestId) -> Work {
    let (scene, id) = (scene.clone(), id.clone());
    Box::pin(async move {
        match discovered(&scene).await {
            Ok(result) => Answer::result(&id, &result),
            Err(error) => Answer::Refused(id, error),
        }
    })
}

async fn discovered(scene: &Scene) -> Result<String, Error> {
    let source = source(scene).await?;
    let offer = through::about(&scene.api.ctx, &scene.caller, &source).await?;
    serde_json::to_string(&about::discover(capabilities(offer.capabilities())?))
        .map_err(Error::internal)
}

/// Begins an upstream session for an older client with these capabilities. The new `Mcp-Session-Id`
/// and the result.
pub(in crate::gateway) async fn initialize(
    scene: &Scene,
    version: &ProtocolVersion,
    client: &Value,
) -> Result<(HeaderValue, String), Error> {
    let (ctx, caller) = (&scene.api.ctx, &scene.caller);
    let source = source(scene).await?;
    let session = scene.session().await?;
    let begun = through::begin(ctx, caller, &source, Askable::of(client), version.as_str()).await?;
    let id = app::gateway_sessions::seal(ctx, caller, session, version.as_str(), Some(&begun.own));
    let result = id.and_then(|id| {
        let capabilities = capabilities(begun.offer.capabilities())?;
        let result = about::initialize(version.clone(), capabilities);
        let result = serde_json::to_string(&result).map_err(Error::internal)?;
        Ok((HeaderValue::from_str(&id).map_err(Error::internal)?, result))
    });
    if result.is_ok() {
        hold(scene, &source, &begun.own).await;
    } else {
        through::end(ctx, &source, &begun.own).await;
    }
    result
}

fn capabilities(offered: Value) -> Result<ServerCapabilities, Error> {
    serde_json::from_value(offered).map_err(Error::internal)
}
