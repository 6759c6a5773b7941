//! API tokens, and who holds one.

use domain::{
    Reach, Role, Scope, Scopes, Timestamp,
    ids::{SessionId, TenantId, TokenId, UserId},
    json::Sha256Digest,
};
use uuid::Uuid;

use crate::{
    CorruptRow, Db, StoreError, Tx,
    sessions::{server_ids, texts, uuids},
};

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    pub user: UserId,
    pub name: String,
    pub scopes: Scopes,
    pub reach: Reach,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

/// The active person who holds a usable token.
#[derive(Debug, Clone)]
pub struct Holder {
    pub tenant: TenantId,
    pub token: TokenId,
    pub user: UserId,
    pub role: Role,
    pub scopes: Scopes,
    pub reach: Reach,
}

macro_rules! select {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT token_id, user_id, name, scopes, sources, tools, session_ids, created_at,
                    expires_at, revoked_at
             FROM api_tokens WHERE tenant_id = $1 AND " + $rest,
            $($argument),*
        )
    };
}

/// Who holds the token of this digest, unless it is unknown, revoked, expired or its person disabled.
/// One round trip; the tenant is found by it.
pub async fn holder(
    db: &Db,
    digest: Sha256Digest,
    now: Timestamp,
) -> Result<Option<Holder>, StoreError> {
    let row = sqlx::query_as!(
        HolderRow,
        r#"SELECT tenant_id AS "tenant_id!", token_id AS "token_id!", user_id AS "user_id!",
                  role AS "role!", scopes AS "scopes!", sources, tools, session_ids
           FROM caller_by_token($1, $2)"#,
        digest.as_bytes(),
        now,
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(Holder::try_from).transpose()?)
}

/// The same by the token's id, for one that was seen before.
pub async fn still_held(
    tx: &mut Tx,
    id: TokenId,
    now: Timestamp,
) -> Result<Option<Holder>, StoreError> {
    let row = sqlx::query_as!(
        HolderRow,
        "SELECT t.tenant_id, t.token_id, t.user_id, u.role, t.scopes, t.sources, t.tools, t.session_ids
         FROM api_tokens t JOIN users u ON u.tenant_id = t.tenant_id AND u.user_id = t.user_id
         WHERE t.tenant_id = $1 AND t.token_id = $2
           AND t.revoked_at IS NULL AND t.expires_at > $3 AND u.status = 'active'",
        tx.tenant().0,
        id.0,
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Holder::try_from).transpose()?)
}

pub async fn insert(tx: &mut Tx, token: &Token, digest: Sha256Digest) -> Result<(), StoreError> {
    let scopes = scope_names(token.scopes.iter());
    let sources = texts(token.reach.sources.as_deref());
    let sessions = uuids(token.reach.sessions.as_deref());
    sqlx::query!(
        "INSERT INTO api_tokens (tenant_id, token_id, user_id, name, digest, scopes, sources, tools,
                                 session_ids, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        tx.tenant().0,
        token.id.0,
        token.user.0,
        token.name,
        digest.as_bytes(),
        &scopes,
        sources.as_deref(),
        token.reach.tools.as_deref(),
        sessions.as_deref(),
        token.created_at,
        token.expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The tokens of one person, newest first, those before `after`; also such as are spent.
pub async fn list(
    tx: &mut Tx,
    user: UserId,
    after: Option<TokenId>,
    rows: i64,
) -> Result<Vec<Token>, StoreError> {
    let rows = select!(
        "user_id = $2 AND ($3::uuid IS NULL OR token_id < $3) ORDER BY token_id DESC LIMIT $4",
        tx.tenant().0,
        user.0,
        after.map(|id| id.0),
        rows,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(|row| Ok(row.try_into()?)).collect()
}

/// Until commit nobody else's to change.
pub async fn lock(tx: &mut Tx, id: TokenId) -> Result<Option<Token>, StoreError> {
    let row = select!("token_id = $2 FOR NO KEY UPDATE", tx.tenant().0, id.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Token::try_from).transpose()?)
}

/// Ends the token for ever.
pub async fn revoke(tx: &mut Tx, id: TokenId, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE api_tokens SET revoked_at = $3
         WHERE tenant_id = $1 AND token_id = $2 AND revoked_at IS NULL",
        tx.tenant().0,
        id.0,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Ends for ever those of a person's that have one of these scopes; answers which were not before.
pub async fn revoke_with(
    tx: &mut Tx,
    user: UserId,
    scopes: &[Scope],
    now: Timestamp,
) -> Result<Vec<TokenId>, StoreError> {
    let scopes = scope_names(scopes.iter().copied());
    let ids = sqlx::query_scalar!(
        "UPDATE api_tokens SET revoked_at = $4
         WHERE tenant_id = $1 AND user_id = $2 AND scopes && $3 AND revoked_at IS NULL
         RETURNING token_id",
        tx.tenant().0,
        user.0,
        &scopes,
        now,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(ids.into_iter().map(TokenId).collect())
}

/// What the person called that token of theirs.
pub async fn name(
    tx: &mut Tx,
    owner: UserId,
    token: TokenId,
) -> Result<Option<String>, StoreError> {
    let name = sqlx::query_scalar!(
        "SELECT name FROM api_tokens WHERE tenant_id = $1 AND token_id = $2 AND user_id = $3",
        tx.tenant().0,
        token.0,
        owner.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(name)
}

struct Row {
    token_id: Uuid,
    user_id: Uuid,
    name: String,
    scopes: Vec<String>,
    sources: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    session_ids: Option<Vec<Uuid>>,
    created_at: Timestamp,
    expires_at: Timestamp,
    revoked_at: Option<Timestamp>,
}

impl TryFrom<Row> for Token {
    type Error = CorruptRow;

    fn try_from(row: Row) -> Result<Self, CorruptRow> {
        Ok(Self {
            id: TokenId(row.token_id),
            user: UserId(row.user_id),
            name: row.name,
            scopes: scopes(row.token_id, &row.scopes)?,
            reach: reach(row.sources, row.tools, row.session_ids),
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
        })
    }
}

struct HolderRow {
    tenant_id: Uuid,
    token_id: Uuid,
    user_id: Uuid,
    role: String,
    scopes: Vec<String>,
    sources: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    session_ids: Option<Vec<Uuid>>,
}

impl TryFrom<HolderRow> for Holder {
    type Error = CorruptRow;

    fn try_from(row: HolderRow) -> Result<Self, CorruptRow> {
        let role = row.role.parse();
        Ok(Self {
            tenant: TenantId(row.tenant_id),
            token: TokenId(row.token_id),
            user: UserId(row.user_id),
            role: role.map_err(|_| CorruptRow::new("users", row.user_id, "unknown role"))?,
            scopes: scopes(row.token_id, &row.scopes)?,
            reach: reach(row.sources, row.tools, row.session_ids),
        })
    }
}

fn scopes(token: Uuid, texts: &[String]) -> Result<Scopes, CorruptRow> {
    let parsed: Result<Vec<_>, _> = texts.iter().map(|text| text.parse()).collect();
    parsed
        .and_then(Scopes::new)
        .map_err(|_| CorruptRow::new("api_tokens", token, "scopes that cannot stand together"))
}

fn reach(
    sources: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    sessions: Option<Vec<Uuid>>,
) -> Reach {
    Reach {
        sources: sources.map(server_ids),
        tools,
        sessions: sessions.map(|ids| ids.into_iter().map(SessionId).collect()),
    }
}

fn scope_names(scopes: impl Iterator<Item = Scope>) -> Vec<String> {
    scopes.map(|scope| scope.as_str().to_owned()).collect()
}
