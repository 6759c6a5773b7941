//! People, servers and calls around a [`House`].

use std::time::Duration;

use http::Method;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use tests::{
    peer::{Answer, Peer, Setup, tool},
    world::eventually,
};
use tokio::task::JoinHandle;

use super::house::{House, Up};
use crate::gateway::{Reply, as_pairs, initialize, modern};

/// An installation with three servers whose tools hold their calls until they are released.
pub(super) struct Scene {
    pub(super) house: House,
    pub(super) admin: String,
    agent: String,
    /// `wide` and `narrow`: its calls stay as they are.
    pub(super) still: Peer,
    /// `prompt` and `single`: its calls are released when the test wants answers.
    pub(super) prompt: Peer,
    /// Allows everything.
    pub(super) free: String,
    /// Asks before each call.
    pub(super) asking: String,
    http: reqwest::Client,
}

/// What a client got: the call's result, or that the line broke.
pub(super) type Ended = Result<Value, String>;

impl Scene {
    pub(super) async fn new() -> (Self, Up) {
        let house = House::new();
        let up = house.up().await;
        let setup = || Setup { tools: vec![tool("echo"), tool("large")], ..Setup::modern() };
        let (still, prompt) = (Peer::start(setup()).await, Peer::start(setup()).await);
        for peer in [&still, &prompt] {
            peer.answer("echo", Answer::Echo.held());
            // More than sits in a row: such a result is stored before the call is closed.
            peer.answer("large", Answer::Large(100_000).held());
        }
        let mut scene = Self {
            admin: house.file("admin-token"),
            agent: house.file("agent-token"),
            still,
            prompt,
            free: String::new(),
            asking: String::new(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            house,
        };
        let mut servers = Vec::new();
        for (slug, peer, most) in [
            ("wide", &scene.still, 16),
            ("narrow", &scene.still, 1),
            ("prompt", &scene.prompt, 16),
            ("single", &scene.prompt, 1),
        ] {
            servers.push(scene.register(&up, slug, peer, most).await);
        }
        scene.free = scene.session(&up, &servers, "always_allow").await;
        scene.asking = scene.session(&up, &servers, "ask_for_dangerous").await;
        (scene, up)
    }

    /// An enabled server whose tools are known: its id.
    pub(super) async fn register(&self, up: &Up, slug: &str, peer: &Peer, most: u32) -> Value {
        let form = json!({
            "name": slug, "slug": slug, "transport": "http", "url": peer.url(), "authMode": "none",
            "enabled": true, "governance": {"maxConcurrent": most},
        });
        let server = self.ask(up, Method::POST, "/api/mcp/servers", Some(form)).await;
        let refresh = format!("/api/mcp/servers/{slug}/tools/refresh");
        self.ask(up, Method::POST, &refresh, None).await;
        server["id"].clone()
    }

    async fn session(&self, up: &Up, servers: &[Value], mode: &str) -> String {
        let form = json!({ "title": mode, "enabledSourceIds": servers, "approvalMode": mode });
        let session = self.ask(up, Method::POST, "/api/sessions", Some(form)).await;
        session["id"].as_str().unwrap().to_owned()
    }

    /// A request of the admin that must succeed.
    pub(super) async fn ask(
        &self,
        up: &Up,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Value {
        let (status, value) = self.try_ask(up, method, path, body).await;
        assert!(status.is_success(), "{path}: {status} {value}; {}", self.house.log());
        value
    }

    pub(super) async fn try_ask(
        &self,
        up: &Up,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let url = format!("{}{path}", up.url);
        let mut request = self.http.request(method, url).bearer_auth(&self.admin);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap_or_default())
    }

    /// Answers the only open question, as soon as the service can.
    pub(super) async fn allow(&self, up: &Up) -> Value {
        eventually("the question is decided", async || {
            let path = "/api/permission-requests?state=pending";
            let (status, pending) = self.try_ask(up, Method::GET, path, None).await;
            if !status.is_success() {
                return None;
            }
            let pending = pending["items"].as_array().unwrap();
            assert_eq!(pending.len(), 1, "{pending:?}");
            let id = pending[0]["id"].as_str().unwrap();
            let path = format!("/api/permission-requests/{id}/decision");
            let decision = json!({ "decision": "allow_once" });
            let (status, decided) = self.try_ask(up, Method::POST, &path, Some(decision)).await;
            // One that the database lost the connection of may be taken all the same.
            status.is_success().then_some(decided)
        })
        .await
    }

    /// Begins a call of 2026-07-28 in the session that allows everything.
    pub(super) fn call(&self, up: &Up, tool: &str, label: &str) -> JoinHandle<Ended> {
        let params = json!({ "name": tool, "arguments": { "label": label } }).to_string();
        let (headers, body) = modern("tools/call", &params);
        let mut request = self.post(up, &self.free).body(body);
        for (name, value) in as_pairs(&headers) {
            request = request.header(name, value);
        }
        tokio::spawn(finish(request))
    }

    /// Begins a call of the older protocol in the session that asks.
    pub(super) async fn older_call(&self, up: &Up, tool: &str, label: &str) -> JoinHandle<Ended> {
        let begun =
            self.post(up, &self.asking).body(initialize("2025-06-18")).send().await.unwrap();
        let mcp_session = begun.headers()["mcp-session-id"].clone();
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": {"label": label}}});
        let request = self.post(up, &self.asking).header("mcp-session-id", mcp_session);
        tokio::spawn(finish(request.body(message.to_string())))
    }

    /// Begins a call of a client of 2026-07-28 that shows pages, in the session that asks.
    pub(super) fn page_call(&self, up: &Up, params: &Value) -> JoinHandle<Ended> {
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "url": {} } },
        });
        let name = params["name"].as_str().unwrap().to_owned();
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let request = self
            .post(up, &self.asking)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", name);
        tokio::spawn(finish(request.body(message.to_string())))
    }

    fn post(&self, up: &Up, session: &str) -> reqwest::RequestBuilder {
        self.http
            .post(format!("{}/mcp/{session}", up.url))
            .bearer_auth(&self.agent)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
    }

    /// A call that runs to its end, tried until the service is back to work.
    pub(super) async fn call_works(&self, up: &Up, label: &str) {
        let begin = tokio::time::Instant::now();
        self.prompt.release();
        for number in 0.. {
            let label = format!("{label}{number}");
            let ended = self.call(up, "mcp__prompt__echo", &label).await.unwrap();
            if ended.as_ref().is_ok_and(|result| result["structuredContent"]["label"] == label) {
                return;
            }
            let patience = begin.elapsed() < Duration::from_secs(30);
            assert!(patience, "calls do not work again: {ended:?}; {}", self.house.log());
        }
    }
}

