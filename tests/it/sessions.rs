//! Sessions and projects: whose they are, and what they may use.

use domain::{Caller, Code, Role, Scopes, Via, ids::TenantId};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::world::{Person, Tenant, World};

/// A tenant with a superadmin, a member, and two servers of which all sessions use the first.
struct Office {
    world: World,
    acme: Tenant,
    root: String,
    ann: Person,
    /// Every scope of a member.
    full: String,
    /// Writes and calls, and may approve nothing.
    agent: String,
    common: String,
    special: String,
}

impl Office {
    async fn new() -> Self {
        let world = World::new().await;
        let acme = world.tenant("acme").await;
        let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
        let root = world.full_token(&root).await;
        let ann = world.user(&acme, "ann@acme.test", Role::Member).await;
        let full = world.token(&ann, "api:read,api:write,approve").await;
        let agent = world.token(&ann, "mcp:call,api:read,api:write").await;
        let common = server(&world, &root, "Common").await;
        let special = server(&world, &root, "Special").await;
        let selection = json!({ "enabledSourceIds": [common] });
        let (status, tenant) = world.patch(&root, "/api/tenant", selection).await;
        assert_eq!(status, 200, "{tenant}");
        Self { world, acme, root, ann, full, agent, common, special }
    }

    async fn session(&self, body: Value) -> String {
        let (status, session) = self.world.post(&self.full, "/api/sessions", body).await;
        assert_eq!(status, 201, "{session}");
        id(&session)
    }

    async fn project(&self, body: Value) -> String {
        let (status, project) = self.world.post(&self.full, "/api/projects", body).await;
        assert_eq!(status, 201, "{project}");
        id(&project)
    }

    async fn patch(&self, token: &str, session: &str, body: Value) -> (StatusCode, Value) {
        self.world.patch(token, &format!("/api/sessions/{session}"), body).await
    }

    /// The same change: refused without `approve`, and done with it.
    async fn needs_approval(&self, path: &str, body: Value) {
        let (status, problem) = self.world.patch(&self.agent, path, body.clone()).await;
        assert_eq!((status.as_u16(), &problem["code"]), (403, &json!("DENIED")), "{path} {body}");
        let (status, answer) = self.world.patch(&self.full, path, body.clone()).await;
        assert_eq!(status, 200, "{path} {body}: {answer}");
    }

    async fn needs_none(&self, path: &str, body: Value) {
        let (status, answer) = self.world.patch(&self.agent, path, body.clone()).await;
        assert_eq!(status, 200, "{path} {body}: {answer}");
    }
}

async fn server(world: &World, token: &str, name: &str) -> String {
    let form = json!({ "name": name, "transport": "http", "url": "http://127.0.0.1:9/mcp", "authMode": "none" });
    let (status, server) = world.post(token, "/api/mcp/servers", form).await;
    assert_eq!(status, 201, "{server}");
    id(&server)
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap_or_else(|| panic!("no id in {value}")).to_owned()
}

#[tokio::test]
async fn a_session_belongs_to_its_maker_and_inherits() {
    let office = Office::new().await;
    let (status, session) =
        office.world.post(&office.full, "/api/sessions", json!({ "title": "desk" })).await;
    assert_eq!(status, 201);
    assert_eq!(session["title"], "desk");
    assert_eq!(session["ownerUserId"], office.ann.id.to_string());
    assert_eq!(session["approvalMode"], "ask_for_dangerous");
    for absent in ["projectId", "enabledSourceIds", "archivedAt"] {
        assert!(session[absent].is_null(), "{absent}");
    }
    let path = format!("/api/sessions/{}", id(&session));
    assert_eq!(office.world.get(&office.full, &path).await, (StatusCode::OK, session));
    // A superadmin is somebody else, too.
    let (status, problem) = office.world.get(&office.root, &path).await;
    assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("NOT_FOUND")));
}

#[tokio::test]
async fn sessions_are_listed_newest_first_page_by_page() {
    let office = Office::new().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(office.session(json!({})).await);
    }
    made.sort_unstable_by(|a, b| b.cmp(a));
    let mut seen = Vec::new();
    let mut path = "/api/sessions?limit=2".to_owned();
    loop {
        let (_, page) = office.world.get(&office.full, &path).await;
        seen.extend(page["items"].as_array().unwrap().iter().map(id));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/sessions?limit=2&after={next}");
    }
    assert_eq!(seen, made);
}

#[tokio::test]
async fn what_a_patch_leaves_out_stays_and_null_inherits() {
    let office = Office::new().await;
    let project = office.project(json!({ "title": "folder" })).await;
    let session = office
        .session(json!({ "title": "desk", "projectId": project, "enabledSourceIds": [] }))
        .await;
    let (_, renamed) = office.patch(&office.full, &session, json!({ "title": "table" })).await;
    assert_eq!(renamed["title"], "table");
    assert_eq!(renamed["projectId"], project);
    assert_eq!(renamed["enabledSourceIds"], json!([]));
    let null = json!({ "enabledSourceIds": null, "projectId": null });
    let (_, inheriting) = office.patch(&office.full, &session, null).await;
    assert_eq!(inheriting["title"], "table");
    assert!(inheriting["projectId"].is_null() && inheriting["enabledSourceIds"].is_null());
}

