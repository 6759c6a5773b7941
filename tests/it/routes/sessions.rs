//! Projects, sessions and their events.

use api::paths;
use http::Method;
use serde_json::json;

use super::{Case, Fate, Sent, Stage};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(Method::GET, paths::PROJECTS, |stage| {
            Box::pin(async { Sent::to("/api/projects").hiding(project(stage).await) })
        })
        .foreign(Fate::Own)
        .colleague(Fate::Own),
        Case::new(Method::POST, paths::PROJECTS, |_| {
            Box::pin(async { Sent::to("/api/projects").with(json!({ "title": "mine" })) })
        })
        .foreign(Fate::Own)
        .colleague(Fate::Own),
        Case::new(Method::GET, paths::PROJECT, |stage| {
            Box::pin(async { Sent::to(format!("/api/projects/{}", project(stage).await)) })
        }),
        Case::new(Method::PATCH, paths::PROJECT, |stage| {
            Box::pin(async {
                let path = format!("/api/projects/{}", project(stage).await);
                Sent::to(path).with(json!({ "title": "renamed", "enabledSourceIds": [] }))
            })
        }),
        Case::new(Method::DELETE, paths::PROJECT, |stage| {
            Box::pin(async { Sent::to(format!("/api/projects/{}", project(stage).await)) })
        }),
        Case::new(Method::GET, paths::SESSIONS, |stage| {
            Box::pin(async { Sent::to("/api/sessions").hiding(session(stage).await) })
        })
        .foreign(Fate::Own)
        .colleague(Fate::Own),
        Case::new(Method::POST, paths::SESSIONS, |stage| {
            Box::pin(async {
                let body = json!({ "title": "in hers", "projectId": project(stage).await });
                Sent::to("/api/sessions").with(body)
            })
        }),
        Case::new(Method::GET, paths::SESSION, |stage| {
            Box::pin(async { Sent::to(format!("/api/sessions/{}", session(stage).await)) })
        }),
        Case::new(Method::PATCH, paths::SESSION, |stage| {
            Box::pin(async {
                let path = format!("/api/sessions/{}", session(stage).await);
                Sent::to(path).with(json!({ "title": "renamed", "enabledSourceIds": [] }))
            })
        }),
        Case::new(Method::DELETE, paths::SESSION, |stage| {
            Box::pin(async { Sent::to(format!("/api/sessions/{}", session(stage).await)) })
        }),
        Case::new(Method::GET, paths::SESSION_EVENTS, |stage| {
            Box::pin(async { Sent::to(format!("/api/sessions/{}/events", session(stage).await)) })
        }),
    ]
}

async fn project(stage: &Stage) -> String {
    stage.make("/api/projects", json!({ "title": "hers" })).await
}

pub(super) async fn session(stage: &Stage) -> String {
    stage.make("/api/sessions", json!({ "title": "hers" })).await
}
