//! What stands in the database, as its owner sees it.

use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

/// The tables with a tenant, as the catalog has them; a partitioned one is one table. `tenants` is
/// global: its tenant is the row itself.
pub async fn tenant_tables(owner: &PgPool) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
           AND NOT c.relispartition AND c.relname <> 'tenants'
         ORDER BY c.relname",
    )
    .fetch_all(owner)
    .await
    .unwrap()
}

/// A digest of all rows of a tenant, or of every tenant: two that are equal were taken of the same
/// rows.
pub async fn digest(owner: &PgPool, tenant: Option<Uuid>) -> String {
    let mut tables = tenant_tables(owner).await;
    tables.push("tenants".to_owned());
    let parts: Vec<String> = tables
        .iter()
        .map(|table| {
            format!(
                "SELECT '{table}' || coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') AS rows
                 FROM {table} t WHERE $1::uuid IS NULL OR tenant_id = $1"
            )
        })
        .collect();
    let statement = format!(
        "SELECT encode(sha256(convert_to(string_agg(rows, E'\\n'), 'UTF8')), 'hex') FROM ({}) AS all_rows",
        parts.join(" UNION ALL ")
    );
    sqlx::query_scalar(AssertSqlSafe(statement)).bind(tenant).fetch_one(owner).await.unwrap()
}
