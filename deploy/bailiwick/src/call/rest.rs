//! The few REST calls of `call` and `connect`.

use std::time::Duration;

use domain::{limits, permission::Decision};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::Url;

use crate::failure::Failure;

/// The JSON API with one token.
#[derive(Clone)]
pub(crate) struct Rest {
    http: reqwest::Client,
    base: Url,
    token: SecretString,
}

impl Rest {
    pub(crate) fn new(http: &reqwest::Client, base: &Url, token: SecretString) -> Self {
        Self { http: http.clone(), base: base.clone(), token }
    }

    /// Questions of the person, newest first.
    pub(super) async fn questions(&self) -> Result<Vec<Value>, Failure> {
        let list = self.send(Method::GET, "/api/permission-requests?limit=200", None).await?;
        Ok(list.get("items").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    pub(super) async fn decide(
        &self,
        question: &str,
        decision: Decision,
    ) -> Result<Value, Failure> {
        let path = format!("/api/permission-requests/{question}/decision");
        self.send(Method::POST, &path, Some(json!({ "decision": decision.as_str() }))).await
    }

    /// The record of a call, in the session where its question was, else in one of the person's latest
    /// sessions. `None` too where the token may not look.
    pub(super) async fn invocation(&self, id: &str, session: Option<&str>) -> Option<Value> {
        let sessions = if let Some(session) = session {
            vec![session.to_owned()]
        } else {
            let list = self.send(Method::GET, "/api/sessions", None).await.ok()?;
            let items = list.get("items")?.as_array()?;
            let ids = items.iter().filter_map(|session| session.get("id")?.as_str());
            ids.map(str::to_owned).collect()
        };
        for session in sessions {
            let path = format!("/api/sessions/{session}/mcp/invocations/{id}");
            if let Ok(record) = self.send(Method::GET, &path, None).await {
                return Some(record);
            }
        }
        None
    }

    /// The answer's JSON. A refusal is a failure with its words.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        self.send_within(method, path, body, limits::CALL_REST_MS.millis()).await
    }

    /// As [`send`](Self::send), where the service itself may have to wait for somebody.
    pub(crate) async fn send_within(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        wait: Duration,
    ) -> Result<Value, Failure> {
        let failed = |error| Failure::because(format!("{path} does not answer"), error);
        let url = self
            .base
            .join(path)
            .map_err(|error| Failure::because("the service's URL is not usable", error))?;
        let mut request =
            self.http.request(method, url).timeout(wait).bearer_auth(self.token.expose_secret());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        let value: Value = answer.json().await.map_err(failed)?;
        if status.is_success() {
            return Ok(value);
        }
        let detail = value.get("detail").and_then(Value::as_str).unwrap_or("no reason was given");
        Err(Failure::new(format!("{path} answered {status}: {detail}")))
    }
}
