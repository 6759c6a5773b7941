//! Discovery: what a server lists becomes pinned tools, and what changes later is withheld.

use app::discovery::{self, Discovered};
use domain::{
    Code, Role,
    ids::{ServerId, SessionId},
};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    peer::{Answer, Peer, Setup, tool},
    world::{Person, World},
};

/// A tenant with one enabled server, whose peer the test holds.
struct Scene {
    world: World,
    root: Person,
    /// A superadmin's token.
    token: String,
    peer: Peer,
    server: ServerId,
}

impl Scene {
    async fn new(tools: &[String]) -> Self {
        let peer = Peer::start(Setup { tools: tools.to_vec(), ..Setup::modern() }).await;
        let world = World::new().await;
        let acme = world.tenant("acme").await;
        let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
        let token = world.full_token(&root).await;
        let form = json!({
            "name": "Demo", "slug": "demo", "transport": "http", "url": peer.url(), "authMode": "none",
            "enabled": true,
        });
        let (status, server) = world.post(&token, "/api/mcp/servers", form).await;
        assert_eq!(status, StatusCode::CREATED, "{server}");
        let server = ServerId::from(server["id"].as_str().unwrap());
        Self { world, root, token, peer, server }
    }

    /// As the worker does it.
    async fn discover(&self) -> Result<Discovered, domain::Error> {
        discovery::run(&self.world.ctx, self.root.tenant.id, &self.server, None).await
    }

    /// The peer lists these from now on, and is asked.
    async fn lists(&self, tools: &[String]) {
        self.peer.change(|setup| setup.tools = tools.to_vec());
        assert_eq!(self.discover().await.unwrap(), Discovered::Pinned);
    }

    async fn tools(&self) -> Vec<Value> {
        let (status, list) = self.world.get(&self.token, "/api/mcp/servers/demo/tools").await;
        assert_eq!(status, StatusCode::OK, "{list}");
        list["items"].as_array().unwrap().clone()
    }

    async fn tool(&self, id: &str) -> Value {
        let tools = self.tools().await;
        tools
            .iter()
            .find(|tool| tool["id"] == id)
            .unwrap_or_else(|| panic!("no {id}: {tools:#?}"))
            .clone()
    }

    async fn pins(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.tools().await.iter().map(|tool| (text(&tool["name"]), text(&tool["pin"]))).collect()
    }

    async fn shown(&self) -> Value {
        self.world.get(&self.token, "/api/mcp/servers/demo").await.1
    }

    async fn audited(&self, action: &str) -> Vec<Value> {
        sqlx::query_scalar(
            "SELECT details FROM audit_events
             WHERE action = $1 AND subject LIKE 'custom-%' ORDER BY audit_event_id",
        )
        .bind(action)
        .fetch_all(&self.world.owner().await)
        .await
        .unwrap()
    }

    async fn set_tool(&self, id: &str, change: Value) {
        let path = format!("/api/mcp/servers/demo/tools/{id}");
        let (status, answer) = self.world.put(&self.token, &path, change).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }

    /// The agent names that the superadmin has in a new session with this selection.
    async fn toolset(&self, selection: Value, sources: Option<&[String]>) -> Vec<String> {
        let form = json!({ "title": "a session", "enabledSourceIds": selection });
        let (status, session) = self.world.post(&self.token, "/api/sessions", form).await;
        assert_eq!(status, StatusCode::CREATED, "{session}");
        let session: SessionId = session["id"].as_str().unwrap().parse().unwrap();
        let ctx = &self.world.ctx;
        let caller =
            app::identity::authenticate(ctx, &self.token, domain::Via::Token).await.unwrap();
        let tools = app::toolset::list(ctx, &caller, session, sources).await.unwrap();
        tools.into_iter().map(|tool| tool.agent_name).collect()
    }
}

fn described(name: &str, words: &str) -> String {
    json!({ "name": name, "description": words, "inputSchema": { "type": "object" } }).to_string()
}

fn pin(name: &str, pin: &str) -> (String, String) {
    (name.to_owned(), pin.to_owned())
}

#[tokio::test]
async fn the_first_discovery_approves() {
    let scene = Scene::new(&[tool("echo"), described("huge", "with big numbers")]).await;
    assert_eq!(scene.discover().await.unwrap(), Discovered::Pinned);
    assert_eq!(scene.pins().await, [pin("echo", "approved"), pin("huge", "approved")]);
    let echo = scene.tool("echo").await;
    assert_eq!((&echo["agentName"], &echo["policy"]), (&json!("mcp__demo__echo"), &json!("ask")));
    assert_eq!(echo["definitionHash"].as_str().unwrap().len(), 64);
    let shown = scene.shown().await;
    assert_eq!((&shown["status"], &shown["toolCount"]), (&json!("ready"), &json!(2)));
    assert_eq!(
        scene.audited("server.tools_pinned").await,
        [json!({ "added": 2, "changed": 0, "removed": 0 })]
    );
    // Nothing new: nothing to record.
    assert_eq!(scene.discover().await.unwrap(), Discovered::Pinned);
    assert_eq!(scene.audited("server.tools_pinned").await.len(), 1);
}

