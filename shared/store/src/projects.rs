//! Projects: folders of sessions, with a selection of servers of their own.

use domain::{
    Timestamp,
    ids::{ProjectId, ServerId, UserId},
};
use uuid::Uuid;

use crate::{StoreError, Tx};

/// A folder of one person's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    pub id: ProjectId,
    pub owner: UserId,
    pub title: String,
    /// `None` inherits the tenant's.
    pub enabled_source_ids: Option<Vec<ServerId>>,
    pub created_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

struct Row {
    project_id: Uuid,
    owner_user_id: Uuid,
    title: String,
    enabled_source_ids: Option<Vec<String>>,
    created_at: Timestamp,
    archived_at: Option<Timestamp>,
}

impl From<Row> for Project {
    fn from(row: Row) -> Self {
        Self {
            id: ProjectId(row.project_id),
            owner: UserId(row.owner_user_id),
            title: row.title,
            enabled_source_ids: row.enabled_source_ids.map(crate::sessions::server_ids),
            created_at: row.created_at,
            archived_at: row.archived_at,
        }
    }
}

macro_rules! select {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT project_id, owner_user_id, title, enabled_source_ids, created_at, archived_at
             FROM projects WHERE tenant_id = $1 AND " + $rest,
            $($argument),*
        )
    };
}

pub async fn insert(tx: &mut Tx, project: &Project) -> Result<(), StoreError> {
    let sources = crate::sessions::texts(project.enabled_source_ids.as_deref());
    sqlx::query!(
        "INSERT INTO projects (tenant_id, project_id, owner_user_id, title, enabled_source_ids,
                               created_at, archived_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        tx.tenant().0,
        project.id.0,
        project.owner.0,
        project.title,
        sources.as_deref(),
        project.created_at,
        project.archived_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

pub async fn find(tx: &mut Tx, id: ProjectId) -> Result<Option<Project>, StoreError> {
    let row = select!("project_id = $2", tx.tenant().0, id.0).fetch_optional(tx.conn()).await?;
    Ok(row.map(Project::from))
}

/// Until commit nobody else's to change; new sessions may be put into it meanwhile.
pub async fn lock(tx: &mut Tx, id: ProjectId) -> Result<Option<Project>, StoreError> {
    let row = select!("project_id = $2 FOR NO KEY UPDATE", tx.tenant().0, id.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Project::from))
}

/// Writes what [`lock`] gave, changed.
pub async fn save(tx: &mut Tx, project: &Project) -> Result<(), StoreError> {
    let sources = crate::sessions::texts(project.enabled_source_ids.as_deref());
    sqlx::query!(
        "UPDATE projects SET title = $3, enabled_source_ids = $4, archived_at = $5
         WHERE tenant_id = $1 AND project_id = $2",
        tx.tenant().0,
        project.id.0,
        project.title,
        sources.as_deref(),
        project.archived_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The projects of one person, newest first, those before `after`.
pub async fn list(
    tx: &mut Tx,
    owner: UserId,
    after: Option<ProjectId>,
    rows: i64,
) -> Result<Vec<Project>, StoreError> {
    let rows = select!(
        "owner_user_id = $2 AND ($3::uuid IS NULL OR project_id < $3)
         ORDER BY project_id DESC LIMIT $4",
        tx.tenant().0,
        owner.0,
        after.map(|id| id.0),
        rows,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(Project::from).collect())
}
