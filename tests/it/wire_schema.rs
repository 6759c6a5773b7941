//! What passes the gateway is what the protocol's schema of its version says: every message that clients,
//! gateway and server say to each other is kept by a proxy on each side, and validated.

mod agent;
mod schema;
mod wiretap;

use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc};

use domain::Role;
use http::StatusCode;
use rmcp::model::ProtocolVersion;
use serde_json::{Value, json};
use tests::{
    conformance,
    world::{World, eventually},
};
use url::Url;

use agent::{Agent, NEWEST};
use schema::Schemas;
use wiretap::{Seen, Side, Tap};

/// What the server behind us knows.
#[derive(Debug, Clone, Copy)]
struct Server {
    versions: &'static [ProtocolVersion],
    /// Its newest.
    newest: &'static str,
}

const ALL: Server = Server { versions: ProtocolVersion::KNOWN_VERSIONS, newest: NEWEST };
const V_2025_11: Server =
    Server { versions: &[ProtocolVersion::V_2025_11_25], newest: "2025-11-25" };
const V_2025_06: Server =
    Server { versions: &[ProtocolVersion::V_2025_06_18], newest: "2025-06-18" };
const V_2025_03: Server =
    Server { versions: &[ProtocolVersion::V_2025_03_26], newest: "2025-03-26" };

/// A client, a server, and the gateway between two taps.
struct Line {
    agent: Arc<Agent>,
    before: Tap,
    behind: Tap,
    /// What our tools are called.
    prefix: &'static str,
    /// No party knows more than this.
    common: &'static str,
    _world: World,
}

impl Line {
    async fn new(version: &'static str, server: Server, through: bool) -> Self {
        let world = World::new().await;
        let listen = "127.0.0.1:0".parse().unwrap();
        let (upstream, _) = conformance::serve_versions(listen, server.versions).await;
        let (behind, upstream) = Tap::before("behind", &upstream).await;
        let tenant = world.tenant("acme").await;
        let person = world.user(&tenant, "ann@acme.test", Role::Superadmin).await;
        let (owner, agent) =
            (world.full_token(&person).await, world.token(&person, "mcp:call").await);
        let id = register(&world, &owner, &upstream).await;
        let form = json!({"title": "t", "approvalMode": "always_allow", "enabledSourceIds": [id]});
        let session = made(world.post(&owner, "/api/sessions", form).await);
        let (before, ours) = Tap::before("before", &world.url).await;
        let mut url = ours.join(&format!("/mcp/{session}")).unwrap();
        if through {
            url.set_query(Some("prefix=off&sources=demo"));
        }
        let agent = Agent::connect(url, &agent, version).await;
        let prefix = if through { "" } else { "mcp__demo__" };
        let common = version.min(server.newest);
        Self { agent, before, behind, prefix, common, _world: world }
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        self.agent.ask(method, params).await
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let name = format!("{}{tool}", self.prefix);
        self.ask("tools/call", json!({ "name": name, "arguments": arguments })).await
    }

    /// What both forms have.
    async fn tools(&self) {
        self.ask("tools/list", json!({})).await;
        for tool in [
            "test_simple_text",
            "test_image_content",
            "test_audio_content",
            "test_embedded_resource",
            "test_multiple_content_types",
            "test_tool_with_logging",
            "test_logging_tool",
            "test_error_handling",
            "test_no_such_tool",
        ] {
            self.call(tool, json!({})).await;
        }
        self.call("test_custom_header", json!({ "region": "north" })).await;
        self.call("json_schema_2020_12_tool", json!({ "email": "ann@acme.test" })).await;
        let name = format!("{}test_tool_with_progress", self.prefix);
        let params = json!({ "name": name, "arguments": {}, "_meta": { "progressToken": "p" } });
        self.ask("tools/call", params).await;
        self.ask("no/such/method", json!({})).await;
        if self.agent.version != NEWEST {
            self.ask("ping", json!({})).await;
        }
    }

