//! A company's issuer: a real OpenID provider with the faults of real ones.
//!
//! ```text
//! let issuer = CompanyIssuer::start().await;
//! issuer.set(|knobs| knobs.claims["email"] = json!("ann@acme.test"));
//! let callback = issuer.walk(&authorization_url).await;
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Form, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use base64::{Engine, prelude::*};
use jsonwebtoken::{Algorithm, EncodingKey, jwk::Jwk};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::{net::TcpListener, task::JoinHandle};
use url::Url;
use uuid::Uuid;

/// Stands in every description of an error that the issuer gives.
pub const WORDS: &str = "issuers-own-words";
pub const CLIENT_ID: &str = "bailiwick";
pub const CLIENT_SECRET: &str = "secret of the company's client";

/// What signs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    Rsa,
    Ec,
    /// A key that is published only after [`CompanyIssuer::rotate`].
    NewEc,
    /// HMAC with a published key as the secret.
    PublicKeyAsSecret,
    /// `alg: none`.
    Nothing,
    /// The right key, another payload.
    Altered,
}

/// How it behaves; see the defaults.
#[derive(Debug, Clone)]
pub struct Knobs {
    pub sign: Sign,
    /// Members of the ID token that replace its own; null takes one out.
    pub claims: Map<String, Value>,
    /// The same of its header.
    pub header: Map<String, Value>,
    /// The same of the metadata.
    pub metadata: Map<String, Value>,
    /// `iss` of the callback; empty: none.
    pub iss: Option<String>,
    pub no_id_token: bool,
    /// Status of every answer but the authorization page.
    pub down: Option<u16>,
    /// Without asking anybody.
    pub auto_consent: bool,
}

/// A running issuer; stops when dropped.
pub struct CompanyIssuer {
    shared: Shared,
    serving: JoinHandle<()>,
}

#[derive(Clone)]
struct Shared(Arc<Inner>);

struct Inner {
    issuer: String,
    keys: Keys,
    knobs: Mutex<Knobs>,
    state: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    codes: HashMap<String, HashMap<String, String>>,
    rotated: bool,
    asked: Vec<String>,
    secrets: Vec<String>,
}

struct Keys {
    rsa: EncodingKey,
    ec: EncodingKey,
    new_ec: EncodingKey,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CompanyIssuer {
    /// # Panics
    ///
    /// Where no port can be had.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let ec = |pem: &str| EncodingKey::from_ec_pem(pem.as_bytes()).unwrap();
        let keys = Keys {
            rsa: EncodingKey::from_rsa_pem(include_bytes!("../fixtures/company/rsa-1.pem"))
                .unwrap(),
            ec: ec(include_str!("../fixtures/company/ec-1.pem")),
            new_ec: ec(include_str!("../fixtures/company/ec-2.pem")),
        };
        let claims =
            json!({ "email": "ann@acme.test", "email_verified": true, "sub": "ann-at-acme" });
        let knobs = Knobs {
            sign: Sign::Ec,
            claims: claims.as_object().unwrap().clone(),
            header: Map::new(),
            metadata: Map::new(),
            iss: None,
            no_id_token: false,
            down: None,
            auto_consent: true,
        };
        let inner = Inner { issuer, keys, knobs: Mutex::new(knobs), state: Mutex::default() };
        let shared = Shared(Arc::new(inner));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/keys", get(keys_document))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(shared.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { shared, serving }
    }

    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.shared.0.issuer
    }

    pub fn set(&self, change: impl FnOnce(&mut Knobs)) {
        change(&mut lock(&self.shared.0.knobs));
    }

    /// Another key is published from now on, and the old one no longer.
    pub fn rotate(&self) {
        lock(&self.shared.0.state).rotated = true;
    }

    /// How often a path was asked for.
    #[must_use]
    pub fn asked(&self, path: &str) -> usize {
        lock(&self.shared.0.state).asked.iter().filter(|asked| *asked == path).count()
    }

    /// Every secret that it gave out.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        lock(&self.shared.0.state).secrets.clone()
    }

    /// The person's way through the issuer's pages: where their browser is sent back to.
    ///
    /// # Panics
    ///
    /// Where the issuer does not send it back.
    pub async fn walk(&self, authorization: &Url) -> Url {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .unwrap();
        let answer = client.get(authorization.clone()).send().await.unwrap();
        let location = answer.headers().get("location");
        location.expect("a way back").to_str().unwrap().parse().unwrap()
    }

    /// An access token for the gateway at `audience`, with `changes` to its claims.
    #[must_use]
    pub fn access_token(&self, audience: &str, changes: &Value) -> String {
        let now = now();
        let knobs = lock(&self.shared.0.knobs).clone();
        let mut claims = json!({
            "iss": self.issuer(), "sub": knobs.claims["sub"], "aud": audience, "iat": now,
            "exp": now + 300, "jti": Uuid::new_v4(), "client_id": "an-agent", "scope": "mcp:call",
        });
        merge(claims.as_object_mut().unwrap(), changes.as_object().unwrap());
        let mut header = Map::new();
        header.insert("typ".to_owned(), json!("at+jwt"));
        merge(&mut header, &knobs.header);
        self.shared.sign(knobs.sign, &header, &claims)
    }
}

