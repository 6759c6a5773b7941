//! Tries to connect by OAuth, from the click to the confirmation. A row is taken from one status to the
//! next by exactly one request.

use domain::{
    Timestamp,
    ids::{OauthAttemptId, ServerId, TenantId, UserId},
    json::Sha256Digest,
};

use crate::{Db, StoreError, Tx, vault::Sealed};

/// One that begins.
#[derive(Debug)]
pub struct NewAttempt<'a> {
    pub id: OauthAttemptId,
    pub server: &'a ServerId,
    pub user: UserId,
    pub state: Sha256Digest,
    pub browser: Sha256Digest,
    pub config_revision: i64,
    pub generation: i64,
    pub issuer: &'a str,
    pub callback: &'a str,
    pub sealed: &'a Sealed,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// One that a callback or a confirmation took up; nobody else will.
#[derive(Debug)]
pub struct Attempt {
    pub id: OauthAttemptId,
    pub server: ServerId,
    pub user: UserId,
    pub config_revision: i64,
    pub generation: i64,
    pub sealed: Sealed,
}

struct Row {
    attempt_id: uuid::Uuid,
    server_id: String,
    user_id: uuid::Uuid,
    config_revision: i64,
    generation: i64,
    sealed: Option<String>,
    key_id: Option<String>,
}

impl Row {
    fn read(self) -> Option<Attempt> {
        Some(Attempt {
            id: OauthAttemptId(self.attempt_id),
            server: ServerId(self.server_id),
            user: UserId(self.user_id),
            config_revision: self.config_revision,
            generation: self.generation,
            sealed: Sealed { token: self.sealed?, key_id: self.key_id? },
        })
    }
}

pub async fn insert(tx: &mut Tx, new: &NewAttempt<'_>) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO mcp_oauth_attempts (tenant_id, attempt_id, server_id, user_id, state_digest,
             browser_digest, config_revision, generation, issuer, callback, status, sealed, key_id,
             created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'started', $11, $12, $13, $14)",
        tx.tenant().0,
        new.id.0,
        new.server.as_str(),
        new.user.0,
        new.state.as_bytes(),
        new.browser.as_bytes(),
        new.config_revision,
        new.generation,
        new.issuer,
        new.callback,
        new.sealed.token,
        new.sealed.key_id,
        new.created_at,
        new.expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Ends the person's oldest tries, so that at most `most` are left.
pub async fn void_oldest(tx: &mut Tx, user: UserId, most: u64) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_oauth_attempts SET status = 'void', sealed = NULL, key_id = NULL
         WHERE tenant_id = $1 AND attempt_id IN (
             SELECT attempt_id FROM mcp_oauth_attempts
             WHERE tenant_id = $1 AND user_id = $2 AND status <> 'void'
             ORDER BY created_at DESC, attempt_id DESC OFFSET $3 FOR UPDATE)",
        tx.tenant().0,
        user.0,
        i64::try_from(most).unwrap_or(i64::MAX),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Forgets our registrations that tries of the person went with and never came back: the provider may
/// have forgotten them, and then it never sends anybody back.
pub async fn forget_unanswered(
    tx: &mut Tx,
    server: &ServerId,
    user: UserId,
) -> Result<(), StoreError> {
    sqlx::query!(
        "DELETE FROM mcp_oauth_clients c USING mcp_oauth_attempts a
         WHERE c.tenant_id = $1 AND a.tenant_id = $1 AND a.server_id = $2 AND a.user_id = $3
           AND a.status = 'started' AND c.issuer = a.issuer AND c.redirect_uri = a.callback",
        tx.tenant().0,
        server.as_str(),
        user.0,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Ends all tries of a person to connect to a server. How many there were.
pub async fn void_own(tx: &mut Tx, server: &ServerId, user: UserId) -> Result<u64, StoreError> {
    forget_unanswered(tx, server, user).await?;
    let done = sqlx::query!(
        "UPDATE mcp_oauth_attempts SET status = 'void', sealed = NULL, key_id = NULL
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND status <> 'void'",
        tx.tenant().0,
        server.as_str(),
        user.0,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// Ends everybody's.
pub async fn void_all(tx: &mut Tx, server: &ServerId) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_oauth_attempts SET status = 'void', sealed = NULL, key_id = NULL
         WHERE tenant_id = $1 AND server_id = $2 AND status <> 'void'",
        tx.tenant().0,
        server.as_str(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Where the person has tries that have not ended, and until when.
pub async fn pending_of(
    tx: &mut Tx,
    user: UserId,
    now: Timestamp,
) -> Result<Vec<(ServerId, Timestamp)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT server_id, max(expires_at) AS "expires_at!" FROM mcp_oauth_attempts
           WHERE tenant_id = $1 AND user_id = $2 AND status <> 'void' AND expires_at > $3
           GROUP BY server_id"#,
        tx.tenant().0,
        user.0,
        now,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| (ServerId(row.server_id), row.expires_at)).collect())
}

/// Whose the try with this `state` is. Found before its tenant is known.
pub async fn of_state(
    db: &Db,
    state: Sha256Digest,
) -> Result<Option<(TenantId, OauthAttemptId)>, StoreError> {
    let row = sqlx::query!(
        r#"SELECT tenant_id AS "tenant_id!", attempt_id AS "attempt_id!" FROM find_oauth_attempt($1)"#,
        state.as_bytes(),
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(|row| (TenantId(row.tenant_id), OauthAttemptId(row.attempt_id))))
}

/// A callback takes the try up, once: from the browser that began, in time, for the server of its path.
pub async fn claim(
    tx: &mut Tx,
    id: OauthAttemptId,
    server: &str,
    browser: Sha256Digest,
    now: Timestamp,
) -> Result<Option<Attempt>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "UPDATE mcp_oauth_attempts SET status = 'claimed'
         WHERE tenant_id = $1 AND attempt_id = $2 AND server_id = $3 AND browser_digest = $4
           AND status = 'started' AND expires_at > $5
         RETURNING attempt_id, server_id, user_id, config_revision, generation, sealed, key_id",
        tx.tenant().0,
        id.0,
        server,
        browser.as_bytes(),
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.and_then(Row::read))
}

