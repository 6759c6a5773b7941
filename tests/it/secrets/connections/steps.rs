//! How requests are made, and which of their answers are kept to be searched.

use http::Method;
use serde_json::{Value, json};
use tests::browser::{Browser, Seen};
use url::Url;

use super::{Connections, journey::whole};
use crate::gateway::{as_pairs, modern};

/// A sign-in at the provider.
#[derive(Clone)]
pub(super) struct Begun {
    pub(super) authorization_url: Url,
    cookie: String,
}

impl Connections {
    /// The last secret that the provider gave out of that kind.
    pub(super) fn last(&self, kind: &str) -> String {
        let secrets = self.provider.secrets();
        let last = secrets.iter().rev().find(|secret| secret.starts_with(kind));
        last.unwrap_or_else(|| panic!("no {kind}")).clone()
    }

    pub(super) async fn revision(&self, server: &str) -> i64 {
        let (_, server) = self.get(&format!("/api/mcp/servers/{server}")).await;
        let server: Value = serde_json::from_str(&server).unwrap();
        server["revision"].as_i64().unwrap()
    }

    /// The one answer that has state and cookie.
    pub(super) async fn start(&mut self, server: &str) -> Begun {
        let form = json!({ "revision": self.revision(server).await }).to_string();
        let path = format!("/api/mcp/servers/{server}/oauth/start");
        let request = self.request(Method::POST, &path, &form);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{server}");
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let answer: Value = response.json().await.unwrap();
        let url: Url = answer["authorizationUrl"].as_str().unwrap().parse().unwrap();
        let state = url.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
        self.made.push(state);
        self.made.push(cookie.split_once('=').unwrap().1.to_owned());
        Begun { authorization_url: url, cookie }
    }

    /// The browser comes back: status and place.
    pub(super) async fn returns(&mut self, callback: &Url, begun: &Begun) -> (u16, String) {
        let request = self.http.get(callback.clone()).header("cookie", &begun.cookie);
        let response = request.send().await.unwrap();
        let (status, mut headers) = (response.status().as_u16(), response.headers().clone());
        let to = headers.get("location").map(|to| to.to_str().unwrap().to_owned());
        if let Some((page, result)) = to.as_deref().and_then(|to| to.split_once("#result=")) {
            // The one place of the result.
            self.made.push(result.to_owned());
            headers.insert("location", page.parse().unwrap());
        }
        let text = response.text().await.unwrap();
        self.answers.push((format!("a callback: {status}"), format!("{headers:?}\n{text}")));
        (status, to.unwrap_or_default())
    }

    pub(super) async fn denied(&mut self, server: &str) {
        let begun = self.start(server).await;
        let callback = self.provider.refuse(&begun.authorization_url, "root").await;
        assert_eq!(self.returns(&callback, &begun).await.0, 400);
        let begun = self.start(server).await;
        self.api(Method::POST, &format!("/api/mcp/servers/{server}/oauth/cancel"), json!({})).await;
        let callback = self.provider.walk(&begun.authorization_url, "root").await;
        assert_eq!(self.returns(&callback, &begun).await.0, 400);
    }

    pub(super) async fn connect(&mut self, server: &str) {
        let begun = self.start(server).await;
        let callback = self.provider.walk(&begun.authorization_url, "root").await;
        let stranger = Begun { cookie: format!("{}x", begun.cookie), ..begun.clone() };
        assert_eq!(self.returns(&callback, &stranger).await.0, 400);
        let (status, to) = self.returns(&callback, &begun).await;
        assert_eq!(status, 303, "{server}: {to}");
        let result = to.split_once("#result=").unwrap().1;
        let path = format!("/api/mcp/servers/{server}/oauth/confirm");
        for (form, wanted) in [
            (json!({ "result": [result] }), 422),
            (json!({ "result": result, "also": result }), 422),
            (json!({ "result": result }), 200),
            (json!({ "result": result }), 409),
        ] {
            let (status, shown) = self.api(Method::POST, &path, form).await;
            assert_eq!(status, wanted, "{server}: {shown}");
        }
        assert_eq!(self.returns(&callback, &begun).await.0, 400);
    }

    pub(super) async fn connect_if_needed(&mut self, server: &str) {
        let path = format!("/api/mcp/servers/{server}/connection");
        let (_, connection) = self.api(Method::GET, &path, Value::Null).await;
        if connection["state"] != "connected" {
            self.connect(server).await;
        }
    }

    /// With every server that there is.
    pub(super) async fn begin_session(&mut self) {
        let (_, servers) = self.get("/api/mcp/servers").await;
        let servers: Value = serde_json::from_str(&servers).unwrap();
        let ids: Vec<&Value> =
            servers["items"].as_array().unwrap().iter().map(|server| &server["id"]).collect();
        let form = json!({ "title": "t", "enabledSourceIds": ids, "approvalMode": "always_allow" });
        let (status, session) = self.api(Method::POST, "/api/sessions", form).await;
        assert_eq!(status, 201, "{session}");
        session["id"].as_str().unwrap().clone_into(&mut self.session);
    }

