//! A real OAuth 2.1 authorization server, and MCP servers that take its tokens, with the faults of real ones.
//!
//! ```text
//! let provider = AuthorizationServer::start().await;
//! let server = ProtectedPeer::start(&provider).await;
//! provider.set(|knobs| knobs.access_ttl = Duration::from_secs(2));
//! let callback = provider.walk(&authorization_url, "alice").await;
//! ```
//!
//! Everything is kept in memory and on the machine's monotonic clock. Its words are its own: tests look for
//! [`WORDS`] where no provider's text may appear.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::Router;
use http::{HeaderMap, Method};
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
use url::Url;

use crate::{
    peer::listener,
    stops::{Moment, Stops},
};

mod authorize;
mod gate;
mod knobs;
mod protected;
mod serve;
mod token;

pub(crate) use gate::Instead;
pub use gate::{Gate, GateKnobs, Prm, Served};
pub use knobs::{Fault, Knobs, TokenFault};
pub use protected::{ProtectedPeer, ProtectedSsePeer};

/// Stands in every description of an error that the server gives.
pub const WORDS: &str = "providers-own-words";

/// A running authorization server; stops when dropped.
pub struct AuthorizationServer {
    state: Arc<State>,
    serving: JoinHandle<()>,
}

/// One request as it came, and what it got.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub query: HashMap<String, String>,
    pub headers: HeaderMap,
    /// A form's fields; empty for other bodies.
    pub form: HashMap<String, String>,
    pub body: String,
    /// 0: cut.
    pub status: u16,
}

impl Asked {
    /// A header's text, empty where there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// A field of the form, empty where there is none.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.form.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// What an access token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    pub subject: String,
    /// The `resource` that was asked for; empty: none.
    pub audience: String,
    pub client: String,
    pub scopes: Vec<String>,
}

pub(crate) struct State {
    address: SocketAddr,
    /// Path of the issuer, `""` or `/…`.
    path: String,
    knobs: Mutex<Knobs>,
    kept: Mutex<Kept>,
    journal: Mutex<Vec<Asked>>,
    stops: Stops,
    named: AtomicUsize,
}

/// What the server remembers.
#[derive(Default)]
struct Kept {
    clients: HashMap<String, Registered>,
    codes: HashMap<String, Code>,
    refresh_tokens: HashMap<String, Refresh>,
    access_tokens: HashMap<String, Access>,
    /// Families of tokens that are void.
    revoked: HashSet<usize>,
    /// How many of those fell to the reuse of a refresh token.
    reused: usize,
    renewals: Vec<Renewal>,
    /// Every secret that was ever given out.
    secrets: Vec<String>,
}

/// A refresh that gave new tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    pub subject: String,
    /// How old the refresh token was, and with it the access token that came beside it.
    pub after: Duration,
}

#[derive(Debug, Clone)]
struct Registered {
    secret: Option<String>,
    /// `client_secret_basic`, `client_secret_post` or `none`.
    method: String,
    redirect_uris: Vec<String>,
    scope: Option<String>,
}

#[derive(Debug, Clone)]
struct Code {
    granted: Granted,
    redirect_uri: String,
    challenge: String,
    family: usize,
    used: bool,
}

#[derive(Debug, Clone)]
struct Refresh {
    granted: Granted,
    family: usize,
    used: bool,
    issued: Instant,
    ends: Instant,
}

#[derive(Debug, Clone)]
struct Access {
    granted: Granted,
    family: usize,
    ends: Instant,
}

impl AuthorizationServer {
    /// With the issuer `http://127.0.0.1:<port>`.
    pub async fn start() -> Self {
        Self::start_at("").await
    }

