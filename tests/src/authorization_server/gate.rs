//! The door of a protected MCP server: its metadata, its challenges, and what its tools know of the caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use http::{HeaderMap, Method, header};
use serde_json::{Map, Value, json};
use url::Url;

use super::{Granted, State, knobs::patch, lock};
use crate::stops::Moment;

/// The scope that `admin_delete` needs.
const ADMIN: &str = "mcp:admin";
const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";

/// Where the resource metadata is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prm {
    /// With the server's path inserted (RFC 9728, section 3.1).
    Path,
    Root,
    None,
    /// Both places describe another resource.
    Wrong,
}

/// How the door behaves; may be changed while it runs.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each a fault")]
pub struct GateKnobs {
    pub prm: Prm,
    /// Of the place where the metadata is not.
    pub prm_status: u16,
    /// Members that the metadata has besides, or instead; `null` takes one away.
    pub patch_prm: Map<String, Value>,
    /// Whether a 401 has a `WWW-Authenticate`.
    pub challenges: bool,
    /// Stands as `resource_metadata` in challenges; empty: none.
    pub points_to: Option<String>,
    pub status_401: u16,
    /// `scope` of a 401's challenge.
    pub challenge_scope: Option<String>,
    /// A GET without a token gets 405 instead of a challenge.
    pub challenges_post_alone: bool,
    /// `insufficient_scope` names only what is missing.
    pub names_missing_scope_alone: bool,
    /// So many requests with a token get 401.
    pub reject_next: usize,
    /// Lets in whoever has no token.
    pub open: bool,
    /// Lets everybody begin a session, and challenges what comes then.
    pub begins_open: bool,
}

impl Default for GateKnobs {
    fn default() -> Self {
        Self {
            prm: Prm::Path,
            prm_status: 404,
            patch_prm: Map::new(),
            challenges: true,
            points_to: None,
            status_401: 401,
            challenge_scope: None,
            challenges_post_alone: false,
            names_missing_scope_alone: false,
            reject_next: 0,
            open: false,
            begins_open: false,
        }
    }
}

/// One call that was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    pub subject: String,
    pub tool: String,
}

/// Instead of what the peer would answer.
pub(crate) struct Instead {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

pub struct Gate {
    provider: Arc<State>,
    /// The resource.
    url: Url,
    knobs: Mutex<GateKnobs>,
    served: Mutex<Vec<Served>>,
    /// Who used each MCP session.
    sessions: Mutex<HashMap<String, Vec<String>>>,
    refused: Mutex<usize>,
    /// Whom a call was for, and whose token it came with.
    mixed: Mutex<Vec<(String, String)>>,
}

impl Gate {
    pub(super) fn new(provider: Arc<State>, url: Url) -> Self {
        Self {
            provider,
            url,
            knobs: Mutex::default(),
            served: Mutex::default(),
            sessions: Mutex::default(),
            refused: Mutex::default(),
            mixed: Mutex::default(),
        }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut GateKnobs)) {
        change(&mut lock(&self.knobs));
    }

    pub(super) fn served(&self) -> Vec<Served> {
        lock(&self.served).clone()
    }

    pub(super) fn mixed(&self) -> Vec<(String, String)> {
        lock(&self.mixed).clone()
    }

