//! A person, a protected server and its provider around a [`House`] whose address stays.

use std::{net::TcpListener, time::Duration};

use http::Method;
use serde_json::{Value, json};
use sqlx::PgPool;
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    stops::Moment,
    world::eventually,
};
use tokio::{task::JoinHandle, time::timeout};
use url::Url;

use crate::{
    gateway::{Reply, as_pairs, modern},
    kill::house::{House, Up, program},
};

/// Nothing takes longer than the lease of a dead process (`REFRESH_LEASE_MS`) and some work.
const PATIENCE: Duration = Duration::from_secs(45);
const SERVER: &str = "/api/mcp/servers/tickets";

pub(super) struct Connecting {
    pub(super) house: House,
    pub(super) provider: AuthorizationServer,
    pub(super) peer: ProtectedPeer,
    /// The provider comes back to it.
    port: u16,
    http: reqwest::Client,
    session: String,
}

/// A sign-in at the provider.
pub(super) struct Begun {
    pub(super) authorization_url: Url,
    pub(super) cookie: String,
}

/// Status, headers and body, or that the line broke.
pub(super) type Ended = Result<Reply, reqwest::Error>;

impl Connecting {
    /// Not connected, and the tools are known.
    pub(super) async fn new() -> (Self, Up) {
        let provider = AuthorizationServer::start().await;
        // Nothing ends by itself.
        provider.set(|knobs| knobs.access_ttl = Duration::from_hours(1));
        let peer = ProtectedPeer::start(&provider).await;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .build()
            .unwrap();
        let house = House::new();
        let mut scene = Self { house, provider, peer, port, http, session: String::new() };
        let up = scene.up().await;
        let form = json!({
            "name": "tickets", "slug": "tickets", "transport": "http", "url": scene.peer.url(),
            "authMode": "oauth", "enabled": true,
        });
        let server = scene.ask(&up, Method::POST, "/api/mcp/servers", form).await;
        scene.connect(&up).await;
        scene.ask(&up, Method::POST, &format!("{SERVER}/tools/refresh"), json!(null)).await;
        scene.ask(&up, Method::DELETE, &format!("{SERVER}/connection"), json!(null)).await;
        // From here on everybody registers anew.
        let pool = scene.house.superuser().await;
        sqlx::query("DELETE FROM mcp_oauth_clients").execute(&pool).await.unwrap();
        let form = json!({ "title": "t", "enabledSourceIds": [server["id"]],
            "approvalMode": "always_allow" });
        let session = scene.ask(&up, Method::POST, "/api/sessions", form).await;
        session["id"].as_str().unwrap().clone_into(&mut scene.session);
        (scene, up)
    }

    pub(super) async fn up(&self) -> Up {
        let mut command =
            program(&["up", "--listen", &format!("127.0.0.1:{}", self.port), "--data-dir"]);
        command.arg(self.house.data());
        let up = self.house.serve(command).await;
        up.unwrap_or_else(|| panic!("no start: {}", self.house.log()))
    }

    /// kill -9 at the moment when the request is held, and the next start.
    pub(super) async fn killed(&self, up: Up) -> Up {
        self.provider.stopped().await;
        up.kill().await;
        self.up().await
    }

    /// Killed while a code is exchanged. The same callback is good for nothing afterwards.
    pub(super) async fn killed_in_callback(&self, up: Up, moment: Moment) -> Up {
        let begun = self.start(&up).await;
        let callback = self.provider.walk(&begun.authorization_url, "root").await;
        self.provider.stop("authorization_code", moment);
        let returning = self.return_with(&callback, &begun.cookie);
        let up = self.killed(up).await;
        assert!(returning.await.unwrap().is_err(), "nobody could answer");
        let again = self.return_with(&callback, &begun.cookie).await.unwrap().unwrap();
        assert_eq!(again.status, 400, "{again:?}");
        up
    }

    /// Killed during a call whose token the server refuses at first.
    pub(super) async fn killed_in_call(&self, up: Up, request: &'static str, moment: Moment) -> Up {
        // What is refused is to be the call, and no handshake.
        self.works(&up).await;
        self.peer.set(|door| door.reject_next = 1);
        self.provider.stop(request, moment);
        let calling = self.begin_call(&up);
        let up = self.killed(up).await;
        assert!(calling.await.unwrap().is_err(), "nobody could answer");
        up
    }

    /// The person is told so at the next refresh, and can.
    pub(super) async fn must_connect_again(&self, up: Up, pool: &PgPool) -> Up {
        // Another test waits for such a lease to end.
        let ends = "UPDATE mcp_connections SET refresh_until = clock_timestamp()
                    WHERE refresh_until IS NOT NULL";
        assert_eq!(sqlx::query(ends).execute(pool).await.unwrap().rows_affected(), 1, "a lease");
        // With the old token, which is good still.
        self.works(&up).await;
        self.peer.set(|door| door.reject_next = 1);
        assert_eq!(refused(&self.call(&up).await), "RECONNECT_REQUIRED");
        let connection = self.connection(&up).await;
        assert_eq!(connection["state"], "reconnect_required", "{connection}");
        assert_eq!(connection["reason"], "refresh_refused", "{connection}");
        self.connect(&up).await;
        self.works(&up).await;
        up
    }