    /// With an issuer that has a path, which begins with a slash.
    pub async fn start_at(path: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let state = Arc::new(State {
            address: listener.local_addr().expect("it is bound"),
            path: path.to_owned(),
            knobs: Mutex::default(),
            kept: Mutex::default(),
            journal: Mutex::default(),
            stops: Stops::default(),
            named: AtomicUsize::new(0),
        });
        let router = Router::new().fallback(serve::handle).with_state(Arc::clone(&state));
        let listener = listener::Cuttable::new(listener);
        let serving = tokio::spawn(async move {
            let service = router.into_make_service_with_connect_info::<listener::Cut>();
            axum::serve(listener, service).await.expect("it serves until it is stopped");
        });
        Self { state, serving }
    }

    #[must_use]
    pub fn issuer(&self) -> String {
        self.state.issuer()
    }

    /// An address of the server, below its issuer.
    #[must_use]
    pub fn url(&self, path: &str) -> Url {
        format!("{}{path}", self.issuer()).parse().unwrap()
    }

    /// Turns knobs while it runs.
    pub fn set(&self, change: impl FnOnce(&mut Knobs)) {
        change(&mut lock(&self.state.knobs));
    }

    /// Registers a client by hand. `method` is what `token_endpoint_auth_method` may be.
    pub fn preregister(&self, id: &str, secret: Option<&str>, method: &str, redirect_uri: &str) {
        let client = Registered {
            secret: secret.map(str::to_owned),
            method: method.to_owned(),
            redirect_uris: vec![redirect_uri.to_owned()],
            scope: None,
        };
        lock(&self.state.kept).clients.insert(id.to_owned(), client);
    }

    /// As a restart of a server that keeps registrations in memory.
    pub fn forget_clients(&self) {
        lock(&self.state.kept).clients.clear();
    }

    /// As a restart of a server that keeps everything in memory.
    pub fn forget_everything(&self) {
        let secrets = std::mem::take(&mut lock(&self.state.kept).secrets);
        *lock(&self.state.kept) = Kept { secrets, ..Kept::default() };
    }

    /// Everything that was asked so far, oldest first.
    #[must_use]
    pub fn journal(&self) -> Vec<Asked> {
        lock(&self.state.journal).clone()
    }

