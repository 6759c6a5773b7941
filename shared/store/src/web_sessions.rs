//! Browser sessions, and whose one is.

use std::time::Duration;

use domain::{
    Role, Timestamp,
    ids::{TenantId, UserId, WebSessionId},
    json::Sha256Digest,
};
use uuid::Uuid;

use crate::{CorruptRow, Db, StoreError, Tx, nodes::millis};

/// A session to be stored; its cookie's value is kept by the browser alone.
#[derive(Debug, Clone, Copy)]
pub struct NewWebSession {
    pub id: WebSessionId,
    pub user: UserId,
    pub digest: Sha256Digest,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// The active person of a usable session.
#[derive(Debug, Clone, Copy)]
pub struct SignedIn {
    pub tenant: TenantId,
    pub session: WebSessionId,
    pub user: UserId,
    pub role: Role,
}

/// Whose the session of this cookie is, unless it is unknown, revoked, at its end, idle for `idle` or
/// longer, or its person disabled. Notes the use, at most once in `touch`. One round trip; the tenant
/// is found by it.
pub async fn holder(
    db: &Db,
    digest: Sha256Digest,
    now: Timestamp,
    idle: Duration,
    touch: Duration,
) -> Result<Option<SignedIn>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT tenant_id AS "tenant_id!", web_session_id AS "web_session_id!", user_id AS "user_id!",
                  role AS "role!"
           FROM caller_by_web_session($1, $2, $3, $4)"#,
        digest.as_bytes(),
        now,
        millis(idle),
        millis(touch),
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(SignedIn::try_from).transpose()?)
}

/// The same by its id, for one that was seen before; no use of it.
pub async fn still_held(
    tx: &mut Tx,
    id: WebSessionId,
    now: Timestamp,
    idle: Duration,
) -> Result<Option<SignedIn>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT w.tenant_id, w.web_session_id, w.user_id, u.role
         FROM web_sessions w JOIN users u ON u.tenant_id = w.tenant_id AND u.user_id = w.user_id
         WHERE w.tenant_id = $1 AND w.web_session_id = $2 AND w.revoked_at IS NULL AND w.expires_at > $3
           AND w.last_used_at > $3 - $4::bigint * interval '1 millisecond' AND u.status = 'active'",
        tx.tenant().0,
        id.0,
        now,
        millis(idle),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(SignedIn::try_from).transpose()?)
}

pub async fn insert(tx: &mut Tx, new: &NewWebSession) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO web_sessions (tenant_id, web_session_id, user_id, digest, created_at, last_used_at,
                                   expires_at)
         VALUES ($1, $2, $3, $4, $5, $5, $6)",
        tx.tenant().0,
        new.id.0,
        new.user.0,
        new.digest.as_bytes(),
        new.created_at,
        new.expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Whether it was not revoked; until commit nobody can.
pub async fn hold(tx: &mut Tx, id: WebSessionId) -> Result<bool, StoreError> {
    let held = sqlx::query_scalar!(
        "SELECT web_session_id FROM web_sessions
         WHERE tenant_id = $1 AND web_session_id = $2 AND revoked_at IS NULL FOR SHARE",
        tx.tenant().0,
        id.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(held.is_some())
}

/// Ends one for ever. False: it was revoked already.
pub async fn revoke(tx: &mut Tx, id: WebSessionId, now: Timestamp) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE web_sessions SET revoked_at = $3
         WHERE tenant_id = $1 AND web_session_id = $2 AND revoked_at IS NULL",
        tx.tenant().0,
        id.0,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends all of a person's.
pub async fn revoke_all(tx: &mut Tx, user: UserId, now: Timestamp) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "UPDATE web_sessions SET revoked_at = $3
         WHERE tenant_id = $1 AND user_id = $2 AND revoked_at IS NULL",
        tx.tenant().0,
        user.0,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// Ends all of a person's but this one.
pub async fn revoke_others(
    tx: &mut Tx,
    user: UserId,
    kept: WebSessionId,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "UPDATE web_sessions SET revoked_at = $4
         WHERE tenant_id = $1 AND user_id = $2 AND web_session_id <> $3 AND revoked_at IS NULL",
        tx.tenant().0,
        user.0,
        kept.0,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// Sessions of all tenants whose end lies before `before`.
pub async fn due(
    db: &Db,
    before: Timestamp,
    most: u32,
) -> Result<Vec<(TenantId, WebSessionId)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT tenant_id AS "tenant_id!", web_session_id AS "web_session_id!"
           FROM due_web_sessions($1, $2)"#,
        before,
        i32::try_from(most).unwrap_or(i32::MAX),
    )
    .fetch_all(db.pool())
    .await?;
    let ids =
        rows.into_iter().map(|row| (TenantId(row.tenant_id), WebSessionId(row.web_session_id)));
    Ok(ids.collect())
}

pub async fn forget(tx: &mut Tx, ids: &[WebSessionId]) -> Result<u64, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let done = sqlx::query!(
        "DELETE FROM web_sessions WHERE tenant_id = $1 AND web_session_id = ANY($2)",
        tx.tenant().0,
        &ids,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

struct Row {
    tenant_id: Uuid,
    web_session_id: Uuid,
    user_id: Uuid,
    role: String,
}

impl TryFrom<Row> for SignedIn {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        let role = row.role.parse();
        Ok(Self {
            tenant: TenantId(row.tenant_id),
            session: WebSessionId(row.web_session_id),
            user: UserId(row.user_id),
            role: role.map_err(|_| CorruptRow::new("users", row.user_id, "unknown role"))?,
        })
    }
}
