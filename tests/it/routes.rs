//! For every route of the OpenAPI document: what succeeds for its owner fails for everybody else and
//! leaves every row as it was.
//!
//! **A new route** needs a [`Case`] in `routes/<noun>.rs`, joined in [`all`]; without one
//! `every_route_has_its_case` fails. A case says what the route needs and how to make one good
//! request of it. The rest follows by itself, each time with a request prepared anew by the owner:
//!
//! 1. the owner (`ann`, a superadmin of `acme`) succeeds;
//! 2. nobody without a token, nor with a token that lacks one of the scopes in `needs`: 401, 403;
//! 3. nobody in a smaller role than `role`, whatever their scopes: 403;
//! 4. the superadmin of another tenant (`gus` of `globex`, every scope) gets what `foreign` says;
//! 5. another superadmin of the same tenant (`bob`, every scope) gets what `colleague` says.
//!
//! Refused requests change no row of any tenant; [`Fate::Own`] ones none of acme's, and their answer
//! tells nothing of acme: not the tenant's, the owner's or the prepared thing's id.
//!
//! ```ignore
//! Case::new(Method::DELETE, paths::THING, |stage| Box::pin(async move {
//!     let thing = stage.make("/api/things", json!({ "title": "a thing" })).await;
//!     Sent::to(format!("/api/things/{thing}"))
//! }))
//! .needs("api:write").foreign(Fate::Refused(404)).colleague(Fate::Refused(404))
//! ```

mod company;
mod connections;
mod identity;
mod invocations;
mod permissions;
mod servers;
mod sessions;

use std::{
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
};

use domain::Role;
use http::Method;
use serde_json::Value;
use sqlx::PgPool;
use tests::world::{Person, World, rows};

/// All scopes that the REST API knows; `mcp:call` cannot stand beside `approve`.
const SCOPES: [&str; 4] = ["api:read", "api:write", "approve", "admin"];

