//! Tenants: a global table, found by slug before any tenant is known.

use domain::{
    Timestamp,
    ids::{ServerId, TenantId},
};

use crate::{Db, StoreError, Tx};

/// A company and what it sets for all of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    pub slug: String,
    pub enabled_source_ids: Vec<ServerId>,
    pub auto_approve_new_tools: bool,
    pub created_at: Timestamp,
}

struct Row {
    tenant_id: uuid::Uuid,
    slug: String,
    enabled_source_ids: Vec<String>,
    auto_approve_new_tools: bool,
    created_at: Timestamp,
}

impl From<Row> for Tenant {
    fn from(row: Row) -> Self {
        Self {
            id: TenantId(row.tenant_id),
            slug: row.slug,
            enabled_source_ids: row.enabled_source_ids.into_iter().map(ServerId).collect(),
            auto_approve_new_tools: row.auto_approve_new_tools,
            created_at: row.created_at,
        }
    }
}

/// Adds the transaction's tenant. A slug that is taken breaks `tenants_slug_key`.
pub async fn insert(tx: &mut Tx, slug: &str, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO tenants (tenant_id, slug, created_at) VALUES ($1, $2, $3)",
        tx.tenant().0,
        slug,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The tenant of that name.
pub async fn find(db: &Db, slug: &str) -> Result<Option<Tenant>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT tenant_id, slug, enabled_source_ids, auto_approve_new_tools, created_at
         FROM tenants WHERE slug = $1",
        slug,
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(Tenant::from))
}

/// Every tenant, in no order.
pub async fn ids(db: &Db) -> Result<Vec<TenantId>, StoreError> {
    let ids = sqlx::query_scalar!("SELECT tenant_id FROM tenants").fetch_all(db.pool()).await?;
    Ok(ids.into_iter().map(TenantId).collect())
}

/// The slug of the only tenant; `None` where there are none or several.
pub async fn only_slug(db: &Db) -> Result<Option<String>, StoreError> {
    let mut slugs =
        sqlx::query_scalar!("SELECT slug FROM tenants LIMIT 2").fetch_all(db.pool()).await?;
    Ok(slugs.pop().filter(|_| slugs.is_empty()))
}

/// Whether there is more than one tenant.
pub async fn are_several(db: &Db) -> Result<bool, StoreError> {
    let few = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM (SELECT FROM tenants LIMIT 2) few"#,
    )
    .fetch_one(db.pool())
    .await?;
    Ok(few > 1)
}

/// Whether there is at most one tenant.
pub async fn is_only(tx: &mut Tx) -> Result<bool, StoreError> {
    let few = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM (SELECT FROM tenants LIMIT 2) few"#,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(few < 2)
}

/// The transaction's tenant.
pub async fn get(tx: &mut Tx) -> Result<Option<Tenant>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT tenant_id, slug, enabled_source_ids, auto_approve_new_tools, created_at
         FROM tenants WHERE tenant_id = $1",
        tx.tenant().0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Tenant::from))
}

/// The transaction's tenant, until commit nobody else's to change. Servers are locked before it.
pub async fn lock(tx: &mut Tx) -> Result<Option<Tenant>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT tenant_id, slug, enabled_source_ids, auto_approve_new_tools, created_at
         FROM tenants WHERE tenant_id = $1 FOR NO KEY UPDATE",
        tx.tenant().0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Tenant::from))
}

/// Writes what [`lock`] gave, changed.
pub async fn save(tx: &mut Tx, tenant: &Tenant) -> Result<(), StoreError> {
    let sources: Vec<String> = tenant.enabled_source_ids.iter().map(|id| id.0.clone()).collect();
    sqlx::query!(
        "UPDATE tenants SET enabled_source_ids = $2, auto_approve_new_tools = $3 WHERE tenant_id = $1",
        tx.tenant().0,
        &sources,
        tenant.auto_approve_new_tools,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Those of `ids` that name a server of the tenant; until commit none of them can be deleted.
pub async fn hold_servers(tx: &mut Tx, ids: &[ServerId]) -> Result<Vec<ServerId>, StoreError> {
    let ids: Vec<String> = ids.iter().map(|id| id.0.clone()).collect();
    let found = sqlx::query_scalar!(
        "SELECT server_id FROM mcp_servers WHERE tenant_id = $1 AND server_id = ANY($2)
         ORDER BY server_id FOR KEY SHARE",
        tx.tenant().0,
        &ids,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(found.into_iter().map(ServerId).collect())
}
