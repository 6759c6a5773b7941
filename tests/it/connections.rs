//! Personal connections over real HTTP: each person's tools act as that person, and nobody else ever.

mod attempts;
mod cleanup;
mod command;
mod in_the_middle;
mod issuers;
mod journey;
mod keys;
mod lab;
mod pages;
mod redirects;
mod refreshing;
mod refusals;
mod secret;
mod two_nodes;
mod use_of;

use app::{
    Ctx,
    broker::{self, Asked, Asking, CallRequest, Called, Outcome},
    through::Upstream,
};
use domain::{
    Caller, Code, Role,
    ids::{ExecutionId, ServerId, SessionId},
    invocation::Origin,
    permission::ApprovalMode,
};
use reqwest::StatusCode;
use serde_json::{Value, json, value::RawValue};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    world::{Person, Tenant, World},
};
use url::Url;

use crate::gateway::{caller, session};

/// A protected server in a tenant, and its provider.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) provider: AuthorizationServer,
    pub(crate) peer: ProtectedPeer,
    pub(crate) tenant: Tenant,
    pub(crate) root: Someone,
    pub(crate) server: ServerId,
}

/// A person with tokens and a session.
pub(crate) struct Someone {
    pub(crate) person: Person,
    /// Every scope of the REST API.
    pub(crate) token: String,
    /// `mcp:call` alone.
    pub(crate) agent: String,
    pub(crate) session: Option<SessionId>,
}

/// A sign-in at the provider that was begun.
pub(crate) struct Begun {
    pub(crate) authorization_url: Url,
    /// `name=value` of the cookie.
    pub(crate) cookie: String,
}

impl Scene {
    /// A server of the newer era, connected by OAuth.
    pub(crate) async fn new() -> Self {
        let provider = AuthorizationServer::start().await;
        let peer = ProtectedPeer::start(&provider).await;
        Self::with(World::new().await, provider, peer, json!({ "authMode": "oauth" })).await
    }

    /// With these fields of the server's form.
    pub(crate) async fn with(
        world: World,
        provider: AuthorizationServer,
        peer: ProtectedPeer,
        fields: Value,
    ) -> Self {
        let tenant = world.tenant("acme").await;
        let mut root = Someone::new(&world, &tenant, "root@acme.test", Role::Superadmin).await;
        let mut form = json!({
            "name": "tickets", "slug": "tickets", "transport": "http", "url": peer.url(),
            "enabled": true, "governance": { "maxConcurrent": 32 },
        });
        for (name, value) in fields.as_object().unwrap() {
            form[name] = value.clone();
        }
        let (status, made) = world.post(&root.token, "/api/mcp/servers", form).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        let server = ServerId::from(made["id"].as_str().unwrap());
        root.session = Some(own_session(&world, &root, &server).await);
        Self { world, provider, peer, tenant, root, server }
    }

    /// Another person of the tenant, with a session of their own.
    pub(crate) async fn member(&self, email: &str) -> Someone {
        let mut someone = Someone::new(&self.world, &self.tenant, email, Role::Member).await;
        someone.session = Some(own_session(&self.world, &someone, &self.server).await);
        someone
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/mcp/servers/{}{rest}", self.server)
    }

    /// How far somebody is.
    pub(crate) async fn connection(&self, of: &Someone) -> Value {
        let (status, connection) = self.world.get(&of.token, &self.path("/connection")).await;
        assert_eq!(status, StatusCode::OK, "{connection}");
        connection
    }

