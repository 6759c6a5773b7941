//! What people call the things that a question is about.

use std::collections::HashMap;

use domain::ids::PermissionRequestId;

use uuid::Uuid;

use crate::{StoreError, Tx};

/// Names as they are now; those of a server or tool that is gone are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    pub session_title: String,
    pub server_name: Option<String>,
    /// As the server calls it.
    pub tool_name: Option<String>,
    /// As agents call it.
    pub agent_name: Option<String>,
}

/// The names of these questions.
pub async fn names(
    tx: &mut Tx,
    ids: &[PermissionRequestId],
) -> Result<HashMap<PermissionRequestId, Names>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"SELECT r.permission_request_id, s.title, m.name AS "server_name?",
                  t.original_name AS "tool_name?", t.agent_name AS "agent_name?"
           FROM permission_requests r
           JOIN sessions s ON s.tenant_id = r.tenant_id AND s.session_id = r.session_id
           LEFT JOIN mcp_servers m ON m.tenant_id = r.tenant_id AND m.server_id = r.server_id
           LEFT JOIN mcp_tools t ON t.tenant_id = r.tenant_id AND t.server_id = r.server_id
                                AND t.tool_id = r.tool_id
           WHERE r.tenant_id = $1 AND r.permission_request_id = ANY($2)"#,
        tx.tenant().0,
        &ids,
    )
    .fetch_all(tx.conn())
    .await?;
    let names = rows.into_iter().map(|row| {
        let names = Names {
            session_title: row.title,
            server_name: row.server_name,
            tool_name: row.tool_name,
            agent_name: row.agent_name,
        };
        (PermissionRequestId(row.permission_request_id), names)
    });
    Ok(names.collect())
}
