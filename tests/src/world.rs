//! A world to test against: a database of its own, the app role, and our API on a port.
//!
//! ```ignore
//! let world = World::new().await;
//! let acme = world.tenant("acme").await;
//! let ann = world.user(&acme, "ann@acme.test", Role::Superadmin).await;
//! let token = world.token(&ann, "api:read,api:write").await;
//! let (status, me) = world.get(&token, "/api/me").await;
//! ```

mod database;
pub mod rows;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use api::{Api, NodeSettings};
use app::{Clock, Ctx, Parts, users::NewUser};
use coordination::Admission;
use domain::{
    Role, Scopes, Timestamp,
    ids::{NodeId, TenantId, UserId},
    limits,
    server::{UrlRules, stdio::StdioMode},
};
use http::Method;
use outbound::{
    blobs::Blobs,
    egress::{AllowRule, EgressRules},
    http::{GuardedHttp, HttpOptions},
    mcp::McpClients,
    oauth::OAuthClient,
    stdio::{Stdio, StdioRules},
};
use reqwest::StatusCode;
use secrecy::ExposeSecret;
use serde_json::Value;
use sqlx::{PgPool, postgres::PgPoolOptions};
use store::{Db, vault::Vault};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use url::Url;
use uuid::Uuid;

pub use database::{Database, server};

/// What seals in every world: 32 bytes in url-safe base64.
pub const ENCRYPTION_KEY: &str = "d29ybGQtd29ybGQtd29ybGQtd29ybGQtd29ybGQtMDA=";

/// One installation. What it serves ends when it is dropped.
#[derive(Debug)]
pub struct World {
    pub ctx: Ctx,
    /// `http://127.0.0.1:<port>/`
    pub url: Url,
    pub database: Database,
    client: reqwest::Client,
    /// The process that [`World::ctx`] and [`World::url`] are of.
    _node: Node,
    /// Holds the object store.
    dir: tempfile::TempDir,
}

/// One process of a world: it shares the database with the others, and nothing in memory. What it serves ends when
/// it is dropped.
#[derive(Debug)]
pub struct Node {
    pub ctx: Ctx,
    /// `http://127.0.0.1:<port>/`
    pub url: Url,
    serving: [JoinHandle<()>; 2],
}

/// A tenant of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    pub slug: String,
}

/// A person of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    pub tenant: Tenant,
    pub id: UserId,
    pub email: String,
}

impl World {
    /// With the machine's clock.
    pub async fn new() -> Self {
        Self::with_clock(Clock::System).await
    }

    /// With a clock that stands at `at` until `world.ctx.clock.advance(…)`.
    pub async fn with_fixed_clock(at: Timestamp) -> Self {
        Self::with_clock(Clock::fixed(at)).await
    }

    /// Where the operator permits these programs.
    pub async fn with_stdio(stdio: StdioMode) -> Self {
        Self::make(Clock::System, stdio).await
    }

    async fn with_clock(clock: Clock) -> Self {
        Self::make(clock, StdioMode::Off).await
    }

    async fn make(clock: Clock, stdio: StdioMode) -> Self {
        let database = Database::create().await;
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(&database, clock, stdio, dir.path()).await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let (ctx, url) = (node.ctx.clone(), node.url.clone());
        Self { ctx, url, database, client, _node: node, dir }
    }

    /// Another process on the same database.
    pub async fn another_node(&self) -> Node {
        Node::start(&self.database, self.ctx.clock.clone(), StdioMode::Off, self.dir.path()).await
    }

    /// Makes a tenant.
    pub async fn tenant(&self, slug: &str) -> Tenant {
        let tenant = app::tenants::create(&self.ctx, slug).await.unwrap();
        Tenant { id: tenant.id, slug: tenant.slug }
    }

    /// Makes a person without a password.
    pub async fn user(&self, tenant: &Tenant, email: &str, role: Role) -> Person {
        let new = NewUser { email: email.to_owned(), role, password: None };
        let user = app::users::create(&self.ctx, &tenant.slug, new).await.unwrap();
        Person { tenant: tenant.clone(), id: user.id, email: user.email }
    }

    /// Makes a token of that person, of scopes like `api:read,api:write`.
    pub async fn token(&self, person: &Person, scopes: &str) -> String {
        let scopes = Scopes::new(scopes.split(',').map(|scope| scope.parse().unwrap())).unwrap();
        let (slug, email) = (&person.tenant.slug, &person.email);
        let minted = app::tokens::create_for(&self.ctx, slug, email, scopes, None).await.unwrap();
        minted.secret.expose_secret().to_owned()
    }

    /// A token of every scope that the REST API knows: `api:read,api:write,approve,admin`.
    pub async fn full_token(&self, person: &Person) -> String {
        self.token(person, "api:read,api:write,approve,admin").await
    }

    pub async fn get(&self, token: &str, path: &str) -> (StatusCode, Value) {
        self.request(Method::GET, token, path, None).await
    }

