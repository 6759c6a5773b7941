//! Health, me, the tenant, people and tokens.

use api::paths;
use domain::Role;
use http::Method;
use serde_json::json;

use super::{Case, Fate, Sent, Stage};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::open(Method::GET, paths::HEALTHZ, |_| Box::pin(async move { Sent::to("/healthz") })),
        Case::open(Method::GET, paths::READYZ, |_| Box::pin(async move { Sent::to("/readyz") })),
        Case::open(Method::POST, paths::LOGIN, |stage| Box::pin(login(stage))),
        Case::open(Method::POST, paths::LOGOUT, |_| {
            Box::pin(async move { Sent::to("/api/logout") })
        }),
        Case::new(Method::GET, paths::ME, |_| Box::pin(async move { Sent::to("/api/me") }))
            .foreign(Fate::Own)
            .colleague(Fate::Own),
        Case::new(Method::GET, paths::ACCESS_EXPLAIN, |_| {
            Box::pin(async move { Sent::to("/api/access/explain?tool=mcp__none__none") })
        })
        .foreign(Fate::Own)
        .colleague(Fate::Own),
        Case::by_session(Method::PUT, paths::MY_PASSWORD, |_| {
            Box::pin(async move {
                let form = json!({ "current": "long enough", "new": "longer than before" });
                Sent::to("/api/me/password").with(form)
            })
        }),
        Case::new(Method::GET, paths::TENANT, |_| Box::pin(async move { Sent::to("/api/tenant") }))
            .needs("api:read,admin")
            .role(Role::Superadmin)
            .foreign(Fate::Own)
            .colleague(Fate::Same),
        Case::new(Method::PATCH, paths::TENANT, |stage| Box::pin(tenant_patch(stage)))
            .needs("api:write,admin,approve")
            .role(Role::Superadmin)
            .foreign(Fate::Refused(422))
            .colleague(Fate::Same),
        Case::new(Method::GET, paths::USERS, |stage| {
            Box::pin(async move { Sent::to("/api/users").hiding(person(stage).await) })
        })
        .needs("api:read,admin")
        .role(Role::Admin)
        .foreign(Fate::Own)
        .colleague(Fate::Same),
        Case::new(Method::POST, paths::USERS, |stage| {
            Box::pin(async move {
                let email = format!("{}@acme.test", stage.unused("new"));
                Sent::to("/api/users").with(json!({ "email": email, "role": "member" }))
            })
        })
        .needs("api:write,admin")
        .role(Role::Admin)
        .foreign(Fate::Own)
        .colleague(Fate::Same),
        Case::new(Method::PATCH, paths::USER, |stage| {
            Box::pin(async move {
                let path = format!("/api/users/{}", person(stage).await);
                Sent::to(path).with(json!({ "role": "admin" }))
            })
        })
        .needs("api:write,admin")
        .role(Role::Admin)
        .colleague(Fate::Same),
        Case::new(Method::GET, paths::TOKENS, |stage| {
            Box::pin(async move { Sent::to("/api/tokens").hiding(token(stage).await) })
        })
        .foreign(Fate::Own)
        .colleague(Fate::Own),
        Case::new(Method::POST, paths::TOKENS, |stage| Box::pin(token_form(stage)))
            .needs("api:write")
            .foreign(Fate::Refused(422))
            .colleague(Fate::Refused(422)),
        Case::new(Method::DELETE, paths::TOKEN, |stage| {
            Box::pin(async move { Sent::to(format!("/api/tokens/{}", token(stage).await)) })
        }),
    ]
}

/// A person of acme who signs in.
async fn login(stage: &Stage) -> Sent {
    let (email, password) = (format!("{}@acme.test", stage.unused("signs-in")), "long enough");
    let form = json!({ "email": email, "role": "member", "password": password });
    stage.make("/api/users", form).await;
    Sent::to("/api/t/acme/login").with(json!({ "email": email, "password": password }))
}

/// A selection with a server of acme.
async fn tenant_patch(stage: &Stage) -> Sent {
    let server = server(stage).await;
    Sent::to("/api/tenant").with(json!({ "enabledSourceIds": [server] }))
}

/// A token that reaches one session of its maker.
async fn token_form(stage: &Stage) -> Sent {
    let session = stage.make("/api/sessions", json!({ "title": "reached" })).await;
    Sent::to("/api/tokens")
        .with(json!({ "name": "narrow", "scopes": ["api:write"], "sessions": [session] }))
}

/// A member of acme.
async fn person(stage: &Stage) -> String {
    let email = format!("{}@acme.test", stage.unused("person"));
    stage.make("/api/users", json!({ "email": email, "role": "member" })).await
}

/// A token of the owner.
async fn token(stage: &Stage) -> String {
    stage.make("/api/tokens", json!({ "name": "a token", "scopes": ["api:read"] })).await
}

/// A server of acme.
async fn server(stage: &Stage) -> String {
    let name = stage.unused("server");
    let form = json!({ "name": name, "transport": "http", "url": "http://127.0.0.1:9/mcp", "authMode": "none" });
    stage.make("/api/mcp/servers", form).await
}
