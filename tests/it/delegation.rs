//! Delegation: a server of ours learns for whom it is called from a token that is good for one request.

mod calls;
mod tokens;

use app::{Ctx, delegation::Delegation};
use domain::{
    Role,
    delegation::Subject,
    ids::{ServerId, SessionId},
};
use http::Method;
use outbound::mcp::{Behalf, Outgoing};
use reqwest::StatusCode;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tests::world::{Person, Tenant, World};
use url::Url;

use crate::gateway::{as_pairs, modern};

const WHOAMI: &str = "/api/mcp/servers/whoami";

/// A person with a session in which `whoami` is called without a question.
pub(crate) struct Asker {
    pub(crate) person: Person,
    pub(crate) role: &'static str,
    /// `mcp:call` alone.
    token: String,
    pub(crate) session: SessionId,
}

/// A tenant whose superadmin switched `whoami` on, for all sessions.
pub(crate) async fn tenant(world: &World, slug: &str) -> (Tenant, Asker) {
    let tenant = world.tenant(slug).await;
    let root = asker(world, &tenant, "root", Role::Superadmin).await;
    let full = world.full_token(&root.person).await;
    let on = json!({ "enabled": true });
    let (status, server) = world.put(&full, &format!("{WHOAMI}/status"), on).await;
    assert_eq!(status, StatusCode::OK, "{server}");
    let selection = json!({ "enabledSourceIds": ["whoami"] });
    let (status, answer) = world.patch(&full, "/api/tenant", selection).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    (tenant, root)
}

pub(crate) async fn asker(world: &World, tenant: &Tenant, name: &str, role: Role) -> Asker {
    let email = format!("{name}@{}.test", tenant.slug);
    let person = world.user(tenant, &email, role).await;
    let full = world.full_token(&person).await;
    let form = json!({ "title": "t", "approvalMode": "always_allow" });
    let (status, session) = world.post(&full, "/api/sessions", form).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    let session = session["id"].as_str().unwrap().parse().unwrap();
    let token = world.token(&person, "mcp:call").await;
    Asker { person, role: role.as_str(), token, session }
}

impl Asker {
    /// The JSON-RPC answer to a call of `whoami` through the gateway.
    pub(crate) async fn call(&self, world: &World) -> Value {
        let (headers, body) =
            modern("tools/call", r#"{"name":"mcp__whoami__whoami","arguments":{}}"#);
        let url = world.url.join(&format!("/mcp/{}", self.session)).unwrap();
        let mut request = world.client().post(url).bearer_auth(&self.token).body(body);
        for (name, value) in as_pairs(&headers) {
            request = request.header(name, value);
        }
        request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        crate::gateway::Reply::of(request.send().await.unwrap()).await.json()
    }

    /// What `whoami` must answer.
    pub(crate) fn described(&self) -> Value {
        json!({
            "user": { "id": self.person.id, "email": self.person.email, "role": self.role },
            "tenant": { "id": self.person.tenant.id, "slug": self.person.tenant.slug },
            "session": self.session,
        })
    }

    pub(crate) fn subject(&self) -> Subject {
        let session = Some(self.session);
        Subject { tenant: self.person.tenant.id, user: self.person.id, session }
    }
}

/// Where a node serves `whoami` to itself.
pub(crate) fn listener(ctx: &Ctx) -> Url {
    Url::parse(&format!("http://{}/whoami", ctx.built_in.unwrap())).unwrap()
}

/// `Bearer …` for one request.
pub(crate) fn bearer(ctx: &Ctx, who: Subject, method: &Method, body: &str) -> String {
    let delegation = Delegation::new(ctx, &ServerId::from("whoami")).unwrap();
    let url = listener(ctx);
    let outgoing = Outgoing { method, url: &url, body: body.as_bytes(), behalf: Behalf::Client };
    let mut headers = delegation.headers_for(outgoing, who).unwrap();
    assert_eq!((headers.len(), headers[0].0.as_str()), (1, "authorization"));
    headers.remove(0).1.expose_secret().to_owned()
}