    /// What was asked of one path below the issuer.
    #[must_use]
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        let path = format!("{}{path}", self.state.path);
        self.journal().into_iter().filter(|one| one.path == path).collect()
    }

    /// What was asked of the token endpoint with one `grant_type`.
    #[must_use]
    pub fn grants(&self, grant_type: &str) -> Vec<Asked> {
        let asked = self.asked("/token").into_iter();
        asked.filter(|one| one.field("grant_type") == grant_type).collect()
    }

    /// Clients that are registered now.
    #[must_use]
    pub fn clients(&self) -> usize {
        lock(&self.state.kept).clients.len()
    }

    /// Families of tokens that fell because a refresh token was used twice.
    #[must_use]
    pub fn families_lost_to_reuse(&self) -> usize {
        lock(&self.state.kept).reused
    }

    /// Refreshes that gave new tokens, oldest first.
    #[must_use]
    pub fn renewals(&self) -> Vec<Renewal> {
        lock(&self.state.kept).renewals.clone()
    }

    /// Whether a person has an access token that is good now.
    #[must_use]
    pub fn has_good_token(&self, subject: &str) -> bool {
        let kept = lock(&self.state.kept);
        kept.access_tokens.values().any(|access| {
            access.granted.subject == subject
                && access.ends > Instant::now()
                && !kept.revoked.contains(&access.family)
        })
    }

    /// Holds the next request of that kind, to this server or to one that it protects: `metadata`, `register`,
    /// `authorization_code`, `refresh_token`, `revoke`; `probe` (without a token), `resource_metadata`, `call` (of a
    /// tool, let in).
    pub fn stop(&self, name: &'static str, moment: Moment) {
        self.state.stops.set(name, moment);
    }

    /// Waits until that request is held.
    pub async fn stopped(&self) {
        self.state.stops.reached().await;
    }

    /// Lets the held request go on.
    pub fn go_on(&self) {
        self.state.stops.go();
    }

    /// Every code, token and client secret that was ever given out: none may appear anywhere in clear.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        lock(&self.state.kept).secrets.clone()
    }

    /// What a token is good for now; `None`: nothing.
    #[must_use]
    pub fn check(&self, token: &str) -> Option<Granted> {
        self.state.check(token)
    }

    /// Tokens like those that `like` came with, for another person who is not asked: an access and a refresh token.
    ///
    /// Panics where `like` is no access token.
    #[must_use]
    pub fn hand_out(&self, like: &str, subject: &str) -> (String, String) {
        let mut granted = lock(&self.state.kept).access_tokens[like].granted.clone();
        subject.clone_into(&mut granted.subject);
        let knobs = self.state.knobs();
        let given = token::issue(&self.state, &knobs, granted, self.state.number(), true);
        let text = |name: &str| given[name].as_str().unwrap().to_owned();
        (text("access_token"), text("refresh_token"))
    }

    /// Ends every token of a person, as an administrator of the provider would.
    pub fn revoke_all_of(&self, subject: &str) {
        let mut kept = lock(&self.state.kept);
        let of_access = kept.access_tokens.values().map(|one| (&one.granted, one.family));
        let of_refresh = kept.refresh_tokens.values().map(|one| (&one.granted, one.family));
        let families: Vec<usize> = of_access
            .chain(of_refresh)
            .filter(|(granted, _)| granted.subject == subject)
            .map(|(_, family)| family)
            .collect();
        kept.revoked.extend(families);
    }

    /// Walks the authorization URL as `user`, who consents; answers the callback URL, which is not opened.
    ///
    /// Panics where the server shows an error instead of coming back.
    pub async fn walk(&self, authorization_url: &Url, user: &str) -> Url {
        let walked = self.go(authorization_url, user, "allow").await;
        walked.unwrap_or_else(|(status, body)| panic!("no way back: {status} {body}"))
    }

    /// The same, but the person says no.
    pub async fn refuse(&self, authorization_url: &Url, user: &str) -> Url {
        let walked = self.go(authorization_url, user, "deny").await;
        walked.unwrap_or_else(|(status, body)| panic!("no way back: {status} {body}"))
    }

    /// Walks as `user`; the error is status and body of a page on which the person is stuck.
    pub async fn try_walk(&self, url: &Url, user: &str) -> Result<Url, (u16, String)> {
        self.go(url, user, "allow").await
    }

    async fn go(&self, url: &Url, user: &str, button: &str) -> Result<Url, (u16, String)> {
        let mut url = url.clone();
        url.query_pairs_mut().append_pair("login_hint", user).append_pair("go", button);
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let answer = client.build().unwrap().get(url).send().await.unwrap();
        let location = answer.headers().get("location").map(|to| to.to_str().unwrap().to_owned());
        match location {
            Some(location) => Ok(location.parse().unwrap()),
            None => Err((answer.status().as_u16(), answer.text().await.unwrap())),
        }
    }

    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }
}

impl Drop for AuthorizationServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl State {
    fn issuer(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    fn check(&self, token: &str) -> Option<Granted> {
        let kept = lock(&self.kept);
        let access = kept.access_tokens.get(token)?;
        let good = access.ends > Instant::now() && !kept.revoked.contains(&access.family);
        good.then(|| access.granted.clone())
    }

    fn knobs(&self) -> Knobs {
        lock(&self.knobs).clone()
    }

    /// A secret that nobody guesses, remembered so that tests can look for it.
    fn secret(&self, kind: &str) -> String {
        let secret = format!("{kind}-{}", uuid::Uuid::new_v4().simple());
        lock(&self.kept).secrets.push(secret.clone());
        secret
    }

    fn number(&self) -> usize {
        self.named.fetch_add(1, Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Scopes of a space-separated text.
fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

const DEFAULT_ACCESS_TTL: Duration = Duration::from_mins(1);
