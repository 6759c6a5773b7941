//! Who would sign in, and whether they may try: both before any tenant is known.

use std::time::Duration;

use domain::{
    Timestamp,
    ids::{TenantId, UserId},
    json::Sha256Digest,
    limits,
    user::UserStatus,
};

use crate::{CorruptRow, Db, StoreError, Tx, nodes::millis};

/// What a password is tried against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub tenant: TenantId,
    pub user: UserId,
    pub status: UserStatus,
    /// PHC string; `None`: no local sign-in.
    pub password_hash: Option<String>,
}

/// The account of that address in the tenant of that slug. One round trip, also where there is none.
pub async fn account(db: &Db, tenant: &str, email: &str) -> Result<Option<Account>, StoreError> {
    let row = sqlx::query!(
        r#"SELECT tenant_id AS "tenant_id!", user_id AS "user_id!", status AS "status!", password_hash
           FROM person_by_sign_in($1, $2)"#,
        tenant,
        email,
    )
    .fetch_optional(db.pool())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let status = row.status.parse();
    Ok(Some(Account {
        tenant: TenantId(row.tenant_id),
        user: UserId(row.user_id),
        status: status.map_err(|_| CorruptRow::new("users", row.user_id, "unknown status"))?,
        password_hash: row.password_hash,
    }))
}

/// The person's password hash where they are active, until commit nobody else's to change.
pub async fn lock_password(tx: &mut Tx, user: UserId) -> Result<Option<String>, StoreError> {
    let hash = sqlx::query_scalar!(
        "SELECT password_hash FROM users
         WHERE tenant_id = $1 AND user_id = $2 AND status = 'active' FOR NO KEY UPDATE",
        tx.tenant().0,
        user.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(hash.flatten())
}

/// Replaces the password; `hash` is a PHC string.
pub async fn save_password(tx: &mut Tx, user: UserId, hash: &str) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE users SET password_hash = $3 WHERE tenant_id = $1 AND user_id = $2",
        tx.tenant().0,
        user.0,
        hash,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// What attempts are counted on.
#[derive(Debug, Clone, Copy)]
pub struct Subjects {
    /// Tenant and address, whether or not there is such an account.
    pub account: Sha256Digest,
    /// Both together.
    pub known: Sha256Digest,
    pub network: Sha256Digest,
}

/// Takes a turn to try a password, counted as in vain until [`settle`]. `Some`: no turn before then.
pub async fn take_turn(
    db: &Db,
    subjects: &Subjects,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let wait_until = sqlx::query_scalar!(
        "SELECT take_sign_in_turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        subjects.account.as_bytes(),
        subjects.known.as_bytes(),
        subjects.network.as_bytes(),
        now,
        millis(limits::SIGN_IN_FORGET_SECONDS.seconds()),
        millis(limits::SIGN_IN_FIRST_WAIT_MS.millis()),
        i32::try_from(limits::SIGN_IN_FREE_TRIES.default).unwrap_or(i32::MAX),
        millis(limits::SIGN_IN_MOST_WAIT_MS.millis()),
        i32::try_from(limits::SIGN_IN_NETWORK_FREE_TRIES.default).unwrap_or(i32::MAX),
        millis(limits::SIGN_IN_NETWORK_MOST_WAIT_MS.millis()),
    )
    .fetch_one(db.pool())
    .await?;
    Ok(wait_until)
}

/// The turn was not in vain; the network is known from now on.
pub async fn settle(db: &Db, subjects: &Subjects, now: Timestamp) -> Result<(), StoreError> {
    let known = Duration::from_hours(24 * limits::SIGN_IN_KNOWN_DAYS.default);
    sqlx::query!(
        "SELECT settle_sign_in($1, $2, $3, $4, $5)",
        subjects.account.as_bytes(),
        subjects.known.as_bytes(),
        subjects.network.as_bytes(),
        now,
        millis(known),
    )
    .execute(db.pool())
    .await?;
    Ok(())
}

/// Deletes at most so many counts that say nothing any more; those in use stay for the next time.
pub async fn forget(db: &Db, now: Timestamp, most: u32) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "DELETE FROM sign_in_throttles WHERE subject = ANY(ARRAY(
             SELECT subject FROM sign_in_throttles WHERE expires_at < $1
             ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
        now,
        i64::from(most),
    )
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected())
}
