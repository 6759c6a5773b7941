//! A credential that is in use: refreshed by one at a time, refused, used.

use std::time::Duration;

use domain::{Timestamp, connection::ReconnectReason};
use uuid::Uuid;

use super::CredentialName;
use crate::{StoreError, Tx, nodes::millis, vault::Sealed};

/// Takes the lease to refresh exactly this state of a credential, for `holder`, by the database's
/// clock. False: somebody else has it, or the credential is another one by now.
pub async fn lease(
    tx: &mut Tx,
    name: &CredentialName,
    holder: Uuid,
    lease: Duration,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE mcp_connections
         SET refresh_by = $6, refresh_until = clock_timestamp() + $7::bigint * interval '1 millisecond'
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND generation = $4 AND version = $5
           AND state = 'connected' AND (refresh_until IS NULL OR refresh_until <= clock_timestamp())",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        name.generation,
        name.version,
        holder,
        millis(lease),
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Gives the lease back, if it is still the holder's.
pub async fn release(tx: &mut Tx, name: &CredentialName, holder: Uuid) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_connections SET refresh_by = NULL, refresh_until = NULL
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND refresh_by = $4",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        holder,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// What a refresh brought.
#[derive(Debug)]
pub struct Refreshed<'a> {
    pub sealed: &'a Sealed,
    /// `None`: as they were.
    pub scopes: Option<&'a [String]>,
    pub expires_at: Option<Timestamp>,
    pub refresh_at: Option<Timestamp>,
    pub at: Timestamp,
}

/// Saves refreshed tokens, guarded by the generation alone: whatever else changed meanwhile, the old
/// ones are worth nothing any more. False: the connection was cleared or made anew.
pub async fn save_refreshed(
    tx: &mut Tx,
    name: &CredentialName,
    new: &Refreshed<'_>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE mcp_connections
         SET version = version + 1, sealed = $5, key_id = $6, scopes = coalesce($7, scopes), expires_at = $8,
             refresh_at = $9, updated_at = $10, refresh_by = NULL, refresh_until = NULL
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND generation = $4
           AND state = 'connected'",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        name.generation,
        new.sealed.token,
        new.sealed.key_id,
        new.scopes,
        new.expires_at,
        new.refresh_at,
        new.at,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes a credential out that is still exactly the named one; its generation grows. False: it is
/// another one by now.
pub async fn clear_exactly(
    tx: &mut Tx,
    name: &CredentialName,
    reason: ReconnectReason,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE mcp_connections
         SET generation = generation + 1, state = 'reconnect_required', reason = $6, sealed = NULL,
             key_id = NULL, expires_at = NULL, refresh_at = NULL, refresh_by = NULL,
             refresh_until = NULL, updated_at = $7
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND generation = $4 AND version = $5
           AND state = 'connected'",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        name.generation,
        name.version,
        reason.as_str(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The server asked for more than was granted; the credential stays. Guarded by the generation.
pub async fn need_scopes(
    tx: &mut Tx,
    name: &CredentialName,
    scopes: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_connections
         SET needs_scopes = ARRAY(SELECT DISTINCT unnest(needs_scopes || $5::text[])), updated_at = $6
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND generation = $4",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        name.generation,
        scopes,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Notes that a credential was used.
pub async fn touch(tx: &mut Tx, name: &CredentialName, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_connections SET last_used_at = $5
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND generation = $4",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        name.generation,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