/// The credential is there, to be confirmed until `expires_at`. False: the try was ended meanwhile.
pub async fn finish(
    tx: &mut Tx,
    id: OauthAttemptId,
    sealed: &Sealed,
    result: Sha256Digest,
    expires_at: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE mcp_oauth_attempts
         SET status = 'finished', sealed = $3, key_id = $4, result_digest = $5, expires_at = $6
         WHERE tenant_id = $1 AND attempt_id = $2 AND status = 'claimed'",
        tx.tenant().0,
        id.0,
        sealed.token,
        sealed.key_id,
        result.as_bytes(),
        expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends one.
pub async fn void(tx: &mut Tx, id: OauthAttemptId) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_oauth_attempts SET status = 'void', sealed = NULL, key_id = NULL
         WHERE tenant_id = $1 AND attempt_id = $2",
        tx.tenant().0,
        id.0,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Spends a result, whoever brings it: nobody can bring it again. After server and connection, which it
/// does not hold.
pub async fn spend(
    tx: &mut Tx,
    server: &ServerId,
    result: Sha256Digest,
    now: Timestamp,
) -> Result<Option<Attempt>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"WITH found AS (
               SELECT * FROM mcp_oauth_attempts
               WHERE tenant_id = $1 AND server_id = $2 AND result_digest = $3 AND status = 'finished'
               FOR UPDATE),
           spent AS (
               UPDATE mcp_oauth_attempts a SET status = 'void', sealed = NULL, key_id = NULL FROM found f
               WHERE a.tenant_id = $1 AND a.attempt_id = f.attempt_id)
           SELECT attempt_id, server_id, user_id, config_revision, generation, sealed, key_id
           FROM found WHERE expires_at > $4"#,
        tx.tenant().0,
        server.as_str(),
        result.as_bytes(),
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.and_then(Row::read))
}

/// Tenants with tries whose time is over.
pub async fn due(db: &Db, now: Timestamp, most: i32) -> Result<Vec<TenantId>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"SELECT tenant_id AS "tenant_id!" FROM due_oauth_attempts($1, $2)"#,
        now,
        most,
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(TenantId).collect())
}

/// Deletes tries whose time is over, but for those that somebody works on at this moment; and our
/// registration of each that never came back. Takes no other lock.
pub async fn sweep(tx: &mut Tx, now: Timestamp, most: i64) -> Result<u64, StoreError> {
    let gone = sqlx::query_scalar!(
        "WITH gone AS (
             DELETE FROM mcp_oauth_attempts WHERE tenant_id = $1 AND attempt_id IN (
                 SELECT attempt_id FROM mcp_oauth_attempts
                 WHERE tenant_id = $1 AND expires_at <= $2
                   -- One whose code is being exchanged is somebody's work yet.
                   AND (status <> 'claimed' OR expires_at <= $2 - interval '2 minutes')
                 ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED)
             RETURNING issuer, callback, status),
         forgotten AS (
             DELETE FROM mcp_oauth_clients c USING gone
             WHERE c.tenant_id = $1 AND gone.status = 'started'
               AND c.issuer = gone.issuer AND c.redirect_uri = gone.callback)
         SELECT count(*) AS \"count!\" FROM gone",
        tx.tenant().0,
        now,
        most,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(u64::try_from(gone).unwrap_or_default())
}
