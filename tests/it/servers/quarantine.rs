//! A changed or imitating tool: shown with what changed, released by the one who saw it.

use app::discovery;
use domain::ids::ServerId;
use serde_json::{Value, json};
use tests::{
    peer::{Peer, Setup, tool},
    world::{Tenant, World},
};

use super::{Role, StatusCode, acme, create, form, path, with};

fn described(name: &str, words: &str) -> String {
    json!({ "name": name, "description": words, "inputSchema": { "type": "object" } }).to_string()
}

/// An enabled server whose tools are pinned.
async fn pinned(tools: &[String]) -> (World, Tenant, String, Peer, Value) {
    let (world, acme, root) = acme().await;
    let peer = Peer::start(Setup { tools: tools.to_vec(), ..Setup::modern() }).await;
    let on = json!({ "enabled": true, "slug": "demo" });
    let server = create(&world, &root, with(&form("Demo", peer.url().as_str()), on)).await;
    discover(&world, &acme, &server).await;
    (world, acme, root, peer, server)
}

async fn discover(world: &World, tenant: &Tenant, server: &Value) {
    let id = ServerId::from(server["id"].as_str().unwrap());
    discovery::run(&world.ctx, tenant.id, &id, None).await.unwrap();
}

async fn one(world: &World, root: &str, id: &str) -> Value {
    let (_, list) = world.get(root, "/api/mcp/servers/demo/tools").await;
    let tools = list["items"].as_array().unwrap();
    tools.iter().find(|tool| tool["id"] == id).unwrap_or_else(|| panic!("{list}")).clone()
}

#[tokio::test]
async fn a_release_is_of_the_definition_that_was_seen() {
    let (world, acme, root, peer, server) = pinned(&[described("echo", "old words")]).await;
    peer.change(|setup| setup.tools = vec![described("echo", "new\u{202e} words")]);
    discover(&world, &acme, &server).await;
    let echo = one(&world, &root, "echo").await;
    assert_eq!(echo["pin"], "quarantined");
    assert_eq!(
        echo["diff"]["changes"],
        json!([{ "path": "/description", "before": "old words", "after": "new\\u{202e} words" }])
    );
    assert_eq!(echo["diff"]["moreChanges"], 0);
    assert!(!echo.to_string().contains('\u{202e}'));
    let (old, new) = (&echo["definitionHash"], &echo["diff"]["pending"]["definitionHash"]);

    let approve = format!("{}/tools/echo/approve", path(&server));
    let (status, problem) = world.post(&root, &approve, json!({ "definitionHash": old })).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("CONFLICT")));
    assert_eq!(&problem["details"]["definitionHash"], new);
    let person = world.user(&acme, "second@acme.test", Role::Superadmin).await;
    let agent = world.token(&person, "mcp:call,api:read,api:write,admin").await;
    let seen = json!({ "definitionHash": new });
    assert_eq!(world.post(&agent, &approve, seen.clone()).await.0, StatusCode::FORBIDDEN);

    let (status, released) = world.post(&root, &approve, seen.clone()).await;
    assert_eq!((status, &released["pin"]), (StatusCode::OK, &json!("approved")), "{released}");
    assert_eq!(&released["definitionHash"], new);
    assert!(released.get("diff").is_none() && released.get("problem").is_none());
    // Again is nothing new.
    assert_eq!(world.post(&root, &approve, seen).await, (StatusCode::OK, released));
    let actions: Vec<Value> =
        sqlx::query_scalar("SELECT details FROM audit_events WHERE action = 'tool.approved'")
            .fetch_all(&world.owner().await)
            .await
            .unwrap();
    assert_eq!(actions.len(), 1);
    assert_eq!((&actions[0]["definitionHash"], &actions[0]["before"]), (new, old));
    for (tool, body) in [("nothing", json!({ "definitionHash": new })), ("echo", json!({}))] {
        let place = format!("{}/tools/{tool}/approve", path(&server));
        let (status, _) = world.post(&root, &place, body).await;
        assert!(status == StatusCode::NOT_FOUND || status == StatusCode::UNPROCESSABLE_ENTITY);
    }
}

