//! `mcp_tools`: what is known of each tool of a server, its switch and its policy.

use domain::{
    Timestamp,
    ids::{PermissionGrantId, ServerId, SessionId, ToolId},
    json::Sha256Digest,
    permission::{TOOL_CALL, ToolPolicy},
    server::AuthMode,
    tool::{KnownTool, Pin, Pinned},
};

use crate::{CorruptRow, StoreError, Tx};

/// One row.
#[derive(Debug, Clone)]
pub struct Tool {
    pub known: KnownTool,
    /// What agents call, unique in the tenant; looked up, never parsed.
    pub agent_name: String,
    pub enabled: bool,
    pub policy: ToolPolicy,
    pub first_seen_at: Timestamp,
}

macro_rules! select {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT tool_id, agent_name, original_name, definition, definition_hash,
                    pending_definition, pending_hash, enabled, policy, pin, problem, warnings,
                    first_seen_at, removed_at
             FROM mcp_tools WHERE tenant_id = $1 AND server_id = $2 " + $rest,
            $($argument),*
        )
    };
}

/// All tools of a server, gone ones too, by id.
pub async fn of_server(tx: &mut Tx, server: &ServerId) -> Result<Vec<Tool>, StoreError> {
    let rows = select!("ORDER BY tool_id COLLATE \"C\"", tx.tenant().0, server.as_str(),)
        .fetch_all(tx.conn())
        .await?;
    Ok(rows.into_iter().map(Tool::try_from).collect::<Result<_, _>>()?)
}

/// How many tools of each server are in quarantine; servers without any are left out.
pub async fn quarantined(tx: &mut Tx) -> Result<Vec<(ServerId, i64)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT server_id, count(*) AS "count!" FROM mcp_tools
           WHERE tenant_id = $1 AND pin = 'quarantined' AND removed_at IS NULL GROUP BY server_id"#,
        tx.tenant().0,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| (ServerId(row.server_id), row.count)).collect())
}

/// What a page of a server's tools shows.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Only tools that agents may see: approved, switched on, still listed by the server.
    pub usable: bool,
    /// Later than this id, in byte order.
    pub after: Option<&'a ToolId>,
    pub rows: i64,
}

