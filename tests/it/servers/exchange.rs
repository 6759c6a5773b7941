//! Servers in and out by the dozen: all of them or none, and nothing happens by itself.

use domain::server::stdio::StdioMode;
use serde_json::{Value, json};
use tests::{
    peer::{Peer, Setup},
    world::World,
};

use super::{Role, SERVERS, StatusCode, acme, create, custom, form, path, with};

const IMPORT: &str = "/api/mcp/servers/import";
const PREVIEW: &str = "/api/mcp/servers/import?preview=true";

async fn counts(world: &World) -> (i64, i64, i64) {
    let owner = world.owner().await;
    let count = async |what: &'static str| -> i64 {
        sqlx::query_scalar(what).fetch_one(&owner).await.unwrap()
    };
    (
        count("SELECT count(*) FROM mcp_servers WHERE server_id LIKE 'custom-%'").await,
        count("SELECT count(*) FROM apalis.jobs").await,
        count(
            "SELECT count(*) FROM audit_events
             WHERE action LIKE 'server.%' AND subject LIKE 'custom-%'",
        )
        .await,
    )
}

#[tokio::test]
async fn an_import_adds_all_switched_off_and_contacts_nobody() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let body = json!({ "mcpServers": {
        "Tickets": { "url": peer.url(), "headers": { "X-Key": "s3cret" }, "disabled": false },
        "Wiki": { "type": "streamable-http", "url": "https://wiki.example.com/mcp", "slug": "wiki",
                  "tool_call_timeout": 9 },
        "Old": { "type": "sse", "url": "https://old.example.com/sse" },
    } });
    let (status, imported) = world.post(&root, IMPORT, body).await;
    assert_eq!(status, StatusCode::CREATED, "{imported}");
    let items = imported["items"].as_array().unwrap();
    let names: Vec<&str> = items.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Tickets", "Wiki", "Old"]);
    for one in items {
        assert_eq!((&one["enabled"], &one["status"]), (&json!(false), &json!("disabled")));
        assert_eq!(one["unconfirmed"], true);
    }
    assert_eq!(items[0]["headers"], json!({ "X-Key": null }));
    assert_eq!(items[0]["authMode"], "shared_headers");
    assert_eq!((&items[1]["slug"], &items[1]["timeoutSeconds"]), (&json!("wiki"), &json!(9)));
    assert_eq!(items[2]["transport"], "sse");
    assert!(!imported.to_string().contains("s3cret"));
    assert_eq!(counts(&world).await, (3, 0, 3));
    assert!(peer.journal().is_empty());
    let (_, tenant) = world.get(&root, "/api/tenant").await;
    assert_eq!(tenant["enabledSourceIds"], json!([]));
}