#[tokio::test]
async fn one_bad_schema_hides_one_tool() {
    let bad = r#"{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"$ref":"https://example.com/x"}}}}"#;
    let nul = r#"{"name":"n\u0000l","inputSchema":{"type":"object"}}"#;
    let no_name = r#"{"inputSchema":{"type":"object"}}"#;
    let scene =
        Scene::new(&[tool("good"), bad.to_owned(), nul.to_owned(), no_name.to_owned()]).await;
    assert_eq!(scene.discover().await.unwrap(), Discovered::Pinned);
    assert_eq!(scene.pins().await, [pin("bad", "invalid"), pin("good", "approved")]);
    assert!(scene.tool("bad").await["problem"].as_str().unwrap().starts_with("input schema"));
    let shown = scene.shown().await;
    assert_eq!(shown["status"], "ready");
    assert_eq!(shown["statusError"], "2 tools are left out: they have no usable name");
    assert_eq!(scene.toolset(json!([scene.server]), None).await, ["mcp__demo__good"]);
}

#[tokio::test]
async fn a_collision_hides_both_tools() {
    let twice = [described("echo", "one"), described("echo", "two"), tool("other")];
    let scene = Scene::new(&twice).await;
    assert_eq!(scene.discover().await.unwrap(), Discovered::Pinned);
    assert_eq!(scene.pins().await, [pin("echo", "invalid"), pin("other", "approved")]);
    assert_eq!(scene.toolset(json!([scene.server]), None).await, ["mcp__demo__other"]);
}

#[tokio::test]
async fn a_changed_tool_is_in_quarantine_until_it_is_the_old_one_again() {
    let (old, new) = (described("echo", "old words"), described("echo", "new words"));
    let scene = Scene::new(&[old.clone(), tool("other")]).await;
    scene.discover().await.unwrap();
    let approved = scene.tool("echo").await;

    scene.lists(&[new.clone(), tool("other")]).await;
    let echo = scene.tool("echo").await;
    assert_eq!(echo["pin"], "quarantined");
    assert_eq!(echo["definitionHash"], approved["definitionHash"]);
    assert_eq!(echo["description"], "old words");
    assert_eq!(
        echo["diff"]["approved"]["definition"],
        serde_json::from_str::<Value>(&old).unwrap()
    );
    assert_eq!(echo["diff"]["pending"]["definition"], serde_json::from_str::<Value>(&new).unwrap());
    assert_ne!(echo["diff"]["pending"]["definitionHash"], approved["definitionHash"]);
    assert_eq!(scene.tool("other").await["pin"], "approved");
    assert_eq!(scene.toolset(json!([scene.server]), None).await, ["mcp__demo__other"]);
    assert_eq!(scene.audited("server.tools_quarantined").await, [json!({ "tools": ["echo"] })]);
    // Found again, it is no news.
    scene.lists(&[new, tool("other")]).await;
    assert_eq!(scene.audited("server.tools_quarantined").await.len(), 1);

    scene.lists(&[old, tool("other")]).await;
    assert_eq!(scene.tool("echo").await, approved);
}

#[tokio::test]
async fn a_new_tool_of_a_known_server_waits_unless_the_tenant_trusts_it() {
    let scene = Scene::new(&[]).await;
    scene.discover().await.unwrap();
    scene.lists(&[tool("first")]).await;
    assert_eq!(scene.pins().await, [pin("first", "quarantined")]);
    assert_eq!(scene.tool("first").await["diff"]["approved"], Value::Null);

    let trust = json!({ "autoApproveNewTools": true });
    assert_eq!(scene.world.patch(&scene.token, "/api/tenant", trust).await.0, StatusCode::OK);
    scene.lists(&[tool("first"), tool("second")]).await;
    assert_eq!(scene.pins().await, [pin("first", "quarantined"), pin("second", "approved")]);
}

#[tokio::test]
async fn a_tool_that_was_gone_does_not_come_back_changed_unseen() {
    let scene = Scene::new(&[described("echo", "old"), tool("other")]).await;
    scene.discover().await.unwrap();
    scene.set_tool("echo", json!({ "policy": "allow" })).await;
    scene.lists(&[tool("other")]).await;
    assert_eq!(scene.pins().await, [pin("other", "approved")]);
    assert_eq!(scene.shown().await["toolCount"], 1);
    scene.lists(&[described("echo", "new"), tool("other")]).await;
    let echo = scene.tool("echo").await;
    assert_eq!((&echo["pin"], &echo["policy"]), (&json!("quarantined"), &json!("allow")));
}

