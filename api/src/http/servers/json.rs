//! Servers as JSON.

use std::collections::BTreeMap;

use app::servers::{Checked, CheckedTool, Configured, Listed, Shown, Visible};
use domain::{
    Code, Timestamp,
    ids::ServerId,
    server::{
        AuthMode, Contact, GovernanceForm, OAuthSettings, Registration, ServerStatus, Transport,
    },
};
use serde::{Serialize, Serializer};
use serde_json::{Value, value::RawValue};

/// What POST and PUT take: a full replacement, unknown fields are refused. Documentation of
/// [`ServerForm`](domain::server::ServerForm), which reads it.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the form, which is read elsewhere")]
#[schema(as = ServerForm, rename_all = "camelCase")]
pub(crate) struct ServerBody {
    /// 1 to 100 characters, unique without case.
    name: String,
    /// Left out: the id. It cannot be changed.
    slug: Option<String>,
    description: Option<String>,
    icon: Option<String>,
    tags: Option<Vec<String>>,
    /// `http`, `sse`, or `stdio` for a program that the operator permits.
    #[schema(example = "http")]
    transport: String,
    #[schema(example = "https://mcp.example.com/mcp")]
    url: Option<String>,
    command: Option<String>,
    args: Option<Vec<String>>,
    cwd: Option<String>,
    /// Values with `$NAME` name a variable of the tenant; `$$` is a dollar.
    env: Option<BTreeMap<String, Option<String>>>,
    headers: Option<BTreeMap<String, Option<String>>>,
    /// `none` or `shared_headers`; the others are refused by this version.
    #[schema(example = "shared_headers")]
    auth_mode: String,
    api_key_header: Option<String>,
    oauth: Option<Value>,
    /// 1 to 600 whole seconds; 60 unless said.
    timeout_seconds: Option<u64>,
    enabled: Option<bool>,
    /// Limits: `maxConcurrent`, `maxQueueDepth`, `queueTimeoutMs`, `minIntervalMs` or
    /// `ratePerSecond`, `maxResponseBytes`, `relaySampling`.
    governance: Option<Value>,
    /// PUT only: the revision that the form was made from; another one by now is a conflict.
    revision: Option<i64>,
}

/// A server, as far as the caller may see it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(crate) enum ServerAnswer {
    Configured(Box<ConfiguredServer>),
    Visible(VisibleServer),
}

/// A server for its superadmins. Secrets are named and never given: their values are null.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfiguredServer {
    #[schema(value_type = String, example = "custom-0123456789ab")]
    id: ServerId,
    slug: String,
    name: String,
    description: String,
    icon: Option<String>,
    tags: Vec<String>,
    #[schema(value_type = String, example = "http")]
    transport: Transport,
    url: String,
    command: String,
    args: Vec<String>,
    cwd: String,
    #[schema(value_type = BTreeMap<String, Option<String>>)]
    env: Nulls,
    #[schema(value_type = BTreeMap<String, Option<String>>)]
    headers: Nulls,
    #[schema(value_type = String, example = "none")]
    auth_mode: AuthMode,
    api_key_header: Option<String>,
    oauth: Option<OAuth>,
    timeout_seconds: u64,
    enabled: bool,
    governance: Option<Value>,
    /// Of the form: grows with every save. PUT takes it back.
    revision: i64,
    /// Grows when the reach of the server, or a secret, changes.
    config_revision: i64,
    /// `untested`, `ready`, `error`, or `disabled` while it is switched off.
    #[schema(value_type = String, example = "ready")]
    status: ServerStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_error: Option<String>,
    /// It was imported, and nobody agreed to contact it as it is now: its next test asks.
    unconfirmed: bool,
    tool_count: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    checked_at: Option<Timestamp>,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    created_at: Timestamp,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    updated_at: Timestamp,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OAuth {
    issuer: Option<String>,
    #[schema(value_type = String, example = "auto")]
    registration: Registration,
    client_id: String,
    /// Null where there is one; never its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    client_secret: Option<()>,
    scopes: Vec<String>,
    client_metadata_url: Option<String>,
}

/// Names as an object of nulls: there is no place for a value.
#[derive(Debug)]
pub(super) struct Nulls(pub(super) Vec<String>);

impl Nulls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Nulls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|name| (name, ())))
    }
}

/// What everybody may know of a server that is switched on.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VisibleServer {
    #[schema(value_type = String, example = "custom-0123456789ab")]
    id: ServerId,
    slug: String,
    name: String,
    description: String,
    icon: Option<String>,
    tags: Vec<String>,
    #[schema(value_type = String, example = "none")]
    auth_mode: AuthMode,
    enabled: bool,
    revision: i64,
    /// Of the caller's own connection: `not_required`, `disconnected`, `connected` or
    /// `reconnect_required`.
    #[schema(example = "not_required")]
    state: &'static str,
}