/// A page of a server's tools, by id; tools that the server no longer lists are left out.
pub async fn page(
    tx: &mut Tx,
    server: &ServerId,
    wanted: Wanted<'_>,
) -> Result<Vec<Tool>, StoreError> {
    let rows = select!(
        "AND removed_at IS NULL
           AND (NOT $3 OR (pin = 'approved' AND enabled))
           AND ($4::text IS NULL OR tool_id COLLATE \"C\" > $4)
         ORDER BY tool_id COLLATE \"C\" LIMIT $5",
        tx.tenant().0,
        server.as_str(),
        wanted.usable,
        wanted.after.map(ToolId::as_str),
        wanted.rows,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(Tool::try_from).collect::<Result<_, _>>()?)
}

/// One tool, locked until the transaction ends; gone ones too, since policies may be set on them.
pub async fn lock(
    tx: &mut Tx,
    server: &ServerId,
    tool: &ToolId,
) -> Result<Option<Tool>, StoreError> {
    let row =
        select!("AND tool_id = $3 FOR UPDATE", tx.tenant().0, server.as_str(), tool.as_str(),)
            .fetch_optional(tx.conn())
            .await?;
    Ok(row.map(Tool::try_from).transpose()?)
}

/// A tool seen for the first time, under the agent name that it keeps; switched on, policy `ask`.
pub async fn insert(
    tx: &mut Tx,
    server: &ServerId,
    known: &KnownTool,
    agent_name: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (definition, pending) = (known.definition.as_ref(), known.pending.as_ref());
    sqlx::query!(
        "INSERT INTO mcp_tools (tenant_id, server_id, tool_id, agent_name, original_name, definition,
             definition_hash, pending_definition, pending_hash, pin, problem, warnings, first_seen_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        tx.tenant().0,
        server.as_str(),
        known.tool_id.as_str(),
        agent_name,
        known.original_name,
        definition.map(|pinned| pinned.text.as_str()),
        definition.map(|pinned| pinned.hash.as_bytes()),
        pending.map(|pinned| pinned.text.as_str()),
        pending.map(|pinned| pinned.hash.as_bytes()),
        known.pin.as_str(),
        known.problem,
        &known.warnings,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Writes back what a discovery changed of a tool that is listed; switch and policy stay.
pub async fn save(tx: &mut Tx, server: &ServerId, known: &KnownTool) -> Result<(), StoreError> {
    let (definition, pending) = (known.definition.as_ref(), known.pending.as_ref());
    sqlx::query!(
        "UPDATE mcp_tools
         SET definition = $4, definition_hash = $5, pending_definition = $6, pending_hash = $7,
             pin = $8, problem = $9, warnings = $10, removed_at = NULL
         WHERE tenant_id = $1 AND server_id = $2 AND tool_id = $3",
        tx.tenant().0,
        server.as_str(),
        known.tool_id.as_str(),
        definition.map(|pinned| pinned.text.as_str()),
        definition.map(|pinned| pinned.hash.as_bytes()),
        pending.map(|pinned| pinned.text.as_str()),
        pending.map(|pinned| pinned.hash.as_bytes()),
        known.pin.as_str(),
        known.problem,
        &known.warnings,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The server no longer lists it; its pin stays.
pub async fn mark_removed(
    tx: &mut Tx,
    server: &ServerId,
    tool: &ToolId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_tools SET removed_at = $4
         WHERE tenant_id = $1 AND server_id = $2 AND tool_id = $3 AND removed_at IS NULL",
        tx.tenant().0,
        server.as_str(),
        tool.as_str(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The superadmin's switch and policy.
pub async fn save_switches(
    tx: &mut Tx,
    server: &ServerId,
    tool: &ToolId,
    enabled: bool,
    policy: ToolPolicy,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_tools SET enabled = $4, policy = $5
         WHERE tenant_id = $1 AND server_id = $2 AND tool_id = $3",
        tx.tenant().0,
        server.as_str(),
        tool.as_str(),
        enabled,
        policy.as_str(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Revokes the grants on the class `<serverId>/<toolId>` that were given on another definition. Locks
/// their sessions, as every decision does before it looks at grants.
pub async fn revoke_grants_on_others(
    tx: &mut Tx,
    class: &str,
    definition: &Sha256Digest,
    now: Timestamp,
) -> Result<Vec<(SessionId, PermissionGrantId)>, StoreError> {
    sqlx::query!(
        "SELECT s.session_id FROM sessions s
         WHERE s.tenant_id = $1 AND EXISTS (
             SELECT FROM permission_grants g
             WHERE g.tenant_id = $1 AND g.session_id = s.session_id AND g.action = $3
               AND g.resource_class = $2 AND g.state = 'active')
         ORDER BY s.session_id FOR NO KEY UPDATE OF s",
        tx.tenant().0,
        class,
        TOOL_CALL,
    )
    .fetch_all(tx.conn())
    .await?;
    let rows = sqlx::query!(
        "UPDATE permission_grants SET state = 'revoked', revoked_at = $5
         WHERE tenant_id = $1 AND action = $3 AND resource_class = $2 AND state = 'active'
           AND definition_hash IS DISTINCT FROM $4
         RETURNING session_id, permission_grant_id",
        tx.tenant().0,
        class,
        TOOL_CALL,
        definition.as_bytes(),
        now,
    )
    .fetch_all(tx.conn())
    .await?;
    let revoked = rows.into_iter();
    Ok(revoked
        .map(|row| (SessionId(row.session_id), PermissionGrantId(row.permission_grant_id)))
        .collect())
}

/// A tool that agents may call, as far as server, switch, pin and policy say.
#[derive(Debug, Clone)]
pub struct UsableTool {
    pub server: ServerId,
    pub slug: String,
    pub tool: ToolId,
    pub agent_name: String,
    /// The approved definition, the server's own JSON.
    pub definition: String,
    pub definition_hash: Sha256Digest,
    /// Of the server.
    pub auth_mode: AuthMode,
}

/// The tools of `servers` that agents may call, by agent name: server and tool switched on, the
/// present definition approved, policy not `deny`.
pub async fn usable(tx: &mut Tx, servers: &[ServerId]) -> Result<Vec<UsableTool>, StoreError> {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let rows = sqlx::query!(
        "SELECT t.server_id, s.slug, t.tool_id, t.agent_name, t.definition AS \"definition!\",
                t.definition_hash AS \"definition_hash!\", s.auth_mode
         FROM mcp_tools t JOIN mcp_servers s ON s.tenant_id = t.tenant_id AND s.server_id = t.server_id
         WHERE t.tenant_id = $1 AND t.server_id = ANY($2) AND s.enabled
           AND t.enabled AND t.pin = 'approved' AND t.policy <> 'deny' AND t.removed_at IS NULL
         ORDER BY t.agent_name COLLATE \"C\"",
        tx.tenant().0,
        &servers,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            let hash = Sha256Digest::try_from(row.definition_hash.as_slice());
            let corrupt = |_| CorruptRow::new("mcp_tools", &row.agent_name, "bad definition hash");
            let mode = row.auth_mode.parse();
            let unknown = |_| CorruptRow::new("mcp_servers", &row.server_id, "unknown auth mode");
            Ok(UsableTool {
                auth_mode: mode.map_err(unknown)?,
                definition_hash: hash.map_err(corrupt)?,
                server: ServerId(row.server_id),
                slug: row.slug,
                tool: ToolId(row.tool_id),
                agent_name: row.agent_name,
                definition: row.definition,
            })
        })
        .collect()
}

struct Row {
    tool_id: String,
    agent_name: String,
    original_name: String,
    definition: Option<String>,
    definition_hash: Option<Vec<u8>>,
    pending_definition: Option<String>,
    pending_hash: Option<Vec<u8>>,
    enabled: bool,
    policy: String,
    pin: String,
    problem: Option<String>,
    warnings: Vec<String>,
    first_seen_at: Timestamp,
    removed_at: Option<Timestamp>,
}

impl TryFrom<Row> for Tool {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        let corrupt = |problem| CorruptRow::new("mcp_tools", &row.tool_id, problem);
        let pinned = |text: Option<String>, hash: Option<Vec<u8>>| match (text, hash) {
            (None, None) => Ok(None),
            (Some(text), Some(hash)) => {
                let hash = Sha256Digest::try_from(hash.as_slice());
                Ok(Some(Pinned { text, hash: hash.map_err(|_| corrupt("hash is no SHA-256"))? }))
            }
            _ => Err(corrupt("definition without hash")),
        };
        let definition = pinned(row.definition, row.definition_hash)?;
        let pending = pinned(row.pending_definition, row.pending_hash)?;
        let pin: Pin = row.pin.parse().map_err(|_| corrupt("unknown pin"))?;
        let policy = row.policy.parse().map_err(|_| corrupt("unknown policy"))?;
        Ok(Self {
            known: KnownTool {
                tool_id: ToolId(row.tool_id),
                original_name: row.original_name,
                definition,
                pending,
                pin,
                problem: row.problem,
                warnings: row.warnings,
                removed: row.removed_at.is_some(),
            },
            agent_name: row.agent_name,
            enabled: row.enabled,
            policy,
            first_seen_at: row.first_seen_at,
        })
    }
}
