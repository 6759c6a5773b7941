//! A client of either era, which answers what it is asked.

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use url::Url;

use super::wiretap::Events;

pub(super) const NEWEST: &str = "2026-07-28";

#[derive(Debug)]
pub(super) struct Agent {
    http: reqwest::Client,
    url: Url,
    token: String,
    pub(super) version: &'static str,
    session: Option<String>,
    ids: AtomicU64,
    /// Notifications.
    heard: Mutex<Vec<Value>>,
}

impl Agent {
    pub(super) async fn connect(url: Url, token: &str, version: &'static str) -> Arc<Self> {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let (token, ids, heard) = (token.to_owned(), AtomicU64::new(1), Mutex::default());
        let mut agent = Self { http, url, token, version, session: None, ids, heard };
        if version == NEWEST {
            assert!(agent.ask("server/discover", json!({})).await["result"].is_object());
            return Arc::new(agent);
        }
        let params = json!({
            "protocolVersion": version, "capabilities": agent.capabilities(), "clientInfo": about(),
        });
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = agent.request(&message).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let session = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        agent.session = Some(session);
        let mut agreed = Value::Null;
        let agent = Arc::new(agent);
        agent
            .read(answer, |message| {
                agreed = message["result"]["protocolVersion"].clone();
                ControlFlow::Break(())
            })
            .await;
        assert_eq!(agreed, version);
        agent.tell("notifications/initialized", json!({})).await;
        agent
    }

    fn capabilities(&self) -> Value {
        let mut all = json!({ "sampling": {}, "roots": {}, "elicitation": {} });
        if self.version == "2025-03-26" {
            all.as_object_mut().unwrap().remove("elicitation");
        }
        all
    }

    fn request(&self, message: &Value) -> RequestBuilder {
        let mut request = self.http(Method::POST).json(message);
        let (method, params) = (message["method"].as_str(), &message["params"]);
        if self.version == NEWEST {
            request = request.header("mcp-method", method.unwrap());
            if let Some(name) = params["name"].as_str().or(params["uri"].as_str()) {
                request = request.header("mcp-name", name);
            }
            if let Some(region) = params["arguments"]["region"].as_str() {
                request = request.header("mcp-param-region", region);
            }
        }
        request
    }

    fn http(&self, method: Method) -> RequestBuilder {
        let mut request = self.http.request(method, self.url.clone()).bearer_auth(&self.token);
        request = request.header("accept", "application/json, text/event-stream");
        // The first version with sessions had no such header.
        if self.session.is_some() && self.version != "2025-03-26" || self.version == NEWEST {
            request = request.header("mcp-protocol-version", self.version);
        }
        match &self.session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    }

