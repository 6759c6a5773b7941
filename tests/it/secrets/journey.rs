//! Everything that can be done with secrets, and every answer to it.

mod delegation;
mod sign_in;
mod variables;

use base64::{Engine, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};
use tests::{
    peer::{Answer, Peer, Setup, tool},
    world::eventually,
};

use super::{delegation_head, needles::Secret, nothing_in};
use crate::{
    gateway::{as_pairs, initialize, modern},
    kill::house::{House, Up, program},
};

/// What goes to the upstream in headers.
const HEADER: &str = "pl4nted-header/+=\"&%key-5Zq1";
/// A variable of the tenant, which the header refers to as well.
const VARIABLE: &str = "pl4nted-variable/+=\"&%key-3Rt6";
const CREDENTIALS: &str = "pl4nted-bearer-credentials-8Wv2";
const PASSWORD: &str = "pl4nted password \"of\" a person/7";
/// 32 bytes in base64url, set by the operator in the environment.
const SEAL_KEY: &str = "c2VhbC1rZXktc2VhbC1rZXktc2VhbC1rZXktMDAwMTI";

pub(super) struct Journey {
    pub(super) house: House,
    up: Up,
    peer: Peer,
    http: reqwest::Client,
    admin: String,
    agent: String,
    minted: String,
    /// Values of cookies.
    cookies: [String; 2],
    asking: String,
    free: String,
    /// What was asked, and the whole answer with its headers.
    answers: Vec<(String, String)>,
}