    pub(crate) async fn state(&self, of: &Someone) -> String {
        self.connection(of).await["state"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn revision(&self) -> i64 {
        let (_, server) = self.world.get(&self.root.token, &self.path("")).await;
        server["revision"].as_i64().unwrap()
    }

    /// Saves the server with these fields changed.
    pub(crate) async fn configure(&self, fields: Value) {
        let (_, server) = self.world.get(&self.root.token, &self.path("")).await;
        let mut form = json!({
            "name": "tickets", "transport": "http", "url": self.peer.url(), "enabled": true,
            "authMode": server["authMode"], "revision": server["revision"],
            "apiKeyHeader": server["apiKeyHeader"], "governance": server["governance"],
        });
        for (name, value) in fields.as_object().unwrap() {
            form[name] = value.clone();
        }
        let (status, saved) = self.world.put(&self.root.token, &self.path(""), form).await;
        assert_eq!(status, StatusCode::OK, "{saved}");
    }

    pub(crate) async fn start(&self, by: &Someone) -> Begun {
        let body = json!({ "revision": self.revision().await });
        let url = self.world.url.join(&self.path("/oauth/start")).unwrap();
        let request = self.world.client().post(url).bearer_auth(&by.token).json(&body);
        let response = request.send().await.unwrap();
        let status = response.status();
        let cookie = response.headers().get("set-cookie").map(|cookie| {
            let text = cookie.to_str().unwrap();
            text.split(';').next().unwrap().to_owned()
        });
        let answer: Value = response.json().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{answer}");
        let authorization_url = answer["authorizationUrl"].as_str().unwrap().parse().unwrap();
        Begun { authorization_url, cookie: cookie.expect("a cookie of the sign-in") }
    }

    /// What the browser gets that comes back; redirects are not followed.
    pub(crate) async fn come_back(&self, callback: &Url, cookie: &str) -> (StatusCode, String) {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .unwrap();
        let response = client.get(callback.clone()).header("cookie", cookie).send().await.unwrap();
        let status = response.status();
        let location = response.headers().get("location");
        let location = location.map(|to| to.to_str().unwrap().to_owned());
        (status, location.unwrap_or_default())
    }

    /// Walks through the provider as `account` and back; the result to confirm with.
    pub(crate) async fn result(&self, begun: &Begun, account: &str) -> String {
        let callback = self.provider.walk(&begun.authorization_url, account).await;
        let (status, location) = self.come_back(&callback, &begun.cookie).await;
        assert_eq!(status, StatusCode::SEE_OTHER, "{location}");
        location.split_once("#result=").expect("a result").1.to_owned()
    }

    pub(crate) async fn confirm(&self, by: &Someone, result: &str) -> (StatusCode, Value) {
        let body = json!({ "result": result });
        self.world.post(&by.token, &self.path("/oauth/confirm"), body).await
    }

    /// All of it.
    pub(crate) async fn connect(&self, who: &Someone, account: &str) {
        let begun = self.start(who).await;
        let result = self.result(&begun, account).await;
        let (status, shown) = self.confirm(who, &result).await;
        assert_eq!((status, &shown["state"]), (StatusCode::OK, &json!("connected")), "{shown}");
    }

    /// Asks for the tools with the superadmin's account, so that they can be called.
    pub(crate) async fn discover(&self) {
        let user = Some(self.root.person.id);
        app::discovery::run(&self.world.ctx, self.tenant.id, &self.server, user).await.unwrap();
    }

    pub(crate) async fn call(&self, by: &Someone, tool: &str, arguments: &str) -> Called {
        self.call_at(&self.world.ctx, by, tool, arguments).await
    }

    /// From another node.
    async fn call_at(&self, node: &Ctx, by: &Someone, tool: &str, arguments: &str) -> Called {
        let agent = caller(&self.world, &by.agent).await;
        let request = request(&self.world, by, tool, arguments);
        broker::start(node, &agent, request).finished().await.unwrap()
    }

    /// What `whoami` of the server says of the caller's token.
    pub(crate) async fn whoami(&self, by: &Someone) -> Result<String, Code> {
        self.whoami_at(&self.world.ctx, by).await
    }

    async fn whoami_at(&self, node: &Ctx, by: &Someone) -> Result<String, Code> {
        match self.call_at(node, by, "whoami", "{}").await.outcome {
            Ok(Outcome::Done(done)) => {
                let result: Value = serde_json::from_slice(&done.raw).unwrap();
                Ok(result["content"][0]["text"].as_str().unwrap_or_default().to_owned())
            }
            Ok(waiting) => panic!("it waits: {waiting:?}"),
            Err(error) => Err(error.code),
        }
    }
}

/// A call of `tool` in the person's session.
pub(crate) fn request(world: &World, by: &Someone, tool: &str, arguments: &str) -> CallRequest {
    CallRequest {
        session: by.session.expect("a session"),
        asked: Asked::Agent(format!("mcp__tickets__{tool}")),
        arguments: RawValue::from_string(arguments.to_owned()).unwrap(),
        execution: world.ctx.mint::<ExecutionId>(),
        call_id: "1".to_owned(),
        origin: Origin::Gateway,
        allowed_source_ids: None,
        asking: Asking::Hold { attach: true },
        fits: None,
        upstream: Upstream::default(),
        responses: None,
        cancel_on_hang_up: false,
    }
}

impl Someone {
    pub(crate) async fn new(world: &World, tenant: &Tenant, email: &str, role: Role) -> Self {
        let person = world.user(tenant, email, role).await;
        let token = match role {
            Role::Member => world.token(&person, "api:read,api:write,approve").await,
            Role::Admin | Role::Superadmin => world.full_token(&person).await,
        };
        let agent = world.token(&person, "mcp:call").await;
        Self { person, token, agent, session: None }
    }

    pub(crate) async fn caller(&self, world: &World) -> Caller {
        caller(world, &self.token).await
    }
}

async fn own_session(world: &World, of: &Someone, server: &ServerId) -> SessionId {
    let owner = of.caller(world).await;
    session(world, &owner, server, ApprovalMode::AlwaysAllow).await
}
