//! What goes to a server with each request, sealed: headers, environment, variables.

use domain::ids::ServerId;
use serde_json::Value;

use crate::{CorruptRow, StoreError, Tx};

/// A sealed value as it is stored: name, token, key id.
pub type SealedValue = (String, String, String);

/// A sealed variable with the hosts that it may go to.
pub type SealedVariable = (String, String, String, Vec<String>);

/// All that is needed to reach a server, still sealed.
#[derive(Debug, Clone, Default)]
pub struct SealedValues {
    pub headers: Vec<SealedValue>,
    /// Blank but for programs, and so the three after it.
    pub command: String,
    pub args: Vec<String>,
    pub cwd: String,
    pub env: Vec<SealedValue>,
    /// Those that headers or environment refer to, as far as there are any.
    pub variables: Vec<SealedVariable>,
    /// Of a program: there is no other tenant.
    pub only_tenant: bool,
}

/// The columns of `server_values`, where a row was joined.
#[derive(Debug, Default)]
pub(crate) struct ValuesRow {
    pub headers: Option<Value>,
    pub command: Option<String>,
    pub args: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub env: Option<Value>,
    pub variables: Option<Value>,
    pub only_tenant: Option<bool>,
}

impl ValuesRow {
    pub(crate) fn read(self, server: &str) -> Result<SealedValues, CorruptRow> {
        let unreadable = |_| CorruptRow::new("mcp_server_secrets", server, "unreadable values");
        let list = |value: Option<Value>| {
            serde_json::from_value(value.unwrap_or_else(|| Value::Array(Vec::new())))
        };
        let variables = self.variables.unwrap_or_else(|| Value::Array(Vec::new()));
        Ok(SealedValues {
            headers: list(self.headers).map_err(unreadable)?,
            command: self.command.unwrap_or_default(),
            args: self.args.unwrap_or_default(),
            cwd: self.cwd.unwrap_or_default(),
            env: list(self.env).map_err(unreadable)?,
            variables: serde_json::from_value(variables).map_err(unreadable)?,
            only_tenant: self.only_tenant.unwrap_or(false),
        })
    }
}

/// What goes to the server. Empty where there is none.
pub async fn values(tx: &mut Tx, server: &ServerId) -> Result<SealedValues, StoreError> {
    let row = sqlx::query_as!(
        ValuesRow,
        "SELECT (SELECT jsonb_agg(jsonb_build_array(h.name, h.sealed, h.key_id) ORDER BY h.name)
                 FROM mcp_server_secrets h
                 WHERE h.tenant_id = $1 AND h.server_id = $2 AND h.kind = 'header') AS headers,
                command, args, cwd, env, variables, only_tenant
         FROM server_values($1, $2)",
        tx.tenant().0,
        server.as_str(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.unwrap_or_default().read(server.as_str())?)
}