/// What a test found out.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckAnswer {
    /// `ready` or `error`.
    #[schema(value_type = String, example = "ready")]
    status: ServerStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<CheckError>,
    duration_ms: u64,
    /// For superadmins.
    #[serde(skip_serializing_if = "Option::is_none")]
    contacted: Option<ContactAnswer>,
    tools: Vec<TestedTool>,
}

/// Words of ours, never the server's.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CheckError {
    #[schema(value_type = String, example = "UPSTREAM_UNAVAILABLE")]
    code: Code,
    message: String,
}

/// Whom a server makes us contact, and with what. Names alone, never a value; what hides in a text is
/// escaped.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContactAnswer {
    transport: String,
    /// Program and arguments; empty but for `stdio`.
    command_line: Vec<String>,
    /// Where the program runs.
    cwd: Option<String>,
    url: Option<String>,
    host: Option<String>,
    headers: Vec<String>,
    env: Vec<String>,
    /// Variables of the tenant whose values would be sent.
    variables: Vec<String>,
}

impl From<Contact> for ContactAnswer {
    fn from(contact: Contact) -> Self {
        Self {
            transport: contact.transport,
            command_line: contact.command_line,
            cwd: contact.cwd,
            url: contact.url,
            host: contact.host,
            headers: contact.headers,
            env: contact.env,
            variables: contact.variables,
        }
    }
}

/// A tool as the server lists it now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TestedTool {
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    input_schema: Option<Box<RawValue>>,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl From<Listed> for ServerAnswer {
    fn from(listed: Listed) -> Self {
        listed.shown.into()
    }
}

impl From<Shown> for ServerAnswer {
    fn from(shown: Shown) -> Self {
        match shown {
            Shown::Configured(configured) => {
                Self::Configured(Box::new(ConfiguredServer::from(*configured)))
            }
            Shown::Visible(visible) => Self::Visible(visible.into()),
        }
    }
}

impl From<Configured> for ConfiguredServer {
    fn from(configured: Configured) -> Self {
        let Configured { server, env, headers, client_secret, variables: _ } = configured;
        let status = if server.enabled { server.status } else { ServerStatus::Disabled };
        Self {
            id: server.id,
            slug: server.slug,
            name: server.name,
            description: server.description,
            icon: server.icon,
            tags: server.tags,
            transport: server.reach.transport,
            url: server.reach.url,
            command: server.reach.command,
            args: server.reach.args,
            cwd: server.reach.cwd,
            env: Nulls(env),
            headers: Nulls(headers),
            auth_mode: server.reach.auth_mode,
            api_key_header: server.reach.api_key_header,
            oauth: server.reach.oauth.map(|oauth| OAuth::of(oauth, client_secret)),
            timeout_seconds: server.timeout.as_secs(),
            enabled: server.enabled,
            governance: server.governance.as_ref().map(limits),
            revision: server.form_revision,
            config_revision: server.config_revision,
            status,
            status_error: server.status_error,
            unconfirmed: server.unconfirmed,
            tool_count: server.tool_count,
            checked_at: server.checked_at,
            created_at: server.created_at,
            updated_at: server.updated_at,
        }
    }
}

impl OAuth {
    pub(super) fn of(settings: OAuthSettings, client_secret: bool) -> Self {
        Self {
            issuer: settings.issuer,
            registration: settings.registration,
            client_id: settings.client_id,
            client_secret: client_secret.then_some(()),
            scopes: settings.scopes,
            client_metadata_url: settings.client_metadata_url,
        }
    }
}

impl From<Visible> for VisibleServer {
    fn from(visible: Visible) -> Self {
        Self {
            id: visible.id,
            slug: visible.slug,
            name: visible.name,
            description: visible.description,
            icon: visible.icon,
            tags: visible.tags,
            auth_mode: visible.auth_mode,
            enabled: visible.enabled,
            revision: visible.revision,
            state: visible.state.as_str(),
        }
    }
}

impl From<Checked> for CheckAnswer {
    fn from(checked: Checked) -> Self {
        Self {
            status: checked.status,
            error: checked.error.map(|(code, message)| CheckError { code, message }),
            duration_ms: u64::try_from(checked.duration.as_millis()).unwrap_or(u64::MAX),
            contacted: checked.contact.map(ContactAnswer::from),
            tools: checked.tools.into_iter().map(TestedTool::from).collect(),
        }
    }
}

impl From<CheckedTool> for TestedTool {
    fn from(tool: CheckedTool) -> Self {
        Self {
            name: tool.name,
            description: tool.description,
            input_schema: tool.input_schema,
            problem: tool.problem,
        }
    }
}

/// The limits as they were asked for; whole numbers without a fraction.
pub(super) fn limits(form: &GovernanceForm) -> Value {
    let mut value = serde_json::to_value(form).unwrap_or_default();
    for limit in value.as_object_mut().into_iter().flat_map(|limits| limits.values_mut()) {
        #[expect(clippy::cast_possible_truncation, reason = "limits are far below 2^53")]
        if let Some(number) = limit.as_f64().filter(|number| number.fract() == 0.0) {
            *limit = Value::from(number as i64);
        }
    }
    value
}