#[tokio::test]
async fn every_mistake_of_every_entry_is_answered_and_nothing_is_imported() {
    let (world, _, root) = acme().await;
    create(&world, &root, with(&form("Taken", "https://a.example/"), json!({ "slug": "taken" })))
        .await;
    let body = json!({ "mcpServers": {
        "Fine": { "url": "https://fine.example/" },
        "taken": { "url": "ftp://x", "env": 5 },
        "Twice": { "url": "https://a.example/", "slug": "taken" },
        "twice": { "url": "https://a.example/", "headers": { "A": "$NONE", "B": null, "C": "${C}" } },
        "Program": { "command": "npx", "args": ["-y", "thing"] },
        "Personal": { "url": "https://a.example/", "authMode": "delegation" },
    } });
    let (status, problem) = world.post(&root, IMPORT, body.clone()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let places = |errors: &Value| -> Vec<String> {
        let errors = errors.as_array().unwrap().iter();
        errors.map(|error| error["path"].as_str().unwrap().to_owned()).collect()
    };
    let found = places(&problem["details"]["errors"]);
    for place in [
        "/mcpServers/taken",
        "/mcpServers/taken/url",
        "/mcpServers/taken/env",
        "/mcpServers/Twice/slug",
        "/mcpServers/twice",
        "/mcpServers/twice/headers/A",
        "/mcpServers/twice/headers/B",
        "/mcpServers/twice/headers/C",
        "/mcpServers/Program/transport",
        "/mcpServers/Personal/authMode",
    ] {
        assert!(found.iter().any(|one| one == place), "{place} in {found:?}");
    }
    assert!(!found.iter().any(|one| one.starts_with("/mcpServers/Fine")), "{found:?}");
    assert_eq!(counts(&world).await, (1, 0, 1));

    // A preview says the same, entry by entry, and saves nothing.
    let (status, preview) = world.post(&root, PREVIEW, body).await;
    assert_eq!(status, StatusCode::OK, "{preview}");
    let entries = preview["entries"].as_array().unwrap();
    let all: Vec<String> = entries.iter().flat_map(|entry| places(&entry["errors"])).collect();
    assert_eq!(all, found);
    assert_eq!(entries[0]["errors"], json!([]));
    assert_eq!(counts(&world).await, (1, 0, 1));

    for nonsense in [json!({}), json!({ "mcpServers": {}, "servers": {} }), json!([])] {
        let (status, _) = world.post(&root, IMPORT, nonsense).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    }
    let (status, _) = world.post(&root, &format!("{IMPORT}?preview=maybe"), json!({})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_preview_shows_the_command_line_the_host_and_names_but_no_value() {
    let world = World::with_stdio(StdioMode::Any).await;
    let acme = world.tenant("acme").await;
    let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
    let root = world.full_token(&root).await;
    let variable = json!({ "value": "v", "hosts": ["stdio"] });
    world.put(&root, "/api/tenant/variables/TOKEN", variable).await;
    let body = json!({ "servers": {
        "Program": { "command": "/usr/bin/env", "args": ["a b", "c\u{202e}d"], "env": { "A": "s3cret $TOKEN" },
                     "cwd": "/srv", "autoApprove": ["x"] },
        "Remote": { "serverUrl": "https://mcp.example.com:8443/a", "headers": { "X-Key": "s3cret" } },
        "Password": { "url": "https://user:s3cret@mcp.example.com/" },
    }, "inputs": [] });
    let (status, preview) = world.post(&root, PREVIEW, body).await;
    assert_eq!(status, StatusCode::OK, "{preview}");
    assert!(!preview.to_string().contains("s3cret"), "{preview}");
    assert_eq!(
        preview["entries"][0],
        json!({
            "name": "Program", "path": "/servers/Program", "transport": "stdio",
            "commandLine": ["/usr/bin/env", "a b", "c\\u{202e}d"], "cwd": "/srv", "url": null, "host": null,
            "headers": [], "env": ["A"], "variables": ["TOKEN"], "governance": null,
            "ignored": ["autoApprove"], "errors": [],
        })
    );
    let remote = &preview["entries"][1];
    assert_eq!(
        (&remote["url"], &remote["host"], &remote["headers"]),
        (&json!("https://mcp.example.com:8443/a"), &json!("mcp.example.com"), &json!(["X-Key"]))
    );
    assert_eq!(preview["entries"][2]["errors"][0]["path"], "/servers/Password/url");
    assert_eq!(counts(&world).await.0, 0);
}

#[tokio::test]
async fn an_export_is_an_import_once_its_secrets_are_written_in() {
    let (world, acme, root) = acme().await;
    let globex = world.tenant("globex").await;
    let gus = world.user(&globex, "gus@globex.test", Role::Superadmin).await;
    let gus = world.full_token(&gus).await;
    let rich = json!({
        "authMode": "shared_headers", "headers": { "X-Key": "s3cret", "X-Other": "s3cret" },
        "slug": "rich", "description": "d", "tags": ["t"], "timeoutSeconds": 7,
        "governance": { "maxConcurrent": 3 },
    });
    create(&world, &root, with(&form("Rich", "https://rich.example/mcp"), rich)).await;
    create(&world, &root, form("Plain", "https://plain.example/mcp")).await;
    let (status, export) = world.get(&root, "/api/mcp/servers/export").await;
    assert_eq!(status, StatusCode::OK);
    assert!(!export.to_string().contains("s3cret"));
    assert_eq!(export["mcpServers"]["Rich"]["headers"], json!({ "X-Key": null, "X-Other": null }));
    assert_eq!(export["mcpServers"]["Plain"]["type"], "http");
    assert!(export["mcpServers"]["Plain"].get("slug").is_none());

    let (status, problem) = world.post(&gus, IMPORT, export.clone()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let errors = problem["details"]["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2, "one for each value that is missing: {problem}");
    let mut filled = export.clone();
    filled["mcpServers"]["Rich"]["headers"] = json!({ "X-Key": "one", "X-Other": "two" });
    let (status, imported) = world.post(&gus, IMPORT, filled).await;
    assert_eq!(status, StatusCode::CREATED, "{imported}");
    let (_, again) = world.get(&gus, "/api/mcp/servers/export").await;
    assert_eq!(again, export);

    // Who may use it is a superadmin.
    let admin = world.user(&acme, "admin@acme.test", Role::Admin).await;
    let admin = world.full_token(&admin).await;
    for (status, _) in [
        world.get(&admin, "/api/mcp/servers/export").await,
        world.post(&admin, PREVIEW, export).await,
    ] {
        assert_eq!(status, StatusCode::FORBIDDEN);
    }
}

#[tokio::test]
async fn the_limits_of_an_entry_are_shown_and_none_lets_a_server_use_the_clients_model() {
    let (world, _, root) = acme().await;
    let body = |governance: Value| json!({ "mcpServers": { "One": { "url": "https://a.example/", "governance": governance } } });
    let sampling = body(json!({ "maxConcurrent": 8, "relaySampling": true }));
    let place = "/mcpServers/One/governance/relaySampling";
    let (_, preview) = world.post(&root, PREVIEW, sampling.clone()).await;
    let entry = &preview["entries"][0];
    assert_eq!(entry["governance"], json!({ "maxConcurrent": 8, "relaySampling": true }));
    assert_eq!(entry["errors"][0]["path"], place, "{preview}");
    let (status, problem) = world.post(&root, IMPORT, sampling).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["details"]["errors"][0]["path"], place);
    assert_eq!(counts(&world).await.0, 0);

    let limits = json!({ "maxConcurrent": 8, "relaySampling": false });
    let (_, preview) = world.post(&root, PREVIEW, body(limits.clone())).await;
    assert_eq!(
        (&preview["entries"][0]["governance"], &preview["entries"][0]["errors"]),
        (&limits, &json!([]))
    );
    let (status, imported) = world.post(&root, IMPORT, body(limits.clone())).await;
    assert_eq!((status, &imported["items"][0]["governance"]), (StatusCode::CREATED, &limits));
}

#[tokio::test]
async fn an_import_stops_at_the_number_of_servers_that_a_tenant_may_have() {
    let (world, _, root) = acme().await;
    let many = |from: usize, to: usize| {
        let entries: serde_json::Map<String, Value> =
            (from..to).map(|n| (format!("S{n}"), json!({ "url": "https://a.example/" }))).collect();
        json!({ "mcpServers": entries })
    };
    assert_eq!(world.post(&root, IMPORT, many(0, 40)).await.0, StatusCode::CREATED);
    let (status, problem) = world.post(&root, IMPORT, many(40, 52)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["details"]["errors"].as_array().unwrap().len(), 2, "{problem}");
    assert_eq!(world.post(&root, IMPORT, many(40, 50)).await.0, StatusCode::CREATED);
    let (_, list) = world.get(&root, &format!("{SERVERS}?limit=200")).await;
    assert_eq!(custom(&list).len(), 50);
}

#[tokio::test]
async fn a_deleted_import_can_be_imported_again() {
    let (world, _, root) = acme().await;
    let body = json!({ "mcpServers": { "One": { "url": "https://a.example/" } } });
    let (_, imported) = world.post(&root, IMPORT, body.clone()).await;
    assert_eq!(world.post(&root, IMPORT, body.clone()).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    world.delete(&root, &path(&imported["items"][0])).await;
    assert_eq!(world.post(&root, IMPORT, body).await.0, StatusCode::CREATED);
}
