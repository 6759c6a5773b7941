//! What the listener refuses.

use app::{Ctx, Parts};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::TimeDelta;
use domain::{
    Timestamp,
    delegation::{Claims, request_digest},
    limits,
};
use http::Method;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::vault::Vault;
use tests::world::World;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use super::{Asker, bearer, listener, tenant};
use crate::{
    gateway::{as_pairs, modern},
    nodes::patient,
};

/// A call of `whoami` as it goes to the listener.
fn call() -> (Vec<(String, String)>, String) {
    modern("tools/call", r#"{"name":"whoami","arguments":{}}"#)
}

async fn send(world: &World, url: Url, token: &str, body: &str) -> (StatusCode, String) {
    let mut request = world
        .client()
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body.to_owned());
    if !token.is_empty() {
        request = request.header("authorization", token);
    }
    for (name, value) in as_pairs(&call().0) {
        request = request.header(name, value);
    }
    let answer = request.send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

async fn is_refused(world: &World, url: Url, token: &str, body: &str, why: &str) {
    let (status, answer) = send(world, url, token, body).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{why}: {answer}");
    let bare = token.trim_start_matches("Bearer ");
    assert!(bare.is_empty() || !answer.contains(bare), "{why}: {answer}");
    assert!(!answer.contains("structuredContent"), "{why}: {answer}");
}

/// Signed with this installation's key, whatever it says.
fn signed(world: &World, header: &Header, claims: &Value) -> String {
    let (_, key) = world.ctx.vault.delegation_keys().next().unwrap();
    let key = EncodingKey::from_secret(key).unwrap();
    format!("Bearer {}", jsonwebtoken::encode(header, claims, &key).unwrap())
}

fn header(world: &World) -> Header {
    let kid = world.ctx.vault.key_ids()[0].to_owned();
    Header { kid: Some(kid), ..Header::new(Algorithm::HS256) }
}

/// Good claims, as JSON to be spoilt.
fn claims(world: &World, ann: &Asker, body: &str) -> Value {
    let request = request_digest("POST", body.as_bytes());
    let claims =
        Claims::new("builtin:whoami", ann.subject(), request, Uuid::new_v4(), world.ctx.now());
    serde_json::to_value(claims).unwrap()
}

#[tokio::test]
async fn a_token_is_good_once_on_whatever_node() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let other = Node::start(&world).await;
    let (_, body) = call();
    for (first, second) in [
        (listener(&world.ctx), listener(&world.ctx)),
        (listener(&world.ctx), other.url.clone()),
        (other.url.clone(), listener(&world.ctx)),
    ] {
        let token = bearer(&world.ctx, ann.subject(), &Method::POST, &body);
        let (status, answer) = send(&world, first, &token, &body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["result"]["structuredContent"], ann.described(), "{answer}");
        is_refused(&world, second, &token, &body, "used before").await;
    }
}

#[tokio::test]
async fn of_many_that_use_one_token_at_once_one_is_answered() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let (_, body) = call();
    let token = bearer(&world.ctx, ann.subject(), &Method::POST, &body);
    let sent = (0..8).map(|_| send(&world, listener(&world.ctx), &token, &body));
    let sent = futures::future::join_all(sent).await;
    let answered = sent.iter().filter(|(status, _)| *status == StatusCode::OK).count();
    assert_eq!(answered, 1, "{sent:?}");
}

#[tokio::test]
async fn another_body_or_method_is_refused() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let (_, body) = call();
    let (url, who) = (listener(&world.ctx), ann.subject());
    let token = bearer(&world.ctx, who, &Method::POST, &body);
    is_refused(&world, url.clone(), &token, &format!("{body} "), "another body").await;
    let token = bearer(&world.ctx, who, &Method::GET, &body);
    is_refused(&world, url.clone(), &token, &body, "another method").await;
    // What was refused was not spent.
    let token = bearer(&world.ctx, who, &Method::POST, &body);
    is_refused(&world, url.clone(), &token, "{}", "another body").await;
    let (status, answer) = send(&world, url, &token, &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test]
