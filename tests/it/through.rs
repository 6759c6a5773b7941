//! The pass-through form: one server under its own names, over real HTTP.

mod clock;
mod door;
mod headers;
mod lists;
mod newer;
mod older;
mod programs;
mod questions;
mod refused;
mod rounds;
mod sessions;
mod streams;
mod told;
mod transports;

use std::collections::VecDeque;

use domain::{invocation::Status, permission::ApprovalMode};
use http::Method;
use serde_json::{Value, json};
use tests::{peer::Setup, world::World};

use crate::gateway::{Gateway, Reply, as_pairs, session};

/// A gateway, and the pass-through endpoint of its one server.
pub(crate) struct Through {
    gateway: Gateway,
    /// The server of the endpoint, by its slug.
    source: &'static str,
}

impl std::ops::Deref for Through {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

/// What an older client says of itself when it can be asked anything.
fn everything() -> Value {
    json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": { "listChanged": true } })
}

impl Through {
    async fn new(setup: Setup) -> Self {
        Self { gateway: Gateway::new(setup).await, source: "demo" }
    }

    /// With a server as this form says, and not the peer.
    async fn to(world: World, mut form: Value) -> Self {
        let mut gateway = Gateway::in_world(Setup::older(), world).await;
        form["name"] = json!("other");
        form["slug"] = json!("other");
        form["authMode"] = json!("none");
        form["enabled"] = json!(true);
        form["governance"] = json!({ "maxConcurrent": 64 });
        let (ctx, owner) = (&gateway.world.ctx, &gateway.owner);
        let form = serde_json::from_value(form).unwrap();
        gateway.server = app::servers::create(ctx, owner, form).await.unwrap().server.id;
        app::discovery::run(ctx, owner.tenant, &gateway.server, None).await.unwrap();
        let mode = ApprovalMode::AlwaysAllow;
        gateway.session = session(&gateway.world, owner, &gateway.server, mode).await;
        Self { gateway, source: "other" }
    }

    fn path(&self) -> String {
        format!("/mcp/{}?prefix=off&sources={}", self.session, self.source)
    }

    async fn post(&self, headers: &[(&str, &str)], body: impl Into<String>) -> Reply {
        self.post_as(&self.token, &self.path(), headers, body.into()).await
    }

    /// The body of a request of 2026-07-28 with these client capabilities.
    async fn modern_with(&self, method: &str, params: &Value, capabilities: &Value) -> Reply {
        let (headers, body) = modern(method, params, capabilities, &json!({}));
        self.post(&as_pairs(&headers), body).await
    }

    async fn modern(&self, method: &str, params: Value) -> Reply {
        self.modern_with(method, &params, &json!({})).await
    }

    /// `Mcp-Session-Id` of a new session of 2025-11-25.
    async fn initialize(&self, capabilities: &Value) -> String {
        let reply = self.begin(capabilities).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.header("mcp-session-id").to_owned()
    }

    async fn begin(&self, capabilities: &Value) -> Reply {
        self.begin_as("2025-11-25", capabilities).await
    }

    async fn begin_as(&self, version: &str, capabilities: &Value) -> Reply {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"},
        }});
        self.post(&[], body.to_string()).await
    }

    async fn older(&self, session: &str, method: &str, params: &Value) -> Reply {
        self.post(&[("mcp-session-id", session)], request(method, params)).await
    }

    /// A request whose answer is read event by event.
    async fn open(&self, headers: &[(&str, &str)], body: String) -> Stream {
        let request = self.request(Method::POST, &self.token, &self.path(), headers, body);
        Stream::of(request.send().await.unwrap())
    }

    async fn open_older(&self, session: &str, method: &str, params: &Value) -> Stream {
        self.open(&[("mcp-session-id", session)], request(method, params)).await
    }

    /// What the client answers to a question.
    async fn answer(&self, session: &str, id: &Value, result: &Value) -> u16 {
        let body = json!({"jsonrpc": "2.0", "id": id, "result": result});
        self.post(&[("mcp-session-id", session)], body.to_string()).await.status
    }

    /// The standing stream of an older session.
    async fn get(&self, session: &str) -> Stream {
        let headers = [("mcp-session-id", session)];
        let request = self.request(Method::GET, &self.token, &self.path(), &headers, "");
        Stream::of(request.send().await.unwrap())
    }

    async fn subscribe(&self, filter: Value) -> Stream {
        let params = json!({ "notifications": filter });
        let (headers, body) = modern("subscriptions/listen", &params, &json!({}), &json!({}));
        self.open(&as_pairs(&headers), body).await
    }

    async fn http(&self, method: Method, session: &str) -> Reply {
        let headers = [("mcp-session-id", session)];
        self.send(method, &self.token, &self.path(), &headers, "").await
    }

    /// Lets the server ask clients to use their model.
    async fn relay_sampling(&self) {
        self.sql("UPDATE mcp_servers SET governance = governance || '{\"relaySampling\": true}'")
            .await;
    }

    /// What no use case does in one step.
    async fn sql(&self, statement: &'static str) {
        sqlx::query(statement).execute(&self.world.owner().await).await.unwrap();
    }

    /// Status and number of attempts of each call, newest first.
    async fn calls(&self) -> Vec<(Status, usize)> {
        let calls = self.invocations().await;
        let attempts = |value: &Value| value.as_array().map_or(0, Vec::len);
        calls.iter().map(|call| (call.status, attempts(&call.attempts))).collect()
    }
}

fn request(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// Headers and body of a request of 2026-07-28.
fn modern(
    method: &str,
    params: &Value,
    capabilities: &Value,
    meta: &Value,
) -> (Vec<(String, String)>, String) {
    let mut headers = vec![
        ("mcp-protocol-version".to_owned(), "2026-07-28".to_owned()),
        ("mcp-method".to_owned(), method.to_owned()),
    ];
    let member = if method == "resources/read" { "uri" } else { "name" };
    if matches!(method, "tools/call" | "resources/read" | "prompts/get")
        && let Some(name) = params[member].as_str()
    {
        headers.push(("mcp-name".to_owned(), name.to_owned()));
    }
    let mut params = params.clone();
    let mut own = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    for (key, value) in meta.as_object().unwrap() {
        own[key] = value.clone();
    }
    params["_meta"] = own;
    (headers, request(method, &params))
}

/// An answer whose messages are read as they come.
struct Stream {
    response: reqwest::Response,
    text: String,
    ready: VecDeque<Value>,
}

impl Stream {
    fn of(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        Self { response, text: String::new(), ready: VecDeque::new() }
    }

    /// The next message; panics after 20 s.
    async fn next(&mut self) -> Value {
        self.maybe_next().await.expect("the stream ended")
    }

    /// `None` at the end of the stream.
    async fn maybe_next(&mut self) -> Option<Value> {
        let reading = async {
            loop {
                if let Some(message) = self.ready.pop_front() {
                    return Some(message);
                }
                let chunk = self.response.chunk().await.unwrap()?;
                self.text.push_str(std::str::from_utf8(&chunk).unwrap());
                self.split();
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(20), reading).await;
        waited.expect("a message within 20 s")
    }

    fn split(&mut self) {
        if self.response.headers()["content-type"] == "application/json" {
            if let Ok(message) = serde_json::from_str(&self.text) {
                self.ready.push_back(message);
            }
            return;
        }
        while let Some((event, rest)) = self.text.split_once("\n\n") {
            let data: Vec<&str> =
                event.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            if !data.is_empty() {
                self.ready.push_back(serde_json::from_str(&data.join("\n")).unwrap());
            }
            self.text = rest.to_owned();
        }
    }
}
