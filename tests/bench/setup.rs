//! Makes an installation ready to be measured, as a person would: over REST, and by one answer.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use http::Method;
use reqwest::Client;
use serde_json::{Value, json};
use url::Url;

use crate::{
    callers::{Access, arguments},
    echo::{self, Echo},
    installation::Installation,
    wire::Connection,
};

/// More than there are callers, so that nobody waits for a slot.
pub(crate) const MOST_AT_ONCE: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(20);
/// Larger than every number of a measured call.
const FIRST_CALL: u64 = 1 << 52;

/// Registers the echo server, begins a session that may use it, calls once, and answers the question
/// with `allow_matching`: from here on a grant stands.
pub(crate) async fn prepare(installation: &Installation, echo: &Echo) -> anyhow::Result<Access> {
    let rest = Rest::of(installation)?;
    let server = register(&rest, echo, "bench", "none").await?;
    begin(&rest, installation, &server, None).await
}

/// The same for the echo server as one that takes each person's own token.
pub(crate) async fn prepare_own(
    installation: &Installation,
    echo: &Echo,
) -> anyhow::Result<Access> {
    let rest = Rest::of(installation)?;
    let server = register(&rest, echo, "own", "bearer").await?;
    let secret = json!({ "secret": "the-token-of-one-person", "revision": server["revision"] });
    begin(&rest, installation, &server, Some(secret)).await
}

async fn register(rest: &Rest, echo: &Echo, slug: &str, mode: &str) -> anyhow::Result<Value> {
    let form = json!({
        "name": slug, "slug": slug, "transport": "http", "url": echo.url(), "authMode": mode,
        "enabled": true,
        "governance": { "maxConcurrent": MOST_AT_ONCE, "maxQueueDepth": MOST_AT_ONCE },
    });
    rest.ask(Method::POST, "/api/mcp/servers", form).await
}

async fn begin(
    rest: &Rest,
    installation: &Installation,
    server: &Value,
    secret: Option<Value>,
) -> anyhow::Result<Access> {
    let server = text(server, "id")?.to_owned();
    if let Some(secret) = secret {
        rest.ask(Method::PUT, &format!("/api/mcp/servers/{server}/connection"), secret).await?;
    }
    let path = format!("/api/mcp/servers/{server}/tools");
    rest.ask(Method::POST, &format!("{path}/refresh"), json!({})).await?;
    let tools =
        rest.until("the tools are known", &path, |tools| tools["items"].get(0).is_some()).await?;
    let tool = tools["items"].as_array().and_then(|tools| {
        tools.iter().find(|tool| tool["name"] == echo::TOOL)?["agentName"].as_str()
    });
    let tool = tool.context("the echo server's tool is not there")?.to_owned();
    let form = json!({ "title": "Bench", "enabledSourceIds": [server] });
    let session = rest.ask(Method::POST, "/api/sessions", form).await?;
    let session = text(&session, "id")?.to_owned();
    let url = installation.url.join(&format!("/mcp/{session}"))?;
    let access = Access { url, tool, token: Some(installation.secret("agent-token")?) };
    tokio::try_join!(first_call(&access), grant(rest, &session))?;
    Ok(access)
}

async fn first_call(access: &Access) -> anyhow::Result<()> {
    let mut connection = Connection::open(&access.url).await?;
    let arguments = arguments(FIRST_CALL);
    let call = connection.call_modern(access, FIRST_CALL, &arguments);
    let answer = tokio::time::timeout(PATIENCE, call).await.context("the call does not end")??;
    ensure!(answer.contains("structuredContent"), "the first call failed: {answer}");
    Ok(())
}

async fn grant(rest: &Rest, session: &str) -> anyhow::Result<()> {
    let path = format!("/api/permission-requests?state=pending&sessionId={session}");
    let asked =
        rest.until("a question is asked", &path, |list| list["items"].get(0).is_some()).await?;
    let request = text(&asked["items"][0], "id")?;
    let path = format!("/api/permission-requests/{request}/decision");
    let decided = rest.ask(Method::POST, &path, json!({ "decision": "allow_matching" })).await?;
    ensure!(decided["grant"]["id"].is_string(), "no grant was made: {decided}");
    Ok(())
}

/// The REST API as the admin.
pub(crate) struct Rest {
    client: Client,
    url: Url,
    token: String,
}

impl Rest {
    pub(crate) fn of(installation: &Installation) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        Ok(Self {
            client: client.build()?,
            url: installation.url.clone(),
            token: installation.secret("admin-token")?,
        })
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> anyhow::Result<Value> {
        Ok(self.ask_for_cookie_as(method, path, body).await?.0)
    }

    /// POST; with `name=value` of the cookie that came along.
    pub(crate) async fn ask_for_cookie(
        &self,
        path: &str,
        body: Value,
    ) -> anyhow::Result<(Value, String)> {
        self.ask_for_cookie_as(Method::POST, path, body).await
    }

    async fn ask_for_cookie_as(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> anyhow::Result<(Value, String)> {
        let mut request = self.client.request(method.clone(), self.url.join(path)?);
        if method != Method::GET {
            request = request.json(&body);
        }
        let response = request.bearer_auth(&self.token).send().await?;
        let status = response.status();
        let cookie = response.headers().get("set-cookie").and_then(|set| set.to_str().ok());
        let cookie = cookie.and_then(|set| set.split(';').next()).unwrap_or_default().to_owned();
        let text = response.text().await?;
        ensure!(status.is_success(), "{method} {path}: {status} {text}");
        let value =
            serde_json::from_str(&text).with_context(|| format!("{method} {path}: no JSON"))?;
        Ok((value, cookie))
    }

    /// A provider sends the browser back; the result that is to be confirmed.
    pub(crate) async fn come_back(&self, callback: &Url, cookie: &str) -> anyhow::Result<String> {
        let request = self.client.get(callback.clone()).header("cookie", cookie);
        let response = request.send().await?;
        let to = response.headers().get("location").and_then(|to| to.to_str().ok());
        let result = to.and_then(|to| to.split_once("#result="));
        Ok(result.context("the callback brought no result")?.1.to_owned())
    }

    async fn until(
        &self,
        what: &str,
        path: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.ask(Method::GET, path, Value::Null).await?;
            if holds(&found) {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                bail!("it did not happen that {what}: {found}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    value[name].as_str().with_context(|| format!("no {name} in {value}"))
}
