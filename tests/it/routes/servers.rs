//! Servers and their tools. A tenant has few servers, so the requests share them.

use api::paths;
use domain::Role;
use http::Method;
use serde_json::json;
use tests::peer::{Peer, Setup};

use super::{Case, Fate, Sent, Stage, sessions::session};

pub(super) fn cases() -> Vec<Case> {
    [servers(), variables()].into_iter().flatten().collect()
}

fn servers() -> Vec<Case> {
    vec![
        Case::new(Method::GET, paths::SERVERS, |stage| {
            Box::pin(async move { Sent::to("/api/mcp/servers").hiding(server(stage).await) })
        })
        .foreign(Fate::Own)
        .colleague(Fate::Same),
        superadmins(Case::new(Method::POST, paths::SERVERS, |stage| {
            Box::pin(
                async move { Sent::to("/api/mcp/servers").with(form(&stage.unused("server"))) },
            )
        }))
        .foreign(Fate::Own),
        Case::new(Method::GET, paths::SERVER, |stage| {
            Box::pin(async move { Sent::to(format!("/api/mcp/servers/{}", server(stage).await)) })
        })
        .colleague(Fate::Same),
        superadmins(Case::new(Method::PUT, paths::SERVER, |stage| {
            Box::pin(async move {
                let path = format!("/api/mcp/servers/{}", server(stage).await);
                Sent::to(path).with(form(&stage.unused("server")))
            })
        })),
        superadmins(Case::new(Method::PUT, paths::SERVER_STATUS, |stage| {
            Box::pin(async move {
                let path = format!("/api/mcp/servers/{}/status", server(stage).await);
                Sent::to(path).with(json!({ "enabled": false }))
            })
        })),
        Case::new(Method::POST, paths::SERVER_TEST, |stage| {
            Box::pin(
                async move { Sent::to(format!("/api/mcp/servers/{}/test", server(stage).await)) },
            )
        })
        .colleague(Fate::Same),
        superadmins(Case::new(Method::DELETE, paths::SERVER, |stage| {
            Box::pin(async move { Sent::to(format!("/api/mcp/servers/{}", server(stage).await)) })
        })),
        Case::new(Method::GET, paths::SERVER_TOOLS, |stage| {
            Box::pin(
                async move { Sent::to(format!("/api/mcp/servers/{}/tools", alive(stage).await)) },
            )
        })
        .colleague(Fate::Same),
        superadmins(Case::new(Method::POST, paths::SERVER_TOOLS_REFRESH, |stage| {
            Box::pin(async move {
                Sent::to(format!("/api/mcp/servers/{}/tools/refresh", alive(stage).await))
            })
        })),
        Case::new(Method::POST, paths::SERVER_INSPECT, |stage| {
            Box::pin(async move {
                let path = format!("/api/mcp/servers/{}/inspect", alive(stage).await);
                let session = session(stage).await;
                let body = json!({ "sessionId": session, "toolName": "echo", "input": {} });
                Sent::to(path).with(body).hiding(session)
            })
        })
        .needs("approve"),
        superadmins(Case::new(Method::PUT, paths::SERVER_TOOL, |stage| {
            Box::pin(async move {
                let path = format!("/api/mcp/servers/{}/tools/echo", alive(stage).await);
                Sent::to(path).with(json!({ "policy": "allow" }))
            })
        }))
        .needs("api:write,admin,approve"),
        superadmins(Case::new(Method::POST, paths::SERVER_TOOL_APPROVE, |stage| {
            Box::pin(async move {
                let server = alive(stage).await;
                let path = format!("/api/mcp/servers/{server}/tools/echo/approve");
                let tools = format!("/api/mcp/servers/{server}/tools");
                let (_, list) = stage.world.get(&stage.ann_token, &tools).await;
                let hash = list["items"][0]["definitionHash"].clone();
                Sent::to(path).with(json!({ "definitionHash": hash }))
            })
        }))
        .needs("api:write,admin,approve"),
        superadmins(Case::new(Method::POST, paths::SERVERS_IMPORT, |stage| {
            Box::pin(async move {
                let name = stage.unused("imported");
                let entry = json!({ "url": "http://127.0.0.1:9/mcp" });
                Sent::to("/api/mcp/servers/import").with(json!({ "mcpServers": { name: entry } }))
            })
        }))
        .foreign(Fate::Own),
        reads(Case::new(Method::GET, paths::SERVERS_EXPORT, |stage| {
            Box::pin(async move { Sent::to("/api/mcp/servers/export").hiding(server(stage).await) })
        })),
        reads(Case::new(Method::GET, paths::STDIO_PROGRAMS, |_| {
            Box::pin(async move { Sent::to("/api/mcp/stdio-programs") })
        })),
    ]
}

