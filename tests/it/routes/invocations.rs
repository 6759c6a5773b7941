//! The record of calls: its owner's, and the admins' of the tenant.

use api::paths;
use app::{
    broker::{self, Asked, Asking, CallRequest},
    through::Upstream,
};
use domain::{Via, ids::ExecutionId, invocation::Origin};
use http::Method;
use serde_json::value::RawValue;

use super::{Case, Fate, Sent, Stage, sessions::session};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(Method::GET, paths::INVOCATIONS, |stage| {
            Box::pin(async {
                let (session, _) = called(stage).await;
                Sent::to(format!("/api/sessions/{session}/mcp/invocations"))
            })
        })
        .colleague(Fate::Same),
        Case::new(Method::GET, paths::INVOCATION, |stage| {
            Box::pin(async {
                let (session, invocation) = called(stage).await;
                Sent::to(format!("/api/sessions/{session}/mcp/invocations/{invocation}"))
                    .hiding(invocation)
            })
        })
        .colleague(Fate::Same),
    ]
}

/// A session of the owner and a call in it; of a tool that is not there, which is recorded too.
async fn called(stage: &Stage) -> (String, String) {
    let session = session(stage).await;
    let ctx = &stage.world.ctx;
    let caller = app::identity::authenticate(ctx, &stage.ann_token, Via::Token).await.unwrap();
    let request = CallRequest {
        session: session.parse().unwrap(),
        asked: Asked::Agent("mcp__nobody__nothing".to_owned()),
        arguments: RawValue::from_string("{}".to_owned()).unwrap(),
        execution: ctx.mint::<ExecutionId>(),
        call_id: "1".to_owned(),
        origin: Origin::Gateway,
        allowed_source_ids: None,
        asking: Asking::Hold { attach: false },
        fits: None,
        upstream: Upstream::default(),
        responses: None,
        cancel_on_hang_up: false,
    };
    let record = broker::start(ctx, &caller, request).finished().await.unwrap();
    (session, record.invocation.to_string())
}
