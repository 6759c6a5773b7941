//! A token that can call can never permit: for every unsafe route of the OpenAPI document, with each
//! kind of token that an agent may hold, though its person is a superadmin.
//!
//! What is permitted is written down as facts before and after each request: what is asked about, what
//! was decided, granted and authorized, what a session reaches, which tools may be called how, which
//! tokens may approve. No request may add one; some take one away, which is an agent's right.
//!
//! A new unsafe route needs its attempts in [`attempts`].

use std::collections::BTreeSet;

use domain::Role;
use http::Method;
use serde_json::{Value, json};
use sqlx::PgPool;
use tests::{
    peer::{Peer, Setup, tool},
    questions,
    world::{Person, World},
};

/// What may be refused with 403 and what is done, by kind of token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// 403 for every kind.
    Never,
    /// The same, or 404 where the kind is not told of it.
    Unseen,
    /// Done with `api:write`, 403 without.
    Writes,
    /// Done with `api:write` and `admin`, 403 otherwise.
    Configures,
    /// Answered so, whatever the token: it is not looked at.
    Open(u16),
}

struct Attempt {
    method: Method,
    /// As in the OpenAPI document.
    route: &'static str,
    path: String,
    body: Value,
    fate: Fate,
}

struct Stage {
    world: World,
    ann: Person,
    owner: PgPool,
    full: String,
    peer: Peer,
    selected: String,
    other: String,
    /// A server that an import brought, and nobody confirmed.
    imported: String,
    /// A session that reaches nothing, in a project that reaches nothing.
    narrow: String,
    project: String,
    /// A session with a pending question and a grant.
    asking: String,
    request: String,
    grant: String,
    member: String,
    token: String,
}

impl Stage {
    async fn new() -> Self {
        let world = World::new().await;
        let acme = world.tenant("acme").await;
        let ann = world.user(&acme, "ann@acme.test", Role::Superadmin).await;
        let member = world.user(&acme, "pat@acme.test", Role::Member).await.id.to_string();
        let full = world.full_token(&ann).await;
        let tools = ["echo", "denied", "off"].map(tool).to_vec();
        let peer = Peer::start(Setup { tools, ..Setup::modern() }).await;
        let mut stage = Self {
            owner: world.owner().await,
            world,
            ann,
            full,
            selected: String::new(),
            other: String::new(),
            imported: String::new(),
            narrow: String::new(),
            project: String::new(),
            asking: String::new(),
            request: String::new(),
            grant: String::new(),
            member,
            token: String::new(),
            peer,
        };
        stage.selected = stage.server("selected").await;
        stage.other = stage.server("other").await;
        let entries = json!({ "mcpServers": { "unseen": { "url": stage.peer.url() } } });
        let imported = stage.done(Method::POST, "/api/mcp/servers/import", entries).await;
        stage.imported = id(&imported["items"][0]);
        let tenant = json!({ "enabledSourceIds": [stage.selected] });
        stage.done(Method::PATCH, "/api/tenant", tenant).await;
        let tools = "/api/mcp/servers/selected/tools";
        stage.done(Method::PUT, &format!("{tools}/denied"), json!({ "policy": "deny" })).await;
        stage.done(Method::PUT, &format!("{tools}/off"), json!({ "enabled": false })).await;
        let project = json!({ "title": "narrow", "enabledSourceIds": [] });
        stage.project = stage.made("/api/projects", project).await;
        let narrow = json!({ "projectId": stage.project });
        stage.narrow = stage.made("/api/sessions", narrow).await;
        stage.asking = stage.made("/api/sessions", json!({})).await;
        let granting = stage.ask("forecast").await;
        let path = format!("/api/permission-requests/{granting}/decision");
        let decided =
            stage.done(Method::POST, &path, json!({ "decision": "allow_matching" })).await;
        stage.grant = id(&decided["grant"]);
        stage.request = stage.ask("alarm").await;
        let form = json!({ "name": "spare", "scopes": ["api:read"] });
        stage.token = stage.made("/api/tokens", form).await;
        stage
    }