pub(super) fn superadmins(case: Case) -> Case {
    case.needs("api:write,admin").role(Role::Superadmin).colleague(Fate::Same)
}

fn variables() -> Vec<Case> {
    vec![
        reads(Case::new(Method::GET, paths::VARIABLES, |stage| {
            Box::pin(async move { Sent::to("/api/tenant/variables").hiding(variable(stage).await) })
        })),
        superadmins(Case::new(Method::PUT, paths::VARIABLE, |stage| {
            Box::pin(async move {
                let path = format!("/api/tenant/variables/{}", variable(stage).await);
                Sent::to(path).with(json!({ "value": "new", "hosts": [] }))
            })
        }))
        .foreign(Fate::Own),
        superadmins(Case::new(Method::DELETE, paths::VARIABLE, |stage| {
            Box::pin(
                async move { Sent::to(format!("/api/tenant/variables/{}", variable(stage).await)) },
            )
        })),
    ]
}

fn reads(case: Case) -> Case {
    let case = case.needs("api:read,admin").role(Role::Superadmin);
    case.foreign(Fate::Own).colleague(Fate::Same)
}

/// A variable of acme.
async fn variable(stage: &Stage) -> String {
    let name = stage.unused("OF_ACME").replace('-', "_");
    let body = json!({ "value": "hush", "hosts": ["mcp.example.com"] });
    let path = format!("/api/tenant/variables/{name}");
    let (status, variable) = stage.world.put(&stage.ann_token, &path, body).await;
    assert!(status.is_success(), "{variable}");
    name
}

fn form(name: &str) -> serde_json::Value {
    json!({ "name": name, "transport": "http", "url": "http://127.0.0.1:9/mcp", "authMode": "none" })
}

/// The owner's newest server that nothing else is known of; made where there is none.
async fn server(stage: &Stage) -> String {
    let (_, list) = stage.world.get(&stage.ann_token, "/api/mcp/servers?limit=200").await;
    let servers = list["items"].as_array().unwrap();
    let found = servers.iter().find(|server| server["slug"] != "alive");
    match found.and_then(|server| server["id"].as_str()) {
        Some(id) => id.to_owned(),
        None => stage.make("/api/mcp/servers", form(&stage.unused("server"))).await,
    }
}

/// A server of acme that runs, with its tool `echo` known.
async fn alive(stage: &Stage) -> String {
    let (_, server) = stage.world.get(&stage.ann_token, "/api/mcp/servers/alive").await;
    if let Some(id) = server["id"].as_str() {
        return id.to_owned();
    }
    let peer = Peer::start(Setup::modern()).await;
    let form = json!({
        "name": "Alive", "slug": "alive", "transport": "http", "url": peer.url(), "authMode": "none",
        "enabled": true,
    });
    // It runs for as long as the test.
    std::mem::forget(peer);
    let id = stage.make("/api/mcp/servers", form).await;
    let refresh = format!("/api/mcp/servers/{id}/tools/refresh");
    let (status, tools) = stage.world.post(&stage.ann_token, &refresh, json!({})).await;
    assert!(status.is_success(), "{tools}");
    id
}