async fn finish(request: reqwest::RequestBuilder) -> Ended {
    let words = |error: reqwest::Error| error.to_string();
    let response = request.send().await.map_err(words)?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let reply = Reply { status, headers, body: response.text().await.map_err(words)? };
    let messages = reply.messages();
    let last = messages.last().ok_or("a stream without a message")?;
    let message: Value =
        serde_json::from_str(last).map_err(|error| format!("{error}: {reply:?}"))?;
    match message.get("result") {
        Some(result) => Ok(result.clone()),
        None => Err(message.to_string()),
    }
}

/// Statements of the app role that wait for a lock, whose text contains `part`.
pub(super) async fn blocked(pool: &PgPool, part: &str) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity
         WHERE usename = 'bailiwick_app' AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'",
    )
    .bind(part)
    .fetch_one(pool)
    .await
    .unwrap()
}

/// Waits until that many statements are blocked.
pub(super) async fn until_blocked(pool: &PgPool, part: &str, count: i64) {
    let what = format!("{count} × {part} is blocked");
    eventually(&what, async || (blocked(pool, part).await == count).then_some(())).await;
}

/// The live state of the call with that label, or how it ended; `None`: it is not known.
pub(super) async fn state(pool: &PgPool, label: &str) -> Option<String> {
    let states: Vec<String> = sqlx::query_scalar(
        "SELECT coalesce(i.status, c.state) FROM invocations i
         JOIN cas_objects o ON o.tenant_id = i.tenant_id AND o.sha256 = i.request_sha256
         LEFT JOIN tool_calls c ON c.tenant_id = i.tenant_id AND c.execution_id = i.execution_id
              AND c.call_id = i.call_id
         WHERE convert_from(o.body, 'UTF8')::jsonb -> 'input' ->> 'label' = $1",
    )
    .bind(label)
    .fetch_all(pool)
    .await
    .unwrap();
    assert!(states.len() <= 1, "{label}: {states:?}");
    states.into_iter().next()
}

pub(super) async fn until_state(pool: &PgPool, label: &str, wished: &str) {
    eventually(&format!("{label} is {wished}"), async || {
        (state(pool, label).await.as_deref() == Some(wished)).then_some(())
    })
    .await;
}

/// Locks the live row of a call: whatever would change it waits.
pub(super) async fn lock_live_row(lock: &mut PgConnection, label: &str) {
    lock_row(
        lock,
        "SELECT 1 FROM tool_calls c
         JOIN invocations i ON i.tenant_id = c.tenant_id AND i.invocation_id = c.invocation_id
         JOIN cas_objects o ON o.tenant_id = i.tenant_id AND o.sha256 = i.request_sha256
         WHERE convert_from(o.body, 'UTF8')::jsonb -> 'input' ->> 'label' = $1 FOR UPDATE OF c",
        label,
    )
    .await;
}

/// Locks the record of a call: it cannot be closed, but its result can be noted as stored.
pub(super) async fn lock_record(lock: &mut PgConnection, label: &str) {
    lock_row(
        lock,
        "SELECT 1 FROM invocations i
         JOIN cas_objects o ON o.tenant_id = i.tenant_id AND o.sha256 = i.request_sha256
         WHERE convert_from(o.body, 'UTF8')::jsonb -> 'input' ->> 'label' = $1 FOR UPDATE OF i",
        label,
    )
    .await;
}

async fn lock_row(lock: &mut PgConnection, sql: &'static str, label: &str) {
    let locked = sqlx::query(sql).bind(label).fetch_all(lock).await.unwrap();
    assert_eq!(locked.len(), 1, "{label}");
}
