//! Sessions: whose they are, what they may use, how they treat dangerous calls.

use domain::{
    Timestamp,
    ids::{PermissionEpochId, ProjectId, ServerId, SessionId, TokenId, UserId},
    permission::ApprovalMode,
};
use uuid::Uuid;

use crate::{CorruptRow, StoreError, Tx};

/// A conversation of one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub owner: UserId,
    pub project: Option<ProjectId>,
    pub title: String,
    pub mode: ApprovalMode,
    /// `None` inherits the project's, else the tenant's.
    pub enabled_source_ids: Option<Vec<ServerId>>,
    /// The present state of permissions.
    pub epoch: PermissionEpochId,
    /// For which calls it is the default session at the gateway.
    pub default_for: Option<DefaultFor>,
    pub created_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

/// Calls of one person at the gateway that name no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultFor {
    /// Those with this token.
    Token(TokenId),
    /// Those with tokens of the company's issuer, of which we keep none.
    Company,
}

impl DefaultFor {
    fn token(self) -> Option<Uuid> {
        match self {
            Self::Token(token) => Some(token.0),
            Self::Company => None,
        }
    }
}

struct Row {
    session_id: Uuid,
    owner_user_id: Uuid,
    project_id: Option<Uuid>,
    title: String,
    approval_mode: String,
    enabled_source_ids: Option<Vec<String>>,
    permission_epoch_id: Uuid,
    gateway_token_id: Option<Uuid>,
    company_default: bool,
    created_at: Timestamp,
    archived_at: Option<Timestamp>,
}

impl TryFrom<Row> for Session {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        let mode = ApprovalMode::parse(&row.approval_mode)
            .ok_or_else(|| CorruptRow::new("sessions", row.session_id, "unknown approval mode"))?;
        Ok(Self {
            id: SessionId(row.session_id),
            owner: UserId(row.owner_user_id),
            project: row.project_id.map(ProjectId),
            title: row.title,
            mode,
            enabled_source_ids: row.enabled_source_ids.map(server_ids),
            epoch: PermissionEpochId(row.permission_epoch_id),
            default_for: match row.gateway_token_id {
                Some(token) => Some(DefaultFor::Token(TokenId(token))),
                None => row.company_default.then_some(DefaultFor::Company),
            },
            created_at: row.created_at,
            archived_at: row.archived_at,
        })
    }
}

macro_rules! select {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT session_id, owner_user_id, project_id, title, approval_mode, enabled_source_ids,
                    permission_epoch_id, gateway_token_id, company_default, created_at, archived_at
             FROM sessions WHERE tenant_id = $1 AND " + $rest,
            $($argument),*
        )
    };
}

