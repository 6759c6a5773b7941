//! Programs on our host: the operator's list, and nothing beside it.

use domain::server::stdio::{AllowedProgram, ArgPattern, Pattern, StdioMode};
use serde_json::{Value, json};
use tests::{
    children::{for_everybody, marker},
    world::{Person, Tenant, World},
};

use super::{Role, SERVERS, StatusCode, acme, path};
use crate::gateway::{as_pairs, modern};

fn listed() -> StdioMode {
    StdioMode::Allowlist(vec![AllowedProgram {
        name: "files".to_owned(),
        command: "/opt/mcp/files".to_owned(),
        args: vec![
            ArgPattern::Literal("--root".to_owned()),
            ArgPattern::Literal("/srv".to_owned()),
        ],
        cwd: None,
        env: vec!["TOKEN".to_owned()],
        writable: Vec::new(),
    }])
}

async fn world(stdio: StdioMode) -> (World, String) {
    let world = World::with_stdio(stdio).await;
    let acme = world.tenant("acme").await;
    let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
    let token = world.full_token(&root).await;
    (world, token)
}

/// The person of a token.
async fn me(world: &World, token: &str) -> Person {
    let (_, me) = world.get(token, "/api/me").await;
    let id = serde_json::from_value(me["tenant"]["id"].clone()).unwrap();
    Person {
        tenant: Tenant { id, slug: "acme".to_owned() },
        id: serde_json::from_value(me["user"]["id"].clone()).unwrap(),
        email: "root@acme.test".to_owned(),
    }
}

fn program(command: &str, args: &[&str]) -> Value {
    json!({
        "name": "Program", "transport": "stdio", "command": command, "args": args,
        "env": { "TOKEN": "s3cret" }, "authMode": "none",
    })
}

#[tokio::test]
async fn a_superadmin_picks_from_the_list_and_is_told_what_stands_there() {
    let (world, root) = world(listed()).await;
    let (status, programs) = world.get(&root, "/api/mcp/stdio-programs").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        programs,
        json!({ "mode": "allowlist", "programs": [{
            "name": "files", "command": "/opt/mcp/files", "args": ["--root", "/srv"], "cwd": null,
            "env": ["TOKEN"],
        }] })
    );
    let (status, problem) = world.post(&root, SERVERS, program("/bin/sh", &["-c", "id"])).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let error = &problem["details"]["errors"][0];
    assert_eq!(error["path"], "/command");
    let words = error["message"].as_str().unwrap();
    assert!(words.contains("files (/opt/mcp/files --root /srv)"), "{words}");
    let (status, _) = world.post(&root, SERVERS, program("/opt/mcp/files", &["--root", "/"])).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);

    let (status, server) =
        world.post(&root, SERVERS, program("/opt/mcp/files", &["--root", "/srv"])).await;
    assert_eq!(status, StatusCode::CREATED, "{server}");
    assert_eq!(server["env"], json!({ "TOKEN": null }));
    assert_eq!((&server["url"], &server["headers"]), (&json!(""), &json!({})));
    let rows = super::secrets::every_row(&world).await;
    assert!(!rows.contains("s3cret"));
    let steering = json!({ "LD_PRELOAD": "x", "TOKEN": null });
    let mut form = program("/opt/mcp/files", &["--root", "/srv"]);
    form["env"] = steering;
    let (status, problem) = world.put(&root, &path(&server), form).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["details"]["errors"][0]["path"], "/env/LD_PRELOAD");
}

#[tokio::test]
async fn programs_are_off_unless_the_operator_says_otherwise() {
    let (world, _, root) = acme().await;
    let (status, problem) = world.post(&root, SERVERS, program("/opt/mcp/files", &[])).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["details"]["errors"][0]["path"], "/transport");
    let (_, programs) = world.get(&root, "/api/mcp/stdio-programs").await;
    assert_eq!(programs, json!({ "mode": "off", "programs": [] }));
}

#[tokio::test]
async fn any_program_is_for_one_tenant_and_for_who_may_approve() {
    let (world, root) = world(StdioMode::Any).await;
    let form = program("/usr/bin/env", &[]);
    let agent = world.token(&me(&world, &root).await, "mcp:call,api:write,admin").await;
    let (status, problem) = world.post(&agent, SERVERS, form.clone()).await;
    assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("DENIED")));
    let (status, server) = world.post(&root, SERVERS, form.clone()).await;
    assert_eq!(status, StatusCode::CREATED, "{server}");

    world.tenant("globex").await;
    let (status, problem) = world.put(&root, &path(&server), form).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["details"]["errors"][0]["path"], "/transport");
    let (_, checked) = world.post(&root, &format!("{}/test", path(&server)), json!({})).await;
    assert_eq!(checked["error"]["code"], "SERVER_MISCONFIGURED");
    assert_eq!(world.get(&root, "/api/mcp/stdio-programs").await.1["mode"], "off");
    let refused = app::servers::check_programs(&world.ctx).await.unwrap_err();
    assert!(refused.public.contains("BAILIWICK_STDIO"), "{refused}");
}