async fn an_altered_token_and_one_of_another_key_or_algorithm_are_refused() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let (_, body) = call();
    let token = bearer(&world.ctx, ann.subject(), &Method::POST, &body);
    let parts: Vec<&str> = token.trim_start_matches("Bearer ").split('.').collect();
    let mut altered: Value =
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    altered["sub"] = json!(Uuid::new_v4());
    let payload = BASE64_URL_SAFE_NO_PAD.encode(altered.to_string());
    let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
    let good = claims(&world, &ann, &body);
    let foreign = EncodingKey::from_secret(b"another installation's key, of 32").unwrap();
    let foreign = jsonwebtoken::encode(&header(&world), &good, &foreign).unwrap();
    let kid = header(&world).kid;
    for (why, token) in [
        ("another person", format!("Bearer {}.{payload}.{}", parts[0], parts[2])),
        ("no algorithm", format!("Bearer {none}.{}.", parts[1])),
        ("no algorithm, and a signature", format!("Bearer {none}.{}.{}", parts[1], parts[2])),
        ("half a signature", token[..token.len() - 20].to_owned()),
        ("no signature", format!("Bearer {}.{}", parts[0], parts[1])),
        ("another key", format!("Bearer {foreign}")),
        (
            "another algorithm",
            signed(&world, &Header { kid, ..Header::new(Algorithm::HS512) }, &good),
        ),
        ("no key id", signed(&world, &Header::new(Algorithm::HS256), &good)),
        ("no bearer", parts.join(".")),
        ("nothing", String::new()),
        ("no token", "Bearer ".to_owned()),
        ("nonsense", "Bearer a.b.c".to_owned()),
        ("an API token", format!("Bearer {}", world.full_token(&ann.person).await)),
    ] {
        is_refused(&world, listener(&world.ctx), &token, &body, why).await;
    }
}

#[tokio::test]
async fn claims_that_are_not_ours_are_refused_however_well_they_are_signed() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let (_, bob) = tenant(&world, "globex").await;
    let (_, body) = call();
    let good = claims(&world, &ann, &body);
    let (status, answer) =
        send(&world, listener(&world.ctx), &signed(&world, &header(&world), &good), &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let now = world.ctx.now().timestamp();
    for (why, member, value) in [
        ("another audience", "aud", json!("builtin:library")),
        ("several audiences", "aud", json!(["builtin:whoami", "builtin:library"])),
        ("no audience", "aud", Value::Null),
        ("another issuer", "iss", json!("https://issuer.example")),
        ("nobody", "sub", Value::Null),
        ("somebody unknown", "sub", json!(Uuid::new_v4())),
        ("somebody of another tenant", "sub", json!(bob.person.id)),
        ("no tenant", "tenant", Value::Null),
        ("another tenant", "tenant", json!(bob.person.tenant.id)),
        ("no id", "jti", Value::Null),
        ("valid for an hour", "exp", json!(now + 3_600)),
        ("valid for ever", "exp", Value::Null),
        ("another request", "request", json!("00".repeat(32))),
        ("any request", "request", Value::Null),
    ] {
        let mut bad = claims(&world, &ann, &body);
        bad[member] = value.clone();
        if value.is_null() {
            bad.as_object_mut().unwrap().remove(member);
        }
        let token = signed(&world, &header(&world), &bad);
        is_refused(&world, listener(&world.ctx), &token, &body, why).await;
    }
}