    async fn server(&self, slug: &str) -> String {
        let id = self.made("/api/mcp/servers", self.form(slug)).await;
        let refresh = format!("/api/mcp/servers/{slug}/tools/refresh");
        self.done(Method::POST, &refresh, Value::Null).await;
        id
    }

    fn form(&self, name: &str) -> Value {
        json!({
            "name": name, "slug": name, "transport": "http", "url": self.peer.url(),
            "authMode": "none", "enabled": true,
        })
    }

    async fn ask(&self, tool: &str) -> String {
        let question = questions::question(&self.ann, self.asking.parse().unwrap(), tool, "{}");
        questions::ask(&self.world, &self.ann, &question).await.to_string()
    }

    async fn made(&self, path: &str, body: Value) -> String {
        id(&self.done(Method::POST, path, body).await)
    }

    async fn done(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = self.send(method, &self.full, path, &body).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    async fn send(&self, method: Method, token: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = (!body.is_null()).then(|| body.clone());
        let (status, answer) = self.world.request(method, token, path, body).await;
        (status.as_u16(), answer)
    }

    /// All that is permitted at this moment, one sentence a fact.
    async fn facts(&self) -> BTreeSet<String> {
        let statement = "
            WITH reach AS (
                SELECT s.session_id, unnest(coalesce(s.enabled_source_ids, p.enabled_source_ids,
                                                     t.enabled_source_ids)) AS source
                FROM sessions s JOIN tenants t USING (tenant_id)
                LEFT JOIN projects p ON p.tenant_id = s.tenant_id AND p.project_id = s.project_id
                WHERE s.archived_at IS NULL)
            SELECT 'decided ' || permission_request_id || state FROM permission_requests
                WHERE state IN ('allowed', 'denied')
            UNION ALL SELECT 'granted ' || permission_grant_id || resource_class
                FROM permission_grants WHERE state = 'active'
            UNION ALL SELECT 'authorized ' || authorization_id FROM permission_authorizations
            UNION ALL SELECT 'epoch ' || permission_epoch_id || reason FROM permission_epochs
                WHERE reason NOT IN ('session_created', 'grant_revoked')
            UNION ALL SELECT 'mode ' || session_id || approval_mode FROM sessions
                WHERE approval_mode <> 'ask_for_dangerous'
            UNION ALL SELECT 'somebody reaches ' || source FROM reach
            UNION ALL SELECT 'this reaches ' || session_id || source FROM reach WHERE session_id = ANY($1)
            UNION ALL SELECT 'tenant reaches ' || unnest(enabled_source_ids) FROM tenants
            UNION ALL SELECT 'new tools are trusted' FROM tenants WHERE auto_approve_new_tools
            UNION ALL SELECT 'allowed ' || server_id || tool_id FROM mcp_tools WHERE policy = 'allow'
            UNION ALL SELECT 'not denied ' || server_id || tool_id FROM mcp_tools
                WHERE policy <> 'deny' AND server_id = ANY($2)
            UNION ALL SELECT 'usable ' || server_id || tool_id FROM mcp_tools
                WHERE enabled AND pin = 'approved' AND server_id = ANY($2)
            UNION ALL SELECT 'confirmed ' || server_id FROM mcp_servers
                WHERE imported AND NOT unconfirmed
            UNION ALL SELECT 'may approve ' || token_id FROM api_tokens WHERE 'approve' = ANY(scopes)
            UNION ALL SELECT 'signed in ' || web_session_id FROM web_sessions
            UNION ALL SELECT 'can sign in ' || user_id FROM users WHERE password_hash IS NOT NULL";
        let sessions: Vec<uuid::Uuid> =
            [&self.narrow, &self.asking].map(|id| id.parse().unwrap()).to_vec();
        let servers = vec![self.selected.clone(), self.other.clone()];
        let query = sqlx::query_scalar(statement).bind(sessions).bind(servers);
        query.fetch_all(&self.owner).await.unwrap().into_iter().collect()
    }
}

fn id(made: &Value) -> String {
    made["id"].as_str().unwrap_or_else(|| panic!("no id: {made}")).to_owned()
}

#[tokio::test]
async fn no_token_that_can_call_can_permit() {
    let kinds = ["mcp:call", "mcp:call,api:write", "mcp:call,api:read,api:write,admin"];
    let mut wrong = Vec::new();
    for (kind, scopes) in kinds.into_iter().enumerate() {
        let stage = Stage::new().await;
        let token = stage.world.token(&stage.ann, scopes).await;
        for attempt in attempts(&stage) {
            let Attempt { method, route, path, body, fate } = attempt;
            let done = match fate {
                Fate::Never | Fate::Unseen | Fate::Open(_) => false,
                Fate::Writes => kind >= 1,
                Fate::Configures => kind >= 2,
            };
            let before = stage.facts().await;
            let (status, answer) = stage.send(method.clone(), &token, &path, &body).await;
            let what = format!("{scopes}: {method} {route} {body}: {status} {answer}");
            let fits = match fate {
                Fate::Open(expected) => status == expected,
                Fate::Unseen => [403, 404].contains(&status),
                _ if done => (200..300).contains(&status),
                _ => status == 403,
            };
            if !fits {
                wrong.push(format!("{what}; expected: done = {done}"));
            }
            let after = stage.facts().await;
            let new: Vec<_> = after.difference(&before).collect();
            if !new.is_empty() {
                wrong.push(format!("{what}; now: {new:?}"));
            }
            if !done && after != before {
                wrong.push(format!("{what}; lost: {:?}", before.difference(&after)));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_unsafe_route_is_attempted() {
    let stage = Stage::new().await;
    let attempted: BTreeSet<String> =
        attempts(&stage).iter().map(|one| format!("{} {}", one.method, one.route)).collect();
    let document = serde_json::to_value(api::openapi()).unwrap();
    let mut routes = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            if !["GET", "HEAD", "PARAMETERS"].contains(&method.as_str()) {
                routes.insert(format!("{method} {path}"));
            }
        }
    }
    assert_eq!(attempted, routes);
}

/// In an order in which the earlier ones take nothing away from the later ones.
#[expect(clippy::too_many_lines, reason = "a table: one line an attempt")]
fn attempts(stage: &Stage) -> Vec<Attempt> {
    use Fate::{Configures, Never, Open, Unseen, Writes};
    let mut list = Vec::new();
    let mut attempt = |method: Method, route: &'static str, body: Value, fate: Fate| {
        let path = route
            .replace("{tenant}", "acme")
            .replace("{server}", "selected")
            .replace("{name}", "KEY")
            .replace("{grant}", &stage.grant)
            .replace("{request}", &stage.request)
            .replace("{project}", &stage.project)
            .replace("{session}", &stage.narrow)
            .replace("{user}", &stage.member)
            .replace("{token}", &stage.token);
        list.push(Attempt { method, route, path, body, fate });
    };
    let (selected, other) = (&stage.selected, &stage.other);

    for decision in ["allow_once", "allow_matching", "deny"] {
        let body = json!({ "decision": decision });
        attempt(Method::POST, "/api/permission-requests/{request}/decision", body, Never);
    }
    attempt(Method::DELETE, "/api/permission-grants/{grant}", Value::Null, Never);
    attempt(Method::POST, "/api/sessions/{session}/permission-epoch", Value::Null, Never);

    for (body, fate) in [
        (json!({ "approvalMode": "always_allow" }), Never),
        (json!({ "approvalMode": "ask_for_dangerous" }), Never),
        (json!({ "approvalMode": "always_allow", "title": "x" }), Never),
        (json!({ "enabledSourceIds": [selected] }), Never),
        (json!({ "enabledSourceIds": [other] }), Never),
        (json!({ "projectId": null }), Never),
        (json!({ "enabledSourceIds": null, "projectId": null }), Never),
        (json!({ "title": "renamed" }), Writes),
        (json!({ "enabledSourceIds": [] }), Writes),
        (json!({ "enabledSourceIds": null }), Writes),
    ] {
        attempt(Method::PATCH, "/api/sessions/{session}", body, fate);
    }
    for (body, fate) in [
        (json!({ "approvalMode": "always_allow" }), Never),
        (json!({ "enabledSourceIds": [other] }), Never),
        (json!({ "enabledSourceIds": [selected], "projectId": stage.project }), Never),
        (json!({ "title": "one more", "enabledSourceIds": [selected] }), Writes),
        (json!({ "title": "two more" }), Writes),
    ] {
        attempt(Method::POST, "/api/sessions", body, fate);
    }
    for (body, fate) in [
        (json!({ "title": "wide", "enabledSourceIds": [other] }), Never),
        (json!({ "title": "wide" }), Writes),
    ] {
        attempt(Method::POST, "/api/projects", body, fate);
    }
    for (body, fate) in [
        (json!({ "enabledSourceIds": [selected] }), Never),
        (json!({ "enabledSourceIds": [other] }), Never),
        (json!({ "enabledSourceIds": null }), Never),
        (json!({ "title": "renamed" }), Writes),
    ] {
        attempt(Method::PATCH, "/api/projects/{project}", body, fate);
    }
    for (body, fate) in [
        (json!({ "enabledSourceIds": [selected, other] }), Never),
        (json!({ "enabledSourceIds": [] }), Never),
        (json!({ "autoApproveNewTools": true }), Never),
        (json!({ "autoApproveNewTools": false }), Configures),
    ] {
        attempt(Method::PATCH, "/api/tenant", body, fate);
    }
    for scopes in [
        json!(["approve"]),
        json!(["api:read", "approve"]),
        json!(["api:read", "api:write", "approve", "admin"]),
    ] {
        attempt(Method::POST, "/api/tokens", json!({ "name": "mine", "scopes": scopes }), Never);
    }
    let both = json!({ "name": "mine", "scopes": ["mcp:call"] });
    attempt(Method::POST, "/api/tokens", both, Writes);
    attempt(Method::DELETE, "/api/tokens/{token}", Value::Null, Writes);

    // Whoever knows a password is that person; a token knows none.
    let guess = json!({ "email": stage.ann.email, "password": "a guess" });
    attempt(Method::POST, "/api/t/{tenant}/login", guess, Open(401));
    attempt(Method::POST, "/api/logout", Value::Null, Open(204));
    // Nor does a token become a password.
    let password = json!({ "current": "a guess", "new": "long enough" });
    attempt(Method::PUT, "/api/me/password", password, Never);
    // A person can approve, or raise one who does.
    let person =
        json!({ "email": "eve@acme.test", "role": "superadmin", "password": "long enough" });
    attempt(Method::POST, "/api/users", person, Never);
    for body in [json!({ "role": "admin" }), json!({ "status": "disabled" })] {
        attempt(Method::PATCH, "/api/users/{user}", body, Never);
    }

    // Whoever says who the issuer is says who anybody is; and a company account signs in.
    let issuer = json!({ "name": "Mine", "issuer": "https://idp.mine.test", "clientId": "mine" });
    attempt(Method::PUT, "/api/tenant/company-sign-in", issuer, Never);
    attempt(Method::DELETE, "/api/tenant/company-sign-in", Value::Null, Never);
    attempt(Method::POST, "/api/tenant/company-sign-in/test", Value::Null, Never);
    let account = json!({ "subject": "mine" });
    attempt(Method::PUT, "/api/users/{user}/company-account", account, Never);
    attempt(Method::DELETE, "/api/users/{user}/company-account", Value::Null, Never);

    for body in [
        json!({ "policy": "allow" }),
        json!({ "policy": "ask" }),
        json!({ "policy": "deny" }),
        json!({ "enabled": true }),
        json!({ "enabled": false, "policy": "allow" }),
    ] {
        attempt(Method::PUT, "/api/mcp/servers/{server}/tools/{tool}", body, Never);
    }
    let release = json!({ "definitionHash": "0".repeat(64) });
    attempt(Method::POST, "/api/mcp/servers/{server}/tools/{tool}/approve", release, Never);
    attempt(Method::POST, "/api/mcp/servers", stage.form("third"), Configures);
    let entries = json!({ "imported": { "url": stage.peer.url() } });
    let import = json!({ "mcpServers": entries });
    attempt(Method::POST, "/api/mcp/servers/import", import, Configures);
    let variable = json!({ "value": "v", "hosts": ["127.0.0.1"] });
    attempt(Method::PUT, "/api/tenant/variables/{name}", variable, Configures);
    attempt(Method::DELETE, "/api/tenant/variables/{name}", Value::Null, Configures);
    attempt(Method::PUT, "/api/mcp/servers/{server}", stage.form("selected"), Configures);
    // The Inspector asks nobody, so it is for those alone who may approve.
    for tool in ["echo", "denied", "off", "nothing"] {
        let body = json!({ "sessionId": stage.asking, "toolName": tool, "input": {} });
        attempt(Method::POST, "/api/mcp/servers/{server}/inspect", body, Never);
    }
    // Whoever connects an account decides as whom the agent acts.
    let secret = json!({ "secret": "sesame", "revision": 1 });
    attempt(Method::PUT, "/api/mcp/servers/{server}/connection", secret.clone(), Never);
    attempt(Method::PUT, "/api/system/mcp-servers/{server}/connection", secret, Never);
    attempt(Method::DELETE, "/api/mcp/servers/{server}/connection", Value::Null, Never);
    attempt(Method::POST, "/api/mcp/servers/{server}/connection/test", Value::Null, Never);
    let start = json!({ "revision": 1 });
    attempt(Method::POST, "/api/mcp/servers/{server}/oauth/start", start, Never);
    attempt(Method::POST, "/api/mcp/servers/{server}/oauth/cancel", Value::Null, Never);
    let result = json!({ "result": "r" });
    attempt(Method::POST, "/api/mcp/servers/{server}/oauth/confirm", result, Never);
    attempt(Method::POST, "/api/mcp/servers/{server}/oauth/clear", Value::Null, Never);
    attempt(Method::POST, "/api/mcp/servers/{server}/disconnect-everyone", Value::Null, Configures);
    attempt(Method::POST, "/api/mcp/servers/{server}/test", Value::Null, Writes);
    attempt(Method::POST, "/api/mcp/servers/{server}/tools/refresh", Value::Null, Configures);
    for enabled in [false, true] {
        let body = json!({ "enabled": enabled });
        attempt(Method::PUT, "/api/mcp/servers/{server}/status", body, Configures);
    }
    attempt(Method::DELETE, "/api/sessions/{session}", Value::Null, Writes);
    attempt(Method::DELETE, "/api/projects/{project}", Value::Null, Writes);
    attempt(Method::DELETE, "/api/mcp/servers/{server}", Value::Null, Configures);
    // What a file brought is contacted once somebody who may approve looked at it.
    list.push(Attempt {
        method: Method::POST,
        route: "/api/mcp/servers/{server}/test",
        path: format!("/api/mcp/servers/{}/test", stage.imported),
        body: json!({ "confirm": true, "configRevision": 1 }),
        fate: Unseen,
    });
    // `denied` and `off` are tried as well as the tool that may be called.
    let tools = ["echo", "denied", "off"];
    list.into_iter()
        .flat_map(|one| {
            let times = if one.path.contains("{tool}") { &tools[..] } else { &tools[..1] };
            let copies = times.iter().map(|tool| Attempt {
                method: one.method.clone(),
                route: one.route,
                path: one.path.replace("{tool}", tool),
                body: one.body.clone(),
                fate: one.fate,
            });
            copies.collect::<Vec<_>>()
        })
        .collect()
}