#[tokio::test]
async fn a_release_ends_the_grants_on_what_was_approved_before() {
    let (world, acme, root, peer, server) =
        pinned(&[described("echo", "old"), tool("other")]).await;
    let (_, session) = world.post(&root, "/api/sessions", json!({})).await;
    let owner = world.owner().await;
    let grant = async |tool: &str| {
        let hash = one(&world, &root, tool).await["definitionHash"].as_str().unwrap().to_owned();
        sqlx::query(
            "INSERT INTO permission_grants (tenant_id, permission_grant_id, session_id, action,
                 resource_class, definition_hash, created_at)
             VALUES ($1, gen_random_uuid(), $2, 'tool_call', $3, decode($4, 'hex'), now())",
        )
        .bind(acme.id.0)
        .bind(session["id"].as_str().unwrap().parse::<uuid::Uuid>().unwrap())
        .bind(format!("{}/{tool}", server["id"].as_str().unwrap()))
        .bind(hash)
        .execute(&owner)
        .await
        .unwrap();
    };
    grant("echo").await;
    grant("other").await;
    peer.change(|setup| setup.tools = vec![described("echo", "new"), tool("other")]);
    discover(&world, &acme, &server).await;
    let seen = one(&world, &root, "echo").await["diff"]["pending"]["definitionHash"].clone();
    let approve = format!("{}/tools/echo/approve", path(&server));
    let (status, _) = world.post(&root, &approve, json!({ "definitionHash": seen })).await;
    assert_eq!(status, StatusCode::OK);
    let (_, grants) = world.get(&root, "/api/permission-grants").await;
    let found: Vec<(String, String)> = grants["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|grant| {
            (grant["resourceClass"].to_string(), grant["state"].as_str().unwrap().to_owned())
        })
        .collect();
    let state = |tool: &str| {
        let grant = found.iter().find(|(class, _)| class.ends_with(&format!("/{tool}\"")));
        grant.map(|(_, state)| state.clone())
    };
    assert_ne!(state("echo").as_deref(), Some("active"), "{found:?}");
    assert_eq!(state("other").as_deref(), Some("active"), "{found:?}");
}

#[tokio::test]
async fn names_that_imitate_are_withheld_and_shown_for_what_they_are() {
    let names = [
        "read_file",
        "r\u{435}ad_file",
        "list1",
        "listl",
        "se\u{200b}nd",
        "\u{440}\u{430}\u{443}",
        "größe",
    ];
    let tools: Vec<String> = names.iter().map(|name| tool(name)).collect();
    let (world, _, root, _peer, _) = pinned(&tools).await;
    let (_, list) = world.get(&root, "/api/mcp/servers/demo/tools").await;
    let shown = |name: &str| {
        let tools = list["items"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        (tool["pin"].as_str().unwrap().to_owned(), tool["displayName"].as_str().unwrap().to_owned())
    };
    let of = |pin: &str, name: &str| (pin.to_owned(), name.to_owned());
    assert_eq!(shown("read_file"), of("approved", "read_file"));
    assert_eq!(shown("größe"), of("approved", "größe"));
    assert_eq!(shown("r\u{435}ad_file"), of("quarantined", "r\\u{435}ad_file"));
    assert_eq!(shown("se\u{200b}nd"), of("quarantined", "se\\u{200b}nd"));
    // A word of another alphabet that reads as one of ours.
    assert_eq!(shown("\u{440}\u{430}\u{443}"), of("quarantined", "\\u{440}\\u{430}\\u{443}"));
    // Of two that cannot be told apart, neither is trusted by itself.
    assert_eq!((shown("list1").0, shown("listl").0), ("quarantined".into(), "quarantined".into()));
}

#[tokio::test]
async fn an_output_schema_that_clients_reject_is_left_out_with_a_warning() {
    let odd = r#"{"name":"odd","inputSchema":{"type":"object"},"outputSchema":{"anyOf":[{"type":"object"}]}}"#;
    let (world, _, root, _peer, server) = pinned(&[odd.to_owned(), tool("fine")]).await;
    let tool = one(&world, &root, "odd").await;
    assert_eq!(tool["pin"], "approved");
    assert!(tool["warnings"][0].as_str().unwrap().contains("output schema is left out"), "{tool}");
    let session = json!({ "enabledSourceIds": [server["id"]] });
    let (_, session) = world.post(&root, "/api/sessions", session).await;
    let caller = app::identity::authenticate(&world.ctx, &root, domain::Via::Token).await.unwrap();
    let session = session["id"].as_str().unwrap().parse().unwrap();
    let tools = app::toolset::list(&world.ctx, &caller, session, None).await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.agent_name.as_str()).collect();
    assert_eq!(names, ["mcp__demo__fine", "mcp__demo__odd"]);
}
