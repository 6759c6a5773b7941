//! Other nodes, and transactions that wait for each other in the order that a test wants.

use app::{Ctx, Parts};
use coordination::Admission;
use domain::{Code, limits};
use outbound::{
    egress::{AllowRule, EgressRules},
    http::{GuardedHttp, HttpOptions},
    mcp::McpClients,
    oauth::OAuthClient,
    stdio::{Stdio, StdioRules},
};
use reqwest::StatusCode;
use serde_json::json;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use store::{Db, vault::Vault};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    peer::{Peer, Setup},
    world::{World, eventually},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Scene, Someone};

/// What another node of the world is like that shares nothing but the database, and has this vault.
pub(super) fn node(world: &World, vault: Vault) -> Ctx {
    let network = AllowRule::Network("127.0.0.0/8".parse().unwrap());
    let egress = EgressRules { allow: vec![network], own: Vec::new() };
    let http = GuardedHttp::new(egress, &HttpOptions::default()).unwrap();
    Ctx::from(Parts {
        db: Db::connect_lazy(&world.database.app_url, 8).unwrap(),
        clock: world.ctx.clock.clone(),
        vault,
        mcp: McpClients::new(http.clone(), Stdio::new(StdioRules::default())),
        oauth: OAuthClient::new(http),
        built_in: None,
        blobs: world.ctx.blobs.clone(),
        admission: Admission::local(),
        node: world.ctx.mint(),
        signals: app::Signals::default(),
        definitions: app::definitions::DefinitionCache::default(),
        url_rules: world.ctx.url_rules.clone(),
        stdio: world.ctx.stdio.clone(),
        permission_wait: limits::PERMISSION_WAIT_SECONDS.seconds(),
        draining: CancellationToken::new(),
        stopping: CancellationToken::new(),
        tasks: TaskTracker::new(),
    })
}

/// A transaction that holds what `sql` locks, until it is dropped.
pub(super) async fn holding(owner: &PgPool, sql: &str) -> Transaction<'static, Postgres> {
    let mut held = owner.begin().await.unwrap();
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut *held).await.unwrap();
    assert!(!rows.is_empty(), "nothing is held by {sql}");
    held
}

/// Returns when so many others wait for a lock.
pub(super) async fn waiting(world: &World, many: i64) {
    let all = world.superuser().await;
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("they wait for a lock", async || {
        let found: i64 = sqlx::query_scalar(sql).fetch_one(&all).await.unwrap();
        (found >= many).then_some(())
    })
    .await;
}

/// As the database's owner.
pub(super) async fn run(owner: &PgPool, sql: &str) -> u64 {
    sqlx::query(AssertSqlSafe(sql)).execute(owner).await.unwrap().rows_affected()
}

impl Scene {
    /// The person's credential is due for its refresh; and over, or good for an hour.
    pub(super) async fn age(&self, of: &Someone, over: bool) {
        let end = if over { "-1 second" } else { "1 hour" };
        let sql = format!(
            "UPDATE mcp_connections SET refresh_at = now() - interval '1 second',
                 expires_at = now() + interval '{end}'
             WHERE user_id = '{}'",
            of.person.id
        );
        assert_eq!(run(&self.world.owner().await, &sql).await, 1);
    }

    /// The pause after a refresh that brought nothing is over.
    pub(super) async fn end_pause(&self, of: &Someone) {
        let sql = format!(
            "UPDATE mcp_connections SET refresh_until = now() - interval '1 second'
             WHERE user_id = '{}' AND refresh_by IS NULL AND refresh_until > now()",
            of.person.id
        );
        assert_eq!(run(&self.world.owner().await, &sql).await, 1, "there is a pause");
    }
}

/// A server that takes a bearer token of each person; the superadmin's is in, and the tools are known.
pub(super) async fn keyed(setup: Setup) -> (Scene, Peer) {
    let peer = Peer::start(setup).await;
    let provider = AuthorizationServer::start().await;
    let unused = ProtectedPeer::start(&provider).await;
    let fields = json!({ "authMode": "bearer", "url": peer.url() });
    let scene = Scene::with(World::new().await, provider, unused, fields).await;
    scene.put_secret(&scene.root, "sesame-1").await;
    scene.discover().await;
    (scene, peer)
}

impl Scene {
    pub(super) async fn put_secret(&self, of: &Someone, secret: &str) {
        let body = json!({ "secret": secret, "revision": self.revision().await });
        let (status, shown) = self.world.put(&of.token, &self.path("/connection"), body).await;
        assert_eq!(status, StatusCode::OK, "{shown}");
    }

    pub(super) async fn switch(&self, enabled: bool) {
        let body = json!({ "enabled": enabled });
        let (status, _) = self.world.put(&self.root.token, &self.path("/status"), body).await;
        assert_eq!(status, StatusCode::OK);
    }

    /// How a call ended that was begun with these arguments.
    pub(super) async fn code(&self, of: &Someone, tool: &str) -> Result<(), Code> {
        let called = self.call(of, tool, r#"{"a":1}"#).await;
        called.outcome.map(|_| ()).map_err(|error| error.code)
    }
}
