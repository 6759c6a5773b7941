//! What goes with a server.

use domain::Role;
use reqwest::StatusCode;
use serde_json::json;
use sqlx::PgPool;
use tests::world::{Person, World};
use uuid::Uuid;

use super::{create, form, path};

/// Sessions of one person that speak of two servers: the one that goes and the one that stays.
struct Scene {
    tenant: Uuid,
    user: Uuid,
    owner: PgPool,
}

impl Scene {
    async fn new(world: &World, person: &Person) -> Self {
        Self { tenant: person.tenant.id.0, user: person.id.0, owner: world.owner().await }
    }

    async fn session(&self, selection: Option<&[&str]>) -> Uuid {
        let (id, epoch) = (Uuid::new_v4(), Uuid::new_v4());
        sqlx::query(
            "INSERT INTO sessions (tenant_id, session_id, owner_user_id, title, enabled_source_ids,
                                   permission_epoch_id, created_at)
             VALUES ($1, $2, $3, 'a session', $4, $5, now())",
        )
        .bind(self.tenant)
        .bind(id)
        .bind(self.user)
        .bind(selection)
        .bind(epoch)
        .execute(&self.owner)
        .await
        .unwrap();
        id
    }

    async fn grant(&self, session: Uuid, resource: &str) -> Uuid {
        let id = Uuid::new_v4();
        sqlx::query(
            "INSERT INTO permission_grants (tenant_id, permission_grant_id, session_id, action,
                                            resource_class, created_at)
             VALUES ($1, $2, $3, 'tool_call', $4, now())",
        )
        .bind(self.tenant)
        .bind(id)
        .bind(session)
        .bind(resource)
        .execute(&self.owner)
        .await
        .unwrap();
        id
    }

    async fn question(&self, session: Uuid, server: &str) -> Uuid {
        let id = Uuid::new_v4();
        sqlx::query(
            "INSERT INTO permission_requests (
                 tenant_id, permission_request_id, session_id, user_id, owner_kind, execution_id,
                 tool_call_id, action, resource, resource_class, words, example, server_id, tool_id,
                 input_digest, input_shown, created_at)
             VALUES ($1, $2, $3, $4, 'gateway', $2, '1', 'tool_call', $5 || '/echo', $5 || '/echo', 'w',
                     'e', $5, 'echo', sha256(''), '{}', now())",
        )
        .bind(self.tenant)
        .bind(id)
        .bind(session)
        .bind(self.user)
        .bind(server)
        .execute(&self.owner)
        .await
        .unwrap();
        id
    }

    async fn text(&self, query: &'static str, id: Uuid) -> String {
        sqlx::query_scalar(query).bind(id).fetch_one(&self.owner).await.unwrap()
    }

    async fn grant_state(&self, grant: Uuid) -> String {
        self.text("SELECT state FROM permission_grants WHERE permission_grant_id = $1", grant).await
    }

    async fn question_state(&self, question: Uuid) -> String {
        let query = "SELECT state FROM permission_requests WHERE permission_request_id = $1";
        self.text(query, question).await
    }

    async fn epoch(&self, session: Uuid) -> String {
        let query = "SELECT permission_epoch_id::text FROM sessions WHERE session_id = $1";
        self.text(query, session).await
    }

    async fn selection(&self, session: Uuid) -> String {
        let query = "SELECT coalesce(enabled_source_ids::text, 'inherits') FROM sessions WHERE session_id = $1";
        self.text(query, session).await
    }
}

