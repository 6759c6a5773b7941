//! Lists, and what an older client says to its upstream session.

use app::through::{Ask, Relay, ask as ask_server};
use axum::http::StatusCode;
use domain::{Error, limits};
use rmcp::model::ErrorCode;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{
    asker,
    calls::listed,
    ears::Ears,
    entries, errors, no_method,
    results::{Kind, shaped},
    source,
    wish::Wish,
};
use crate::gateway::{
    Scene, about,
    answer::{Answer, Work},
    calls,
    eras::Era,
    fault::Fault,
    in_flight::Held,
    message::{Message, RequestId},
};

/// The pinned tools under the server's own names, in one page.
pub(super) fn tools(scene: &Scene, message: &Message<'_>, id: &RequestId) -> Result<Work, Fault> {
    if message.params.get("cursor").is_some_and(|cursor| cursor.get() != "null") {
        let words = "params.cursor is not one of this server: the list has one page";
        return Err(message.fault(ErrorCode::INVALID_PARAMS, words));
    }
    let (scene, id) = (scene.clone(), id.clone());
    Ok(Box::pin(async move {
        match pinned(&scene).await {
            Ok(result) => Answer::result(&id, &result),
            Err(error) => Answer::Refused(id, scene.explained(error)),
        }
    }))
}

async fn pinned(scene: &Scene) -> Result<String, Error> {
    let source = source(scene).await?;
    let tools = app::through::tools(&scene.api.ctx, &scene.caller, &source).await?;
    let tools: Vec<&str> = tools.iter().map(|tool| tool.get()).collect();
    let tools = tools.join(",");
    Ok(match scene.era {
        Era::Legacy => format!(r#"{{"tools":[{tools}]}}"#),
        Era::Modern => format!(
            r#"{{"resultType":"complete","tools":[{tools}],"ttlMs":{},"cacheScope":"private","_meta":{}}}"#,
            limits::GATEWAY_TOOLS_TTL_MS.default,
            about::meta(),
        ),
    })
}

/// Whatever the server answers to `method`, in the form of the client's version.
pub(super) fn ask(
    scene: &Scene,
    message: &Message<'_>,
    id: &RequestId,
    method: &'static str,
) -> Result<Work, Fault> {
    let wish = Wish::of(scene, message)?;
    let params = RawValue::from_string(message.params.without(&["_meta"]));
    let params =
        params.map_err(|_| message.fault(ErrorCode::INVALID_PARAMS, "params are no JSON"))?;
    let (scene, id) = (scene.clone(), id.clone());
    Ok(Box::pin(async move {
        asked(&scene, &wish, &id, method, params)
            .await
            .unwrap_or_else(|error| Answer::Refused(id, scene.explained(error)))
    }))
}

async fn asked(
    scene: &Scene,
    wish: &Wish,
    id: &RequestId,
    method: &'static str,
    params: Box<RawValue>,
) -> Result<Answer, Error> {
    let source = source(scene).await?;
    let (relay, mut heard) = Relay::channel();
    let upstream = wish.upstream(scene, relay);
    let request = Ask { method, params: Some(params.into()), upstream };
    let mut ears = Ears::new(scene, &source, wish);
    let over = CancellationToken::new();
    let held = listed(scene, id, over.clone());
    // However it ends: only then its entry is swept.
    let _over = over.drop_guard();
    let answer = tokio::select! {
        biased;
        () = calls::told(held.as_ref()) => return Ok(Answer::Silent),
        () = ears.attend(&mut heard) => return Err(Error::internal("a server was heard to its end")),
        answer = ask_server(&scene.api.ctx, &scene.caller, &source, request) => answer,
    };
    if let Some(held) = held {
        Held::ended(held);
    }
    ears.rest(&mut heard).await;
    match answer {
        Ok(result) => {
            let kind = Kind { cacheable: method.ends_with("/list") };
            let result = entries::sound(method, &result);
            Ok(Answer::result(id, &shaped(&result, kind, None, scene.era)?))
        }
        Err(refused) => match refused.rpc {
            Some(rpc) if rpc.code == i64::from(ErrorCode::METHOD_NOT_FOUND.0) => {
                Ok(no_method(id, scene.era))
            }
            Some(rpc) => {
                Ok(errors::passed_on(&rpc, id, None, scene.era, &asker(scene, &source, wish))
                    .into())
            }
            None if scene.era == Era::Legacy && super::is_over(&refused.error) => {
                Err(refused.error)
            }
            None => {
                let mut fault = Fault::from_error(&refused.error, Some(id.clone()));
                fault.status = StatusCode::OK;
                Ok(fault.into())
            }
        },
    }
}
