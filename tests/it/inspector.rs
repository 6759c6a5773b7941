//! The Inspector: a tool tried by hand, governed as every call.

use domain::{Role, invocation::Status, permission::ApprovalMode};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    peer::{Answer, Setup, tool},
    world::{Person, World, eventually},
};

use crate::gateway::Gateway;

const PATH: &str = "/api/mcp/servers/demo/inspect";

/// A session that asks, of somebody who may approve.
struct Bench {
    gateway: Gateway,
    full: String,
}

impl Bench {
    async fn new() -> Self {
        Self::with(Setup::modern()).await
    }

    async fn with(setup: Setup) -> Self {
        let gateway = Gateway::new(setup).await;
        gateway.ask_first().await;
        let full = gateway.world.full_token(&gateway.person).await;
        Self { gateway, full }
    }

    fn world(&self) -> &World {
        &self.gateway.world
    }

    fn form(&self, tool: &str, input: &Value) -> Value {
        json!({ "sessionId": self.gateway.session, "toolName": tool, "input": input })
    }

    async fn inspect(&self, tool: &str, input: Value) -> Value {
        let (status, answer) = self.world().post(&self.full, PATH, self.form(tool, &input)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    async fn done(&self, path: &str, body: Value) {
        let (status, answer) = self.world().put(&self.full, path, body).await;
        assert!(status.is_success(), "{answer}");
    }

    /// A session of that person's own.
    async fn session(&self, person: &Person) -> Value {
        let token = self.world().token(person, "api:write").await;
        let (_, made) = self.world().post(&token, "/api/sessions", json!({})).await;
        made["id"].clone()
    }
}

#[tokio::test]
async fn a_trial_is_a_governed_call_that_asks_nobody() {
    let bench = Bench::new().await;
    let answer = bench.inspect("echo", json!({ "b": 1, "a": [] })).await;
    assert_eq!(answer["ok"], true, "{answer}");
    assert!(answer["durationMs"].is_u64());
    assert_eq!(answer["raw"]["structuredContent"], json!({ "b": 1, "a": [] }));
    assert_eq!(answer["result"]["data"]["structuredContent"], json!({ "b": 1, "a": [] }));
    assert_eq!(answer["result"]["untrusted"], true);
    assert_eq!(answer["result"]["invocationId"], answer["invocationId"]);
    assert!(answer.get("error").is_none());

    let [record] = &bench.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(answer["invocationId"], record.id.to_string());
    assert_eq!(record.status, Status::Succeeded);
    assert_eq!((record.origin.as_str(), record.asked_name.as_str()), ("inspector", "echo"));
    let path = format!("/api/sessions/{}/permission-authorizations", bench.gateway.session);
    let (_, page) = bench.world().get(&bench.full, &path).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!(page["items"][0]["source"], "inspector");
    assert_eq!(page["items"][0]["id"], record.authorization.unwrap().to_string());
}

#[tokio::test]
async fn what_is_sent_is_what_was_written() {
    let bench = Bench::new().await;
    let input = r#"{"n":12345678901234567890123,"m": 1.50}"#;
    let body =
        format!(r#"{{"sessionId":"{}","toolName":"echo","input":{input}}}"#, bench.gateway.session);
    let url = bench.world().url.join(PATH).unwrap();
    let request = bench.world().client().post(url).bearer_auth(&bench.full);
    let answer =
        request.header("content-type", "application/json").body(body).send().await.unwrap();
    let text = answer.text().await.unwrap();
    assert_eq!(bench.gateway.peer.calls()[0].arguments.as_deref(), Some(input));
    assert!(text.contains("12345678901234567890123") && text.contains("1.50"), "{text}");
}

#[tokio::test]
async fn a_failed_trial_is_an_answer_too_and_says_why() {
    let strict = r#"{"name":"strict","inputSchema":{"type":"object","required":["n"]}}"#;
    let tools = vec![tool("echo"), strict.to_owned()];
    let bench = Bench::with(Setup { tools, ..Setup::modern() }).await;

    let unfit = bench.inspect("strict", json!({})).await;
    assert_eq!((&unfit["ok"], &unfit["error"]["code"]), (&json!(false), &json!("INVALID_INPUT")));
    assert!(unfit["error"]["details"]["errors"].is_array(), "{unfit}");

    let unknown = bench.inspect("nothing", json!({})).await;
    assert_eq!(unknown["error"]["code"], "NOT_FOUND");

    let own = r#"{"isError":true,"content":[{"type":"text","text":"no"}]}"#;
    bench.gateway.peer.answer("echo", Answer::Result(own.to_owned()));
    let own = bench.inspect("echo", json!({})).await;
    assert_eq!((&own["ok"], &own["error"]["code"]), (&json!(false), &json!("TOOL_ERROR")));
    assert_eq!(own["raw"]["content"][0]["text"], "no");

    bench.gateway.peer.answer("echo", Answer::Error { code: -1, message: "broken".to_owned() });
    let broken = bench.inspect("echo", json!({})).await;
    assert_eq!(broken["error"]["untrusted"], "broken", "{broken}");
    let records = bench.gateway.invocations().await;
    assert_eq!(records.len(), 4);
    assert!(records.iter().all(|one| one.status == Status::Failed));
}

#[tokio::test]
async fn it_reaches_a_server_that_is_not_selected_and_selects_nothing() {
    let bench = Bench::new().await;
    let world = bench.world();
    // The tenant selects nothing; the session is narrowed to nothing.
    let path = format!("/api/sessions/{}", bench.gateway.session);
    let (_, before) = world.patch(&bench.full, &path, json!({ "enabledSourceIds": [] })).await;
    assert_eq!(bench.inspect("echo", json!({})).await["ok"], true);
    let (_, after) = world.get(&bench.full, &path).await;
    assert_eq!(after, before);
    // An agent of the same session still reaches nothing.
    let reply = bench.gateway.modern("tools/call", r#"{"name":"mcp__demo__echo"}"#).await;
    assert_eq!(reply.json()["error"]["data"]["code"], "NOT_FOUND");
}

#[tokio::test]
async fn a_member_tries_what_the_tenant_selects_and_nothing_else() {
    let bench = Bench::new().await;
    let world = bench.world();
    let bob = world.user(&bench.gateway.person.tenant, "bob@acme.test", Role::Member).await;
    let token = world.token(&bob, "approve").await;
    let form = |session: &Value| json!({ "sessionId": session, "toolName": "echo", "input": {} });
    let session = bench.session(&bob).await;

    let (status, _) = world.post(&token, PATH, form(&session)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let selection = json!({ "enabledSourceIds": [bench.gateway.server] });
    let (status, _) = world.patch(&bench.full, "/api/tenant", selection).await;
    assert_eq!(status, StatusCode::OK);
    let (status, answer) = world.post(&token, PATH, form(&session)).await;
    assert_eq!((status, &answer["ok"]), (StatusCode::OK, &json!(true)), "{answer}");

    // In nobody else's session, and in no archived one.
    let foreign = json!(bench.gateway.session);
    let (status, _) = world.post(&token, PATH, form(&foreign)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let write = world.token(&bob, "api:write").await;
    world.delete(&write, &format!("/api/sessions/{}", session.as_str().unwrap())).await;
    let (status, answer) = world.post(&token, PATH, form(&session)).await;
    assert_eq!((status, &answer["code"]), (StatusCode::CONFLICT, &json!("SESSION_ARCHIVED")));
    bench.done("/api/mcp/servers/demo/status", json!({ "enabled": false })).await;
    let session = bench.session(&bob).await;
    let (status, _) = world.post(&token, PATH, form(&session)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(bench.gateway.peer.calls().len(), 1);
}

#[tokio::test]
async fn policy_switches_and_quarantine_bind_it() {
    let bench = Bench::new().await;
    let code = async || bench.inspect("echo", json!({})).await["error"]["code"].clone();
    let echo = "/api/mcp/servers/demo/tools/echo";
    bench.done(echo, json!({ "policy": "deny" })).await;
    assert_eq!(code().await, "PERMISSION_DENIED");
    bench.done(echo, json!({ "policy": "ask", "enabled": false })).await;
    assert_eq!(code().await, "SOURCE_DISABLED");
    bench.done(echo, json!({ "enabled": true })).await;
    bench.gateway.peer.change(|setup| {
        setup.tools = vec![tool("echo").replace("a tool", "another tool")];
    });
    let (ctx, server) = (&bench.world().ctx, &bench.gateway.server);
    app::discovery::run(ctx, bench.gateway.owner.tenant, server, None).await.unwrap();
    assert_eq!(code().await, "TOOL_CHANGED");
    bench.done("/api/mcp/servers/demo/status", json!({ "enabled": false })).await;
    assert_eq!(code().await, "SOURCE_DISABLED");
    assert!(bench.gateway.peer.calls().is_empty());
}

#[tokio::test]
async fn only_approve_may_and_a_calling_token_never() {
    let bench = Bench::new().await;
    let world = bench.world();
    for scopes in ["mcp:call", "mcp:call,api:read,api:write,admin", "api:read,api:write,admin"] {
        let token = world.token(&bench.gateway.person, scopes).await;
        for path in [PATH, "/api/mcp/servers/nobody/inspect"] {
            let (status, answer) = world.post(&token, path, bench.form("echo", &json!({}))).await;
            assert_eq!((status, &answer["code"]), (StatusCode::FORBIDDEN, &json!("DENIED")));
        }
    }
    assert!(bench.gateway.invocations().await.is_empty());
}

#[tokio::test]
async fn a_token_of_single_tools_tries_these() {
    let tools = vec![tool("echo"), tool("other")];
    let bench = Bench::with(Setup { tools, ..Setup::modern() }).await;
    let form = json!({
        "name": "one", "scopes": ["approve", "admin"], "tools": ["mcp__demo__echo"],
    });
    let (status, minted) = bench.world().post(&bench.full, "/api/tokens", form).await;
    assert_eq!(status, StatusCode::CREATED, "{minted}");
    let token = minted["token"].as_str().unwrap();
    for (tool, ok) in [("echo", true), ("other", false)] {
        let (_, answer) = bench.world().post(token, PATH, bench.form(tool, &json!({}))).await;
        assert_eq!(answer["ok"], ok, "{answer}");
    }
}

#[tokio::test]
async fn closing_the_request_cancels_the_call() {
    let bench = Bench::new().await;
    bench.gateway.peer.answer("echo", Answer::Echo.held());
    let url = bench.world().url.join(PATH).unwrap();
    let form = bench.form("echo", &json!({}));
    let request = bench.world().client().post(url).bearer_auth(&bench.full).json(&form).send();
    let request = tokio::spawn(request);
    bench.gateway.peer.until("it is there", |peer| peer.held() == 1).await;
    request.abort();
    bench.gateway.until(Status::Cancelled).await;
    bench.gateway.peer.until("the server's request is closed", |peer| peer.held() == 0).await;
}

#[tokio::test]
async fn a_trial_of_a_dead_node_is_closed_by_the_reaper() {
    let bench = Bench::new().await;
    bench.gateway.peer.answer("echo", Answer::Echo.held());
    let url = bench.world().url.join(PATH).unwrap();
    let form = bench.form("echo", &json!({}));
    let request = bench.world().client().post(url).bearer_auth(&bench.full).json(&form).send();
    let request = tokio::spawn(request);
    bench.gateway.peer.until("it is there", |peer| peer.held() == 1).await;
    // A node that is not in the table is as dead as one whose lease is over.
    eventually("it is reaped", async || {
        let reaped = app::broker::reap(&bench.world().ctx, 10).await.unwrap();
        (reaped == 1).then_some(())
    })
    .await;
    let [record] = &bench.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(record.error_code.as_deref(), Some("INTERRUPTED"));
    bench.gateway.peer.release();
    let answer: Value = request.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(answer["error"]["code"], "INTERRUPTED");
}

#[tokio::test]
async fn a_form_that_does_not_fit_is_refused_and_leaves_nothing() {
    let bench = Bench::new().await;
    let good = bench.form("echo", &json!({}));
    let mut forms = Vec::new();
    for (member, value) in [
        ("toolName", json!("")),
        ("toolName", json!("a\u{0}")),
        ("toolName", json!("x".repeat(300))),
        ("toolName", Value::Null),
        ("sessionId", json!("nobody")),
        ("mode", json!("fast")),
    ] {
        let mut form = good.clone();
        form[member] = value;
        forms.push(form);
    }
    for member in ["toolName", "input", "sessionId"] {
        let mut form = good.clone();
        form.as_object_mut().unwrap().remove(member);
        forms.push(form);
    }
    for form in forms {
        let (status, answer) = bench.world().post(&bench.full, PATH, form.clone()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{form}: {answer}");
    }
    assert!(bench.gateway.invocations().await.is_empty());
    // An input that is no object is a call that failed.
    let answer = bench.inspect("echo", json!([1])).await;
    assert_eq!(answer["error"]["code"], "INVALID_INPUT");
}

#[tokio::test]
async fn always_allow_does_not_hide_that_it_was_a_trial() {
    let bench = Bench::new().await;
    let (ctx, owner) = (&bench.world().ctx, &bench.gateway.owner);
    let mode = ApprovalMode::AlwaysAllow;
    app::sessions::set_mode(ctx, owner, bench.gateway.session, mode).await.unwrap();
    bench.inspect("echo", json!({})).await;
    let path = format!("/api/sessions/{}/permission-authorizations", bench.gateway.session);
    let (_, page) = bench.world().get(&bench.full, &path).await;
    assert_eq!(page["items"][0]["source"], "inspector");
}