fn all() -> Vec<Case> {
    [
        company::cases(),
        connections::cases(),
        identity::cases(),
        invocations::cases(),
        permissions::cases(),
        sessions::cases(),
        servers::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How somebody else's same request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// With this status, and no row changed.
    Refused(u16),
    /// With this status; what it brought is used up by that.
    Spent(u16),
    /// Well, but about their own things alone: a list, `me`, a creation in their own tenant.
    Own,
    /// As for the owner: the route is for everybody of the tenant with that role.
    Same,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    path: String,
    body: Option<Value>,
    /// Ids that a foreigner's answer must not hold.
    secrets: Vec<String>,
}

impl Sent {
    pub(crate) fn to(path: impl Into<String>) -> Self {
        Self { path: path.into(), body: None, secrets: Vec::new() }
    }

    #[must_use]
    pub(crate) fn with(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Besides the ids of tenant and owner.
    #[must_use]
    pub(crate) fn hiding(mut self, id: impl Into<String>) -> Self {
        self.secrets.push(id.into());
        self
    }
}

pub(crate) type Prepare = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = Sent> + 'a>>;

/// One route, and how it treats whom.
pub(crate) struct Case {
    method: Method,
    /// As in the OpenAPI document.
    route: &'static str,
    prepare: Prepare,
    needs: &'static str,
    role: Role,
    foreign: Fate,
    colleague: Fate,
    open: bool,
    by_session: bool,
}

impl Case {
    /// `prepare` makes, as the owner, what the request is about. Scopes, role and fates have the
    /// strictest defaults.
    pub(crate) fn new(method: Method, route: &'static str, prepare: Prepare) -> Self {
        let needs = if method.is_safe() { "api:read" } else { "api:write" };
        let (foreign, colleague) = (Fate::Refused(404), Fate::Refused(404));
        let (role, open, by_session) = (Role::Member, false, false);
        Self { method, route, prepare, needs, role, foreign, colleague, open, by_session }
    }

    /// A route of browser sessions alone: every token is refused. That it works stands in `sign_in`.
    pub(crate) fn by_session(method: Method, route: &'static str, prepare: Prepare) -> Self {
        Self { by_session: true, ..Self::new(method, route, prepare) }
    }

    /// A route that anybody may ask without a token.
    pub(crate) fn open(method: Method, route: &'static str, prepare: Prepare) -> Self {
        Self { open: true, ..Self::new(method, route, prepare) }
    }

    #[must_use]
    pub(crate) fn needs(self, needs: &'static str) -> Self {
        Self { needs, ..self }
    }

    #[must_use]
    pub(crate) fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    #[must_use]
    pub(crate) fn foreign(self, foreign: Fate) -> Self {
        Self { foreign, ..self }
    }

    #[must_use]
    pub(crate) fn colleague(self, colleague: Fate) -> Self {
        Self { colleague, ..self }
    }
}

/// Two tenants with their people.
pub(crate) struct Stage {
    pub(crate) world: World,
    /// Superadmin of acme; owns what the requests are about.
    pub(crate) ann: Person,
    /// Every scope of the REST API.
    pub(crate) ann_token: String,
    /// Another superadmin of acme.
    bob_token: String,
    /// Superadmin of globex.
    gus_token: String,
    owner: PgPool,
    /// How many names were given out.
    used: AtomicU64,
}

impl Stage {
    async fn new() -> Self {
        let world = World::new().await;
        let (acme, globex) = (world.tenant("acme").await, world.tenant("globex").await);
        let ann = world.user(&acme, "ann@acme.test", Role::Superadmin).await;
        let bob = world.user(&acme, "bob@acme.test", Role::Superadmin).await;
        let gus = world.user(&globex, "gus@globex.test", Role::Superadmin).await;
        world.user(&globex, "hal@globex.test", Role::Member).await;
        Self {
            ann_token: world.full_token(&ann).await,
            bob_token: world.full_token(&bob).await,
            gus_token: world.full_token(&gus).await,
            owner: world.owner().await,
            used: AtomicU64::new(0),
            ann,
            world,
        }
    }

    /// POSTs as the owner and answers the `id` of what was made.
    pub(crate) async fn make(&self, path: &str, body: Value) -> String {
        let (status, made) = self.world.post(&self.ann_token, path, body).await;
        assert!(status.is_success(), "POST {path}: {status} {made}");
        made["id"].as_str().unwrap_or_else(|| panic!("no id in {made}")).to_owned()
    }

    /// A text that was not used before: for names that must not repeat.
    pub(crate) fn unused(&self, stem: &str) -> String {
        format!("{stem}-{}", self.used.fetch_add(1, Ordering::Relaxed))
    }
}

#[test]
fn every_route_has_its_case() {
    let document = serde_json::to_value(api::openapi()).unwrap();
    let mut routes = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            routes.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let cases: BTreeSet<String> =
        all().iter().map(|case| format!("{} {}", case.method, case.route)).collect();
    let without: Vec<_> = routes.difference(&cases).collect();
    assert!(without.is_empty(), "routes without a case: {without:#?}");
    let unknown: Vec<_> = cases.difference(&routes).collect();
    assert!(unknown.is_empty(), "cases without a route: {unknown:#?}");
}

#[tokio::test]
async fn every_route_serves_its_owner_and_nobody_else() {
    let stage = Stage::new().await;
    let mut wrong = Vec::new();
    for case in all() {
        case.play(&stage, &mut wrong).await;
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

impl Case {
    async fn play(&self, stage: &Stage, wrong: &mut Vec<String>) {
        let mut say =
            |words: String| wrong.push(format!("{} {}: {words}", self.method, self.route));
        if self.by_session {
            for (token, status) in [("", 401), ("blw_unknown", 401), (&stage.ann_token, 403)] {
                self.refuses(stage, "whoever is not signed in", token, status, &mut say).await;
            }
            return;
        }
        let token = if self.open { "" } else { stage.ann_token.as_str() };
        let (status, body) = self.send(stage, token, &(self.prepare)(stage).await).await;
        if !(200..300).contains(&status) {
            say(format!("the owner gets {status} {body}"));
            return;
        }
        if self.open {
            return;
        }

        self.refuses(stage, "somebody without a token", "", 401, &mut say).await;
        self.refuses(stage, "an unknown token", "blw_unknown", 401, &mut say).await;
        for missing in self.needs.split(',') {
            let rest: Vec<&str> = SCOPES.into_iter().filter(|scope| *scope != missing).collect();
            let token = stage.world.token(&stage.ann, &rest.join(",")).await;
            let who = format!("the owner without {missing}");
            self.refuses(stage, &who, &token, 403, &mut say).await;
        }
        for role in [Role::Member, Role::Admin].into_iter().filter(|role| *role < self.role) {
            let email = format!("{}@acme.test", stage.unused("small"));
            let person = stage.world.user(&stage.ann.tenant, &email, role).await;
            let token = stage.world.full_token(&person).await;
            let who = format!("a {}", role.as_str());
            self.refuses(stage, &who, &token, 403, &mut say).await;
        }
        let others = [
            ("a foreigner", &stage.gus_token, self.foreign),
            ("a colleague", &stage.bob_token, self.colleague),
        ];
        for (who, token, fate) in others {
            self.meets(stage, who, token, fate, &mut say).await;
        }
    }

    async fn meets(
        &self,
        stage: &Stage,
        who: &str,
        token: &str,
        fate: Fate,
        say: &mut impl FnMut(String),
    ) {
        match fate {
            Fate::Refused(status) => self.refuses(stage, who, token, status, say).await,
            Fate::Spent(expected) => {
                let (status, body) = self.send(stage, token, &(self.prepare)(stage).await).await;
                if status != expected {
                    say(format!("{who} gets {status} instead of {expected}: {body}"));
                }
            }
            Fate::Same => {
                let (status, body) = self.send(stage, token, &(self.prepare)(stage).await).await;
                if !(200..300).contains(&status) {
                    say(format!("{who} gets {status} {body}"));
                }
            }
            Fate::Own => {
                let sent = (self.prepare)(stage).await;
                let (ann, acme) = (stage.ann.id.to_string(), stage.ann.tenant.id);
                // A colleague may change rows of the tenant that both belong to: their own.
                let watched = (who == "a foreigner").then_some(acme.0);
                let before = rows::digest(&stage.owner, watched).await;
                let (status, body) = self.send(stage, token, &sent).await;
                if !(200..300).contains(&status) {
                    say(format!("{who} gets {status} {body}"));
                }
                let mut secrets = sent.secrets.clone();
                secrets.push(ann);
                if watched.is_some() {
                    secrets.push(acme.to_string());
                    if rows::digest(&stage.owner, watched).await != before {
                        say(format!("{who} changed rows of acme"));
                    }
                }
                let text = body.to_string();
                for secret in secrets.iter().filter(|secret| text.contains(secret.as_str())) {
                    say(format!("{who} is told {secret}: {text}"));
                }
            }
        }
    }

    /// The same request, prepared anew, fails with `expected` and changes nothing anywhere.
    async fn refuses(
        &self,
        stage: &Stage,
        who: &str,
        token: &str,
        expected: u16,
        say: &mut impl FnMut(String),
    ) {
        let sent = (self.prepare)(stage).await;
        let before = rows::digest(&stage.owner, None).await;
        let (status, body) = self.send(stage, token, &sent).await;
        if status != expected {
            say(format!("{who} gets {status} instead of {expected}: {body}"));
        }
        if rows::digest(&stage.owner, None).await != before {
            say(format!("{who} changed rows"));
        }
    }

    async fn send(&self, stage: &Stage, token: &str, sent: &Sent) -> (u16, Value) {
        let body = sent.body.clone();
        let (status, body) =
            stage.world.request(self.method.clone(), token, &sent.path, body).await;
        (status.as_u16(), body)
    }
}