#[tokio::test]
async fn a_token_expires() {
    let at = Timestamp::from_timestamp(1_900_000_000, 0).unwrap();
    let world = World::with_fixed_clock(at).await;
    let (_, ann) = tenant(&world, "acme").await;
    let (_, body) = call();
    let life = i64::try_from(limits::DELEGATION_SECONDS.default).unwrap();
    let early = bearer(&world.ctx, ann.subject(), &Method::POST, &body);
    let late = bearer(&world.ctx, ann.subject(), &Method::POST, &body);
    world.ctx.clock.advance(TimeDelta::seconds(life - 1));
    let (status, answer) = send(&world, listener(&world.ctx), &early, &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    world.ctx.clock.advance(TimeDelta::seconds(1));
    is_refused(&world, listener(&world.ctx), &late, &body, "expired").await;
}

#[tokio::test]
async fn what_was_spent_is_forgotten_when_no_clock_can_think_it_valid() {
    let at = Timestamp::from_timestamp(1_900_000_000, 0).unwrap();
    let world = World::with_fixed_clock(at).await;
    let (_, ann) = tenant(&world, "acme").await;
    let (_, body) = call();
    let token = bearer(&world.ctx, ann.subject(), &Method::POST, &body);
    assert_eq!(send(&world, listener(&world.ctx), &token, &body).await.0, StatusCode::OK);
    let owner = world.owner().await;
    let known = async || {
        app::delegation::forget_spent(&world.ctx).await.unwrap();
        let count = "SELECT count(*) FROM spent_delegation_tokens";
        sqlx::query_scalar::<_, i64>(count).fetch_one(&owner).await.unwrap()
    };
    let kept = limits::DELEGATION_SECONDS.default + limits::DELEGATION_KEEP_SECONDS.default;
    world.ctx.clock.advance(TimeDelta::seconds(i64::try_from(kept).unwrap()));
    assert_eq!(known().await, 1);
    world.ctx.clock.advance(TimeDelta::seconds(1));
    assert_eq!(known().await, 0);
}

#[tokio::test]
async fn a_node_with_a_new_first_key_and_one_without_it_yet_understand_each_other() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let (_, body) = call();
    let old = tests::world::ENCRYPTION_KEY;
    let new = "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0=";
    let both = Node::with_keys(&world, &format!("{new},{old}")).await;
    // Signed by a node that has the old key alone.
    let token = bearer(&world.ctx, ann.subject(), &Method::POST, &body);
    let (status, answer) = send(&world, both.url.clone(), &token, &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let token = bearer(&both.ctx, ann.subject(), &Method::POST, &body);
    let (status, answer) = send(&world, both.url.clone(), &token, &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    is_refused(&world, listener(&world.ctx), &token, &body, "a key that is not there yet").await;
}

#[tokio::test]
async fn the_head_of_a_token_is_the_one_that_the_search_for_secrets_knows() {
    let world = World::new().await;
    let (_, ann) = tenant(&world, "acme").await;
    let token = bearer(&world.ctx, ann.subject(), &Method::POST, "{}");
    let head = crate::secrets::delegation_head(tests::world::ENCRYPTION_KEY);
    assert!(token.starts_with(&format!("Bearer {head}.")), "{token} {head}");
}

/// Another process on the same database.
struct Node {
    ctx: Ctx,
    url: Url,
}

impl Node {
    async fn start(world: &World) -> Self {
        Self::with_keys(world, tests::world::ENCRYPTION_KEY).await
    }

    async fn with_keys(world: &World, keys: &str) -> Self {
        let listener = api::builtin::listener().await.unwrap();
        let address = listener.local_addr().unwrap();
        let like = patient(world, world.ctx.permission_wait);
        let ctx = Ctx::from(Parts {
            db: like.db.clone(),
            clock: world.ctx.clock.clone(),
            vault: Vault::new(&keys.to_owned().into()).unwrap(),
            mcp: like.mcp.clone(),
            oauth: like.oauth.clone(),
            built_in: Some(address),
            blobs: like.blobs.clone(),
            admission: like.admission.clone(),
            node: like.node,
            signals: like.signals.clone(),
            definitions: like.definitions.clone(),
            url_rules: like.url_rules.clone(),
            stdio: like.stdio.clone(),
            permission_wait: like.permission_wait,
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            tasks: like.tasks.clone(),
        });
        let stopping = ctx.stopping.clone().cancelled_owned();
        tokio::spawn(api::builtin::serve(listener, ctx.clone(), stopping));
        let url = super::listener(&ctx);
        Self { ctx, url }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.ctx.stopping.cancel();
    }
}
