//! Personal connections: everybody's routes, about their own alone.

use api::paths;
use http::Method;
use serde_json::{Value, json};
use tests::authorization_server::{AuthorizationServer, ProtectedPeer};
use url::Url;

use super::{Case, Fate, Sent, Stage, servers::superadmins};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(Method::GET, paths::CONNECTIONS, |_| {
            Box::pin(async move { Sent::to("/api/mcp/connections") })
        })
        .foreign(Fate::Own)
        .colleague(Fate::Same),
        Case::new(Method::GET, paths::CONNECTION, |stage| {
            Box::pin(async move { Sent::to(of(&keyed(stage).await, "/connection")) })
        })
        .colleague(Fate::Same),
        own(Method::PUT, paths::CONNECTION, |stage| {
            Box::pin(async move { Sent::to(of(&keyed(stage).await, "/connection")).with(secret()) })
        }),
        own(Method::PUT, paths::SYSTEM_CONNECTION, |stage| {
            Box::pin(async move {
                let server = keyed(stage).await;
                let path = format!("/api/system/mcp-servers/{server}/connection");
                Sent::to(path).with(secret())
            })
        }),
        own(Method::DELETE, paths::CONNECTION, |stage| {
            Box::pin(async move { Sent::to(of(&keyed(stage).await, "/connection")) })
        }),
        own(Method::POST, paths::CONNECTION_TEST, |stage| {
            Box::pin(async move { Sent::to(of(&keyed(stage).await, "/connection/test")) })
        }),
        superadmins(Case::new(Method::POST, paths::DISCONNECT_EVERYONE, |stage| {
            Box::pin(async move { Sent::to(of(&keyed(stage).await, "/disconnect-everyone")) })
        })),
        own(Method::POST, paths::OAUTH_START, |stage| {
            Box::pin(async move {
                let (server, _) = granting(stage).await;
                Sent::to(of(&server, "/oauth/start")).with(json!({ "revision": 1 }))
            })
        }),
        own(Method::POST, paths::OAUTH_CANCEL, |stage| {
            Box::pin(async move { Sent::to(of(&granting(stage).await.0, "/oauth/cancel")) })
        }),
        own(Method::POST, paths::OAUTH_CLEAR, |stage| {
            Box::pin(async move { Sent::to(of(&granting(stage).await.0, "/oauth/clear")) })
        }),
        own(Method::POST, paths::OAUTH_CONFIRM, |stage| {
            Box::pin(async move {
                let (server, result) = granting(stage).await;
                Sent::to(of(&server, "/oauth/confirm")).with(json!({ "result": result }))
            })
        })
        .colleague(Fate::Spent(409)),
    ]
}

fn own(method: Method, route: &'static str, prepare: super::Prepare) -> Case {
    Case::new(method, route, prepare).needs("approve").colleague(Fate::Same)
}

fn of(server: &str, rest: &str) -> String {
    format!("/api/mcp/servers/{server}{rest}")
}

fn secret() -> Value {
    json!({ "secret": "sesame", "revision": 1 })
}

/// A server that takes a secret of each person.
async fn keyed(stage: &Stage) -> String {
    if let Some(id) = found(stage, "keyed").await {
        return id;
    }
    let form = json!({
        "name": "keyed", "slug": "keyed", "transport": "http", "url": "http://127.0.0.1:9/mcp",
        "authMode": "api_key", "apiKeyHeader": "x-api-key", "enabled": true,
    });
    stage.make("/api/mcp/servers", form).await
}

async fn found(stage: &Stage, slug: &str) -> Option<String> {
    let path = format!("/api/mcp/servers/{slug}");
    let (_, server) = stage.world.get(&stage.ann_token, &path).await;
    server["id"].as_str().map(str::to_owned)
}

/// A server that is connected by OAuth, and what its owner can confirm with.
async fn granting(stage: &Stage) -> (String, String) {
    let server = if let Some(server) = found(stage, "granting").await {
        server
    } else {
        let provider = AuthorizationServer::start().await;
        let peer = ProtectedPeer::start(&provider).await;
        let form = json!({
            "name": "granting", "slug": "granting", "transport": "http", "url": peer.url(),
            "authMode": "oauth", "enabled": true,
        });
        // They run for as long as the test.
        std::mem::forget((provider, peer));
        stage.make("/api/mcp/servers", form).await
    };
    let url = stage.world.url.join(&of(&server, "/oauth/start")).unwrap();
    let begun = stage.world.client().post(url).bearer_auth(&stage.ann_token);
    let begun = begun.json(&json!({ "revision": 1 })).send().await.unwrap();
    let cookie = begun.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let cookie = cookie.to_owned();
    let begun: Value = begun.json().await.unwrap();
    let mut to: Url = begun["authorizationUrl"].as_str().unwrap().parse().unwrap();
    to.query_pairs_mut().append_pair("login_hint", "ann").append_pair("go", "allow");
    let callback = redirected(&to, "").await;
    let confirm = redirected(&callback.parse().unwrap(), &cookie).await;
    (server, confirm.split_once("#result=").unwrap().1.to_owned())
}

/// Where a browser is sent on from there.
async fn redirected(from: &Url, cookie: &str) -> String {
    let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let browser = browser.no_proxy().build().unwrap();
    let answer = browser.get(from.clone()).header("cookie", cookie).send().await.unwrap();
    answer.headers()["location"].to_str().unwrap().to_owned()
}
