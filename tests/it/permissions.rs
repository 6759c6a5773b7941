//! Questions to a person and their answers, from asked to spent.

mod decisions;
mod races;
mod reaping;
mod scopes;
mod waiting;

use std::time::Duration;

use app::{
    Ctx,
    permissions::{NewQuestion, Resolution},
};
use domain::{
    Role,
    ids::{ExecutionId, PermissionRequestId, SessionId, TenantId},
};
use http::Method;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgPoolOptions};
use store::calls::CallName;
use tests::{
    questions,
    world::{Person, World},
};
use tokio::{task::JoinHandle, time::Instant};

/// A person with a session and a token of every scope.
struct Desk {
    world: World,
    ann: Person,
    token: String,
    session: SessionId,
}

impl Desk {
    async fn new() -> Self {
        Self::in_world(World::new().await).await
    }

    async fn in_world(world: World) -> Self {
        let acme = world.tenant("acme").await;
        let ann = world.user(&acme, "ann@acme.test", Role::Member).await;
        let token = world.token(&ann, "api:read,api:write,approve").await;
        let (status, session) =
            world.post(&token, "/api/sessions", json!({ "title": "desk" })).await;
        assert_eq!(status, 201, "{session}");
        let session = session["id"].as_str().unwrap().parse().unwrap();
        Self { world, ann, token, session }
    }

    fn question(&self, tool: &str, input: &str) -> NewQuestion {
        questions::question(&self.ann, self.session, tool, input)
    }

    /// Asks whether `tool` may be called with an input that nobody asked about yet.
    async fn ask(&self, tool: &str) -> PermissionRequestId {
        let input = format!(r#"{{"id":"{}"}}"#, uuid::Uuid::new_v4());
        self.ask_about(&self.question(tool, &input)).await
    }

    async fn ask_about(&self, question: &NewQuestion) -> PermissionRequestId {
        questions::ask(&self.world, &self.ann, question).await
    }

    async fn decide(&self, id: PermissionRequestId, decision: &str) -> (StatusCode, Value) {
        let path = format!("/api/permission-requests/{id}/decision");
        self.world.post(&self.token, &path, json!({ "decision": decision })).await
    }

    async fn switch(&self, mode: &str) -> (StatusCode, Value) {
        let path = format!("/api/sessions/{}", self.session);
        self.world.patch(&self.token, &path, json!({ "approvalMode": mode })).await
    }

    async fn shown(&self, id: PermissionRequestId) -> Value {
        self.read(&format!("/api/permission-requests/{id}")).await
    }

    async fn state(&self, id: PermissionRequestId) -> String {
        self.shown(id).await["state"].as_str().unwrap().to_owned()
    }

    /// The authorizations of the session, newest first.
    async fn authorizations(&self) -> Vec<Value> {
        let path = format!("/api/sessions/{}/permission-authorizations", self.session);
        self.read(&path).await["items"].as_array().unwrap().clone()
    }

    async fn epoch(&self) -> Value {
        self.read(&format!("/api/sessions/{}/permission-epoch", self.session)).await
    }

    async fn read(&self, path: &str) -> Value {
        let (status, body) = self.world.request(Method::GET, &self.token, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Waits as the broker does, in a task of its own, for as long as a test may take.
    fn waiter(&self, id: PermissionRequestId) -> JoinHandle<Resolution> {
        let (ctx, owner_url) = (self.world.ctx.clone(), self.world.database.owner_url.clone());
        let deadline = Instant::now() + Duration::from_secs(30);
        tokio::spawn(async move {
            let call = call_of(&ctx, &owner_url, id).await;
            let nobody_leaves = std::future::pending::<()>();
            app::permissions::wait(&ctx, &call, id, deadline, nobody_leaves).await.unwrap().unwrap()
        })
    }

    /// Looks once.
    async fn look(&self, id: PermissionRequestId) -> Resolution {
        let ctx = &self.world.ctx;
        let call = call_of(ctx, &self.world.database.owner_url, id).await;
        let nobody_leaves = std::future::pending::<()>();
        let now = Instant::now();
        app::permissions::wait(ctx, &call, id, now, nobody_leaves).await.unwrap().unwrap()
    }

    /// Sees and locks everything of the database.
    async fn superuser(&self) -> PgPool {
        let url = &self.world.database.admin_url;
        PgPoolOptions::new().max_connections(2).connect(url).await.unwrap()
    }

    /// Tells the database that this world's node lives.
    async fn register_node(&self) {
        sqlx::query(
            "INSERT INTO nodes (node_id, kind, place, serves_calls, lease_expires_at)
             VALUES ($1, 'up', 'here', false, now() + interval '1 hour')",
        )
        .bind(self.world.ctx.node.0)
        .execute(&self.superuser().await)
        .await
        .unwrap();
    }
}

/// The call of a question, which this node holds.
async fn call_of(ctx: &Ctx, owner_url: &str, id: PermissionRequestId) -> CallName {
    let owner = PgPoolOptions::new().max_connections(1).connect(owner_url).await.unwrap();
    let (tenant, execution, call_id, session): (uuid::Uuid, uuid::Uuid, String, uuid::Uuid) =
        sqlx::query_as(
            "SELECT tenant_id, execution_id, tool_call_id, session_id FROM permission_requests
             WHERE permission_request_id = $1",
        )
        .bind(id.0)
        .fetch_one(&owner)
        .await
        .unwrap();
    owner.close().await;
    let name = CallName { tenant: TenantId(tenant), execution: ExecutionId(execution), call_id };
    hold(ctx, owner_url, &name, SessionId(session)).await;
    name
}

/// Has this node hold a call, as far as the database knows.
async fn hold(ctx: &Ctx, owner_url: &str, call: &CallName, session: SessionId) {
    let owner = PgPoolOptions::new().max_connections(1).connect(owner_url).await.unwrap();
    sqlx::query(
        "INSERT INTO tool_calls (tenant_id, execution_id, call_id, invocation_id, session_id, node_id, state,
                                 created_at)
         VALUES ($1, $2, $3, gen_random_uuid(), $4, $5, 'waiting', now()) ON CONFLICT DO NOTHING",
    )
    .bind(call.tenant.0)
    .bind(call.execution.0)
    .bind(&call.call_id)
    .bind(session.0)
    .bind(ctx.node.0)
    .execute(&owner)
    .await
    .unwrap();
    owner.close().await;
}

fn allowed(resolution: Resolution) -> bool {
    matches!(resolution, Resolution::Allowed { .. })
}

fn id_of(value: &Value) -> PermissionRequestId {
    value["id"].as_str().unwrap().parse().unwrap()
}

fn texts<'a>(items: &'a [Value], member: &str) -> Vec<&'a str> {
    items.iter().map(|item| item[member].as_str().unwrap()).collect()
}
