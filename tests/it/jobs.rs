//! The queue: what a use case enqueues, a worker does; also when it fails at first.
#![expect(clippy::unwrap_used, reason = "a test, and what helps it, fails by panicking")]

use domain::{Role, ids::TenantId};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    peer::{Answer, Peer, Setup},
    world::{World, eventually},
};

struct Scene {
    world: World,
    token: String,
    peer: Peer,
    worker: tokio::task::JoinHandle<()>,
}

impl Scene {
    /// A worker runs; nothing is to be done yet.
    async fn new() -> Self {
        let peer = Peer::start(Setup::modern()).await;
        let world = World::new().await;
        app::nodes::register(&world.ctx, app::nodes::Kind::Worker, "here").await.unwrap();
        let acme = world.tenant("acme").await;
        let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
        let token = world.full_token(&root).await;
        let worker = tokio::spawn(worker::run(world.ctx.clone()));
        Self { world, token, peer, worker }
    }

    async fn register_server(&self) {
        let form = json!({
            "name": "Demo", "slug": "demo", "transport": "http", "url": self.peer.url(),
            "authMode": "none", "enabled": true,
        });
        let (status, server) = self.world.post(&self.token, "/api/mcp/servers", form).await;
        assert_eq!(status, StatusCode::CREATED, "{server}");
    }

    async fn status(&self) -> Value {
        let (_, server) = self.world.get(&self.token, "/api/mcp/servers/demo").await;
        server["status"].clone()
    }

    async fn drain(self) {
        self.world.ctx.draining.cancel();
        self.worker.await.unwrap();
    }
}

#[tokio::test]
async fn a_new_server_is_discovered_by_the_worker() {
    let scene = Scene::new().await;
    scene.register_server().await;
    eventually("the server is ready", async || (scene.status().await == "ready").then_some(()))
        .await;
    scene.drain().await;
}

#[tokio::test]
async fn a_discovery_that_failed_is_tried_again_after_a_pause() {
    let scene = Scene::new().await;
    // Once in each era, so that falling back does not help.
    let broken = || Answer::Status { status: 503, headers: Vec::new(), body: "not now".to_owned() };
    scene.peer.script_method("server/discover", [broken()]);
    scene.peer.script_method("initialize", [broken()]);
    scene.register_server().await;
    eventually("the failure is seen", async || (scene.status().await == "error").then_some(()))
        .await;

    scene.peer.script_method("server/discover", []);
    scene.peer.script_method("initialize", []);
    eventually("the server is ready", async || (scene.status().await == "ready").then_some(()))
        .await;

    let owner = scene.world.owner().await;
    let jobs: Vec<(String, Value)> = sqlx::query_as(
        "SELECT status, convert_from(job, 'UTF8')::jsonb FROM apalis.jobs ORDER BY run_at, id",
    )
    .fetch_all(&owner)
    .await
    .unwrap();
    let attempts: Vec<u64> = jobs.iter().filter_map(|(_, job)| job["attempt"].as_u64()).collect();
    assert!(attempts.windows(2).all(|pair| pair[1] == pair[0] + 1), "{attempts:?}");
    assert!(attempts.len() >= 2, "{attempts:?}");
    scene.drain().await;
}

#[tokio::test]
async fn a_job_of_a_rolled_back_change_does_not_exist() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let job = |server: &str| domain::jobs::DiscoverTools {
        tenant_id: tenant.id,
        server_id: server.into(),
        user_id: None,
        attempt: 0,
    };
    let mut tx = world.ctx.db.begin(TenantId(tenant.id.0)).await.unwrap();
    store::jobs::push(&mut tx, &job("custom-000000000001")).await.unwrap();
    drop(tx);
    let mut tx = world.ctx.db.begin(TenantId(tenant.id.0)).await.unwrap();
    store::jobs::push(&mut tx, &job("custom-000000000002")).await.unwrap();
    tx.commit().await.unwrap();

    let owner = world.owner().await;
    let servers: Vec<String> = sqlx::query_scalar(
        "SELECT convert_from(job, 'UTF8')::jsonb ->> 'server_id' FROM apalis.jobs",
    )
    .fetch_all(&owner)
    .await
    .unwrap();
    assert_eq!(servers, ["custom-000000000002"]);
}

#[tokio::test]
async fn old_jobs_workers_nodes_and_call_ids_are_forgotten_and_young_ones_kept() {
    let world = World::new().await;
    let owner = world.owner().await;
    app::nodes::register(&world.ctx, app::nodes::Kind::Worker, "here").await.unwrap();
    let run = |sql: &'static str| sqlx::raw_sql(sql).execute(&owner);
    run("INSERT INTO apalis.workers (id, worker_type, storage_name, last_seen)
         VALUES ('old', 'q', 's', now() - interval '3 days'), ('young', 'q', 's', now());
         INSERT INTO apalis.jobs (job, id, job_type, status, attempts, max_attempts, run_at, done_at, lock_by)
         VALUES ('{}', 'a', 'q', 'Done', 1, 5, now(), now() - interval '3 days', 'old'),
                ('{}', 'b', 'q', 'Done', 1, 5, now(), now(), 'young'),
                ('{}', 'c', 'q', 'Pending', 0, 5, now(), NULL, NULL);
         INSERT INTO nodes (node_id, kind, place, serves_calls, lease_expires_at, ended_at)
         VALUES (gen_random_uuid(), 'up', 'old', true, now() - interval '3 days', now() - interval '3 days'),
                (gen_random_uuid(), 'up', 'young', true, now() - interval '1 hour', NULL);
         INSERT INTO ticks (name, due_at) VALUES ('of-an-old-version', now() - interval '3 days');")
        .await
        .unwrap();

    app::housekeeping::forget_records(&world.ctx).await.unwrap();

    let names = |sql: &'static str| sqlx::query_scalar::<_, String>(sql).fetch_all(&owner);
    assert_eq!(names("SELECT id FROM apalis.jobs ORDER BY 1").await.unwrap(), ["b", "c"]);
    assert_eq!(names("SELECT id FROM apalis.workers").await.unwrap(), ["young"]);
    assert_eq!(names("SELECT place FROM nodes ORDER BY 1").await.unwrap(), ["here", "young"]);
    assert_eq!(
        names("SELECT name FROM ticks WHERE name LIKE 'of-%'").await.unwrap(),
        Vec::<String>::new()
    );

    app::housekeeping::make_partitions(&world.ctx).await.unwrap();
    app::housekeeping::forget_calls(&world.ctx).await.unwrap();
}