#[tokio::test]
async fn a_listed_program_runs_with_its_variables_and_nothing_else_of_ours() {
    let (_dir, peer) = for_everybody(env!("CARGO_BIN_EXE_stdio-peer"));
    let command = peer.to_str().unwrap();
    let stdio = StdioMode::Allowlist(vec![AllowedProgram {
        name: "peer".to_owned(),
        command: command.to_owned(),
        args: vec![
            ArgPattern::Matching { matches: Pattern::new("marker-[0-9a-f-]+").unwrap() },
            ArgPattern::Literal("tells".to_owned()),
        ],
        cwd: None,
        env: vec!["TOKEN".to_owned()],
        writable: Vec::new(),
    }]);
    let (world, root) = world(stdio).await;
    let variable = json!({ "value": "s3cret-value", "hosts": ["stdio"] });
    world.put(&root, "/api/tenant/variables/KEY", variable).await;
    let mut form = program(command, &[&marker(), "tells"]);
    form["env"] = json!({ "TOKEN": "<$KEY>" });
    form["slug"] = json!("peer");
    form["enabled"] = json!(true);
    let (status, server) = world.post(&root, SERVERS, form).await;
    assert_eq!(status, StatusCode::CREATED, "{server}");
    let (_, checked) = world.post(&root, &format!("{}/test", path(&server)), json!({})).await;
    assert_eq!(checked["status"], "ready", "{checked}");
    assert_eq!(checked["contacted"]["commandLine"][0], command);
    assert_eq!(checked["contacted"]["env"], json!(["TOKEN"]));
    let (status, tools) =
        world.post(&root, &format!("{}/tools/refresh", path(&server)), json!({})).await;
    assert_eq!(status, StatusCode::OK, "{tools}");

    let session = json!({ "enabledSourceIds": [server["id"]], "approvalMode": "always_allow" });
    let (_, session) = world.post(&root, "/api/sessions", session).await;
    let agent = world.token(&me(&world, &root).await, "mcp:call").await;
    let (headers, body) =
        modern("tools/call", r#"{"name":"mcp__peer__environment","arguments":{}}"#);
    let place = format!("{}mcp/{}", world.url, session["id"].as_str().unwrap());
    let mut request = world.client().post(place).bearer_auth(&agent).body(body);
    request = request.header("accept", "application/json, text/event-stream");
    request = request.header("content-type", "application/json");
    for (name, value) in as_pairs(&headers) {
        request = request.header(name, value);
    }
    let answer = request.send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("<s3cret-value>"), "{answer}");
    assert!(!answer.contains("CARGO") && !answer.contains("BAILIWICK"), "{answer}");
    let rows = super::secrets::every_row(&world).await;
    let told = rows.matches("s3cret-value").count();
    assert_eq!(told, 0, "what a tool tells is in CAS as bytes, and nowhere else");
}

#[tokio::test]
async fn a_program_that_starts_and_says_nothing_is_told_from_one_that_is_not_there() {
    let (_dir, peer) = for_everybody(env!("CARGO_BIN_EXE_stdio-peer"));
    let command = peer.to_str().unwrap();
    let stdio = StdioMode::Allowlist(vec![AllowedProgram {
        name: "peer".to_owned(),
        command: command.to_owned(),
        args: vec![ArgPattern::Rest { rest: Pattern::new(".*").unwrap() }],
        cwd: None,
        env: vec!["TOKEN".to_owned()],
        writable: Vec::new(),
    }]);
    let (world, root) = world(stdio).await;
    let mut form = program(command, &[&marker(), "silent"]);
    form["enabled"] = json!(true);
    let (status, server) = world.post(&root, SERVERS, form).await;
    assert_eq!(status, StatusCode::CREATED, "{server}");
    let (test, refresh) =
        (format!("{}/test", path(&server)), format!("{}/tools/refresh", path(&server)));
    let (tested, (status, running)) =
        tokio::join!(world.post(&root, &test, json!({})), world.post(&root, &refresh, json!({})),);
    assert_eq!(status, StatusCode::ACCEPTED, "{running}");
    assert!(running["detail"].as_str().unwrap().contains("may still be downloading"), "{running}");
    let error = &tested.1["error"];
    assert_eq!(error["code"], "TIMEOUT", "{tested:?}");
    let words = error["message"].as_str().unwrap();
    assert!(words.contains("was started but did not answer within 60 s"), "{words}");
    let (_, found) = world.get(&root, &path(&server)).await;
    assert_eq!(found["statusError"], words);
}