#[tokio::test]
async fn a_failing_discovery_keeps_the_tools_and_says_so_in_our_words() {
    let scene = Scene::new(&[tool("echo")]).await;
    scene.discover().await.unwrap();
    let before = scene.tools().await;
    let error =
        || Answer::Error { code: -32603, message: "SELECT * FROM their_secrets".to_owned() };
    scene.peer.script_method("tools/list", [error()]);
    assert!(scene.discover().await.is_err());
    let shown = scene.shown().await;
    assert_eq!(shown["status"], "error");
    assert!(!shown.to_string().contains("their_secrets"), "{shown}");
    assert!(shown["statusError"].is_string());
    assert_eq!(scene.tools().await, before);

    let refresh = "/api/mcp/servers/demo/tools/refresh";
    let (status, problem) = scene.world.post(&scene.token, refresh, json!({})).await;
    assert!(status.is_server_error(), "{status} {problem}");
    assert!(!problem.to_string().contains("their_secrets"), "{problem}");
    assert_eq!(problem["detail"], shown["statusError"]);
}

#[tokio::test]
async fn an_answer_about_an_earlier_configuration_is_dropped() {
    let scene = Scene::new(&[tool("old")]).await;
    let modern = Peer::start(Setup { tools: vec![tool("new")], ..Setup::modern() }).await;
    let list = format!(r#"{{"tools":[{}]}}"#, tool("old"));
    scene.peer.script_method("tools/list", [Answer::Result(list).held()]);
    let configure = async {
        scene
            .peer
            .until("the list is asked for", |peer| !peer.received("tools/list").is_empty())
            .await;
        let form = json!({
            "name": "Demo", "transport": "http", "url": modern.url(), "authMode": "none", "enabled": true,
        });
        let (status, _) = scene.world.put(&scene.token, "/api/mcp/servers/demo", form).await;
        assert_eq!(status, StatusCode::OK);
        scene.peer.release();
    };
    let (discovered, ()) = tokio::join!(scene.discover(), configure);
    assert_eq!(discovered.unwrap(), Discovered::Superseded);
    assert!(scene.tools().await.is_empty());
    assert_eq!(scene.shown().await["status"], "untested");

    assert_eq!(scene.discover().await.unwrap(), Discovered::Pinned);
    assert_eq!(scene.pins().await, [pin("new", "approved")]);
}

#[tokio::test]
async fn a_server_that_is_off_or_gone_is_not_asked() {
    let scene = Scene::new(&[tool("echo")]).await;
    let off = json!({ "enabled": false });
    scene.world.put(&scene.token, "/api/mcp/servers/demo/status", off).await;
    assert_eq!(scene.discover().await.unwrap(), Discovered::NotWanted);
    let refresh = "/api/mcp/servers/demo/tools/refresh";
    let (status, problem) = scene.world.post(&scene.token, refresh, json!({})).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("SOURCE_DISABLED")));
    scene.world.delete(&scene.token, "/api/mcp/servers/demo").await;
    assert_eq!(scene.discover().await.unwrap(), Discovered::NotWanted);
    assert!(scene.peer.journal().is_empty());
}

#[tokio::test]
async fn a_refresh_answers_with_the_tools() {
    let scene = Scene::new(&[tool("a"), tool("b")]).await;
    let refresh = "/api/mcp/servers/demo/tools/refresh";
    let (status, list) = scene.world.post(&scene.token, refresh, json!({})).await;
    assert_eq!((status, &list["next"]), (StatusCode::OK, &Value::Null), "{list}");
    assert_eq!(list["items"].as_array().unwrap(), &scene.tools().await);
    let (_, page) = scene.world.get(&scene.token, "/api/mcp/servers/demo/tools?limit=1").await;
    assert_eq!((&page["items"][0]["id"], &page["next"]), (&json!("a"), &json!("a")));
    let (_, page) =
        scene.world.get(&scene.token, "/api/mcp/servers/demo/tools?limit=1&after=a").await;
    assert_eq!((&page["items"][0]["id"], &page["next"]), (&json!("b"), &Value::Null));
}

