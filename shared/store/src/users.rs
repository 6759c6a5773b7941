//! People of a tenant.

use domain::{Role, Timestamp, ids::UserId, user::UserStatus};

use crate::{CorruptRow, StoreError, Tx};

/// A person as others of the tenant see them; the password's hash stays in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub email: String,
    pub role: Role,
    pub status: UserStatus,
    pub created_at: Timestamp,
}

struct Row {
    user_id: uuid::Uuid,
    email: String,
    role: String,
    status: String,
    created_at: Timestamp,
}

impl TryFrom<Row> for User {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        let corrupt = |problem| CorruptRow::new("users", row.user_id, problem);
        Ok(Self {
            id: UserId(row.user_id),
            role: row.role.parse().map_err(|_| corrupt("unknown role"))?,
            status: row.status.parse().map_err(|_| corrupt("unknown status"))?,
            email: row.email,
            created_at: row.created_at,
        })
    }
}

macro_rules! select {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT user_id, email, role, status, created_at FROM users
             WHERE tenant_id = $1 AND " + $rest,
            $($argument),*
        )
    };
}

/// Adds a person; `password_hash` is a PHC string. An e-mail address that is taken breaks
/// `users_email_key`.
pub async fn insert(
    tx: &mut Tx,
    user: &User,
    password_hash: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO users (tenant_id, user_id, email, role, status, password_hash, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        tx.tenant().0,
        user.id.0,
        user.email,
        user.role.as_str(),
        user.status.as_str(),
        password_hash,
        user.created_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

pub async fn get(tx: &mut Tx, id: UserId) -> Result<Option<User>, StoreError> {
    let row = select!("user_id = $2", tx.tenant().0, id.0,).fetch_optional(tx.conn()).await?;
    Ok(row.map(User::try_from).transpose()?)
}

/// The person with that address, in whatever case it is written.
pub async fn find(tx: &mut Tx, email: &str) -> Result<Option<User>, StoreError> {
    let row = select!("lower(email) = lower($2)", tx.tenant().0, email,)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(User::try_from).transpose()?)
}

/// Newest first, those before `after`.
pub async fn list(tx: &mut Tx, after: Option<UserId>, rows: i64) -> Result<Vec<User>, StoreError> {
    let rows = select!(
        "($2::uuid IS NULL OR user_id < $2)
         ORDER BY user_id DESC LIMIT $3",
        tx.tenant().0,
        after.map(|id| id.0),
        rows,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(|row| Ok(row.try_into()?)).collect()
}

/// The active superadmins, until commit nobody else's to change; always locked before one person,
/// so that of two who would end the last two, the second sees what the first left.
pub async fn lock_superadmins(tx: &mut Tx) -> Result<Vec<UserId>, StoreError> {
    let ids = sqlx::query_scalar!(
        "SELECT user_id FROM users
         WHERE tenant_id = $1 AND role = 'superadmin' AND status = 'active'
         ORDER BY user_id FOR NO KEY UPDATE",
        tx.tenant().0,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(ids.into_iter().map(UserId).collect())
}

pub async fn lock(tx: &mut Tx, id: UserId) -> Result<Option<User>, StoreError> {
    let row = select!("user_id = $2 FOR NO KEY UPDATE", tx.tenant().0, id.0,)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(User::try_from).transpose()?)
}

/// Writes role and status of what [`lock`] gave.
pub async fn save(tx: &mut Tx, user: &User) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE users SET role = $3, status = $4 WHERE tenant_id = $1 AND user_id = $2",
        tx.tenant().0,
        user.id.0,
        user.role.as_str(),
        user.status.as_str(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