    pub async fn post(&self, token: &str, path: &str, body: Value) -> (StatusCode, Value) {
        self.request(Method::POST, token, path, Some(body)).await
    }

    pub async fn put(&self, token: &str, path: &str, body: Value) -> (StatusCode, Value) {
        self.request(Method::PUT, token, path, Some(body)).await
    }

    pub async fn patch(&self, token: &str, path: &str, body: Value) -> (StatusCode, Value) {
        self.request(Method::PATCH, token, path, Some(body)).await
    }

    pub async fn delete(&self, token: &str, path: &str) -> (StatusCode, Value) {
        self.request(Method::DELETE, token, path, None).await
    }

    /// One request; `token` may be empty: then there is no `Authorization`. An answer without a
    /// body is `null`, one that is no JSON a string.
    pub async fn request(
        &self,
        method: Method,
        token: &str,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let mut request = self.client.request(method, self.url.join(path).unwrap());
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        let body = match text.as_str() {
            "" => Value::Null,
            json => serde_json::from_str(json).unwrap_or(Value::String(text)),
        };
        (status, body)
    }

    /// For requests that the others cannot make; [`World::url`] is where to.
    #[must_use]
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// As the owner of the tables, who sees every tenant: to look, never to serve.
    pub async fn owner(&self) -> PgPool {
        pool(&self.database.owner_url, 2).await
    }

    /// As the superuser, in the world's database: to see what other connections do.
    pub async fn superuser(&self) -> PgPool {
        pool(&self.database.admin_url, 1).await
    }

    /// As the app role, with one connection only: what one transaction leaves behind, the next finds.
    pub async fn app_role(&self) -> PgPool {
        pool(&self.database.app_url, 1).await
    }
}

impl Node {
    async fn start(
        database: &Database,
        clock: Clock,
        stdio: StdioMode,
        dir: &std::path::Path,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = Url::parse(&format!("http://{address}/")).unwrap();

        let built_in = api::builtin::listener().await.unwrap();
        let ours = [address, built_in.local_addr().unwrap()];
        let ctx = ctx(database, clock, stdio, ours, dir);
        // Tests say by X-Forwarded-For who asks.
        let trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let node =
            NodeSettings { public_url: url.clone(), allowed_hosts: Vec::new(), trusted_proxies };
        let api = Api { ctx: ctx.clone(), node: Arc::new(node) };
        let stopping = ctx.stopping.clone();
        let until_stopped = stopping.clone().cancelled_owned();
        let serving = [
            tokio::spawn(api::serve(listener, api, stopping.cancelled_owned())),
            tokio::spawn(api::builtin::serve(built_in, ctx.clone(), until_stopped)),
        ];
        Self { ctx, url, serving }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.ctx.stopping.cancel();
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

/// Everything real; only this machine's loopback may be reached.
fn ctx(
    database: &Database,
    clock: Clock,
    stdio: StdioMode,
    ours: [SocketAddr; 2],
    dir: &std::path::Path,
) -> Ctx {
    let loopback = "127.0.0.0/8".parse().unwrap();
    let egress = EgressRules { allow: vec![AllowRule::Network(loopback)], own: ours.to_vec() };
    let http = GuardedHttp::new(egress, &HttpOptions::default()).unwrap();
    Ctx::from(Parts {
        db: Db::connect_lazy(&database.app_url, 8).unwrap(),
        clock,
        vault: Vault::new(&ENCRYPTION_KEY.to_owned().into()).unwrap(),
        oauth: OAuthClient::new(http.clone()),
        mcp: McpClients::new(http, Stdio::new(stdio_rules(&stdio))),
        built_in: Some(ours[1]),
        blobs: Blobs::at(&Url::from_directory_path(dir).unwrap()).unwrap(),
        admission: Admission::local(),
        node: NodeId(Uuid::new_v4()),
        signals: app::Signals::default(),
        definitions: app::definitions::DefinitionCache::default(),
        url_rules: UrlRules { hosts: Vec::new(), networks: vec![loopback] },
        stdio,
        permission_wait: limits::PERMISSION_WAIT_SECONDS.seconds(),
        draining: CancellationToken::new(),
        stopping: CancellationToken::new(),
        tasks: TaskTracker::new(),
    })
}

/// Behind whatever wall works here; listed programs can be read wherever they lie.
fn stdio_rules(mode: &StdioMode) -> StdioRules {
    let programs = match mode {
        StdioMode::Allowlist(programs) => programs.as_slice(),
        StdioMode::Off | StdioMode::Any => &[],
    };
    let readable_paths = programs.iter().map(|program| (&program.command).into()).collect();
    StdioRules { mode: mode.clone(), readable_paths, ..StdioRules::default() }
}

async fn pool(url: &str, connections: u32) -> PgPool {
    PgPoolOptions::new().max_connections(connections).connect(url).await.unwrap()
}

/// Polls until `look` gives something: the bounded wait of tests. Panics with `what` after 20 s.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..800 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("did not happen within 20 s: {what}");
}
