//! `Idempotency-Key`: what is sent again is answered again, and done once.

mod crashes;
mod scope;

use std::fmt::Write as _;

use domain::Role;
use http::Method;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tests::{
    browser::Browser,
    world::{Person, World, eventually},
};

pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) ann: Person,
    pub(crate) token: String,
    pub(crate) owner: PgPool,
}

/// An answer as far as a repetition has to have it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) replayed: bool,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

impl Answered {
    async fn of(response: Response) -> Self {
        let header = |name: &str| {
            response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        Self {
            status: response.status(),
            replayed: header("idempotency-replayed").as_deref() == Some("true"),
            content_type: header("content-type").unwrap_or_default(),
            body: response.json().await.unwrap_or_default(),
        }
    }

    fn again(&self) -> Self {
        Self { replayed: true, ..self.clone() }
    }

    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::of(World::new().await).await
    }

    async fn of(world: World) -> Self {
        let acme = world.tenant("acme").await;
        let ann = world.user(&acme, "ann@acme.test", Role::Superadmin).await;
        let token = world.full_token(&ann).await;
        Self { owner: world.owner().await, ann, token, world }
    }

    pub(crate) fn request(&self, method: Method, path: &str, key: &str) -> reqwest::RequestBuilder {
        let address = self.world.url.join(path).unwrap();
        let request = self.world.client().request(method, address);
        request.bearer_auth(&self.token).header("idempotency-key", key)
    }

    async fn post(&self, path: &str, key: &str, body: &Value) -> Answered {
        Answered::of(self.request(Method::POST, path, key).json(body).send().await.unwrap()).await
    }

    pub(crate) async fn make_session(&self, key: &str, title: &str) -> Answered {
        self.post("/api/sessions", key, &json!({ "title": title })).await
    }

    pub(crate) async fn sessions(&self, title: &str) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM sessions WHERE title = $1")
            .bind(title)
            .fetch_one(&self.owner)
            .await
            .unwrap()
    }

    /// State and whether an answer is kept, of every key.
    pub(crate) async fn keys(&self) -> Vec<(String, bool)> {
        let keys =
            "SELECT state, answer_body IS NOT NULL FROM idempotency_keys ORDER BY created_at";
        sqlx::query_as(keys).fetch_all(&self.owner).await.unwrap()
    }
}

#[tokio::test]
async fn a_repeated_request_is_answered_again_and_done_once() {
    let stage = Stage::new().await;
    let first = stage.make_session("key-1", "once").await;
    assert_eq!((first.status, first.replayed), (StatusCode::CREATED, false));
    assert_eq!(first.content_type, "application/json");
    for _ in 0..3 {
        assert_eq!(stage.make_session("key-1", "once").await, first.again());
    }
    assert_eq!(stage.sessions("once").await, 1);
    assert_eq!(stage.make_session("key-2", "once").await.status, StatusCode::CREATED);
    assert_eq!(stage.sessions("once").await, 2);

    // Every unsafe method; also where nothing changes.
    let path = format!("/api/sessions/{}", first.body["id"].as_str().unwrap());
    let retitle =
        || stage.request(Method::PATCH, &path, "key-3").json(&json!({ "title": "twice" }));
    let changed = Answered::of(retitle().send().await.unwrap()).await;
    assert_eq!((changed.status, &changed.body["title"]), (StatusCode::OK, &json!("twice")));
    assert_eq!(Answered::of(retitle().send().await.unwrap()).await, changed.again());
    for key in ["key-4", "key-5"] {
        let delete = || stage.request(Method::DELETE, &path, key);
        let archived = Answered::of(delete().send().await.unwrap()).await;
        assert_eq!((archived.status, archived.replayed), (StatusCode::OK, false));
        assert_eq!(Answered::of(delete().send().await.unwrap()).await, archived.again());
    }
}

