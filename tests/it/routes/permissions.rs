//! Questions, decisions, grants, authorizations and epochs.

use api::paths;
use http::Method;
use serde_json::json;
use tests::questions::{ask, question};

use super::{Case, Fate, Sent, Stage, sessions::session};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(Method::GET, paths::PERMISSION_REQUESTS, |stage| {
            Box::pin(async {
                Sent::to(format!("/api/permission-requests?sessionId={}", session(stage).await))
            })
        }),
        Case::new(Method::GET, paths::PERMISSION_REQUEST, |stage| {
            Box::pin(async { Sent::to(format!("/api/permission-requests/{}", asked(stage).await)) })
        }),
        Case::new(Method::POST, paths::PERMISSION_DECISION, |stage| {
            Box::pin(async {
                let path = format!("/api/permission-requests/{}/decision", asked(stage).await);
                Sent::to(path).with(json!({ "decision": "allow_matching" }))
            })
        })
        .needs("approve"),
        Case::new(Method::GET, paths::PERMISSION_GRANTS, |stage| {
            Box::pin(async {
                Sent::to(format!("/api/permission-grants?sessionId={}", session(stage).await))
            })
        }),
        Case::new(Method::DELETE, paths::PERMISSION_GRANT, |stage| {
            Box::pin(async { Sent::to(format!("/api/permission-grants/{}", granted(stage).await)) })
        })
        .needs("approve"),
        Case::new(Method::GET, paths::AUTHORIZATIONS, |stage| {
            Box::pin(async {
                let session = session(stage).await;
                Sent::to(format!("/api/sessions/{session}/permission-authorizations"))
            })
        })
        .colleague(Fate::Same),
        Case::new(Method::GET, paths::EPOCH, |stage| {
            Box::pin(async {
                Sent::to(format!("/api/sessions/{}/permission-epoch", session(stage).await))
            })
        }),
        Case::new(Method::POST, paths::EPOCH, |stage| {
            Box::pin(async {
                Sent::to(format!("/api/sessions/{}/permission-epoch", session(stage).await))
            })
        })
        .needs("approve"),
    ]
}

/// A pending question to the owner.
async fn asked(stage: &Stage) -> String {
    let session = session(stage).await.parse().unwrap();
    ask(&stage.world, &stage.ann, &question(&stage.ann, session, "echo", "{}")).await.to_string()
}

/// A grant in a session of the owner.
async fn granted(stage: &Stage) -> String {
    let path = format!("/api/permission-requests/{}/decision", asked(stage).await);
    let body = json!({ "decision": "allow_matching" });
    let (status, answer) = stage.world.post(&stage.ann_token, &path, body).await;
    assert_eq!(status, 200, "{answer}");
    answer["grant"]["id"].as_str().unwrap().to_owned()
}
