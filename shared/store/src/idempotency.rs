//! What clients asked to be done once, and the answers that they get again; and where the transaction
//! of such a request waits for its answer.

use std::sync::{Arc, Mutex, PoisonError};

use domain::{
    Timestamp,
    ids::{TenantId, UserId},
    json::Sha256Digest,
};
use uuid::Uuid;

use crate::{CorruptRow, Db, StoreError, Tx};

const TABLE: &str = "idempotency_keys";

/// Where the transaction of a request waits, its changes made and not committed, until the answer about
/// them can be kept with them. It holds one.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<Mutex<Option<Tx>>>);

impl Held {
    /// The transaction that waits; its `commit` is real.
    #[must_use]
    pub fn take(&self) -> Option<Tx> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    #[must_use]
    pub fn is_some(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Gives the transaction back where one waits already.
    pub(crate) fn keep(&self, tx: Tx) -> Option<Tx> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_some() {
            return Some(tx);
        }
        *place = Some(tx);
        None
    }
}

/// Whether the transaction wrote or locked something.
pub(crate) async fn has_changed(tx: &mut Tx) -> Result<bool, StoreError> {
    let changed =
        sqlx::query_scalar!(r#"SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS "changed!""#);
    Ok(changed.fetch_one(tx.conn()).await?)
}

/// A request that carries a key.
#[derive(Debug, Clone)]
pub struct Keyed {
    /// Token or web session.
    pub caller: Uuid,
    pub user: UserId,
    pub key: Sha256Digest,
    pub method: String,
    /// With its query.
    pub path: String,
    pub body: Sha256Digest,
}

impl Keyed {
    /// Whether the stored request with this key asked for the same.
    #[must_use]
    pub fn is(&self, stored: &Stored) -> bool {
        (&self.method, &self.path, self.body) == (&stored.method, &stored.path, stored.body)
    }
}

/// How far a request came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Nothing is changed yet.
    Running,
    /// Something is changed, and the answer is not known.
    Changed,
    /// `None`: its answer is not kept.
    Done(Option<Answer>),
}

/// An answer as it is given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
}

/// What is known of a key.
#[derive(Debug, Clone)]
pub struct Stored {
    pub claim: Claim,
    pub method: String,
    pub path: String,
    pub body: Sha256Digest,
    pub state: State,
    /// `None`: the request runs no longer.
    pub claimed_until: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// The right to answer for a key, until somebody has a later epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub id: Uuid,
    pub epoch: i64,
}