#[tokio::test]
async fn a_key_is_of_one_request() {
    let stage = Stage::new().await;
    stage.make_session("key", "one").await;
    let other_body = stage.make_session("key", "another").await;
    assert_eq!(other_body.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(other_body.code(), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(other_body.content_type, "application/problem+json");
    let other_path = stage.post("/api/projects", "key", &json!({ "title": "one" })).await;
    assert_eq!(other_path.code(), "IDEMPOTENCY_KEY_REUSED");
    let other_query = stage.post("/api/sessions?x=1", "key", &json!({ "title": "one" })).await;
    assert_eq!(other_query.code(), "IDEMPOTENCY_KEY_REUSED");
    let other_method = stage.request(Method::DELETE, "/api/sessions", "key").send().await.unwrap();
    assert!(other_method.status().is_client_error());
    assert_eq!(stage.sessions("another").await, 0);
    assert_eq!(stage.sessions("one").await, 1);
}

#[tokio::test]
async fn a_key_is_of_one_credential() {
    let mut stage = Stage::new().await;
    let first = stage.make_session("key", "mine").await;
    // Another token of the same person, which may not see what the first may.
    stage.token = stage.world.token(&stage.ann, "api:read").await;
    let weak = stage.make_session("key", "mine").await;
    assert_eq!((weak.status, weak.replayed), (StatusCode::FORBIDDEN, false));
    stage.token = stage.world.full_token(&stage.ann).await;
    let other = stage.make_session("key", "mine").await;
    assert_eq!((other.status, other.replayed), (StatusCode::CREATED, false));
    assert_ne!(other.body["id"], first.body["id"]);
    // Somebody of another tenant, and nobody.
    let globex = stage.world.tenant("globex").await;
    let gus = stage.world.user(&globex, "gus@globex.test", Role::Superadmin).await;
    stage.token = stage.world.full_token(&gus).await;
    let foreign = stage.make_session("key", "mine").await;
    assert_eq!((foreign.status, foreign.replayed), (StatusCode::CREATED, false));
    "blw_unknown".clone_into(&mut stage.token);
    assert_eq!(stage.make_session("key", "mine").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(stage.sessions("mine").await, 3);
}

#[tokio::test]
async fn a_key_on_a_safe_method_is_ignored() {
    let stage = Stage::new().await;
    let list = || stage.request(Method::GET, "/api/sessions", "key");
    let before = Answered::of(list().send().await.unwrap()).await;
    assert_eq!(before.body["items"].as_array().unwrap().len(), 0);
    stage.make_session("key", "new").await;
    let after = Answered::of(list().send().await.unwrap()).await;
    assert_eq!((after.replayed, after.body["items"].as_array().unwrap().len()), (false, 1));
    assert_eq!(stage.keys().await.len(), 1);
}

#[tokio::test]
async fn a_key_is_up_to_128_printable_characters() {
    let stage = Stage::new().await;
    let longest = "k".repeat(128);
    for key in ["k", "\"8e03978e-40d5-43dd-bc93-6894a57f9324\"", "a key!", &longest] {
        assert_eq!(stage.make_session(key, "fits").await.status, StatusCode::CREATED, "{key}");
    }
    let too_long = "k".repeat(129);
    for key in ["", &too_long, "a\tb", "schl\u{fc}ssel"] {
        let refused = stage.make_session(key, "does not fit").await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{key}");
        assert_eq!(refused.code(), "INVALID_INPUT", "{key}");
    }
    let two = stage.request(Method::POST, "/api/sessions", "a").header("idempotency-key", "b");
    let two = two.json(&json!({ "title": "does not fit" })).send().await.unwrap();
    assert_eq!(two.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(stage.sessions("does not fit").await, 0);
}

#[tokio::test]
async fn a_key_of_a_browser_session_is_that_sessions() {
    let stage = Stage::new().await;
    let password = "correct horse battery";
    let new = secrecy::SecretString::from(password);
    app::users::set_password(&stage.world.ctx, "acme", &stage.ann.email, new).await.unwrap();
    let signed_in = async || {
        let mut browser = Browser::at(&stage.world.url);
        assert_eq!(browser.sign_in("acme", &stage.ann.email, password).await.status, 303);
        browser
    };
    let ask = async |browser: &Browser, title: &str| {
        let request = browser.request(Method::POST, "/api/sessions");
        let request = request.header("sec-fetch-site", "same-origin");
        let request = request.header("idempotency-key", "key").json(&json!({ "title": title }));
        Answered::of(request.send().await.unwrap()).await
    };
    let (mut one, two) = (signed_in().await, signed_in().await);
    let first = ask(&one, "hers").await;
    assert_eq!((first.status, first.replayed), (StatusCode::CREATED, false));
    assert_eq!(ask(&one, "hers").await, first.again());
    assert_eq!(ask(&one, "another").await.code(), "IDEMPOTENCY_KEY_REUSED");
    // The same person in another browser, and by a token, has keys of their own.
    assert!(!ask(&two, "hers").await.replayed);
    let token = stage.world.full_token(&stage.ann).await;
    let by_token = Stage { token, ..stage };
    assert!(!by_token.make_session("key", "hers").await.replayed);
    assert_eq!(by_token.sessions("hers").await, 3);

    // What another site's page sends is neither done nor remembered; nor is it after the session.
    let foreign = one.request(Method::POST, "/api/sessions").header("idempotency-key", "foreign");
    let foreign = foreign.header("sec-fetch-site", "cross-site").json(&json!({}));
    assert_eq!(foreign.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(by_token.keys().await.len(), 3);
    let old = one.clone();
    one.submit("/sign-out", &[]).await;
    assert_eq!(ask(&old, "hers").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_answer_with_a_secret_is_given_once() {
    let stage = Stage::new().await;
    let form = json!({ "name": "spare", "scopes": ["api:read"] });
    let first = stage.post("/api/tokens", "key", &form).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let secret = first.body["token"].as_str().unwrap();
    let again = stage.post("/api/tokens", "key", &form).await;
    assert_eq!((again.status, again.code()), (StatusCode::CONFLICT, "CONFLICT"));
    assert!(again.body["detail"].as_str().unwrap().contains("was done"), "{again:?}");
    assert!(!again.body.to_string().contains(secret));
    let rows: Vec<String> = sqlx::query_scalar("SELECT k::text FROM idempotency_keys k")
        .fetch_all(&stage.owner)
        .await
        .unwrap();
    assert_eq!(rows.len(), 1);
    // Neither the answer nor, as bytea shows it, its hex digits.
    assert!(!rows[0].contains(secret) && !rows[0].contains(&hex(secret)), "{rows:?}");
    let (_, tokens) = stage.world.get(&stage.token, "/api/tokens").await;
    let made = tokens["items"].as_array().unwrap().iter().filter(|one| one["name"] == "spare");
    assert_eq!(made.count(), 1);
}

#[tokio::test]
async fn neither_key_nor_body_of_a_request_is_kept() {
    let stage = Stage::new().await;
    let form =
        json!({ "email": "new@acme.test", "role": "member", "password": "correct horse battery" });
    let made = stage.post("/api/users", "the-key-itself", &form).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    let rows: Vec<String> = sqlx::query_scalar("SELECT k::text FROM idempotency_keys k")
        .fetch_all(&stage.owner)
        .await
        .unwrap();
    let shown = rows.concat();
    let body = form.to_string();
    let digest = domain::json::Sha256Digest::of(body.as_bytes()).to_string();
    for kept in ["the-key-itself", "correct horse", &hex("correct horse"), &digest] {
        assert!(!shown.contains(kept), "{kept} is in {shown}");
    }
}

#[tokio::test]
async fn what_was_refused_and_changed_nothing_leaves_its_key_free() {
    let stage = Stage::new().await;
    for (refused, status) in [
        (json!({ "title": 7 }), 422),
        (json!({ "title": "mended", "projectId": "019a0000-0000-7000-8000-000000000000" }), 404),
        (json!({ "approvalMode": "x" }), 422),
    ] {
        let answer = stage.post("/api/sessions", "key", &refused).await;
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
        assert_eq!(stage.keys().await, []);
    }
    let text =
        stage.request(Method::POST, "/api/sessions", "key").body("text").send().await.unwrap();
    assert_eq!(text.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let mended = stage.make_session("key", "mended").await;
    assert_eq!((mended.status, mended.replayed), (StatusCode::CREATED, false));
    assert_eq!(stage.make_session("key", "mended").await, mended.again());
}

#[tokio::test]
async fn of_many_at_once_one_is_done() {
    let stage = Stage::new().await;
    let all = (0..20).map(|_| stage.make_session("key", "many"));
    let answers = futures::future::join_all(all).await;
    let (mut done, mut running) = (Vec::new(), 0);
    for answer in answers {
        match answer.status.as_u16() {
            201 => done.push(answer),
            409 => {
                assert!(answer.body["detail"].as_str().unwrap().contains("still runs"));
                running += 1;
            }
            _ => panic!("{answer:?}"),
        }
    }
    assert_eq!(done.iter().filter(|answer| !answer.replayed).count(), 1, "{done:?}");
    assert!(done.iter().all(|answer| answer.body == done[0].body), "{done:?}");
    assert_eq!(done.len() + running, 20);
    assert_eq!(stage.sessions("many").await, 1);
    assert!(stage.make_session("key", "many").await.replayed);
}

#[tokio::test]
async fn a_request_that_still_runs_is_not_repeated() {
    let stage = Stage::new().await;
    // Nobody can write a session now.
    let mut lock = stage.owner.begin().await.unwrap();
    sqlx::query("LOCK TABLE sessions IN SHARE MODE").execute(&mut *lock).await.unwrap();
    let first =
        stage.request(Method::POST, "/api/sessions", "key").json(&json!({ "title": "slow" }));
    let first = tokio::spawn(first.send());
    eventually("the request runs", async || (stage.keys().await.len() == 1).then_some(())).await;
    let second =
        stage.request(Method::POST, "/api/sessions", "key").json(&json!({ "title": "slow" }));
    let second = second.send().await.unwrap();
    assert_eq!(second.status(), StatusCode::CONFLICT);
    assert_eq!(second.headers()["retry-after"], "1");
    lock.rollback().await.unwrap();
    let first = Answered::of(first.await.unwrap().unwrap()).await;
    assert_eq!(first.status, StatusCode::CREATED);
    assert_eq!(stage.make_session("key", "slow").await, first.again());
    assert_eq!(stage.sessions("slow").await, 1);
}

/// As Postgres shows bytes.
fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |mut digits, byte| {
        _ = write!(digits, "{byte:02x}");
        digits
    })
}
