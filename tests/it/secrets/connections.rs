//! What people connect with: every code, token, verifier, state, cookie and client secret of whole sign-ins, of
//! refreshes and of revocations, static secrets, and what a server and a provider say of them.
//!
//! **Three places hold one on purpose**, each once and for its person alone: the answer that begins a sign-in (state and
//! cookie), the way back from it (the result), and the request to the provider.

mod steps;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::{
    authorization_server::{AuthorizationServer, Fault, ProtectedPeer},
    peer::{Peer, Setup},
};

use super::{dump, files, journey, needles, needles::Secret, nothing_in, processes};
use crate::kill::house::{House, Up, program};

const CLIENT_SECRET: &str = "pl4nted-client-secret/+=&%of-acme-4Gn8";
const REGISTRATION_TOKEN: &str = "pl4nted-registration-access-token-7Yb3";
const BEARER: &str = "pl4nted-static-bearer/+=-2Lm9";
const API_KEY: &str = "pl4nted-api-key/+=\"&%-6Vd5";
const VARIABLE: &str = "pl4nted-variable-beside-a-token-1Xs0";

/// Everything that was done, and every answer to it.
struct Connections {
    house: House,
    up: Up,
    provider: AuthorizationServer,
    peer: ProtectedPeer,
    open: Peer,
    http: reqwest::Client,
    session: String,
    /// What was asked, and the whole answer with its headers.
    answers: Vec<(String, String)>,
    /// That we made ourselves: states, cookies, results.
    made: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_connect_with_appears_nowhere() {
    let mut all = Connections::begin().await;
    all.configure().await;
    all.static_secrets().await;
    for server in ["registered", "preregistered"] {
        all.denied(server).await;
        all.failing_exchange(server).await;
        all.connect(server).await;
        all.api(Method::POST, &format!("/api/mcp/servers/{server}/tools/refresh"), Value::Null)
            .await;
        all.begin_session().await;
        all.telling_server(server).await;
        all.refreshes(server).await;
        all.too_few_scopes(server).await;
        all.revocation(server).await;
    }
    all.pages().await;
    all.read_everything().await;
    all.misplaced().await;

    let secrets = all.secrets();
    for kind in [
        "access token",
        "refresh token",
        "code",
        "client secret",
        "verifier",
        "made by us",
        "static",
    ] {
        assert!(secrets.iter().any(|secret| secret.name == kind), "no {kind} was there");
    }
    assert!(all.answers.len() > 120, "{}", all.answers.len());
    for (asked, answer) in &all.answers {
        nothing_in(&format!("the answer to {asked}"), answer.as_bytes(), &secrets);
    }
    nothing_in("the log", all.house.log().as_bytes(), &secrets);
    nothing_in("the dump", &dump(&all.house, &[]).await, &secrets);
    processes(&all.house, &secrets);
    files(&all.house.data(), &secrets);

    all.it_would_be_found(&secrets).await;
}

impl Connections {
    /// `up` that logs all it can.
    async fn begin() -> Self {
        let house = House::new();
        let mut command = program(&["up", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(house.data()).env("BAILIWICK_LOG", "trace");
        let up = house.serve(command).await.unwrap_or_else(|| panic!("{}", house.log()));
        let provider = AuthorizationServer::start().await;
        provider.set(|knobs| {
            knobs.access_ttl = Duration::from_hours(1);
            // RFC 7591, section 3.2.1: some answer with the means to change the registration.
            knobs.patch_registration.extend([
                ("registration_access_token".to_owned(), json!(REGISTRATION_TOKEN)),
                ("registration_client_uri".to_owned(), json!("https://provider.test/client")),
            ]);
        });
        let peer = ProtectedPeer::start(&provider).await;
        let open = Peer::start(Setup::modern()).await;
        let policy = reqwest::redirect::Policy::none();
        let http = reqwest::Client::builder().no_proxy().redirect(policy).build().unwrap();
        let (session, answers, made) = Default::default();
        Self { house, up, provider, peer, open, http, session, answers, made }
    }

    fn secrets(&self) -> Vec<Secret> {
        let mut secrets = vec![
            Secret::new("client secret", CLIENT_SECRET),
            Secret::new("registration access token", REGISTRATION_TOKEN),
            Secret::new("static", BEARER),
            Secret::new("static", API_KEY),
            Secret::new("variable", VARIABLE),
            Secret::new("encryption key", &self.house.file("encryption-keys")),
            Secret::new("admin token", &self.house.file("admin-token")),
            Secret::new("agent token", &self.house.file("agent-token")),
        ];
        for secret in self.provider.secrets() {
            let (kind, _) = secret.rsplit_once('-').unwrap();
            let name = match kind {
                "access" => "access token",
                "refresh" => "refresh token",
                "code" => "code",
                "client-secret" => "client secret",
                other => panic!("{other}"),
            };
            secrets.push(Secret::new(name, &secret));
        }
        let exchanges = self.provider.grants("authorization_code");
        secrets.extend(
            exchanges.iter().map(|asked| Secret::new("verifier", asked.field("code_verifier"))),
        );
        secrets.extend(self.made.iter().map(|secret| Secret::new("made by us", secret)));
        secrets
    }

    async fn configure(&mut self) {
        let body = json!({ "value": VARIABLE, "hosts": ["127.0.0.1"] });
        self.api(Method::PUT, "/api/tenant/variables/BESIDE", body).await;
        let callback = format!("{}/api/mcp/oauth/callback/", self.up.url);
        for (slug, fields) in [
            ("registered", json!({ "oauth": { "registration": "dcr" } })),
            (
                "preregistered",
                json!({ "oauth": { "registration": "preregistered", "clientId": "bailiwick-of-acme",
                    "clientSecret": CLIENT_SECRET } }),
            ),
            ("static", json!({ "authMode": "bearer", "url": self.open.url() })),
            (
                "keyed",
                json!({ "authMode": "api_key", "apiKeyHeader": "X-Api-Key", "url": self.open.url() }),
            ),
        ] {
            let mut form = json!({
                "name": slug, "slug": slug, "transport": "http", "url": self.peer.url(),
                "authMode": "oauth", "enabled": true, "headers": { "X-Beside": "$BESIDE" },
            });
            for (name, value) in fields.as_object().unwrap() {
                form[name] = value.clone();
            }
            let (status, made) = self.api(Method::POST, "/api/mcp/servers", form).await;
            assert_eq!(status, 201, "{made}");
            if slug == "preregistered" {
                let redirect = format!("{callback}{}", made["id"].as_str().unwrap());
                let method = "client_secret_basic";
                self.provider.preregister(
                    "bailiwick-of-acme",
                    Some(CLIENT_SECRET),
                    method,
                    &redirect,
                );
            }
        }
    }

    /// Put in, refused, told by the server, taken out.
    async fn static_secrets(&mut self) {
        for (server, secret) in [("static", BEARER), ("keyed", API_KEY)] {
            let path = format!("/api/mcp/servers/{server}/connection");
            for body in [
                json!({ "secret": secret, "revision": 77 }),
                json!({ "secret": [secret], "revision": 1 }),
                json!({ "secret": format!("{secret}\n"), "revision": 1 }),
                json!({ "secret": 1, "also": secret }),
                json!(secret),
            ] {
                let (status, answer) = self.api(Method::PUT, &path, body).await;
                assert!(status >= 400, "{answer}");
            }
            let body = json!({ "secret": secret, "revision": self.revision(server).await });
            let (status, answer) = self.api(Method::PUT, &path, body).await;
            assert_eq!(status, 200, "{answer}");
            let tools = format!("/api/mcp/servers/{server}/tools/refresh");
            self.api(Method::POST, &tools, Value::Null).await;
        }
        self.begin_session().await;
        for (server, secret) in [("static", BEARER), ("keyed", API_KEY)] {
            for answer in journey::echoes(secret, secret) {
                self.open.answer("echo", answer);
                self.call(&format!("mcp__{server}__echo")).await;
            }
            let path = format!("/api/mcp/servers/{server}/connection");
            self.api(Method::GET, &path, Value::Null).await;
            let body = json!({ "secret": secret, "revision": self.revision(server).await });
            self.api(Method::PUT, &path, body).await;
            self.api(Method::POST, &format!("/api/mcp/servers/{server}/test"), Value::Null).await;
        }
        let sent = self.open.journal();
        assert!(sent.iter().any(|one| one.header("authorization") == format!("Bearer {BEARER}")));
        assert!(sent.iter().any(|one| one.header("x-api-key") == API_KEY));
        assert!(sent.iter().all(|one| one.header("x-beside") == VARIABLE));
        self.api(Method::DELETE, "/api/mcp/servers/keyed/connection", Value::Null).await;
    }

    /// The provider repeats what it was sent, in place of tokens.
    async fn failing_exchange(&mut self, server: &str) {
        let begun = self.start(server).await;
        let callback = self.provider.walk(&begun.authorization_url, "root").await;
        let code = self.last("code-");
        for body in [
            json!({ "error": "invalid_grant", "error_description": code }),
            json!({ "error": code, "error_uri": code, "client_secret": CLIENT_SECRET }),
        ] {
            self.provider.set(|knobs| {
                knobs.fail_grant("authorization_code", Fault::json(400, body));
            });
            let (status, _) = self.returns(&callback, &begun).await;
            assert_eq!(status, 400);
        }
        self.provider.set(|knobs| knobs.token_faults.clear());
        let begun = self.start(server).await;
        let callback = self.provider.walk(&begun.authorization_url, "root").await;
        let words = format!("{} and {CLIENT_SECRET}", self.last("code-"));
        let fault = Fault::Answer { status: 502, kind: "text/html", body: words };
        self.provider.set(|knobs| knobs.fail_grant("authorization_code", fault));
        assert_eq!(self.returns(&callback, &begun).await.0, 400);
    }

    /// The server repeats the token in every way that is no result.
    async fn telling_server(&mut self, server: &str) {
        for number in 0.. {
            self.connect_if_needed(server).await;
            // All that a server knows.
            let access = self.last("access-");
            let Some(answer) = journey::echoes(&access, &access).into_iter().nth(number) else {
                break;
            };
            self.peer.peer.script_method("tools/call", [answer]);
            self.call(&format!("mcp__{server}__whoami")).await;
        }
        self.peer.peer.script_method("tools/call", []);
        assert!(self.peer.served().len() > 20);
    }

    /// Refused by the server, refreshed, in vain and not.
    async fn refreshes(&mut self, server: &str) {
        self.connect_if_needed(server).await;
        let call = format!("mcp__{server}__whoami");
        for fault in [
            None,
            Some((503, "invalid_request")),
            Some((200, "temporarily_unavailable")),
            Some((400, "invalid_grant")),
        ] {
            self.peer.set(|door| door.reject_next = 1);
            if let Some((status, code)) = fault {
                let words = [self.last("access-"), self.last("refresh-")].join(" ");
                let body = json!({ "error": code, "error_description": words, "x": words });
                let fault = Fault::json(status, body);
                self.provider.set(|knobs| knobs.fail_grant("refresh_token", fault));
            }
            self.call(&call).await;
            self.provider.set(|knobs| knobs.token_faults.clear());
            self.peer.set(|door| door.reject_next = 0);
            self.connect_if_needed(server).await;
        }
        // Refused for good.
        self.peer.set(|door| door.reject_next = 2);
        self.call(&call).await;
        self.peer.set(|door| door.reject_next = 0);
        self.connect_if_needed(server).await;
        assert!(self.provider.grants("refresh_token").len() > 3);
    }

    async fn too_few_scopes(&mut self, server: &str) {
        self.call(&format!("mcp__{server}__admin_delete")).await;
        self.api(Method::GET, &format!("/api/mcp/servers/{server}/connection"), Value::Null).await;
    }

    async fn revocation(&mut self, server: &str) {
        let path = format!("/api/mcp/servers/{server}/oauth/clear");
        let (status, cleared) = self.api(Method::POST, &path, json!({ "revoke": true })).await;
        assert_eq!(status, 200, "{cleared}");
        assert!(!self.provider.asked("/revoke").is_empty(), "{cleared}");
        self.connect(server).await;
    }

    /// A secret that did leak is found in every place.
    async fn it_would_be_found(&self, secrets: &[Secret]) {
        let token = self.last("access-");
        let pool = self.house.superuser().await;
        let plant = "UPDATE mcp_servers SET description = $1 WHERE slug = 'static'";
        sqlx::query(plant).bind(&token).execute(&pool).await.unwrap();
        let found = |bytes: &[u8]| needles::find(secrets, bytes).map(|(secret, ..)| secret.name);
        assert_eq!(found(&dump(&self.house, &[]).await), Some("access token"));
        let (_, shown) = self.get("/api/mcp/servers/static").await;
        assert_eq!(found(shown.as_bytes()), Some("access token"));
    }
}
