//! The MCP endpoint, over real HTTP: by hand where the bytes matter, by rmcp's client where a client
//! must get along.

mod cancel;
mod clients;
mod door;
mod legacy;
mod malformed;
mod modern;

use std::{collections::BTreeMap, str::FromStr};

use app::sessions::NewSession;
use domain::{
    Caller, Role, Via,
    ids::{InvocationId, ServerId, SessionId},
    invocation::Status,
    permission::ApprovalMode,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json, value::RawValue};
use tests::{
    peer::{Peer, Setup},
    world::{Person, World, eventually},
};

/// A person with an agent's token, a session that allows everything, and a server with tools.
pub(crate) struct Gateway {
    pub(crate) world: World,
    pub(crate) peer: Peer,
    pub(crate) person: Person,
    /// `mcp:call` alone.
    pub(crate) token: String,
    /// For looking and deciding.
    pub(crate) owner: Caller,
    pub(crate) session: SessionId,
    pub(crate) server: ServerId,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Gateway {
    pub(crate) async fn new(setup: Setup) -> Self {
        Self::in_world(setup, World::new().await).await
    }

    pub(crate) async fn in_world(setup: Setup, world: World) -> Self {
        let peer = Peer::start(setup).await;
        let tenant = world.tenant("acme").await;
        let person = world.user(&tenant, "ann@acme.test", Role::Superadmin).await;
        let owner = caller(&world, &world.full_token(&person).await).await;
        let server = register(&world, &owner, "demo", &peer).await;
        let session = session(&world, &owner, &server, ApprovalMode::AlwaysAllow).await;
        let token = world.token(&person, "mcp:call").await;
        Self { world, peer, person, token, owner, session, server }
    }

    /// `/mcp/{session}`
    pub(crate) fn path(&self) -> String {
        format!("/mcp/{}", self.session)
    }

    /// A POST of the token to the session's endpoint; later headers replace earlier ones.
    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: impl Into<String>) -> Reply {
        self.post_as(&self.token, &self.path(), headers, body.into()).await
    }