impl Drop for CompanyIssuer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "an issuer has a clock of its own")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn merge(into: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (name, value) in changes {
        if value.is_null() {
            into.remove(name);
        } else {
            into.insert(name.clone(), value.clone());
        }
    }
}

impl Shared {
    fn knobs(&self) -> Knobs {
        lock(&self.0.knobs).clone()
    }

    /// Notes what was asked for; the answer where the issuer is down.
    fn enter(&self, path: &str) -> Option<Response> {
        lock(&self.0.state).asked.push(path.to_owned());
        let down = self.knobs().down?;
        Some((StatusCode::from_u16(down).unwrap(), WORDS).into_response())
    }

    fn jwk(key: &EncodingKey, algorithm: Algorithm, id: &str) -> Value {
        let mut jwk = Jwk::from_encoding_key(key, algorithm).unwrap();
        jwk.common.key_id = Some(id.to_owned());
        serde_json::to_value(jwk).unwrap()
    }

    fn sign(&self, sign: Sign, header: &Map<String, Value>, claims: &Value) -> String {
        let keys = &self.0.keys;
        let (algorithm, key, id) = match sign {
            Sign::Rsa => ("RS256", Some(&keys.rsa), "rsa-1"),
            Sign::Ec | Sign::Altered => ("ES256", Some(&keys.ec), "ec-1"),
            Sign::NewEc => ("ES256", Some(&keys.new_ec), "ec-2"),
            Sign::PublicKeyAsSecret => ("HS256", None, "ec-1"),
            Sign::Nothing => ("none", None, "ec-1"),
        };
        let mut whole = Map::new();
        whole.insert("alg".to_owned(), json!(algorithm));
        whole.insert("kid".to_owned(), json!(id));
        merge(&mut whole, header);
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(&Value::Object(whole)), encode(claims));
        let signature = match (sign, key) {
            (Sign::Nothing, _) => String::new(),
            (_, Some(key)) => {
                let algorithm = if sign == Sign::Rsa { Algorithm::RS256 } else { Algorithm::ES256 };
                jsonwebtoken::crypto::sign(message.as_bytes(), key, algorithm).unwrap()
            }
            (_, None) => {
                let public = Self::jwk(&keys.ec, Algorithm::ES256, "ec-1").to_string();
                let key = EncodingKey::from_secret(public.as_bytes()).unwrap();
                jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap()
            }
        };
        if sign == Sign::Altered {
            let mut claims = claims.clone();
            claims["sub"] = json!("somebody-else");
            let head = message.split('.').next().unwrap();
            return format!("{head}.{}.{signature}", encode(&claims));
        }
        format!("{message}.{signature}")
    }
}

async fn metadata(State(shared): State<Shared>) -> Response {
    if let Some(down) = shared.enter("/.well-known/openid-configuration") {
        return down;
    }
    let issuer = &shared.0.issuer;
    let mut document = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        "scopes_supported": ["openid", "email", "profile"],
        "authorization_response_iss_parameter_supported": true,
    });
    merge(document.as_object_mut().unwrap(), &shared.knobs().metadata);
    axum::Json(document).into_response()
}

