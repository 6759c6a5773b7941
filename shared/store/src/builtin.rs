//! `mcp_servers` that are part of the service.

use crate::{StoreError, Tx, servers::Server};

/// Writes back the slug too, which [`save`](crate::servers::save) never does, and deletes whatever
/// values stand there: a built-in server has none.
pub async fn restore(tx: &mut Tx, server: &Server) -> Result<(), StoreError> {
    let (tenant, id) = (tx.tenant().0, server.id.as_str());
    sqlx::query!(
        "DELETE FROM mcp_server_secrets WHERE tenant_id = $1 AND server_id = $2",
        tenant,
        id,
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "UPDATE mcp_servers SET slug = $3 WHERE tenant_id = $1 AND server_id = $2",
        tenant,
        id,
        server.slug,
    )
    .execute(tx.conn())
    .await?;
    crate::servers::save(tx, server).await
}