    /// What else a server has.
    async fn other_things(&self) {
        for method in ["resources/list", "resources/templates/list", "prompts/list"] {
            self.ask(method, json!({})).await;
        }
        for uri in ["static-text", "static-binary", "template/7/data", "no-such"] {
            self.ask("resources/read", json!({ "uri": format!("test://{uri}") })).await;
        }
        let arguments = json!({ "arg1": "a", "arg2": "b", "resourceUri": "test://static-text" });
        for prompt in [
            "test_simple_prompt",
            "test_prompt_with_arguments",
            "test_prompt_with_embedded_resource",
            "test_prompt_with_image",
            "no_such_prompt",
        ] {
            let params = json!({ "name": prompt, "arguments": arguments });
            self.ask("prompts/get", params).await;
        }
        let reference = json!({ "type": "ref/prompt", "name": "test_prompt_with_arguments" });
        let argument = json!({ "name": "arg1", "value": "pa" });
        let found = self
            .ask("completion/complete", json!({ "ref": reference, "argument": argument }))
            .await;
        assert_eq!(found["result"]["completion"]["total"], 3, "{found}");
    }

    /// What a server asks: in the rounds of 2026-07-28, or in the middle of a call.
    async fn questions(&self, server: Server) {
        if server.newest == NEWEST && self.agent.version == NEWEST {
            for tool in [
                "elicitation",
                "sampling",
                "list_roots",
                "request_state",
                "multi_round",
                "multiple_inputs",
            ] {
                let done =
                    self.call(&format!("test_input_required_result_{tool}"), json!({})).await;
                assert!(done["result"]["content"].is_array(), "{tool}: {done}");
            }
            self.ask("prompts/get", json!({ "name": "test_input_required_result_prompt" })).await;
            return;
        }
        // A newer client cannot be asked in the middle of a call: the older server hears so.
        let heard = |done: &Value, word: &str| {
            let text = done["result"]["content"][0]["text"].as_str().unwrap();
            let expected = if self.agent.version == NEWEST { "not offered" } else { word };
            assert!(text.contains(expected), "{done}");
        };
        heard(&self.call("test_sampling", json!({ "prompt": "of France?" })).await, "Paris");
        if self.common >= "2025-06-18" {
            heard(&self.call("test_elicitation", json!({ "message": "Who?" })).await, "accept");
            self.call("test_elicitation_sep1034_defaults", json!({})).await;
        }
        if self.common >= "2025-11-25" {
            self.call("test_elicitation_sep1330_enums", json!({})).await;
        }
    }

    /// What a server says unasked.
    async fn changes(&self, server: Server) {
        self.agent.listen().await;
        let watched = json!({ "uri": "test://watched-resource" });
        if self.agent.version != NEWEST {
            self.ask("logging/setLevel", json!({ "level": "debug" })).await;
            self.ask("resources/subscribe", watched.clone()).await;
        }
        for (told, tool) in [
            ("notifications/resources/updated", "test_trigger_resource_change"),
            ("notifications/prompts/list_changed", "test_trigger_prompt_change"),
            ("notifications/tools/list_changed", "test_trigger_tool_change"),
        ] {
            // A server of sessions tells the session that asks, and a newer client has none.
            if self.agent.version != NEWEST || server.newest == NEWEST {
                self.agent.hears(told, async || drop(self.call(tool, json!({})).await)).await;
            }
        }
        if self.agent.version != NEWEST {
            self.ask("resources/unsubscribe", watched).await;
        }
    }

    /// A client that thinks better of it.
    async fn cancelled(&self) {
        let params = json!({
            "name": "test_tool_with_progress", "arguments": {}, "_meta": { "progressToken": "q" },
        });
        let left = self.agent.ask_once("tools/call", params, |_| ControlFlow::Break(())).await;
        assert_eq!(left, None, "its progress came first");
    }

    fn seen(&self) -> Vec<Seen> {
        self.before.seen().into_iter().chain(self.behind.seen()).collect()
    }
}

async fn register(world: &World, owner: &str, upstream: &Url) -> String {
    let form = json!({
        "name": "Demo", "slug": "demo", "transport": "http", "url": upstream, "authMode": "none",
        "enabled": true, "governance": { "relaySampling": true },
    });
    let id = made(world.post(owner, "/api/mcp/servers", form).await);
    let path = format!("/api/mcp/servers/{id}/tools/refresh");
    let (status, found) = world.post(owner, &path, json!({})).await;
    assert!(status.is_success(), "{found}");
    id
}

fn made((status, body): (StatusCode, Value)) -> String {
    assert_eq!(status, StatusCode::CREATED, "{body}");
    body["id"].as_str().unwrap().to_owned()
}