    /// What a model is told.
    pub(super) async fn call(&mut self, tool: &str) {
        let params = format!(r#"{{"name":"{tool}","arguments":{{"id":"7"}}}}"#);
        let (headers, body) = modern("tools/call", &params);
        let mut request = self
            .http
            .post(format!("{}/mcp/{}", self.up.url, self.session))
            .bearer_auth(self.house.file("agent-token"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in as_pairs(&headers) {
            request = request.header(name, value);
        }
        let (_, all, _) = whole(request.body(body)).await;
        self.answers.push((format!("the call of {tool}"), all));
    }

    /// Connections on the pages.
    pub(super) async fn pages(&mut self) {
        let mut browser = Browser::at(&self.up.url.parse().unwrap());
        let password = self.house.file("admin-password");
        browser.sign_in("default", "admin@localhost", &password).await;
        for page in ["/connections", "/connections?server=registered", "/servers"] {
            let seen = browser.get(page).await;
            self.saw(page, seen);
        }
        let revision = self.revision("static").await.to_string();
        for (secret, revision) in [(super::BEARER, "0"), (super::BEARER, revision.as_str())] {
            let fields = [
                ("server", "static"),
                ("revision", revision),
                ("action", "save"),
                ("secret", secret),
            ];
            let seen = browser.submit("/connections", &fields).await;
            self.saw("a secret of a page", seen);
        }
        let fields = [("server", "registered"), ("result", super::BEARER)];
        let seen = browser.submit("/connections/confirm", &fields).await;
        self.saw("a result that is none", seen);
        let access = self.last("access-");
        for page in ["/connections", "/connections/confirm"] {
            let seen = browser.get(&format!("{page}?server={access}")).await;
            self.saw("a token in the address", seen);
        }
        let begun = self.start("registered").await;
        let callback = self.provider.walk(&begun.authorization_url, "root").await;
        browser.attempts.push(begun.cookie);
        let seen = browser.get(callback.as_str()).await;
        let to = seen.header("location").to_owned();
        let (page, result) = to.split_once("#result=").expect("a result");
        self.made.push(result.to_owned());
        let seen = browser.get(page).await;
        self.saw("the page that confirms", seen);
        let fields = [("server", "registered"), ("result", result)];
        let seen = browser.submit("/connections/confirm", &fields).await;
        self.saw("a confirmation", seen);
        let seen = browser.get("/connections").await;
        self.saw("connections", seen);
    }

    pub(super) async fn read_everything(&mut self) {
        for path in [
            "/api/mcp/connections",
            "/api/mcp/servers",
            "/api/mcp/servers/export",
            "/api/tenant/variables",
            "/api/mcp/servers/registered",
            "/api/mcp/servers/preregistered",
            "/api/mcp/servers/registered/connections",
            "/api/mcp/servers/static/connection",
            "/api/mcp/servers/registered/tools",
        ] {
            self.api(Method::GET, path, Value::Null).await;
        }
        let session = self.session.clone();
        for path in ["events", "mcp/invocations", "permission-authorizations"] {
            let path = format!("/api/sessions/{session}/{path}");
            let (_, list) = self.api(Method::GET, &path, Value::Null).await;
            for item in list["items"].as_array().into_iter().flatten() {
                if path.ends_with("invocations") {
                    let one = format!("{path}/{}", item["id"].as_str().unwrap());
                    self.api(Method::GET, &one, Value::Null).await;
                }
            }
        }
    }

    /// Tokens, codes and results where they do not belong.
    pub(super) async fn misplaced(&mut self) {
        let (access, code) = (self.last("access-"), self.last("code-"));
        let state = self.made[0].clone();
        for path in [
            format!("/api/mcp/oauth/callback/registered?code={code}&state={state}"),
            format!("/api/mcp/oauth/callback/{code}?code={code}&state={state}&iss={code}"),
            format!("/api/mcp/oauth/callback/registered?error={code}&state={code}"),
            format!("/api/mcp/oauth/callback/registered?code={code}"),
            format!("/api/mcp/oauth/callback/registered?state={code}&state={code}&code=%ff"),
            format!("/api/mcp/servers/{access}/connection"),
            format!("/api/me?access_token={access}"),
        ] {
            self.api(Method::GET, &path, Value::Null).await;
        }
        for (path, body) in [
            ("/api/mcp/servers/registered/oauth/start", json!({ "revision": code })),
            ("/api/mcp/servers/registered/oauth/confirm", json!({ "result": code })),
            ("/api/mcp/servers/registered/oauth/clear", json!({ "revoke": access })),
            ("/api/mcp/servers/registered/oauth/cancel", json!({ "also": code })),
        ] {
            self.api(Method::POST, path, body).await;
        }
        // The server's token is none of ours.
        let request = self.http.get(format!("{}/api/me", self.up.url)).bearer_auth(&access);
        let (status, all, _) = whole(request).await;
        assert_eq!(status, 401);
        self.answers.push(("a foreign token".to_owned(), all));
    }

    /// As the admin; `Null` is no body.
    pub(super) async fn api(&mut self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = self.request(method.clone(), path, &body);
        let (status, all, text) = whole(request).await;
        // What was asked may hold the secret itself.
        let number = self.answers.len();
        self.answers.push((format!("number {number}, a {method}: {status}"), all));
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// An answer that is not kept.
    pub(super) async fn get(&self, path: &str) -> (u16, String) {
        let (status, _, text) = whole(self.request(Method::GET, path, "")).await;
        (status, text)
    }

    fn request(&self, method: Method, path: &str, body: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.up.url));
        let request = request.bearer_auth(self.house.file("admin-token"));
        let request = request.header("accept", "application/json");
        if body.is_empty() {
            return request;
        }
        request.header("content-type", "application/json").body(body.to_owned())
    }

    fn saw(&mut self, what: &str, seen: Seen) {
        let Seen { status, headers, text } = seen;
        self.answers.push((format!("{what} ({status})"), format!("{headers:?}\n{text}")));
    }
}
