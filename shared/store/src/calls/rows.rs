//! What the functions of the call path answer, as rows.

use domain::{
    ids::{PermissionEpochId, PermissionGrantId, ServerId, SessionId},
    invocation::{ReadBack, ServerNow},
    json::Sha256Digest,
    permission::ApprovalMode,
};
use serde_json::Value;
use uuid::Uuid;

use super::{Context, ContextServer, ContextTool, OwnConnection};
use crate::{CorruptRow, servers::ValuesRow};

pub(super) struct ContextRow {
    pub session_archived: bool,
    pub approval_mode: String,
    pub permission_epoch_id: Uuid,
    pub user_active: bool,
    pub tenant_sources: Vec<String>,
    pub project_sources: Option<Vec<String>>,
    pub session_sources: Option<Vec<String>>,
    pub server_id: Option<String>,
    pub server_name: Option<String>,
    pub server_enabled: Option<bool>,
    pub transport: Option<String>,
    pub url: Option<String>,
    pub auth_mode: Option<String>,
    pub config_revision: Option<i64>,
    pub timeout_seconds: Option<i32>,
    pub governance: Option<Value>,
    pub headers: Option<Value>,
    pub command: Option<String>,
    pub args: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub env: Option<Value>,
    pub variables: Option<Value>,
    pub only_tenant: Option<bool>,
    pub tool_id: Option<String>,
    pub agent_name: Option<String>,
    pub original_name: Option<String>,
    pub tool_enabled: Option<bool>,
    pub policy: Option<String>,
    pub pin: Option<String>,
    pub tool_removed: Option<bool>,
    pub definition_hash: Option<Vec<u8>>,
    pub permission_grant_id: Option<Uuid>,
    pub connection_generation: Option<i64>,
    pub connection_state: Option<String>,
    pub connection_reason: Option<String>,
    pub api_key_header: Option<String>,
}

impl ContextRow {
    pub(super) fn read(self, session: SessionId) -> Result<Context, CorruptRow> {
        let ids = |names: Vec<String>| names.into_iter().map(ServerId::from).collect::<Vec<_>>();
        let mode = ApprovalMode::parse(&self.approval_mode);
        let mut context = Context {
            session_archived: self.session_archived,
            mode: mode.ok_or_else(|| CorruptRow::new("sessions", session, "unknown mode"))?,
            epoch: PermissionEpochId(self.permission_epoch_id),
            user_active: self.user_active,
            tenant_sources: ids(self.tenant_sources),
            project_sources: self.project_sources.map(ids),
            session_sources: self.session_sources.map(ids),
            server: None,
            tool: None,
            grant: self.permission_grant_id.map(PermissionGrantId),
        };
        let Some(server) = self.server_id else { return Ok(context) };
        if let Some(tool) = self.tool_id {
            let policy = self.policy.and_then(|policy| policy.parse().ok());
            let unknown = || CorruptRow::new("mcp_tools", &tool, "unknown policy");
            context.tool = Some(ContextTool {
                policy: policy.ok_or_else(unknown)?,
                tool: tool.into(),
                agent_name: self.agent_name.unwrap_or_default(),
                original_name: self.original_name.unwrap_or_default(),
                enabled: self.tool_enabled.unwrap_or(false),
                approved: self.pin.as_deref() == Some("approved"),
                removed: self.tool_removed.unwrap_or(true),
                definition_hash: digest(self.definition_hash),
            });
        }
        let corrupt = |problem| CorruptRow::new("mcp_servers", &server, problem);
        let values = ValuesRow {
            headers: self.headers,
            command: self.command,
            args: self.args,
            cwd: self.cwd,
            env: self.env,
            variables: self.variables,
            only_tenant: self.only_tenant,
        };
        let own = match (self.connection_generation, self.connection_state) {
            (Some(generation), Some(state)) => {
                let reason = self.connection_reason.map(|reason| reason.parse()).transpose();
                Some(OwnConnection {
                    generation,
                    state: state.parse().map_err(|_| corrupt("unknown state of a connection"))?,
                    reason: reason.map_err(|_| corrupt("unknown reason of a connection"))?,
                })
            }
            _ => None,
        };
        context.server = Some(ContextServer {
            config_revision: self.config_revision.ok_or_else(|| corrupt("no revision"))?,
            timeout_seconds: self.timeout_seconds.ok_or_else(|| corrupt("no time-out"))?,
            values: values.read(&server)?,
            server: server.into(),
            name: self.server_name.unwrap_or_default(),
            enabled: self.server_enabled.unwrap_or(false),
            transport: self.transport.unwrap_or_default(),
            url: self.url.unwrap_or_default(),
            auth_mode: self.auth_mode.unwrap_or_default(),
            governance: self.governance,
            api_key_header: self.api_key_header.unwrap_or_default(),
            own,
        });
        Ok(context)
    }
}

pub(crate) struct ReadBackRow {
    pub user_active: Option<bool>,
    pub server_enabled: Option<bool>,
    pub config_revision: Option<i64>,
    pub auth_mode: Option<String>,
    pub tool_present: Option<bool>,
    pub tool_enabled: Option<bool>,
    pub tool_denied: Option<bool>,
    pub tool_approved: Option<bool>,
    pub definition_hash: Option<Vec<u8>>,
}

impl From<ReadBackRow> for ReadBack {
    fn from(row: ReadBackRow) -> Self {
        let server = row.config_revision.map(|config_revision| ServerNow {
            enabled: row.server_enabled.unwrap_or(false),
            config_revision,
            auth_mode: row.auth_mode.unwrap_or_default(),
            tool_present: row.tool_present.unwrap_or(false),
            tool_enabled: row.tool_enabled.unwrap_or(false),
            tool_denied: row.tool_denied.unwrap_or(true),
            tool_approved: row.tool_approved.unwrap_or(false),
            definition_hash: digest(row.definition_hash),
        });
        Self { user_active: row.user_active.unwrap_or(false), server }
    }
}

pub(crate) fn digest(bytes: Option<Vec<u8>>) -> Option<Sha256Digest> {
    bytes.and_then(|bytes| Sha256Digest::try_from(bytes.as_slice()).ok())
}
