//! Standing permissions of a session.

use domain::{
    Timestamp,
    ids::{PermissionGrantId, SessionId, UserId},
    json::Sha256Digest,
    permission::Matching,
};
use uuid::Uuid;

use crate::{CorruptRow, StoreError, Tx, sessions::uuids};

/// A permission for an action on a class of resources, until it is revoked or the tool changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub id: PermissionGrantId,
    pub session: SessionId,
    pub matches: Matching,
    pub created_at: Timestamp,
    /// `None`: active.
    pub revoked_at: Option<Timestamp>,
}

struct Row {
    permission_grant_id: Uuid,
    session_id: Uuid,
    action: String,
    resource_class: String,
    definition_hash: Option<Vec<u8>>,
    created_at: Timestamp,
    revoked_at: Option<Timestamp>,
}

impl TryFrom<Row> for Grant {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        let hash = row.definition_hash.as_deref().map(Sha256Digest::try_from).transpose();
        let definition_hash = hash.map_err(|_| {
            CorruptRow::new("permission_grants", row.permission_grant_id, "hash is no SHA-256")
        })?;
        Ok(Self {
            id: PermissionGrantId(row.permission_grant_id),
            session: SessionId(row.session_id),
            matches: Matching {
                action: row.action,
                resource_class: row.resource_class,
                definition_hash,
            },
            created_at: row.created_at,
            revoked_at: row.revoked_at,
        })
    }
}

macro_rules! select {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT g.permission_grant_id, g.session_id, g.action, g.resource_class,
                    g.definition_hash, g.created_at, g.revoked_at
             FROM permission_grants g " + $rest,
            $($argument),*
        )
    };
}

pub async fn insert(tx: &mut Tx, grant: &Grant) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO permission_grants (tenant_id, permission_grant_id, session_id, action,
                                        resource_class, definition_hash, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        tx.tenant().0,
        grant.id.0,
        grant.session.0,
        grant.matches.action,
        grant.matches.resource_class,
        grant.matches.definition_hash.as_ref().map(Sha256Digest::as_bytes),
        grant.created_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

pub async fn find(tx: &mut Tx, id: PermissionGrantId) -> Result<Option<Grant>, StoreError> {
    let row =
        select!("WHERE g.tenant_id = $1 AND g.permission_grant_id = $2", tx.tenant().0, id.0,)
            .fetch_optional(tx.conn())
            .await?;
    Ok(row.map(Grant::try_from).transpose()?)
}

/// The active grant of the session that covers this.
pub async fn covering(
    tx: &mut Tx,
    session: SessionId,
    matches: &Matching,
) -> Result<Option<PermissionGrantId>, StoreError> {
    let id = sqlx::query_scalar!(
        "SELECT permission_grant_id FROM permission_grants
         WHERE tenant_id = $1 AND session_id = $2 AND action = $3 AND resource_class = $4
           AND definition_hash IS NOT DISTINCT FROM $5 AND state = 'active'
         ORDER BY permission_grant_id LIMIT 1",
        tx.tenant().0,
        session.0,
        matches.action,
        matches.resource_class,
        matches.definition_hash.as_ref().map(Sha256Digest::as_bytes),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(id.map(PermissionGrantId))
}

/// False: it was revoked before.
pub async fn revoke(
    tx: &mut Tx,
    id: PermissionGrantId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "UPDATE permission_grants SET state = 'revoked', revoked_at = $3
         WHERE tenant_id = $1 AND permission_grant_id = $2 AND state = 'active'",
        tx.tenant().0,
        id.0,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The grants in one person's sessions (`only` (if any) of them), newest first, those before `after`.
pub async fn list(
    tx: &mut Tx,
    owner: UserId,
    only: Option<&[SessionId]>,
    after: Option<PermissionGrantId>,
    rows: i64,
) -> Result<Vec<Grant>, StoreError> {
    let only = uuids(only);
    let rows = select!(
        "JOIN sessions s ON s.tenant_id = g.tenant_id AND s.session_id = g.session_id
         WHERE g.tenant_id = $1 AND s.owner_user_id = $2
           AND ($3::uuid IS NULL OR g.permission_grant_id < $3)
           AND ($4::uuid[] IS NULL OR g.session_id = ANY($4))
         ORDER BY g.permission_grant_id DESC LIMIT $5",
        tx.tenant().0,
        owner.0,
        after.map(|id| id.0),
        only.as_deref(),
        rows,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(|row| Ok(row.try_into()?)).collect()
}
