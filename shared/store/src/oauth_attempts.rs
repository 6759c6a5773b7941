//! Tries to connect by OAuth, from the click to the confirmation. A row is taken from one status to the
//! next by exactly one request.

use domain::{
    Timestamp,
    ids::{OauthAttemptId, ServerId, TenantId, UserId},
    json::Sha256Digest,
    limits,
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

/// Until commit nobody else begins or ends several tries of this person: neither do two starts at the
/// same moment leave one too many, nor do two that end several wait for each other. After server and
/// connection, before any try.
pub async fn hold_person(tx: &mut Tx, user: UserId) -> Result<(), StoreError> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended('oauth_attempts/' || $1 || $2, 0)) AS locked",
        tx.tenant().to_string(),
        user.to_string(),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(())
}

/// Ends the oldest tries of a held person, so that at most `most` are left.
pub async fn void_oldest(tx: &mut Tx, user: UserId, most: u64) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_oauth_attempts SET status = 'void', sealed = NULL, key_id = NULL
         WHERE tenant_id = $1 AND attempt_id IN (
             SELECT attempt_id FROM mcp_oauth_attempts
             WHERE tenant_id = $1 AND status <> 'void' AND attempt_id IN (
                 SELECT attempt_id FROM mcp_oauth_attempts
                 WHERE tenant_id = $1 AND user_id = $2 AND status <> 'void'
                 ORDER BY created_at DESC, attempt_id DESC OFFSET $3)
             ORDER BY attempt_id FOR UPDATE)",
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
    hold_person(tx, user).await?;
    forget_of_held(tx, server, user).await
}

/// Tries before registrations, each in one order: so does the sweep.
async fn forget_of_held(tx: &mut Tx, server: &ServerId, user: UserId) -> Result<(), StoreError> {
    let unanswered = sqlx::query!(
        "SELECT issuer, callback FROM mcp_oauth_attempts
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND status = 'started'
         ORDER BY attempt_id FOR UPDATE",
        tx.tenant().0,
        server.as_str(),
        user.0,
    )
    .fetch_all(tx.conn())
    .await?;
    let (issuers, callbacks): (Vec<String>, Vec<String>) =
        unanswered.into_iter().map(|row| (row.issuer, row.callback)).unzip();
    sqlx::query!(
        "DELETE FROM mcp_oauth_clients WHERE tenant_id = $1 AND (issuer, redirect_uri) IN (
             SELECT c.issuer, c.redirect_uri FROM mcp_oauth_clients c
             JOIN unnest($2::text[], $3::text[]) AS gone (issuer, callback)
                 ON c.issuer = gone.issuer AND c.redirect_uri = gone.callback
             WHERE c.tenant_id = $1 ORDER BY c.issuer, c.redirect_uri FOR UPDATE OF c)",
        tx.tenant().0,
        &issuers,
        &callbacks,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Ends all tries of a person to connect to a server. How many there were.
pub async fn void_own(tx: &mut Tx, server: &ServerId, user: UserId) -> Result<u64, StoreError> {
    hold_person(tx, user).await?;
    let done = sqlx::query!(
        "SELECT attempt_id FROM mcp_oauth_attempts
         WHERE tenant_id = $1 AND server_id = $2 AND user_id = $3 AND status <> 'void'
         ORDER BY attempt_id FOR UPDATE",
        tx.tenant().0,
        server.as_str(),
        user.0,
    )
    .fetch_all(tx.conn())
    .await?;
    forget_of_held(tx, server, user).await?;
    let ids: Vec<uuid::Uuid> = done.into_iter().map(|row| row.attempt_id).collect();
    let done = sqlx::query!(
        "UPDATE mcp_oauth_attempts SET status = 'void', sealed = NULL, key_id = NULL
         WHERE tenant_id = $1 AND attempt_id = ANY($2)",
        tx.tenant().0,
        &ids,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// Ends everybody's, of a locked server.
pub async fn void_all(tx: &mut Tx, server: &ServerId) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE mcp_oauth_attempts SET status = 'void', sealed = NULL, key_id = NULL
         WHERE tenant_id = $1 AND attempt_id IN (
             SELECT attempt_id FROM mcp_oauth_attempts
             WHERE tenant_id = $1 AND server_id = $2 AND status <> 'void'
             ORDER BY attempt_id FOR UPDATE)",
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
/// registration of each that never came back. Takes no other lock, in that order.
pub async fn sweep(tx: &mut Tx, now: Timestamp, most: i64) -> Result<u64, StoreError> {
    let grace = limits::OAUTH_EXCHANGE_GRACE_SECONDS.seconds();
    let gone = sqlx::query_scalar!(
        "WITH gone AS (
             DELETE FROM mcp_oauth_attempts WHERE tenant_id = $1 AND attempt_id IN (
                 SELECT attempt_id FROM mcp_oauth_attempts
                 WHERE tenant_id = $1 AND expires_at <= $2
                   -- One whose code is being exchanged is somebody's work yet.
                   AND (status <> 'claimed' OR expires_at <= $4)
                 ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED)
             RETURNING issuer, callback, status),
         forgotten AS (
             DELETE FROM mcp_oauth_clients WHERE tenant_id = $1 AND (issuer, redirect_uri) IN (
                 SELECT c.issuer, c.redirect_uri FROM mcp_oauth_clients c
                 JOIN gone ON c.issuer = gone.issuer AND c.redirect_uri = gone.callback
                 WHERE c.tenant_id = $1 AND gone.status = 'started'
                 ORDER BY c.issuer, c.redirect_uri FOR UPDATE OF c))
         SELECT count(*) AS \"count!\" FROM gone",
        tx.tenant().0,
        now,
        most,
        now - grace,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(u64::try_from(gone).unwrap_or_default())
}