/// False: there is a living default session for the same calls already, and nothing was inserted.
pub async fn insert(tx: &mut Tx, session: &Session) -> Result<bool, StoreError> {
    let sources = texts(session.enabled_source_ids.as_deref());
    let done = sqlx::query!(
        "INSERT INTO sessions (tenant_id, session_id, owner_user_id, project_id, title, approval_mode,
                               enabled_source_ids, permission_epoch_id, gateway_token_id,
                               company_default, created_at, archived_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT DO NOTHING",
        tx.tenant().0,
        session.id.0,
        session.owner.0,
        session.project.map(|id| id.0),
        session.title,
        session.mode.as_str(),
        sources.as_deref(),
        session.epoch.0,
        session.default_for.and_then(DefaultFor::token),
        session.default_for == Some(DefaultFor::Company),
        session.created_at,
        session.archived_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn find(tx: &mut Tx, id: SessionId) -> Result<Option<Session>, StoreError> {
    let row = select!("session_id = $2", tx.tenant().0, id.0).fetch_optional(tx.conn()).await?;
    Ok(row.map(Session::try_from).transpose()?)
}

/// Until commit nobody else decides in it or changes it; the lock before those of its questions.
pub async fn lock(tx: &mut Tx, id: SessionId) -> Result<Option<Session>, StoreError> {
    let row = select!("session_id = $2 FOR NO KEY UPDATE", tx.tenant().0, id.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Session::try_from).transpose()?)
}

/// Until commit nobody decides in it; others may hold it so at the same time.
pub async fn hold(tx: &mut Tx, id: SessionId) -> Result<Option<Session>, StoreError> {
    let row =
        select!("session_id = $2 FOR SHARE", tx.tenant().0, id.0).fetch_optional(tx.conn()).await?;
    Ok(row.map(Session::try_from).transpose()?)
}

/// Writes what [`lock`] gave, changed.
pub async fn save(tx: &mut Tx, session: &Session) -> Result<(), StoreError> {
    let sources = texts(session.enabled_source_ids.as_deref());
    sqlx::query!(
        "UPDATE sessions
         SET project_id = $3, title = $4, approval_mode = $5, enabled_source_ids = $6,
             permission_epoch_id = $7, archived_at = $8
         WHERE tenant_id = $1 AND session_id = $2",
        tx.tenant().0,
        session.id.0,
        session.project.map(|id| id.0),
        session.title,
        session.mode.as_str(),
        sources.as_deref(),
        session.epoch.0,
        session.archived_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The sessions of one person, newest first, those before `after`; `only` (if any) of them.
pub async fn list(
    tx: &mut Tx,
    owner: UserId,
    only: Option<&[SessionId]>,
    after: Option<SessionId>,
    rows: i64,
) -> Result<Vec<Session>, StoreError> {
    let only = uuids(only);
    let rows = select!(
        "owner_user_id = $2 AND ($3::uuid IS NULL OR session_id < $3)
           AND ($4::uuid[] IS NULL OR session_id = ANY($4))
         ORDER BY session_id DESC LIMIT $5",
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

/// The living default session of a person's calls at the gateway.
pub async fn default_of(
    tx: &mut Tx,
    owner: UserId,
    calls: DefaultFor,
) -> Result<Option<SessionId>, StoreError> {
    let id = sqlx::query_scalar!(
        "SELECT session_id FROM sessions
         WHERE tenant_id = $1 AND owner_user_id = $2 AND archived_at IS NULL
           AND CASE WHEN $3::uuid IS NULL THEN company_default ELSE gateway_token_id = $3 END",
        tx.tenant().0,
        owner.0,
        calls.token(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(id.map(SessionId))
}

/// Those of `sessions` that belong to `user`.
pub async fn owned(
    tx: &mut Tx,
    user: UserId,
    sessions: &[SessionId],
) -> Result<Vec<SessionId>, StoreError> {
    let ids = uuids(Some(sessions)).unwrap_or_default();
    let found = sqlx::query_scalar!(
        "SELECT session_id FROM sessions
         WHERE tenant_id = $1 AND owner_user_id = $2 AND session_id = ANY($3)",
        tx.tenant().0,
        user.0,
        &ids,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(found.into_iter().map(SessionId).collect())
}

/// The three lists that a session's servers come from; see
/// [`effective_selection`](domain::session::effective_selection).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub tenant: Vec<ServerId>,
    pub project: Option<Vec<ServerId>>,
    pub session: Option<Vec<ServerId>>,
}

/// What a session of `owner` may use; `None` for anybody else's.
pub async fn selection(
    tx: &mut Tx,
    id: SessionId,
    owner: UserId,
) -> Result<Option<Selection>, StoreError> {
    let row = sqlx::query!(
        r#"SELECT t.enabled_source_ids AS tenant, p.enabled_source_ids AS "project?",
                  s.enabled_source_ids AS session
           FROM sessions s
           JOIN tenants t ON t.tenant_id = s.tenant_id
           LEFT JOIN projects p ON p.tenant_id = s.tenant_id AND p.project_id = s.project_id
           WHERE s.tenant_id = $1 AND s.session_id = $2 AND s.owner_user_id = $3"#,
        tx.tenant().0,
        id.0,
        owner.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Selection {
        tenant: server_ids(row.tenant),
        project: row.project.map(server_ids),
        session: row.session.map(server_ids),
    }))
}

pub(crate) fn texts(ids: Option<&[ServerId]>) -> Option<Vec<String>> {
    ids.map(|ids| ids.iter().map(|id| id.0.clone()).collect())
}

pub(crate) fn server_ids(texts: Vec<String>) -> Vec<ServerId> {
    texts.into_iter().map(ServerId).collect()
}

pub(crate) fn uuids(ids: Option<&[SessionId]>) -> Option<Vec<Uuid>> {
    ids.map(|ids| ids.iter().map(|id| id.0).collect())
}