#[tokio::test]
async fn a_deleted_server_leaves_no_selection_no_grant_and_no_question() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
    let token = world.full_token(&root).await;
    let goes = create(&world, &token, form("Goes", "https://mcp.example.com/")).await;
    let stays = create(&world, &token, form("Stays", "https://mcp.example.com/")).await;
    let (gone, kept) = (goes["id"].as_str().unwrap(), stays["id"].as_str().unwrap());
    let (status, _) =
        world.patch(&token, "/api/tenant", json!({ "enabledSourceIds": [gone, kept] })).await;
    assert_eq!(status, StatusCode::OK);

    let scene = Scene::new(&world, &root).await;
    let (one, two) = (scene.session(Some(&[kept, gone])).await, scene.session(None).await);
    let revoked = scene.grant(one, &format!("{gone}/echo")).await;
    let standing = scene.grant(two, &format!("{kept}/echo")).await;
    let cancelled = scene.question(one, gone).await;
    let pending = scene.question(two, kept).await;
    let (first, second) = (scene.epoch(one).await, scene.epoch(two).await);

    assert_eq!(world.delete(&token, &path(&goes)).await.0, StatusCode::OK);

    let (_, tenant) = world.get(&token, "/api/tenant").await;
    assert_eq!(tenant["enabledSourceIds"], json!([kept]));
    assert_eq!(scene.selection(one).await, format!("{{{kept}}}"));
    assert_eq!(scene.selection(two).await, "inherits");
    assert_eq!(scene.grant_state(revoked).await, "revoked");
    assert_eq!(scene.grant_state(standing).await, "active");
    assert_eq!(scene.question_state(cancelled).await, "cancelled");
    assert_eq!(scene.question_state(pending).await, "pending");
    // A revocation begins a new epoch of its session, and of no other.
    assert_ne!(scene.epoch(one).await, first);
    assert_eq!(scene.epoch(two).await, second);
    let events: Vec<String> =
        sqlx::query_scalar("SELECT type FROM events WHERE session_id = $1 ORDER BY type")
            .bind(one)
            .fetch_all(&scene.owner)
            .await
            .unwrap();
    assert_eq!(events, ["grant.revoked", "permission.resolved"]);
    let tombstone: (String, String) =
        sqlx::query_as("SELECT server_id, name FROM mcp_server_tombstones")
            .fetch_one(&scene.owner)
            .await
            .unwrap();
    assert_eq!(tombstone, (gone.to_owned(), "Goes".to_owned()));
    let secrets: i64 = sqlx::query_scalar("SELECT count(*) FROM mcp_server_secrets")
        .fetch_one(&scene.owner)
        .await
        .unwrap();
    assert_eq!(secrets, 0);
}

#[tokio::test]
async fn a_selection_made_while_its_server_goes_does_not_keep_it() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
    let token = world.full_token(&root).await;
    let (_, session) = world.post(&token, "/api/sessions", json!({ "title": "one" })).await;
    let session = format!("/api/sessions/{}", session["id"].as_str().unwrap());
    for round in 0..8 {
        let name = format!("Server {round}");
        let server = create(&world, &token, form(&name, "https://mcp.example.com/")).await;
        let switch = format!("{}/status", path(&server));
        world.put(&token, &switch, json!({ "enabled": true })).await;
        let chosen = json!({ "enabledSourceIds": [server["id"]] });
        // Whatever order the three take, none of them fails but for the server's sake.
        let path = path(&server);
        let (deleted, tenant, own) = tokio::join!(
            world.delete(&token, &path),
            world.patch(&token, "/api/tenant", chosen.clone()),
            world.patch(&token, &session, chosen)
        );
        assert_eq!(deleted.0, StatusCode::OK, "{}", deleted.1);
        for (status, answer) in [tenant, own] {
            let refused = StatusCode::UNPROCESSABLE_ENTITY;
            assert!(status == StatusCode::OK || status == refused, "{status} {answer}");
        }
        let (_, tenant) = world.get(&token, "/api/tenant").await;
        assert_eq!(tenant["enabledSourceIds"], json!([]));
        let (_, own) = world.get(&token, &session).await;
        assert!(!own["enabledSourceIds"].to_string().contains("custom-"), "{own}");
    }
}

#[tokio::test]
async fn a_built_in_server_cannot_be_written() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
    let token = world.full_token(&root).await;
    let custom = create(&world, &token, form("Demo", "https://mcp.example.com/")).await;
    let owner = world.owner().await;
    sqlx::query(
        "UPDATE mcp_servers SET server_id = 'uniprot', slug = 'uniprot' WHERE server_id = $1",
    )
    .bind(custom["id"].as_str())
    .execute(&owner)
    .await
    .unwrap();
    for (status, problem) in [
        world
            .put(&token, "/api/mcp/servers/uniprot", form("Mine", "https://mcp.example.com/"))
            .await,
        world.delete(&token, "/api/mcp/servers/uniprot").await,
    ] {
        assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("BUILT_IN")));
    }
    let switch = json!({ "enabled": true });
    let switched = world.put(&token, "/api/mcp/servers/uniprot/status", switch).await;
    assert_eq!(switched.0, StatusCode::OK);
}