async fn keys_document(State(shared): State<Shared>) -> Response {
    if let Some(down) = shared.enter("/keys") {
        return down;
    }
    let keys = &shared.0.keys;
    let ec = if lock(&shared.0.state).rotated {
        Shared::jwk(&keys.new_ec, Algorithm::ES256, "ec-2")
    } else {
        Shared::jwk(&keys.ec, Algorithm::ES256, "ec-1")
    };
    // A kind of key that few know stands in no one's way.
    let strange = json!({ "kty": "AKP", "kid": "pq-1", "alg": "ML-DSA-44", "pub": "AAAA" });
    let rsa = Shared::jwk(&keys.rsa, Algorithm::RS256, "rsa-1");
    axum::Json(json!({ "keys": [strange, rsa, ec] })).into_response()
}

async fn authorize(
    State(shared): State<Shared>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    lock(&shared.0.state).asked.push("/authorize".to_owned());
    let given = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    let sound = given("client_id") == CLIENT_ID
        && given("response_type") == "code"
        && given("code_challenge_method") == "S256"
        && given("scope").split(' ').any(|scope| scope == "openid")
        && !given("nonce").is_empty()
        && !given("state").is_empty();
    let Ok(mut back) = given("redirect_uri").parse::<Url>() else {
        return (StatusCode::BAD_REQUEST, WORDS).into_response();
    };
    let knobs = shared.knobs();
    if !knobs.auto_consent && given("go").is_empty() {
        let here = |go: &str| {
            let mut pairs = url::form_urlencoded::Serializer::new(String::new());
            pairs.extend_pairs(&query).append_pair("go", go);
            pairs.finish().replace('&', "&amp;")
        };
        return Html(format!(
            "<!doctype html><title>Acme</title><h1>Sign in at Acme</h1>\
             <a id=allow href='?{}'>Ann</a> <a id=deny href='?{}'>Nobody</a>",
            here("allow"),
            here("deny"),
        ))
        .into_response();
    }
    let mut pairs = vec![("state".to_owned(), given("state").to_owned())];
    match knobs.iss.as_deref() {
        Some("") => {}
        Some(iss) => pairs.push(("iss".to_owned(), iss.to_owned())),
        None => pairs.push(("iss".to_owned(), shared.0.issuer.clone())),
    }
    if given("go") == "deny" || !sound {
        let error = if sound { "access_denied" } else { "invalid_request" };
        pairs.push(("error".to_owned(), error.to_owned()));
        pairs.push(("error_description".to_owned(), WORDS.to_owned()));
    } else {
        let code = Uuid::new_v4().to_string();
        let mut state = lock(&shared.0.state);
        state.secrets.push(code.clone());
        state.codes.insert(code.clone(), query.clone());
        pairs.push(("code".to_owned(), code));
    }
    back.query_pairs_mut().extend_pairs(pairs);
    Redirect::to(back.as_str()).into_response()
}

async fn token(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    if let Some(down) = shared.enter("/token") {
        return down;
    }
    let refuse = |error: &str| {
        let body = json!({ "error": error, "error_description": WORDS });
        (StatusCode::BAD_REQUEST, axum::Json(body)).into_response()
    };
    let given = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let encoded =
        |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let basic = format!("{}:{}", encoded(CLIENT_ID), encoded(CLIENT_SECRET));
    let basic = format!("Basic {}", BASE64_STANDARD.encode(basic));
    if headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) != Some(&basic) {
        return refuse("invalid_client");
    }
    let asked = lock(&shared.0.state).codes.remove(given("code"));
    let Some(asked) = asked else { return refuse("invalid_grant") };
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(given("code_verifier")));
    if asked["code_challenge"] != challenge || asked["redirect_uri"] != given("redirect_uri") {
        return refuse("invalid_grant");
    }
    let knobs = shared.knobs();
    let access = Uuid::new_v4().to_string();
    let hash = BASE64_URL_SAFE_NO_PAD.encode(&Sha256::digest(&access)[..16]);
    let now = now();
    let mut claims = json!({
        "iss": shared.0.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300,
        "nonce": asked["nonce"], "at_hash": hash,
    });
    merge(claims.as_object_mut().unwrap(), &knobs.claims);
    let id_token = shared.sign(knobs.sign, &knobs.header, &claims);
    lock(&shared.0.state).secrets.extend([access.clone(), id_token.clone()]);
    let mut body = json!({ "access_token": access, "token_type": "Bearer", "expires_in": 300 });
    if !knobs.no_id_token {
        body["id_token"] = json!(id_token);
    }
    axum::Json(body).into_response()
}