/// Claims a key. False: it is known already.
pub async fn insert(
    tx: &mut Tx,
    id: Uuid,
    request: &Keyed,
    now: Timestamp,
    until: Timestamp,
) -> Result<bool, StoreError> {
    let tenant = tx.tenant().0;
    let done = sqlx::query!(
        "INSERT INTO idempotency_keys (tenant_id, idempotency_key_id, caller_id, user_id, key_digest,
                                       body_digest, method, path, claimed_until, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT ON CONSTRAINT idempotency_keys_key DO NOTHING",
        tenant,
        id,
        request.caller,
        request.user.0,
        request.key.as_bytes(),
        request.body.as_bytes(),
        request.method,
        request.path,
        until,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What is known of the request's key.
pub async fn find(tx: &mut Tx, request: &Keyed) -> Result<Option<Stored>, StoreError> {
    let tenant = tx.tenant().0;
    let row = sqlx::query!(
        "SELECT idempotency_key_id, epoch, method, path, body_digest, state, claimed_until,
                answer_status, answer_type, answer_body, created_at
         FROM idempotency_keys WHERE tenant_id = $1 AND caller_id = $2 AND key_digest = $3",
        tenant,
        request.caller,
        request.key.as_bytes(),
    )
    .fetch_optional(tx.conn())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let corrupt = |problem| CorruptRow::new(TABLE, row.idempotency_key_id, problem);
    let answer = match (row.answer_status, row.answer_body) {
        (Some(status), Some(body)) => Some(Answer {
            status: u16::try_from(status).map_err(|_| corrupt("no HTTP status"))?,
            content_type: row.answer_type,
            body,
        }),
        _ => None,
    };
    Ok(Some(Stored {
        claim: Claim { id: row.idempotency_key_id, epoch: row.epoch },
        state: match row.state.as_str() {
            "running" => State::Running,
            "changed" => State::Changed,
            "done" => State::Done(answer),
            _ => return Err(corrupt("unknown state").into()),
        },
        method: row.method,
        path: row.path,
        body: Sha256Digest::try_from(row.body_digest.as_slice())
            .map_err(|_| corrupt("body_digest is no SHA-256"))?,
        claimed_until: row.claimed_until,
        created_at: row.created_at,
    }))
}

/// Claims a key whose request ended without a change; `None`: somebody was faster.
pub async fn take_over(
    tx: &mut Tx,
    left: Claim,
    until: Timestamp,
) -> Result<Option<Claim>, StoreError> {
    let tenant = tx.tenant().0;
    let epoch = sqlx::query_scalar!(
        "UPDATE idempotency_keys SET epoch = epoch + 1, claimed_until = $4
         WHERE tenant_id = $1 AND idempotency_key_id = $2 AND epoch = $3 AND state = 'running'
         RETURNING epoch",
        tenant,
        left.id,
        left.epoch,
        until,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(epoch.map(|epoch| Claim { id: left.id, epoch }))
}

/// Prolongs the claim of a request that still runs.
pub async fn renew(tx: &mut Tx, claim: Claim, until: Timestamp) -> Result<(), StoreError> {
    let tenant = tx.tenant().0;
    sqlx::query!(
        "UPDATE idempotency_keys SET claimed_until = $4
         WHERE tenant_id = $1 AND idempotency_key_id = $2 AND epoch = $3 AND state <> 'done'",
        tenant,
        claim.id,
        claim.epoch,
        until,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// In the transaction of a change that is committed before its request is answered. False: the claim
/// is lost, and nothing may be committed.
pub async fn mark_changed(tx: &mut Tx, claim: Claim) -> Result<bool, StoreError> {
    let tenant = tx.tenant().0;
    let done = sqlx::query!(
        "UPDATE idempotency_keys SET state = 'changed'
         WHERE tenant_id = $1 AND idempotency_key_id = $2 AND epoch = $3 AND state <> 'done'",
        tenant,
        claim.id,
        claim.epoch,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// In the transaction of the change. False: the claim is lost, and nothing may be committed.
pub async fn complete(
    tx: &mut Tx,
    claim: Claim,
    answer: Option<&Answer>,
) -> Result<bool, StoreError> {
    let tenant = tx.tenant().0;
    let done = sqlx::query!(
        "UPDATE idempotency_keys SET state = 'done', claimed_until = NULL, answer_status = $4,
                                     answer_type = $5, answer_body = $6
         WHERE tenant_id = $1 AND idempotency_key_id = $2 AND epoch = $3 AND state <> 'done'",
        tenant,
        claim.id,
        claim.epoch,
        answer.map(|answer| i16::try_from(answer.status).unwrap_or(i16::MAX)),
        answer.and_then(|answer| answer.content_type.as_deref()),
        answer.map(|answer| answer.body.as_slice()),
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Gives the claim up: a key under which nothing was changed is forgotten, one under which something was
/// keeps saying so.
pub async fn release(tx: &mut Tx, claim: Claim) -> Result<(), StoreError> {
    let tenant = tx.tenant().0;
    sqlx::query!(
        "DELETE FROM idempotency_keys
         WHERE tenant_id = $1 AND idempotency_key_id = $2 AND epoch = $3 AND state = 'running'",
        tenant,
        claim.id,
        claim.epoch,
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "UPDATE idempotency_keys SET claimed_until = NULL
         WHERE tenant_id = $1 AND idempotency_key_id = $2 AND epoch = $3 AND state = 'changed'",
        tenant,
        claim.id,
        claim.epoch,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Keys of all tenants from before `before`, the oldest first, at most `limit`.
pub async fn due(
    db: &Db,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<(TenantId, Uuid)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT tenant_id AS "tenant!", idempotency_key_id AS "id!"
           FROM due_idempotency_keys($1, $2)"#,
        before,
        i32::try_from(limit).unwrap_or(i32::MAX),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(|row| (TenantId(row.tenant), row.id)).collect())
}

/// Forgets those of these keys that are from before `before`.
pub async fn forget(tx: &mut Tx, ids: &[Uuid], before: Timestamp) -> Result<u64, StoreError> {
    let tenant = tx.tenant().0;
    let done = sqlx::query!(
        "DELETE FROM idempotency_keys
         WHERE tenant_id = $1 AND idempotency_key_id = ANY($2) AND created_at < $3",
        tenant,
        ids,
        before,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}