#[tokio::test]
async fn the_mode_stands_alone() {
    let office = Office::new().await;
    let session = office.session(json!({})).await;
    let both = json!({ "approvalMode": "always_allow", "title": "x" });
    let (status, problem) = office.patch(&office.full, &session, both).await;
    assert_eq!(status, 422, "{problem}");
    assert_eq!(problem["details"]["errors"][0]["path"], "/approvalMode");
    let (_, unchanged) = office.world.get(&office.full, &format!("/api/sessions/{session}")).await;
    assert_eq!(unchanged["approvalMode"], "ask_for_dangerous");
}

#[tokio::test]
async fn bodies_that_do_not_fit_are_refused_by_name() {
    let office = Office::new().await;
    let session = office.session(json!({})).await;
    for (body, pointer) in [
        (json!({ "titel": "x" }), "/titel"),
        (json!({ "title": 7 }), "/title"),
        (json!({ "title": "" }), "/title"),
        (json!({ "title": "a\nb" }), "/title"),
        (json!({ "title": "x".repeat(201) }), "/title"),
        (json!({ "approvalMode": "never" }), "/approvalMode"),
    ] {
        let (status, problem) = office.patch(&office.full, &session, body.clone()).await;
        assert_eq!(status, 422, "{body}: {problem}");
        assert_eq!(problem["details"]["errors"][0]["path"], pointer, "{problem}");
    }
    for ids in [json!(["custom-nothing"]), json!(["a\u{0}b"])] {
        let (status, problem) =
            office.patch(&office.full, &session, json!({ "enabledSourceIds": ids })).await;
        assert_eq!(status, 422, "{problem}");
    }
}

#[tokio::test]
async fn an_archived_session_is_read_and_never_written() {
    let office = Office::new().await;
    let session = office.session(json!({})).await;
    let path = format!("/api/sessions/{session}");
    let (status, archived) = office.world.delete(&office.full, &path).await;
    assert_eq!(status, 200);
    assert!(archived["archivedAt"].is_string());
    let once_more = office.world.delete(&office.full, &path).await;
    assert_eq!(once_more, (StatusCode::OK, archived.clone()));
    assert_eq!(office.world.get(&office.full, &path).await, (StatusCode::OK, archived));
    for body in [json!({ "title": "x" }), json!({ "approvalMode": "always_allow" })] {
        let (status, problem) = office.patch(&office.full, &session, body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("SESSION_ARCHIVED")));
    }
    let (status, problem) =
        office.world.post(&office.full, &format!("{path}/permission-epoch"), json!({})).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("SESSION_ARCHIVED")));
}

#[tokio::test]
async fn a_session_reaches_further_only_with_an_approval() {
    let office = Office::new().await;
    let path = format!("/api/sessions/{}", office.session(json!({})).await);
    // Narrowing is free; taking it back is not.
    office.needs_none(&path, json!({ "enabledSourceIds": [office.common] })).await;
    office.needs_none(&path, json!({ "enabledSourceIds": [] })).await;
    office.needs_approval(&path, json!({ "enabledSourceIds": [office.common] })).await;
    office.needs_none(&path, json!({ "enabledSourceIds": [] })).await;
    office.needs_approval(&path, json!({ "enabledSourceIds": null })).await;
    office.needs_approval(&path, json!({ "enabledSourceIds": [office.special] })).await;
    office.needs_approval(&path, json!({ "enabledSourceIds": null })).await;
    let both = json!({ "enabledSourceIds": [office.common, office.special] });
    office.needs_approval(&path, both).await;
    office.needs_none(&path, json!({ "enabledSourceIds": null })).await;

    let body = json!({ "enabledSourceIds": [office.special] });
    let (status, _) = office.world.post(&office.agent, "/api/sessions", body.clone()).await;
    assert_eq!(status, 403);
    let (status, _) = office.world.post(&office.full, "/api/sessions", body).await;
    assert_eq!(status, 201);
    let body = json!({ "enabledSourceIds": [office.common, office.common] });
    let (status, made) = office.world.post(&office.agent, "/api/sessions", body).await;
    assert_eq!(status, 201);
    assert_eq!(made["enabledSourceIds"], json!([office.common]), "without repetitions");
}

