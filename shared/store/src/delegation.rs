//! `spent_delegation_tokens`: tokens for servers of ours that were used.

use domain::{Role, Timestamp, delegation::Claims};

use crate::{CorruptRow, Db, StoreError};

/// Whose request it is, as the person stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub email: String,
    pub role: Role,
    pub tenant_slug: String,
}

/// Spends a token whose signature and claims were checked. `None`: it was spent before, or its person
/// may no longer ask. One round trip.
pub async fn spend(db: &Db, claims: &Claims) -> Result<Option<Holder>, StoreError> {
    let subject = &claims.subject;
    let row = sqlx::query!(
        r#"SELECT email AS "email!", role AS "role!", tenant_slug AS "tenant_slug!"
           FROM spend_delegation_token($1, $2, $3, $4)"#,
        claims.jti,
        claims.expires_at(),
        subject.tenant.0,
        subject.user.0,
    )
    .fetch_optional(db.pool())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let role = row.role.parse();
    Ok(Some(Holder {
        email: row.email,
        role: role.map_err(|_| CorruptRow::new("users", subject.user, "unknown role"))?,
        tenant_slug: row.tenant_slug,
    }))
}

/// Forgets up to `rows` tokens that ended before; how many there were.
pub async fn forget(db: &Db, before: Timestamp, rows: i64) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "DELETE FROM spent_delegation_tokens WHERE jti IN (
             SELECT jti FROM spent_delegation_tokens WHERE expires_at < $1
             ORDER BY expires_at LIMIT $2)",
        before,
        rows,
    )
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected())
}
