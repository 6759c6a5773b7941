//! `tenant_variables`: sealed values that servers refer to, and who refers to them.

use domain::{Timestamp, ids::ServerId, server::Variables};

use crate::{StoreError, Tx, vault::Sealed};

/// A variable without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub hosts: Vec<String>,
    pub updated_at: Timestamp,
}

/// That a server refers to a variable, and where the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    pub variable: String,
    pub server: ServerId,
    pub server_name: String,
    pub transport: String,
    pub url: String,
}

/// Whoever saves a server or changes a variable holds this until the transaction ends, and takes it
/// before any row: so a variable cannot go away under a server that comes to refer to it.
pub async fn lock(tx: &mut Tx) -> Result<(), StoreError> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended('tenant_variables/' || $1, 0)) AS locked",
        tx.tenant().to_string(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// All variables of the tenant, by name.
pub async fn list(tx: &mut Tx) -> Result<Vec<Variable>, StoreError> {
    let rows = sqlx::query_as!(
        Variable,
        "SELECT name, hosts, updated_at FROM tenant_variables
         WHERE tenant_id = $1 ORDER BY name COLLATE \"C\"",
        tx.tenant().0,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows)
}

/// The names with their hosts, as forms are measured against them.
pub async fn known(tx: &mut Tx) -> Result<Variables, StoreError> {
    let variables = list(tx).await?.into_iter();
    Ok(Variables(variables.map(|variable| (variable.name, variable.hosts)).collect()))
}

/// Writes a variable, new or in place of the one of that name.
pub async fn put(
    tx: &mut Tx,
    name: &str,
    sealed: &Sealed,
    hosts: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO tenant_variables (tenant_id, name, sealed, key_id, hosts, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (tenant_id, name) DO UPDATE
         SET sealed = EXCLUDED.sealed, key_id = EXCLUDED.key_id, hosts = EXCLUDED.hosts,
             updated_at = EXCLUDED.updated_at",
        tx.tenant().0,
        name,
        sealed.token,
        sealed.key_id,
        hosts,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// False: there was none.
pub async fn delete(tx: &mut Tx, name: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "DELETE FROM tenant_variables WHERE tenant_id = $1 AND name = $2",
        tx.tenant().0,
        name,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Which servers refer to which variables; `only` this one.
pub async fn uses(tx: &mut Tx, only: Option<&str>) -> Result<Vec<Use>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT DISTINCT u.variable AS "variable!", v.server_id, v.name, v.transport, v.url
           FROM mcp_server_secrets s CROSS JOIN unnest(s.variables) AS u (variable)
           JOIN mcp_servers v ON v.tenant_id = s.tenant_id AND v.server_id = s.server_id
           WHERE s.tenant_id = $1 AND ($2::text IS NULL OR u.variable = $2)
           ORDER BY 1, 2"#,
        tx.tenant().0,
        only,
    )
    .fetch_all(tx.conn())
    .await?;
    let uses = rows.into_iter().map(|row| Use {
        variable: row.variable,
        server: ServerId(row.server_id),
        server_name: row.name,
        transport: row.transport,
        url: row.url,
    });
    Ok(uses.collect())
}

/// Gives each of these servers a new configuration, of which nothing is known yet; an imported one that
/// is off is to be confirmed anew. Answers those that are switched on.
pub async fn advance(tx: &mut Tx, servers: &[ServerId]) -> Result<Vec<ServerId>, StoreError> {
    let ids: Vec<String> = servers.iter().map(ToString::to_string).collect();
    // In one order, whoever else locks several.
    sqlx::query!(
        "SELECT server_id FROM mcp_servers WHERE tenant_id = $1 AND server_id = ANY($2)
         ORDER BY server_id FOR NO KEY UPDATE",
        tx.tenant().0,
        &ids,
    )
    .fetch_all(tx.conn())
    .await?;
    let rows = sqlx::query!(
        "UPDATE mcp_servers
         SET config_revision = config_revision + 1, form_revision = form_revision + 1,
             status = 'untested', status_error = NULL, checked_at = NULL,
             unconfirmed = unconfirmed OR (imported AND NOT enabled)
         WHERE tenant_id = $1 AND server_id = ANY($2)
         RETURNING server_id, enabled",
        tx.tenant().0,
        &ids,
    )
    .fetch_all(tx.conn())
    .await?;
    let enabled = rows.into_iter().filter(|row| row.enabled);
    Ok(enabled.map(|row| ServerId(row.server_id)).collect())
}