#[tokio::test]
async fn a_project_reaches_further_only_with_an_approval() {
    let office = Office::new().await;
    let path = format!("/api/projects/{}", office.project(json!({ "title": "folder" })).await);
    office.needs_approval(&path, json!({ "enabledSourceIds": [office.special] })).await;
    office.needs_none(&path, json!({ "enabledSourceIds": [] })).await;
    office.needs_approval(&path, json!({ "enabledSourceIds": null })).await;
    let body = json!({ "title": "wide", "enabledSourceIds": [office.special] });
    let (status, _) = office.world.post(&office.agent, "/api/projects", body).await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn moving_to_a_project_that_reaches_further_needs_an_approval() {
    let office = Office::new().await;
    let body = json!({ "title": "wide", "enabledSourceIds": [office.common, office.special] });
    let wide = office.project(body).await;
    let narrow = office.project(json!({ "title": "none", "enabledSourceIds": [] })).await;
    let path = format!("/api/sessions/{}", office.session(json!({})).await);
    office.needs_approval(&path, json!({ "projectId": wide })).await;
    office.needs_none(&path, json!({ "projectId": narrow })).await;
    office.needs_approval(&path, json!({ "projectId": null })).await;
    // A session with a choice of its own inherits nothing: moving it widens nothing.
    office.needs_none(&path, json!({ "enabledSourceIds": [office.common] })).await;
    office.needs_none(&path, json!({ "projectId": wide })).await;
}

#[tokio::test]
async fn a_session_enters_ones_own_living_projects_only() {
    let office = Office::new().await;
    let session = office.session(json!({})).await;
    let (_, theirs) =
        office.world.post(&office.root, "/api/projects", json!({ "title": "theirs" })).await;
    let (status, _) =
        office.patch(&office.full, &session, json!({ "projectId": theirs["id"] })).await;
    assert_eq!(status, 404);
    let archived = office.project(json!({ "title": "old" })).await;
    let path = format!("/api/projects/{archived}");
    let (status, project) = office.world.delete(&office.full, &path).await;
    assert_eq!(status, 200);
    assert_eq!(office.world.delete(&office.full, &path).await, (StatusCode::OK, project));
    for (status, problem) in [
        office.patch(&office.full, &session, json!({ "projectId": archived })).await,
        office.world.post(&office.full, "/api/sessions", json!({ "projectId": archived })).await,
        office.world.patch(&office.full, &path, json!({ "title": "new" })).await,
    ] {
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("CONFLICT")));
    }
}

#[tokio::test]
async fn a_token_of_single_sessions_sees_these_and_makes_no_others() {
    let office = Office::new().await;
    let (reached, other) = (office.session(json!({})).await, office.session(json!({})).await);
    let form =
        json!({ "name": "narrow", "scopes": ["api:read", "api:write"], "sessions": [reached] });
    let (status, minted) = office.world.post(&office.full, "/api/tokens", form).await;
    assert_eq!(status, 201, "{minted}");
    let token = minted["token"].as_str().unwrap();
    let (_, page) = office.world.get(token, "/api/sessions").await;
    assert_eq!(page["items"].as_array().unwrap().iter().map(id).collect::<Vec<_>>(), [reached]);
    let (status, _) = office.world.get(token, &format!("/api/sessions/{other}")).await;
    assert_eq!(status, 404);
    for path in ["/api/sessions", "/api/projects"] {
        let (status, _) = office.world.post(token, path, json!({ "title": "new" })).await;
        assert_eq!(status, 403, "{path}");
    }
}

#[tokio::test]
async fn a_tokens_default_session_is_made_once_and_again_when_archived() {
    let office = Office::new().await;
    let caller = gateway_caller(&office).await;
    let ctx = &office.world.ctx;
    let all =
        futures::future::join_all((0..8).map(|_| app::sessions::default_for(ctx, &caller))).await;
    let first = *all[0].as_ref().unwrap();
    for id in &all {
        assert_eq!(*id.as_ref().unwrap(), first);
    }
    let path = format!("/api/sessions/{first}");
    let (_, session) = office.world.get(&office.full, &path).await;
    assert_eq!(session["title"], "Gateway: made by the operator");
    office.world.delete(&office.full, &path).await;
    let second = app::sessions::default_for(ctx, &caller).await.unwrap();
    assert_ne!(first, second);

    let mut limited = gateway_caller(&office).await;
    limited.reach.sessions = Some(vec![first]);
    let refused = app::sessions::default_for(ctx, &limited).await.unwrap_err();
    assert_eq!(refused.code, Code::Denied);
}

/// As the gateway has it, by a fresh token.
async fn gateway_caller(office: &Office) -> Caller {
    let scopes = Scopes::new([domain::Scope::McpCall]).unwrap();
    let minted = app::tokens::create_for(
        &office.world.ctx,
        &office.acme.slug,
        &office.ann.email,
        scopes.clone(),
        None,
    )
    .await
    .unwrap();
    let tenant: TenantId = office.acme.id;
    Caller {
        tenant,
        user: office.ann.id,
        role: Role::Member,
        scopes,
        reach: domain::Reach::default(),
        via: Via::Gateway(minted.token.id),
    }
}
