//! Company sign-in over real HTTP, with a real OpenID provider: who gets in, as whom, and who does not.

mod accounts;
mod gateway;
mod settings;
mod sign_in;

use domain::Role;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    browser::{Browser, Seen},
    company_issuer::{CLIENT_ID, CLIENT_SECRET, CompanyIssuer},
    world::{Person, Tenant, World},
};
use url::Url;

/// A tenant whose people sign in at an issuer.
struct Scene {
    world: World,
    issuer: CompanyIssuer,
    tenant: Tenant,
    root: Person,
    token: String,
}

const SETTINGS: &str = "/api/tenant/company-sign-in";

impl Scene {
    /// With these members of the settings changed.
    async fn new(changes: Value) -> Self {
        let (world, issuer) = (World::new().await, CompanyIssuer::start().await);
        let tenant = world.tenant("acme").await;
        let root = world.user(&tenant, "root@acme.test", Role::Superadmin).await;
        let token = world.full_token(&root).await;
        let scene = Self { world, issuer, tenant, root, token };
        let (status, saved) = scene.save(changes).await;
        assert_eq!(status, StatusCode::OK, "{saved}");
        scene
    }

    /// The settings with these members changed; the secret is kept where there is one.
    async fn save(&self, changes: Value) -> (StatusCode, Value) {
        let (_, known) = self.world.get(&self.token, SETTINGS).await;
        let mut form = json!({
            "enabled": true, "name": "Acme", "issuer": self.issuer.issuer(), "clientId": CLIENT_ID,
            "clientSecret": CLIENT_SECRET,
        });
        if let Some(revision) = known.get("revision") {
            form["revision"] = revision.clone();
        }
        for (name, value) in changes.as_object().unwrap() {
            form[name] = value.clone();
        }
        self.world.put(&self.token, SETTINGS, form).await
    }

    fn browser(&self) -> Browser {
        Browser::at(&self.world.url)
    }

    /// Somebody who never was here, with the account `subject` at the issuer.
    async fn person(&self, email: &str, subject: &str) -> Person {
        let person = self.world.user(&self.tenant, email, Role::Member).await;
        let path = format!("/api/users/{}/company-account", person.id);
        let body = json!({ "subject": subject });
        let (status, linked) = self.world.put(&self.token, &path, body).await;
        assert_eq!(status, StatusCode::OK, "{linked}");
        person
    }

    /// To the issuer: where it would send the browser back to.
    async fn go(&self, browser: &mut Browser) -> Url {
        let going = browser.get("/t/acme/oidc/start?next=%2Fquestions").await;
        assert_eq!(going.status, StatusCode::SEE_OTHER, "{going:?}");
        self.issuer.walk(&going.header("location").parse().unwrap()).await
    }

    /// All of it: the last page.
    async fn sign_in(&self, browser: &mut Browser) -> Seen {
        let back = self.go(browser).await;
        come_back(browser, &back).await
    }

    /// Why the last sign-in was refused, as the audit has it.
    async fn reason(&self) -> String {
        let owner = self.world.owner().await;
        let details: Value = sqlx::query_scalar(
            "SELECT details FROM audit_events WHERE action = 'company_sign_in.refused'
             ORDER BY created_at DESC, audit_event_id DESC LIMIT 1",
        )
        .fetch_one(&owner)
        .await
        .unwrap();
        details["reason"].as_str().unwrap().to_owned()
    }
}

async fn come_back(browser: &mut Browser, back: &Url) -> Seen {
    let path = format!("{}?{}", back.path(), back.query().unwrap_or_default());
    browser.get(&path).await
}

/// Who the browser is signed in as; `None`: nobody.
async fn who(browser: &mut Browser) -> Option<String> {
    let me = browser.fetch(http::Method::GET, "/api/me", None).await;
    (me.status == StatusCode::OK).then(|| me.json()["user"]["email"].as_str().unwrap().to_owned())
}
