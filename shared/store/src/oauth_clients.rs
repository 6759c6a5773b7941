//! What we are registered as at authorization servers: per tenant, issuer and redirect URI.

use domain::Timestamp;

use crate::{StoreError, Tx, vault::Sealed};

/// The registration, unless its secret's time is over.
pub async fn find(
    tx: &mut Tx,
    issuer: &str,
    redirect_uri: &str,
    now: Timestamp,
) -> Result<Option<Sealed>, StoreError> {
    let row = sqlx::query!(
        "SELECT sealed, key_id FROM mcp_oauth_clients
         WHERE tenant_id = $1 AND issuer = $2 AND redirect_uri = $3
           AND (expires_at IS NULL OR expires_at > $4)",
        tx.tenant().0,
        issuer,
        redirect_uri,
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Sealed { token: row.sealed, key_id: row.key_id }))
}

/// Keeps a registration, in the place of the one before.
pub async fn put(
    tx: &mut Tx,
    issuer: &str,
    redirect_uri: &str,
    sealed: &Sealed,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO mcp_oauth_clients (tenant_id, issuer, redirect_uri, sealed, key_id, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (tenant_id, issuer, redirect_uri) DO UPDATE
         SET sealed = EXCLUDED.sealed, key_id = EXCLUDED.key_id, created_at = EXCLUDED.created_at,
             expires_at = EXCLUDED.expires_at",
        tx.tenant().0,
        issuer,
        redirect_uri,
        sealed.token,
        sealed.key_id,
        now,
        expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Forgets it: the authorization server does not know it any more.
pub async fn delete(tx: &mut Tx, issuer: &str, redirect_uri: &str) -> Result<(), StoreError> {
    sqlx::query!(
        "DELETE FROM mcp_oauth_clients WHERE tenant_id = $1 AND issuer = $2 AND redirect_uri = $3",
        tx.tenant().0,
        issuer,
        redirect_uri,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
