//! A credential that is in use: refreshed by one at a time, refused, used.

use std::time::Duration;

use domain::{Timestamp, connection::ReconnectReason, limits};
use uuid::Uuid;

use super::CredentialName;
use crate::{StoreError, Tx, nodes::millis, vault::Sealed};

/// How a try to lease a credential ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// It is the holder's; `failures` refreshes in a row brought nothing before.
    Ours { failures: u32 },
    /// Somebody else refreshes it.
    Others { failures: u32 },
    /// The last refresh brought nothing, and the next one has to wait this long.
    Paused(Duration),
    /// The credential is another one by now.
    Moved,
}

/// Takes the lease to refresh exactly this state of a credential, for `holder`, by the database's
/// clock.
pub async fn lease(
    tx: &mut Tx,
    name: &CredentialName,
    holder: Uuid,
    lease: Duration,
) -> Result<Lease, StoreError> {
    let taken = sqlx::query_scalar!(
        "UPDATE mcp_connections
         SET refresh_by = $6, refresh_until = clock_timestamp() + $7::bigint * interval '1 millisecond'
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND generation = $4 AND version = $5
           AND state = 'connected' AND (refresh_until IS NULL OR refresh_until <= clock_timestamp())
         RETURNING refresh_failures",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        name.generation,
        name.version,
        holder,
        millis(lease),
    )
    .fetch_optional(tx.conn())
    .await?;
    if let Some(failures) = taken {
        return Ok(Lease::Ours { failures: failures.unsigned_abs() });
    }
    let row = sqlx::query!(
        r#"SELECT refresh_failures, refresh_by IS NOT NULL AS "held!",
                  ceil(extract(epoch FROM refresh_until - clock_timestamp()) * 1000)::bigint AS left_ms
           FROM mcp_connections
           WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND generation = $4 AND version = $5
             AND state = 'connected'"#,
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        name.generation,
        name.version,
    )
    .fetch_optional(tx.conn())
    .await?;
    let Some(row) = row else { return Ok(Lease::Moved) };
    let left = u64::try_from(row.left_ms.unwrap_or_default()).unwrap_or_default();
    Ok(if row.held || left == 0 {
        Lease::Others { failures: row.refresh_failures.unsigned_abs() }
    } else {
        Lease::Paused(Duration::from_millis(left))
    })
}

/// Gives the lease back, if it is still the holder's: nothing was asked of anybody.
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

/// What a refresh that brought nothing leaves behind.
#[derive(Debug)]
pub struct Failed {
    /// Nobody refreshes it before.
    pub pause: Duration,
    /// The refresh token may have been spent: what is still good is used to its end first.
    pub spent: bool,
    pub at: Timestamp,
}

/// Gives the lease back after a refresh that brought nothing, if it is still the holder's.
pub async fn failed(
    tx: &mut Tx,
    name: &CredentialName,
    holder: Uuid,
    failed: &Failed,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_connections
         SET refresh_by = NULL, refresh_failures = refresh_failures + 1,
             refresh_until = clock_timestamp() + $5::bigint * interval '1 millisecond',
             refresh_at = CASE WHEN $6 THEN expires_at
                 ELSE least(expires_at, $7::timestamptz + $5::bigint * interval '1 millisecond') END
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND refresh_by = $4",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        holder,
        millis(failed.pause),
        failed.spent,
        failed.at,
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
             refresh_at = $9, updated_at = $10, refresh_by = NULL, refresh_until = NULL,
             refresh_failures = 0
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

/// The server asked for more than was granted; the credential stays. Guarded by the generation. What
/// is kept is bounded, whatever servers ask for.
pub async fn need_scopes(
    tx: &mut Tx,
    name: &CredentialName,
    scopes: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_connections
         SET needs_scopes = ARRAY(
                 SELECT asked.scope
                 FROM unnest(needs_scopes || $5::text[]) WITH ORDINALITY AS asked (scope, at)
                 GROUP BY asked.scope ORDER BY min(asked.at) LIMIT $7),
             updated_at = $6
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND generation = $4",
        tx.tenant().0,
        name.server.as_str(),
        name.user.0,
        name.generation,
        scopes,
        now,
        limits::OAUTH_SCOPES.default.cast_signed(),
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