    /// What a test may hold a request by.
    pub(crate) fn name(path: &str, headers: &HeaderMap, rpc: Option<&str>) -> &'static str {
        if path.contains("/.well-known/") {
            return "resource_metadata";
        }
        match rpc {
            _ if bearer(headers).is_none() => "probe",
            Some("tools/call") => "call",
            _ => "other",
        }
    }

    /// Where it is held, if it is to be.
    pub(crate) async fn pass(&self, name: &str, moment: Moment) {
        self.provider.stops.pass(name, moment).await;
    }

    pub(super) fn refused(&self) -> usize {
        *lock(&self.refused)
    }

    pub(super) fn shared_sessions(&self) -> Vec<Vec<String>> {
        let sessions = lock(&self.sessions);
        sessions.values().filter(|persons| persons.len() > 1).cloned().collect()
    }

    /// Where the metadata is, with the server's path inserted.
    pub(super) fn metadata_url(&self) -> Url {
        self.url.join(&format!("{RESOURCE_METADATA}{}", self.url.path())).unwrap()
    }

    /// Whether this message is nobody's business but the peer's.
    pub(crate) fn passes(&self, rpc: &str) -> bool {
        let begins = rpc == "initialize" || rpc.starts_with("notifications/");
        begins && lock(&self.knobs).begins_open
    }

    /// An answer to what is not for the peer: metadata, a missing or bad token, too few rights.
    pub(crate) fn answer(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        tool: Option<&str>,
    ) -> Option<Instead> {
        if path.starts_with(RESOURCE_METADATA) {
            return Some(self.metadata(path));
        }
        if path.contains("/.well-known/") {
            return Some(plain(404));
        }
        let Some(token) = bearer(headers) else {
            let knobs = lock(&self.knobs).clone();
            if knobs.challenges_post_alone && method == Method::GET {
                return Some(plain(405));
            }
            return (!knobs.open).then(|| self.challenge(None));
        };
        let rejected = {
            let mut knobs = lock(&self.knobs);
            let rejected = knobs.reject_next > 0;
            knobs.reject_next -= usize::from(rejected);
            rejected
        };
        let Some(granted) = self.granted(token).filter(|_| !rejected) else {
            return Some(self.challenge(Some("invalid_token")));
        };
        if tool == Some("admin_delete") && !granted.scopes.iter().any(|scope| scope == ADMIN) {
            return Some(self.insufficient(&granted));
        }
        let session = headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        if let Some(session) = session {
            let mut sessions = lock(&self.sessions);
            let persons = sessions.entry(session.to_owned()).or_default();
            if !persons.contains(&granted.subject) {
                persons.push(granted.subject.clone());
            }
        }
        if let Some(tool) = tool {
            let served = Served { subject: granted.subject, tool: tool.to_owned() };
            lock(&self.served).push(served);
        }
        None
    }

    /// `result` of the tools that every protected server has; `None` for others.
    pub(crate) fn call(&self, headers: &HeaderMap, tool: &str, arguments: &Value) -> Option<Value> {
        let granted = self.granted(bearer(headers)?)?;
        if let Some(subject) = arguments["subject"].as_str()
            && subject != granted.subject
        {
            lock(&self.mixed).push((subject.to_owned(), granted.subject.clone()));
        }
        let content = match tool {
            "whoami" => json!({
                "sub": granted.subject,
                "aud": granted.audience,
                "client": granted.client,
                "scopes": granted.scopes,
            }),
            "add" => {
                let number = |name: &str| arguments[name].as_i64().unwrap_or_default();
                json!({"sum": number("a") + number("b")})
            }
            "admin_delete" => json!({"deleted": arguments["id"]}),
            _ => return None,
        };
        let text = json!([{"type": "text", "text": content.to_string()}]);
        Some(json!({"content": text, "structuredContent": content, "isError": false}))
    }

    /// Raw definitions of those tools.
    pub(crate) fn tools() -> Vec<String> {
        let tool = |name: &str, properties: Value, hint: &str| {
            let schema = json!({"type": "object", "properties": properties});
            json!({"name": name, "description": "a tool", "inputSchema": schema,
                "annotations": {hint: true}})
            .to_string()
        };
        let number = json!({"type": "number"});
        vec![
            tool("whoami", json!({}), "readOnlyHint"),
            tool("add", json!({"a": number, "b": number}), "readOnlyHint"),
            tool("admin_delete", json!({"id": {"type": "string"}}), "destructiveHint"),
        ]
    }

    /// What a token is good for here: only one that was made for this resource.
    fn granted(&self, token: &str) -> Option<Granted> {
        let resource = self.document()["resource"].as_str().map(str::to_owned);
        let ours = |granted: &Granted| {
            granted.audience == self.url.as_str() || Some(&granted.audience) == resource.as_ref()
        };
        self.provider.check(token).filter(ours)
    }

    fn document(&self) -> Value {
        let knobs = lock(&self.knobs);
        let resource = match knobs.prm {
            Prm::Wrong => "https://elsewhere.test/mcp",
            _ => self.url.as_str(),
        };
        let mut document = json!({
            "resource": resource,
            "authorization_servers": [self.provider.issuer()],
            "scopes_supported": ["mcp:read", "mcp:write"],
            "bearer_methods_supported": ["header"],
        });
        patch(&mut document, &knobs.patch_prm);
        document
    }

    fn metadata(&self, path: &str) -> Instead {
        let (prm, status) = {
            let knobs = lock(&self.knobs);
            (knobs.prm, knobs.prm_status)
        };
        let at_root = path == RESOURCE_METADATA;
        let inserted = path == self.metadata_url().path();
        let here = match prm {
            Prm::Path => inserted,
            Prm::Root => at_root,
            Prm::Wrong => at_root || inserted,
            Prm::None => false,
        };
        if !here {
            return plain(status);
        }
        let headers = vec![("content-type", "application/json".to_owned())];
        Instead { status: 200, headers, body: self.document().to_string() }
    }

    fn challenge(&self, error: Option<&str>) -> Instead {
        *lock(&self.refused) += 1;
        let knobs = lock(&self.knobs).clone();
        let mut headers = Vec::new();
        if knobs.challenges {
            let error = error.map(|error| format!(r#"error="{error}""#));
            let scope = knobs.challenge_scope.map(|scope| format!(r#"scope="{scope}""#));
            let parts = [error, self.pointer(), scope];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            headers.push(("www-authenticate", format!("Bearer {}", parts.join(", "))));
        }
        Instead {
            status: knobs.status_401,
            headers,
            body: r#"{"error":"unauthorized"}"#.to_owned(),
        }
    }

    fn insufficient(&self, granted: &Granted) -> Instead {
        *lock(&self.refused) += 1;
        let alone = lock(&self.knobs).names_missing_scope_alone;
        let held = if alone { String::new() } else { granted.scopes.join(" ") + " " };
        let pointer = self.pointer().map(|pointer| format!(", {pointer}")).unwrap_or_default();
        let challenge =
            format!(r#"Bearer error="insufficient_scope", scope="{held}{ADMIN}"{pointer}"#);
        let headers = vec![("www-authenticate", challenge)];
        Instead { status: 403, headers, body: r#"{"error":"insufficient_scope"}"#.to_owned() }
    }

    fn pointer(&self) -> Option<String> {
        let points_to = lock(&self.knobs).points_to.clone();
        let points_to = points_to.unwrap_or_else(|| self.metadata_url().to_string());
        (!points_to.is_empty()).then(|| format!(r#"resource_metadata="{points_to}""#))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn plain(status: u16) -> Instead {
    Instead { status, headers: Vec::new(), body: String::new() }
}