    pub(crate) async fn post_as(
        &self,
        token: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Reply {
        self.send(Method::POST, token, path, headers, body).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        token: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Reply {
        let request = self.request(method, token, path, headers, body);
        Reply::of(request.send().await.unwrap()).await
    }

    pub(crate) fn request(
        &self,
        method: Method,
        token: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> reqwest::RequestBuilder {
        let mut all = HeaderMap::new();
        all.insert("content-type", HeaderValue::from_static("application/json"));
        all.insert("accept", HeaderValue::from_static("application/json, text/event-stream"));
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).unwrap();
            all.insert(HeaderName::from_str(name).unwrap(), value);
        }
        let url = self.world.url.join(path).unwrap();
        let mut request = self.world.client().request(method, url).headers(all).body(body);
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        request
    }

    /// A request of 2026-07-28, its headers and `_meta` in order. `params` is raw JSON of an object.
    pub(crate) async fn modern(&self, method: &str, params: &str) -> Reply {
        let (headers, body) = modern(method, params);
        self.post(&as_pairs(&headers), body).await
    }

    /// `Mcp-Session-Id` of a new session of that version.
    pub(crate) async fn initialize(&self, version: &str) -> String {
        let reply = self.post(&[], initialize(version)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.headers["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// A request of a session that began with [`Self::initialize`].
    pub(crate) async fn legacy(&self, mcp_session: &str, body: &str) -> Reply {
        self.post(&[("mcp-session-id", mcp_session)], body).await
    }

    /// What the audit has, newest first.
    pub(crate) async fn invocations(&self) -> Vec<app::invocations::Invocation> {
        let ctx = &self.world.ctx;
        let filter = app::invocations::Filter::default();
        app::invocations::list(ctx, &self.owner, self.session, &filter, None, 100).await.unwrap()
    }

    /// Waits until the only call of the session has that status.
    pub(crate) async fn until(&self, status: Status) -> InvocationId {
        eventually(&format!("the call is {status:?}"), async || {
            let calls = self.invocations().await;
            calls.first().filter(|call| call.status == status).map(|call| call.id)
        })
        .await
    }

    /// Makes the session ask.
    pub(crate) async fn ask_first(&self) {
        let mode = ApprovalMode::AskForDangerous;
        app::sessions::set_mode(&self.world.ctx, &self.owner, self.session, mode).await.unwrap();
    }
}

impl Reply {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, body: response.text().await.unwrap() }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The JSON of the messages: the body, or the data of each event of a stream. Which of them comes
    /// depends on how busy the machine is.
    pub(crate) fn messages(&self) -> Vec<String> {
        if self.header("content-type") != "text/event-stream" {
            return vec![self.body.clone()];
        }
        let events = self.body.split_terminator("\n\n").filter(|event| !event.starts_with(':'));
        events
            .map(|event| {
                let data =
                    event.strip_prefix("event: message\n").unwrap_or_else(|| panic!("{self:?}"));
                let lines = data.lines().map(|line| line.strip_prefix("data: ").unwrap());
                lines.collect::<Vec<_>>().join("\n")
            })
            .collect()
    }

    /// The one message.
    pub(crate) fn message(&self) -> String {
        let mut messages = self.messages();
        assert_eq!(messages.len(), 1, "{self:?}");
        messages.remove(0)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.message()).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// `error.code` of a JSON-RPC error.
    pub(crate) fn fault(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {self:?}"))
    }

    /// The raw members of `result`.
    pub(crate) fn result(&self) -> BTreeMap<String, Box<RawValue>> {
        let mut response = members(&self.message());
        members(response.remove("result").unwrap_or_else(|| panic!("no result: {self:?}")).get())
    }
}

pub(crate) fn members(json: &str) -> BTreeMap<String, Box<RawValue>> {
    serde_json::from_str(json).unwrap_or_else(|_| panic!("no object: {json}"))
}

pub(crate) async fn caller(world: &World, token: &str) -> Caller {
    app::identity::authenticate(&world.ctx, token, Via::Token).await.unwrap()
}

/// An enabled server whose tools are known.
pub(crate) async fn register(world: &World, owner: &Caller, slug: &str, peer: &Peer) -> ServerId {
    let form = json!({
        "name": slug, "slug": slug, "transport": "http", "url": peer.url(), "authMode": "none",
        "enabled": true, "governance": {"maxConcurrent": 16},
    });
    let form = serde_json::from_value(form).unwrap();
    let server = app::servers::create(&world.ctx, owner, form).await.unwrap().server.id;
    app::discovery::run(&world.ctx, owner.tenant, &server, None).await.unwrap();
    server
}

pub(crate) async fn session(
    world: &World,
    owner: &Caller,
    server: &ServerId,
    mode: ApprovalMode,
) -> SessionId {
    let new = NewSession {
        enabled_source_ids: Some(vec![server.clone()]),
        mode: Some(mode),
        ..NewSession::default()
    };
    app::sessions::create(&world.ctx, owner, new).await.unwrap().id
}

/// Headers and body of a request of 2026-07-28.
pub(crate) fn modern(method: &str, params: &str) -> (Vec<(String, String)>, String) {
    pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let inner = params.trim().trim_start_matches('{').trim_end();
    let comma = if inner == "}" { "" } else { "," };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{META}{comma}{inner}}}"#
    );
    let mut headers = vec![
        ("mcp-protocol-version".to_owned(), "2026-07-28".to_owned()),
        ("mcp-method".to_owned(), method.to_owned()),
    ];
    if let Some(name) = members(params).get("name") {
        headers.push(("mcp-name".to_owned(), serde_json::from_str(name.get()).unwrap()));
    }
    (headers, body)
}

pub(crate) fn as_pairs(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

pub(crate) fn initialize(version: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    }})
    .to_string()
}