    pub(super) async fn revision(&self, up: &Up) -> Value {
        let server = self.ask(up, Method::GET, SERVER, json!(null)).await;
        json!({ "revision": server["revision"] })
    }

    pub(super) async fn connection(&self, up: &Up) -> Value {
        self.ask(up, Method::GET, &format!("{SERVER}/connection"), json!(null)).await
    }

    pub(super) async fn start(&self, up: &Up) -> Begun {
        let form = self.revision(up).await;
        let reply = self.begin(up, Method::POST, "/oauth/start", &form).await.unwrap().unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
        let authorization_url = reply.json()["authorizationUrl"].as_str().unwrap().parse().unwrap();
        Begun { authorization_url, cookie }
    }

    /// The browser comes back.
    pub(super) fn return_with(&self, callback: &Url, cookie: &str) -> JoinHandle<Ended> {
        spawn(self.http.get(callback.clone()).header("cookie", cookie))
    }

    /// All of it.
    pub(super) async fn connect(&self, up: &Up) {
        let begun = self.start(up).await;
        let callback = self.provider.walk(&begun.authorization_url, "root").await;
        let back = self.return_with(&callback, &begun.cookie).await.unwrap().unwrap();
        let (_, result) = back.header("location").split_once("#result=").expect("a result");
        let form = json!({ "result": result });
        let shown = self.ask(up, Method::POST, &format!("{SERVER}/oauth/confirm"), form).await;
        assert_eq!(shown["state"], "connected", "{shown}");
        // The tools are asked for with the new account; what is killed or refused is to be the test's.
        let pool = self.house.superuser().await;
        eventually("the tools were asked for", async || {
            let left = "SELECT count(*) FROM apalis.jobs WHERE status <> 'Done'";
            let left: i64 = sqlx::query_scalar(left).fetch_one(&pool).await.unwrap();
            (left == 0).then_some(())
        })
        .await;
    }

    /// A request of the person about their connection.
    pub(super) fn begin(
        &self,
        up: &Up,
        method: Method,
        rest: &str,
        body: &Value,
    ) -> JoinHandle<Ended> {
        spawn(self.request(up, method, &format!("{SERVER}{rest}"), body))
    }

    pub(super) fn begin_call(&self, up: &Up) -> JoinHandle<Ended> {
        let params = r#"{"name":"mcp__tickets__whoami","arguments":{}}"#;
        let (headers, body) = modern("tools/call", params);
        let mut request = self
            .http
            .post(format!("{}/mcp/{}", up.url, self.session))
            .bearer_auth(self.house.file("agent-token"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in as_pairs(&headers) {
            request = request.header(name, value);
        }
        spawn(request.body(body))
    }

    /// Its result.
    pub(super) async fn call(&self, up: &Up) -> Value {
        let reply = timeout(PATIENCE, self.begin_call(up)).await.expect("it does not hang");
        reply.unwrap().unwrap().json()["result"].clone()
    }

    pub(super) async fn works(&self, up: &Up) {
        let result = self.call(up).await;
        assert_eq!(result["structuredContent"]["sub"], "root", "{result}; {}", self.house.log());
    }

    /// Also those that were cut off.
    pub(super) async fn all_calls_are_closed(&self, pool: &PgPool) {
        eventually("every call is closed", async || {
            let open = "SELECT count(*) FROM invocations WHERE status IS NULL";
            let open: i64 = sqlx::query_scalar(open).fetch_one(pool).await.unwrap();
            (open == 0).then_some(())
        })
        .await;
    }

    async fn ask(&self, up: &Up, method: Method, path: &str, body: Value) -> Value {
        let response = self.request(up, method, path, &body).send().await.unwrap();
        let reply = Reply::of(response).await;
        assert!(reply.status < 300, "{path}: {reply:?}; {}", self.house.log());
        serde_json::from_str(&reply.body).unwrap_or_default()
    }

    fn request(
        &self,
        up: &Up,
        method: Method,
        path: &str,
        body: &Value,
    ) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", up.url));
        let request = request.bearer_auth(self.house.file("admin-token"));
        if body.is_null() { request } else { request.json(body) }
    }
}

fn spawn(request: reqwest::RequestBuilder) -> JoinHandle<Ended> {
    tokio::spawn(async move {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Reply { status, headers, body: response.text().await? })
    })
}

/// The code of a call that was refused.
pub(super) fn refused(result: &Value) -> String {
    let code = &result["_meta"]["bailiwick/error"]["error"]["code"];
    code.as_str().unwrap_or_else(|| panic!("not refused: {result}")).to_owned()
}