#[tokio::test]
async fn members_see_what_agents_see() {
    let scene = Scene::new(&[tool("on"), tool("off"), described("changed", "old")]).await;
    scene.discover().await.unwrap();
    scene.lists(&[tool("on"), tool("off"), described("changed", "new")]).await;
    scene.set_tool("off", json!({ "enabled": false })).await;
    let member = scene.world.user(&scene.root.tenant, "member@acme.test", Role::Member).await;
    let member = scene.world.token(&member, "api:read,api:write").await;
    let names = |list: &Value, key: &str| -> Vec<String> {
        let items = list[key].as_array().unwrap().iter();
        items.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let (_, list) = scene.world.get(&member, "/api/mcp/servers/demo/tools").await;
    assert_eq!(names(&list, "items"), ["on"]);
    let (_, checked) = scene.world.post(&member, "/api/mcp/servers/demo/test", json!({})).await;
    assert_eq!(names(&checked, "tools"), ["on"]);
    scene
        .world
        .put(&scene.token, "/api/mcp/servers/demo/status", json!({ "enabled": false }))
        .await;
    let (status, _) = scene.world.get(&member, "/api/mcp/servers/demo/tools").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn who_calls_tools_sets_no_policy() {
    let scene = Scene::new(&[tool("echo")]).await;
    scene.discover().await.unwrap();
    let caller = scene.world.token(&scene.root, "mcp:call,api:read,api:write,admin").await;
    let path = "/api/mcp/servers/demo/tools/echo";
    for change in
        [json!({ "policy": "allow" }), json!({ "policy": "deny" }), json!({ "enabled": true })]
    {
        let (status, problem) = scene.world.put(&caller, path, change).await;
        assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("DENIED")));
    }
    // Switching off takes away, and needs no approval.
    let (status, tool) = scene.world.put(&caller, path, json!({ "enabled": false })).await;
    assert_eq!((status, &tool["enabled"]), (StatusCode::OK, &json!(false)));
    let (status, tool) =
        scene.world.put(&scene.token, path, json!({ "enabled": true, "policy": "deny" })).await;
    assert_eq!((status, &tool["policy"]), (StatusCode::OK, &json!("deny")));
    let (status, _) = scene.world.put(&scene.token, path, json!({ "policy": "maybe" })).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let unknown = "/api/mcp/servers/demo/tools/nothing";
    assert_eq!(scene.world.put(&scene.token, unknown, json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        scene.audited("tool.updated").await,
        [
            json!({ "enabled": false, "policy": "ask" }),
            json!({ "enabled": true, "policy": "deny" }),
        ]
    );
}

#[tokio::test]
async fn a_session_has_the_tools_of_its_selection_that_may_be_called() {
    let scene = Scene::new(&[tool("b"), tool("a"), tool("denied")]).await;
    scene.discover().await.unwrap();
    scene.set_tool("denied", json!({ "policy": "deny" })).await;
    let both = ["mcp__demo__a", "mcp__demo__b"];
    assert_eq!(scene.toolset(json!([scene.server]), None).await, both);
    // Enabling a server grants nothing: the tenant's selection is empty.
    assert!(scene.toolset(Value::Null, None).await.is_empty());
    let by_slug = ["demo".to_owned()];
    assert_eq!(scene.toolset(json!([scene.server]), Some(&by_slug)).await, both);
    let by_id = [scene.server.to_string()];
    assert_eq!(scene.toolset(json!([scene.server]), Some(&by_id)).await, both);
    let other = ["other".to_owned()];
    assert!(scene.toolset(json!([scene.server]), Some(&other)).await.is_empty());

    let ctx = &scene.world.ctx;
    let caller = app::identity::authenticate(ctx, &scene.token, domain::Via::Token).await.unwrap();
    let nobodys = SessionId(uuid::Uuid::new_v4());
    let error = app::toolset::list(ctx, &caller, nobodys, None).await.unwrap_err();
    assert_eq!(error.code, Code::NotFound);
}

#[tokio::test]
async fn a_tool_whose_arguments_cannot_be_repeated_in_headers_is_left_out_and_says_why() {
    let marked = |name: &str, header: &str| {
        json!({"name": name, "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": header},
        }}})
        .to_string()
    };
    let tools = [marked("good", "Region"), marked("bad", "no header"), tool("plain")];
    let scene = Scene::new(&tools).await;
    scene.discover().await.unwrap();
    assert_eq!(scene.tool("good").await["pin"], "approved");
    assert_eq!(scene.tool("plain").await["pin"], "approved");
    let bad = scene.tool("bad").await;
    assert_eq!(bad["pin"], "invalid", "{bad}");
    let words = r#"input schema: the x-mcp-header "no header" is no legal name of a header"#;
    assert_eq!(bad["problem"], words);
    let test = "/api/mcp/servers/demo/test";
    let (_, tested) = scene.world.post(&scene.token, test, json!({})).await;
    assert_eq!(tested["tools"][1]["problem"], words, "{tested}");

    // A server of an older version sends no such headers, and is sent none.
    scene.peer.change(|setup| *setup = Setup { tools: tools.to_vec(), ..Setup::older() });
    scene.world.ctx.mcp.forget(scene.root.tenant.id, &scene.server).await;
    scene.discover().await.unwrap();
    let pin = scene.tool("bad").await["pin"].clone();
    assert_eq!(pin, "quarantined", "it can be used, and nobody approved it yet");
}