impl Journey {
    /// `up` that logs all it can.
    pub(super) async fn begin() -> Self {
        let house = House::new();
        let mut command = program(&["up", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(house.data()).env("BAILIWICK_LOG", "trace").env("BAILIWICK_SEAL_KEY", SEAL_KEY);
        let up = house.serve(command).await.unwrap_or_else(|| panic!("{}", house.log()));
        let tools = ["echo", "tells", "tells_error", "asked"].map(tool).to_vec();
        let peer = Peer::start(Setup { tools, ..Setup::modern() }).await;
        let (admin, agent) = (house.file("admin-token"), house.file("agent-token"));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let (minted, cookies, asking, free) = Default::default();
        Self {
            house,
            up,
            peer,
            http,
            admin,
            agent,
            minted,
            cookies,
            asking,
            free,
            answers: Vec::new(),
        }
    }

    pub(super) fn secrets(&self) -> Vec<Secret> {
        vec![
            Secret::new("header", HEADER),
            Secret::new("variable", VARIABLE),
            Secret::new("bearer credentials", CREDENTIALS),
            Secret::new("password of a person", PASSWORD),
            Secret::new("seal key", SEAL_KEY),
            Secret::new("admin token", &self.admin),
            Secret::new("agent token", &self.agent),
            Secret::new("minted token", &self.minted),
            Secret::new("cookie of the API", &self.cookies[0]),
            Secret::new("cookie of the page", &self.cookies[1]),
            Secret::new("admin password", &self.house.file("admin-password")),
            Secret::new("delegation token", &delegation_head(&self.house.file("encryption-keys"))),
            Secret::new("encryption key", &self.house.file("encryption-keys")),
        ]
    }

    pub(super) fn answers_hold_none_of(&self, secrets: &[Secret]) {
        assert!(self.answers.len() > 60, "{}", self.answers.len());
        for (asked, answer) in &self.answers {
            nothing_in(&format!("the answer to {asked}"), answer.as_bytes(), secrets);
        }
    }

    /// Servers, people, tokens, discovery.
    pub(super) async fn configure(&mut self) {
        self.variables().await;
        let (kept, bad) = (self.form("kept"), self.form("changed"));
        self.api(Method::POST, "/api/mcp/servers", kept).await;
        self.api(Method::POST, "/api/mcp/servers/kept/tools/refresh", Value::Null).await;
        self.api(Method::POST, "/api/mcp/servers", bad).await;
        let mut changed = self.form("changed");
        changed["headers"] = json!({ "X-Key": null, "X-Other": HEADER, "X-Variable": null });
        self.api(Method::PUT, "/api/mcp/servers/changed", changed).await;
        self.api(Method::POST, "/api/mcp/servers/changed/test", Value::Null).await;

        let person = json!({ "email": "pat@acme.test", "role": "member", "password": PASSWORD });
        self.api(Method::POST, "/api/users", person).await;
        // The one place where a token is shown.
        let form = json!({ "name": "more", "scopes": ["api:read"] });
        let (_, body) =
            self.send(Method::POST, &self.admin, "/api/tokens", &form.to_string()).await;
        let minted: Value = serde_json::from_str(&body).unwrap();
        minted["token"].as_str().unwrap().clone_into(&mut self.minted);

        let (_, kept) = self.api(Method::GET, "/api/mcp/servers/kept", Value::Null).await;
        let sources = json!([kept["id"]]);
        for mode in ["ask_for_dangerous", "always_allow"] {
            let body = json!({ "title": mode, "enabledSourceIds": sources, "approvalMode": mode });
            let (status, session) = self.api(Method::POST, "/api/sessions", body).await;
            assert_eq!(status, 201, "{session}");
            let id = session["id"].as_str().unwrap().to_owned();
            if mode == "always_allow" { self.free = id } else { self.asking = id }
        }
        self.delegation().await;
        self.failing_discoveries().await;
        self.read_everything().await;
    }

    fn form(&self, name: &str) -> Value {
        json!({
            "name": name, "slug": name, "transport": "http", "url": self.peer.url(), "enabled": true,
            "authMode": "shared_headers",
            "headers": {
                "X-Key": HEADER, "Authorization": format!("Bearer {CREDENTIALS}"), "X-Variable": "$PLANTED",
            },
        })
    }

    /// The upstream says the secret in place of what it is asked for.
    async fn failing_discoveries(&mut self) {
        for answer in echoes(HEADER, CREDENTIALS) {
            for method in ["tools/list", "server/discover", "initialize"] {
                self.peer.script_method(method, [answer.clone()]);
            }
            self.api(Method::POST, "/api/mcp/servers/changed/test", Value::Null).await;
            self.api(Method::POST, "/api/mcp/servers/changed/tools/refresh", Value::Null).await;
        }
        // And the worker's job meets it as well.
        let off = json!({ "enabled": false });
        self.api(Method::PUT, "/api/mcp/servers/changed/status", off).await;
        let on = json!({ "enabled": true });
        self.api(Method::PUT, "/api/mcp/servers/changed/status", on).await;
        let before = self.peer.journal().len();
        self.peer.until("the job asked", |peer| peer.journal().len() > before).await;
        for method in ["tools/list", "server/discover", "initialize"] {
            self.peer.script_method(method, []);
        }
        self.api(Method::POST, "/api/mcp/servers/kept/tools/refresh", Value::Null).await;
    }

    async fn read_everything(&mut self) {
        for path in [
            "/api/openapi.json",
            "/api/me",
            "/api/tenant",
            "/api/users",
            "/api/tokens",
            "/api/mcp/servers",
            "/api/mcp/servers/export",
            "/api/tenant/variables",
            "/api/mcp/servers/kept",
            "/api/mcp/servers/changed",
            "/api/mcp/servers/kept/tools",
            "/api/mcp/servers/changed/tools",
            "/api/projects",
            "/api/sessions",
            "/api/permission-requests",
            "/api/permission-grants",
        ] {
            self.api(Method::GET, path, Value::Null).await;
        }
        for session in [self.asking.clone(), self.free.clone()] {
            for path in
                ["events", "mcp/invocations", "permission-authorizations", "permission-epoch"]
            {
                let path = format!("/api/sessions/{session}/{path}");
                let (status, list) = self.api(Method::GET, &path, Value::Null).await;
                assert_eq!(status, 200, "{path}: {list}");
                for item in list["items"].as_array().into_iter().flatten() {
                    if path.ends_with("invocations") {
                        let one = format!("{path}/{}", item["id"].as_str().unwrap());
                        self.api(Method::GET, &one, Value::Null).await;
                    }
                }
            }
        }
    }

    /// Tokens and secrets where they do not belong.
    pub(super) async fn odd_requests(&mut self) {
        let (admin, agent) = (self.admin.clone(), self.agent.clone());
        for token in [&admin, &agent] {
            for path in [
                format!("/api/me?access_token={token}"),
                format!("/api/{token}"),
                format!("/{token}"),
                format!("/api/sessions/{token}"),
                format!("/api/mcp/servers/{token}/tools"),
                format!("/api/permission-requests?state={token}&sessionId={token}"),
                format!("/api/sessions?limit={token}"),
                format!("/api/sessions?after={token}"),
                format!("/mcp/{token}"),
                format!("/mcp?token={token}"),
            ] {
                self.api(Method::GET, &path, Value::Null).await;
                self.api(Method::POST, &path, json!({})).await;
            }
        }
        let mut wrong = self.form("wrong");
        for headers in [json!(HEADER), json!([HEADER]), json!({ "X": [HEADER] })] {
            wrong["headers"] = headers;
            self.api(Method::POST, "/api/mcp/servers", wrong.clone()).await;
        }
        for (member, value) in [
            ("authMode", HEADER),
            ("transport", CREDENTIALS),
            ("timeoutSeconds", HEADER),
            ("tags", CREDENTIALS),
            ("enabled", CREDENTIALS),
            ("governance", HEADER),
            ("apiKeyHeader", HEADER),
            ("url", HEADER),
            ("slug", HEADER),
            ("revision", HEADER),
            ("oauth", HEADER),
        ] {
            let mut wrong = self.form("wrong");
            wrong[member] = json!(value);
            self.api(Method::POST, "/api/mcp/servers", wrong).await;
        }
        let mut wrong = self.form("wrong");
        wrong["url"] = json!(format!("http://user:{CREDENTIALS}@127.0.0.1:9/mcp"));
        self.api(Method::POST, "/api/mcp/servers", wrong).await;
        for body in [
            json!({ "email": PASSWORD, "role": "member", "password": [PASSWORD] }),
            json!({ "email": "x@acme.test", "role": PASSWORD, "password": PASSWORD }),
            json!(PASSWORD),
        ] {
            self.api(Method::POST, "/api/users", body).await;
        }
        let broken = format!(r#"{{"email":"x@acme.test","password":"{CREDENTIALS}"#);
        let (admin, path) = (self.admin.clone(), "/api/users");
        self.kept(Method::POST, &admin, path, &broken).await;
        // A token that is none, one in another scheme, one at the wrong door.
        for token in [format!("{admin}x"), format!("{agent} {agent}"), String::new()] {
            self.kept(Method::GET, &token, "/api/me", "").await;
        }
        for state in [&agent, CREDENTIALS] {
            let params = json!({ "name": "mcp__kept__echo", "requestState": state }).to_string();
            let (headers, body) = modern("tools/call", &params);
            let call = self.request(Method::POST, &agent, "/mcp", &as_pairs(&headers), body);
            let answer = call.send().await.unwrap().text().await.unwrap();
            self.answers.push(("a made-up requestState".to_owned(), answer));
        }
        self.kept(Method::POST, &admin, "/mcp", &initialize("2025-11-25")).await;
        self.kept(Method::POST, &agent, "/mcp", &initialize(&agent)).await;
        for body in [
            // A protocol repeats ids, so the id is none.
            json!({"jsonrpc": "2.0", "id": 1, "method": agent}).to_string(),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{CREDENTIALS}"#),
        ] {
            self.kept(Method::POST, &agent, "/mcp", &body).await;
        }
    }

    /// Calls that fail in each way that an upstream can make them fail.
    pub(super) async fn failing_calls(&mut self) {
        self.call("mcp__kept__echo", "{}").await;
        let trial = json!({ "sessionId": self.free, "toolName": "echo", "input": {} });
        for answer in echoes(HEADER, CREDENTIALS) {
            self.peer.answer("echo", answer);
            self.call("mcp__kept__echo", "{}").await;
            self.api(Method::POST, "/api/mcp/servers/kept/inspect", trial.clone()).await;
        }
        self.peer.answer("echo", Answer::Cut);
        self.call("mcp__kept__echo", "{}").await;
        self.call("mcp__kept__nothing", "{}").await;
        self.read_everything().await;
    }

    /// Asked, answered, denied.
    pub(super) async fn questions(&mut self) {
        for decision in ["allow_once", "deny"] {
            let (headers, body) = modern("tools/call", r#"{"name":"mcp__kept__asked"}"#);
            let path = format!("/mcp/{}", self.asking);
            let call = self.request(Method::POST, &self.agent, &path, &as_pairs(&headers), body);
            let call =
                tokio::spawn(async move { call.send().await.unwrap().text().await.unwrap() });
            let pending = "/api/permission-requests?state=pending";
            let id = eventually("a question", async || {
                let (_, list) = self.send(Method::GET, &self.admin, pending, "").await;
                let list: Value = serde_json::from_str(&list).unwrap();
                list["items"][0]["id"].as_str().map(str::to_owned)
            })
            .await;
            let path = format!("/api/permission-requests/{id}/decision");
            self.api(Method::POST, &path, json!({ "decision": decision })).await;
            self.answers
                .push((format!("the call that was asked: {decision}"), call.await.unwrap()));
        }
        self.read_everything().await;
    }

    /// Results that tell the secret, to their caller alone.
    pub(super) async fn telling_results(&mut self) {
        let words = said(HEADER, CREDENTIALS);
        let text = json!([{ "type": "text", "text": words }]);
        let result = json!({ "content": text, "structuredContent": { "told": words } });
        self.peer.answer("tells", Answer::Result(result.to_string()));
        let error = json!({ "content": text, "isError": true });
        self.peer.answer("tells_error", Answer::Result(error.to_string()));
        let asked = self.answers.len();
        for tool in ["tells", "tells_error"] {
            self.call(&format!("mcp__kept__{tool}"), "{}").await;
            let (_, answer) = self.answers.pop().unwrap();
            assert!(answer.contains("pl4nted"), "results pass unchanged: {answer}");
        }
        self.read_everything().await;
        let secrets = self.secrets();
        for (asked, answer) in &self.answers[asked..] {
            nothing_in(&format!("the answer to {asked}"), answer.as_bytes(), &secrets);
        }
    }

    /// Of the stored bytes, results of those two calls and no request.
    pub(super) async fn only_results_hold(&self, secrets: &[Secret]) {
        let pool = self.house.superuser().await;
        let results = "SELECT c.body FROM cas_objects c WHERE EXISTS (
            SELECT FROM invocations i WHERE i.tool_id LIKE 'tells%'
              AND c.sha256 IN (i.raw_sha256, i.result_sha256))";
        let results: Vec<Vec<u8>> = sqlx::query_scalar(results).fetch_all(&pool).await.unwrap();
        assert_eq!(results.len(), 4);
        let others = "SELECT c.body FROM cas_objects c WHERE body IS NOT NULL AND NOT EXISTS (
            SELECT FROM invocations i WHERE i.tool_id LIKE 'tells%'
              AND c.sha256 IN (i.raw_sha256, i.result_sha256))";
        let others: Vec<Vec<u8>> = sqlx::query_scalar(others).fetch_all(&pool).await.unwrap();
        assert!(!others.is_empty());
        for body in others {
            nothing_in("stored bytes", &body, secrets);
        }
    }

    pub(super) async fn clear_up(&mut self) {
        self.api(Method::DELETE, "/api/mcp/servers/changed", Value::Null).await;
        self.api(Method::DELETE, "/api/mcp/servers/kept", Value::Null).await;
        assert!(self.up.lives());
    }

    async fn call(&mut self, tool: &str, arguments: &str) {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        let (headers, body) = modern("tools/call", &params);
        let path = format!("/mcp/{}", self.free);
        let request = self.request(Method::POST, &self.agent, &path, &as_pairs(&headers), body);
        let (_, all, _) = whole(request).await;
        self.answers.push((format!("the call of {tool}"), all));
    }

    /// As the admin; `Null` is no body.
    async fn api(&mut self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let token = self.admin.clone();
        let (status, body) = self.kept(method, &token, path, &body).await;
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    async fn kept(&mut self, method: Method, token: &str, path: &str, body: &str) -> (u16, String) {
        let request = self.request(method.clone(), token, path, &[], body.to_owned());
        let (status, all, text) = whole(request).await;
        // What was asked holds the secret itself.
        let number = self.answers.len();
        self.answers.push((format!("number {number}, a {method}: {status}"), all));
        (status, text)
    }

    async fn send(&self, method: Method, token: &str, path: &str, body: &str) -> (u16, String) {
        let (status, _, text) =
            whole(self.request(method, token, path, &[], body.to_owned())).await;
        (status, text)
    }

    fn request(
        &self,
        method: Method,
        token: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> reqwest::RequestBuilder {
        // The events of a session would be a stream without an end.
        let api = path.starts_with("/api");
        let accept = if api { "application/json" } else { "application/json, text/event-stream" };
        let mut request = self.http.request(method, format!("{}{path}", self.up.url));
        request = request.bearer_auth(token).header("accept", accept);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_empty() {
            return request;
        }
        request.header("content-type", "application/json").body(body)
    }
}

/// Status, head and body together, and the body.
pub(super) async fn whole(request: reqwest::RequestBuilder) -> (u16, String, String) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let head = format!("{:?}", response.headers());
    let text = response.text().await.unwrap();
    (status, format!("{head}\n{text}"), text)
}

/// The secrets in one sentence, in several encodings.
fn said(header: &str, credentials: &str) -> String {
    let encoded = [0, 1, 2].map(|offset| {
        BASE64_STANDARD.encode(format!("{}{credentials}/{header}!", "x".repeat(offset)))
    });
    let form: String = url::form_urlencoded::byte_serialize(header.as_bytes()).collect();
    format!("you sent {header} and Bearer {credentials}, {form}, {}", encoded.join(" "))
}

/// Each way in which an upstream can tell the secret without answering the question.
pub(super) fn echoes(header: &str, credentials: &str) -> Vec<Answer> {
    let said = said(header, credentials);
    let json_said = json!(said).to_string();
    let status = |status: u16, body: String| Answer::Status {
        status,
        headers: vec![
            ("www-authenticate", format!("Bearer error=\"{credentials}\"")),
            ("x-echo", header.to_owned()),
            ("location", format!("http://127.0.0.1:9/?key={credentials}")),
            ("retry-after", "0".to_owned()),
        ],
        body,
    };
    let rpc = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"error":{{"code":-32000,"message":{json_said},"data":{json_said}}}}}"#
    );
    let mut echoes: Vec<Answer> = [400, 401, 403, 404, 429, 500, 503]
        .into_iter()
        .flat_map(|code| [status(code, said.clone()), status(code, rpc.clone())])
        .collect();
    echoes.extend([
        status(302, said.clone()),
        status(307, said.clone()),
        // Cut where what we show ends, in the middle of the secret.
        status(500, format!("{}{said}", "x".repeat(980))),
        Answer::Error { code: -32000, message: said.clone() },
        Answer::Error { code: -32602, message: said.clone() },
        Answer::Content { kind: "text/plain", body: said.clone() },
        Answer::Content { kind: "application/json", body: json_said.clone() },
        Answer::Content { kind: "application/json", body: said.clone() },
        Answer::Result(json_said.clone()),
        Answer::Result(format!(r#"{{"resultType":{json_said}}}"#)),
        Answer::Result(format!(
            r#"{{"isError":{json_said},"tools":{json_said},"protocolVersion":{json_said}}}"#
        )),
        Answer::Result(format!(r#"{{"isError":7,"supportedVersions":{json_said}}}"#)),
        Answer::Stream {
            pieces: vec![format!("id: {credentials}\ndata: {said}\n\n")],
            broken: false,
        },
        Answer::Stream { pieces: vec![format!("data: {json_said}\n\n")], broken: true },
    ]);
    echoes
}
