//! A server that says that its tools changed is asked for them, within bounds.

use std::time::Duration;

use app::{
    discovery::{self, Discovered},
    list_changes::{self, Asked},
};
use domain::{Role, Timestamp, ids::ServerId};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    peer::{Answer, Peer, Setup, Step, tool},
    world::{Person, World, eventually},
};

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

struct Scene {
    world: World,
    root: Person,
    token: String,
    peer: Peer,
    server: ServerId,
}

impl Scene {
    async fn new(world: World) -> Self {
        let peer = Peer::start(Setup { tells_changes: true, ..Setup::older() }).await;
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

    async fn ask(&self, heard_at: Timestamp) -> Asked {
        let tenant = self.root.tenant.id;
        list_changes::ask(&self.world.ctx, tenant, &self.server, heard_at).await.unwrap()
    }

    async fn jobs(&self) -> i64 {
        let owner = self.world.owner().await;
        sqlx::query_scalar("SELECT count(*) FROM apalis.jobs").fetch_one(&owner).await.unwrap()
    }

    async fn discover(&self) {
        let found = discovery::run(&self.world.ctx, self.root.tenant.id, &self.server, None).await;
        assert_eq!(found.unwrap(), Discovered::Pinned);
    }
}

#[tokio::test]
async fn a_change_becomes_one_discovery_and_within_a_minute_none() {
    let at: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    let scene = Scene::new(World::with_fixed_clock(at).await).await;
    assert_eq!(scene.jobs().await, 1, "the one of a new server");
    assert_eq!(scene.ask(at).await, Asked::Now);
    assert_eq!(scene.jobs().await, 2);
    scene.discover().await;
    let second = Duration::from_secs(1);
    assert_eq!(scene.ask(at - second).await, Asked::NotAgain, "it was asked since");
    assert_eq!(scene.ask(at).await, Asked::Later(Duration::from_mins(1)));
    let path = "/api/mcp/servers/demo/status";
    let (status, _) = scene.world.put(&scene.token, path, json!({ "enabled": false })).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(scene.ask(at).await, Asked::NotAgain, "nobody wants to know");
    assert_eq!(scene.jobs().await, 2);
}

#[tokio::test]
async fn a_new_tool_that_the_server_tells_of_is_found() {
    let scene = Scene::new(World::new().await).await;
    let steps = vec![Step::Release, Step::say(CHANGED), Step::Reply("0")];
    scene.peer.script_method("LISTEN", [Answer::Talk(steps)]);
    let ctx = &scene.world.ctx;
    let working = tokio::spawn(worker::run(ctx.clone()));
    let watching = tokio::spawn(list_changes::watch(ctx.clone()));
    let tools = async || {
        let (_, list) = scene.world.get(&scene.token, "/api/mcp/servers/demo/tools").await;
        list["items"].as_array().map_or(0, Vec::len)
    };
    eventually("the first tool", async || (tools().await == 1).then_some(())).await;
    scene.peer.until("it was listened to", |peer| peer.held() == 1).await;
    scene.peer.change(|setup| setup.tools.push(tool("later")));
    // As if a minute had gone by since the server was asked.
    let owner = scene.world.owner().await;
    let earlier = "UPDATE mcp_servers SET checked_at = checked_at - interval '61 s'";
    sqlx::query(earlier).execute(&owner).await.unwrap();
    scene.peer.release();
    eventually("the later tool", async || (tools().await == 2).then_some(())).await;
    let pinned: Value = scene.world.get(&scene.token, "/api/mcp/servers/demo/tools").await.1;
    assert_eq!(pinned["items"][1]["name"], "later");
    ctx.draining.cancel();
    watching.await.unwrap();
    ctx.stopping.cancel();
    working.await.unwrap();
}