    /// The whole answer; what the server needs on the way, it is given.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Value {
        let mut params = params;
        for _ in 0..5 {
            let answer = self.ask_once(method, params.clone(), |_| ControlFlow::Continue(())).await;
            let answer = answer.expect("the stream ends with the answer");
            if answer["result"]["resultType"] != "input_required" {
                return answer;
            }
            let asked = answer["result"]["inputRequests"].as_object().unwrap();
            let given = asked.iter().map(|(key, question)| {
                let method = question["method"].as_str().unwrap();
                (key.clone(), reply(method, &question["params"]))
            });
            params["inputResponses"] = Value::Object(given.collect());
            if let Some(state) = answer["result"].get("requestState") {
                params["requestState"] = state.clone();
            }
        }
        panic!("{method} never ends");
    }

    /// `None`: `each`, which sees every message before the answer, ended it.
    pub(super) async fn ask_once(
        &self,
        method: &str,
        params: Value,
        mut each: impl FnMut(&Value) -> ControlFlow<()>,
    ) -> Option<Value> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let mut params = params;
        if self.version == NEWEST {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": NEWEST,
                "io.modelcontextprotocol/clientInfo": about(),
                "io.modelcontextprotocol/clientCapabilities": self.capabilities(),
                "io.modelcontextprotocol/logLevel": "debug",
            });
            for (key, value) in meta.as_object().unwrap() {
                params["_meta"][key] = value.clone();
            }
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let answer = self.request(&message).send().await.unwrap();
        let mut found = None;
        self.read(answer, |message| {
            if message.get("method").is_some() {
                return each(message);
            }
            assert_eq!(message["id"], id);
            found = Some(message.clone());
            ControlFlow::Break(())
        })
        .await;
        found
    }

    pub(super) async fn tell(&self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        assert_eq!(self.request(&message).send().await.unwrap().status(), 202);
    }

    /// Reads until `each` says that it is enough, and answers what the server asks.
    async fn read(
        &self,
        mut answer: reqwest::Response,
        mut each: impl FnMut(&Value) -> ControlFlow<()>,
    ) {
        let media_type = answer.headers()["content-type"].to_str().unwrap().to_owned();
        if media_type.starts_with("application/json") {
            let message: Value = answer.json().await.unwrap();
            let _ = each(&message);
            return;
        }
        let mut events = Events::default();
        while let Some(piece) = answer.chunk().await.unwrap() {
            for message in events.read(&piece) {
                if each(&message).is_break() {
                    return;
                }
                let Some(method) = message["method"].as_str() else { continue };
                if let Some(id) = message.get("id") {
                    let result = reply(method, &message["params"]);
                    let reply = json!({"jsonrpc": "2.0", "id": id, "result": result});
                    assert_eq!(self.request(&reply).send().await.unwrap().status(), 202);
                } else {
                    self.heard.lock().unwrap().push(message);
                }
            }
        }
    }

    /// An older client's stream of its own; and what a newer one listens to.
    pub(super) async fn listen(self: &Arc<Self>) {
        let agent = Arc::clone(self);
        if self.version == NEWEST {
            let wish = json!({ "notifications": {
                "toolsListChanged": true, "promptsListChanged": true,
                "resourceSubscriptions": ["test://watched-resource"],
            } });
            tokio::spawn(async move {
                agent
                    .ask_once("subscriptions/listen", wish, |message| {
                        agent.heard.lock().unwrap().push(message.clone());
                        ControlFlow::Continue(())
                    })
                    .await
            });
            self.hears("notifications/subscriptions/acknowledged", async || {}).await;
            return;
        }
        let stream = self.http(Method::GET).send().await.unwrap();
        assert_eq!(stream.status(), 200);
        tokio::spawn(async move { agent.read(stream, |_| ControlFlow::Continue(())).await });
    }

    /// Waits for that notification, and does each time anew what brings it about.
    pub(super) async fn hears(&self, method: &str, again: impl AsyncFn()) {
        for _ in 0..20 {
            again().await;
            for _ in 0..40 {
                if self.heard.lock().unwrap().iter().any(|one| one["method"] == method) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        }
        panic!("{method} was not heard in 20 s");
    }

    /// Ends an older client's session.
    pub(super) async fn leave(&self) {
        if self.session.is_some() {
            assert!(self.http(Method::DELETE).send().await.unwrap().status().is_success());
        }
    }
}

fn about() -> Value {
    json!({ "name": "wire-schema", "version": "1" })
}

/// What a user, a model and a machine answer.
fn reply(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" => {
            let fields = params["requestedSchema"]["properties"].as_object().unwrap();
            let given = fields.iter().map(|(name, field)| (name.clone(), value(field)));
            json!({ "action": "accept", "content": given.collect::<serde_json::Map<_, _>>() })
        }
        "sampling/createMessage" => json!({
            "role": "assistant", "model": "none", "content": { "type": "text", "text": "Paris" },
        }),
        "roots/list" => json!({ "roots": [{ "uri": "file:///work", "name": "work" }] }),
        other => panic!("a client is not asked {other}"),
    }
}

fn value(field: &Value) -> Value {
    let first = |choices: &Value| choices.get(0).map(|one| one.get("const").unwrap_or(one).clone());
    if let Some(choice) = first(&field["enum"]).or_else(|| first(&field["oneOf"])) {
        return choice;
    }
    let items = &field["items"];
    match field["type"].as_str().unwrap() {
        "array" => json!([first(&items["enum"]).or_else(|| first(&items["anyOf"]))]),
        "boolean" => json!(true),
        "integer" | "number" => json!(30),
        _ => json!("a word"),
    }
}