/// Methods asked, methods answered with a result, and what was told.
fn kinds(seen: &[Seen]) -> BTreeSet<(&'static str, String)> {
    let kind = |one: &Seen| {
        let what = match (&one.message["method"], &one.answers) {
            (Value::String(method), _) => format!("{} {method}", one.from.name()),
            (_, Some(method)) if one.message["result"]["resultType"] == "input_required" => {
                format!("input_required {method}")
            }
            (_, Some(method)) if one.message.get("result").is_some() => format!("result {method}"),
            _ => "error".to_owned(),
        };
        (one.hop, what)
    };
    seen.iter().map(kind).collect()
}

async fn prefixed(version: &'static str, server: Server) {
    let line = Line::new(version, server, false).await;
    line.tools().await;
    line.ask("resources/list", json!({})).await;
    line.agent.leave().await;
    let seen = line.seen();
    holds(&seen, &[("before", "result tools/call"), ("behind", "result tools/call")]);
}

async fn through(version: &'static str, server: Server) {
    let line = Line::new(version, server, true).await;
    line.tools().await;
    line.other_things().await;
    line.questions(server).await;
    line.changes(server).await;
    line.cancelled().await;
    line.agent.leave().await;
    let mut expected = vec!["result tools/call", "result resources/read", "result prompts/get"];
    expected.extend(["result completion/complete", "Server notifications/progress", "error"]);
    if version != NEWEST {
        expected.extend(["Server notifications/message", "result resources/subscribe"]);
        expected.extend(["Server sampling/createMessage", "result sampling/createMessage"]);
    }
    if version != NEWEST && line.common >= "2025-06-18" {
        expected.push("result elicitation/create");
    }
    if version == NEWEST && server.newest == NEWEST {
        expected.extend(["input_required tools/call", "input_required prompts/get"]);
        expected.push("Server notifications/subscriptions/acknowledged");
    }
    let both: Vec<_> = ["before", "behind"]
        .into_iter()
        .flat_map(|hop| expected.iter().map(move |one| (hop, *one)))
        .collect();
    let seen = eventually("all of it was seen", async || {
        let (seen, kinds) = (line.seen(), kinds(&line.seen()));
        both.iter().all(|(hop, what)| kinds.contains(&(*hop, (*what).to_owned()))).then_some(seen)
    })
    .await;
    holds(&seen, &both);
}

fn holds(seen: &[Seen], expected: &[(&'static str, &str)]) {
    let kinds = kinds(seen);
    for (hop, what) in expected {
        assert!(kinds.contains(&(*hop, (*what).to_owned())), "{hop}: no {what} in {kinds:?}");
    }
    for side in [Side::Client, Side::Server] {
        assert!(seen.iter().filter(|one| one.from == side).count() > 20, "{kinds:?}");
    }
    let mut schemas = Schemas::read();
    let complaints: Vec<_> = seen.iter().flat_map(|one| schemas.complaints(one)).collect();
    assert!(complaints.is_empty(), "{} of them:\n{}", complaints.len(), complaints.join("\n"));
}

#[tokio::test]
async fn what_passes_for_a_client_of_2025_03_26_meets_the_schemas() {
    prefixed("2025-03-26", ALL).await;
    through("2025-03-26", ALL).await;
    through("2025-03-26", V_2025_03).await;
}

#[tokio::test]
async fn what_passes_for_a_client_of_2025_06_18_meets_the_schemas() {
    prefixed("2025-06-18", ALL).await;
    through("2025-06-18", ALL).await;
    through("2025-06-18", V_2025_06).await;
}

#[tokio::test]
async fn what_passes_for_a_client_of_2025_11_25_meets_the_schemas() {
    prefixed("2025-11-25", ALL).await;
    through("2025-11-25", ALL).await;
    through("2025-11-25", V_2025_11).await;
}

#[tokio::test]
async fn what_passes_for_a_client_of_2026_07_28_meets_the_schemas() {
    prefixed(NEWEST, ALL).await;
    through(NEWEST, ALL).await;
}

#[tokio::test]
async fn what_passes_between_a_client_of_2026_07_28_and_older_servers_meets_the_schemas() {
    for server in [V_2025_03, V_2025_06, V_2025_11] {
        prefixed(NEWEST, server).await;
        through(NEWEST, server).await;
    }
}
