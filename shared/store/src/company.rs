//! The issuer of a tenant, who people are there, and sign-ins under way.

use domain::{
    Role, Timestamp,
    company::{CompanyIssuer, RoleClaim, TenantClaim},
    ids::{CompanySignInId, TenantId, UserId},
    json::Sha256Digest,
    user::UserStatus,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{CorruptRow, Db, StoreError, Tx, vault::Sealed};

/// The settings as they stand.
#[derive(Debug, Clone)]
pub struct Settings {
    pub issuer: CompanyIssuer,
    pub secret: Option<Sealed>,
    pub revision: i64,
    pub updated_at: Timestamp,
}

#[expect(clippy::struct_excessive_bools, reason = "as the table has them")]
struct Row {
    enabled: bool,
    name: String,
    issuer: String,
    client_id: String,
    sealed: Option<String>,
    key_id: Option<String>,
    scopes: Vec<String>,
    tenant_claim: Option<String>,
    tenant_value: Option<String>,
    adds_people: bool,
    role_claim: Option<String>,
    roles: Value,
    local_sign_in: bool,
    gateway_tokens: bool,
    gateway_audiences: Vec<String>,
    revision: i64,
    updated_at: Timestamp,
}

impl Row {
    fn read(self, tenant: TenantId) -> Result<Settings, CorruptRow> {
        let corrupt = |_| CorruptRow::new("company_issuers", tenant, "roles that cannot be read");
        let roles = match self.role_claim {
            Some(name) => {
                let roles = serde_json::from_value(self.roles).map_err(corrupt)?;
                Some(RoleClaim { name, roles })
            }
            None => None,
        };
        let tenant_claim = self.tenant_claim.zip(self.tenant_value);
        Ok(Settings {
            issuer: CompanyIssuer {
                enabled: self.enabled,
                name: self.name,
                issuer: self.issuer,
                client_id: self.client_id,
                scopes: self.scopes,
                tenant_claim: tenant_claim.map(|(name, value)| TenantClaim { name, value }),
                adds_people: self.adds_people,
                roles,
                local_sign_in: self.local_sign_in,
                gateway_tokens: self.gateway_tokens,
                gateway_audiences: self.gateway_audiences,
            },
            secret: self.sealed.zip(self.key_id).map(|(token, key_id)| Sealed { token, key_id }),
            revision: self.revision,
            updated_at: self.updated_at,
        })
    }
}

macro_rules! select {
    ($rest:literal, $tenant:expr) => {
        sqlx::query_as!(
            Row,
            "SELECT enabled, name, issuer, client_id, sealed, key_id, scopes, tenant_claim, tenant_value,
                    adds_people, role_claim, roles, local_sign_in, gateway_tokens, gateway_audiences,
                    revision, updated_at
             FROM company_issuers WHERE tenant_id = $1" + $rest,
            $tenant
        )
    };
}

pub async fn settings(tx: &mut Tx) -> Result<Option<Settings>, StoreError> {
    let tenant = tx.tenant();
    let row = select!("", tenant.0).fetch_optional(tx.conn()).await?;
    Ok(row.map(|row| row.read(tenant)).transpose()?)
}

/// The same, until commit nobody else's to change.
pub async fn lock_settings(tx: &mut Tx) -> Result<Option<Settings>, StoreError> {
    let tenant = tx.tenant();
    let row = select!(" FOR UPDATE", tenant.0).fetch_optional(tx.conn()).await?;
    Ok(row.map(|row| row.read(tenant)).transpose()?)
}

/// Writes the settings as a whole, and ends every sign-in that began under others.
pub async fn save_settings(tx: &mut Tx, settings: &Settings) -> Result<(), StoreError> {
    let issuer = &settings.issuer;
    let roles = issuer.roles.as_ref().map(|claim| &claim.roles);
    let roles = roles.map(serde_json::to_value).transpose();
    let roles = roles
        .map_err(|_| CorruptRow::new("company_issuers", tx.tenant(), "roles that are no JSON"))?;
    sqlx::query!(
        "INSERT INTO company_issuers (tenant_id, enabled, name, issuer, client_id, sealed, key_id, scopes,
             tenant_claim, tenant_value, adds_people, role_claim, roles, local_sign_in, gateway_tokens,
             gateway_audiences, revision, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
         ON CONFLICT (tenant_id) DO UPDATE SET
             enabled = excluded.enabled, name = excluded.name, issuer = excluded.issuer,
             client_id = excluded.client_id, sealed = excluded.sealed, key_id = excluded.key_id,
             scopes = excluded.scopes, tenant_claim = excluded.tenant_claim,
             tenant_value = excluded.tenant_value, adds_people = excluded.adds_people,
             role_claim = excluded.role_claim, roles = excluded.roles,
             local_sign_in = excluded.local_sign_in, gateway_tokens = excluded.gateway_tokens,
             gateway_audiences = excluded.gateway_audiences, revision = excluded.revision,
             updated_at = excluded.updated_at",
        tx.tenant().0,
        issuer.enabled,
        issuer.name,
        issuer.issuer,
        issuer.client_id,
        settings.secret.as_ref().map(|secret| &*secret.token),
        settings.secret.as_ref().map(|secret| &*secret.key_id),
        &issuer.scopes,
        issuer.tenant_claim.as_ref().map(|claim| &*claim.name),
        issuer.tenant_claim.as_ref().map(|claim| &*claim.value),
        issuer.adds_people,
        issuer.roles.as_ref().map(|claim| &*claim.name),
        roles.unwrap_or_else(|| Value::Array(Vec::new())),
        issuer.local_sign_in,
        issuer.gateway_tokens,
        &issuer.gateway_audiences,
        settings.revision,
        settings.updated_at,
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!("DELETE FROM company_sign_ins WHERE tenant_id = $1", tx.tenant().0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// False: there were none.
pub async fn delete_settings(tx: &mut Tx) -> Result<bool, StoreError> {
    let done = sqlx::query!("DELETE FROM company_issuers WHERE tenant_id = $1", tx.tenant().0)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether passwords are taken.
pub async fn takes_passwords(tx: &mut Tx) -> Result<bool, StoreError> {
    let taken = sqlx::query_scalar!(
        "SELECT local_sign_in FROM company_issuers WHERE tenant_id = $1",
        tx.tenant().0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(taken.unwrap_or(true))
}

/// Who a person is at an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub issuer: String,
    pub subject: String,
    pub user: UserId,
    pub created_at: Timestamp,
    pub signed_in_at: Option<Timestamp>,
}

/// The person of that subject.
pub async fn person(
    tx: &mut Tx,
    issuer: &str,
    subject: &str,
) -> Result<Option<UserId>, StoreError> {
    let user = sqlx::query_scalar!(
        "SELECT user_id FROM company_accounts WHERE tenant_id = $1 AND issuer = $2 AND subject = $3",
        tx.tenant().0,
        issuer,
        subject,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(user.map(UserId))
}

/// The accounts of a person, by issuer.
pub async fn accounts(tx: &mut Tx, user: UserId) -> Result<Vec<Account>, StoreError> {
    let rows = sqlx::query!(
        "SELECT issuer, subject, created_at, signed_in_at FROM company_accounts
         WHERE tenant_id = $1 AND user_id = $2 ORDER BY issuer",
        tx.tenant().0,
        user.0,
    )
    .fetch_all(tx.conn())
    .await?;
    let accounts = rows.into_iter().map(|row| Account {
        issuer: row.issuer,
        subject: row.subject,
        user,
        created_at: row.created_at,
        signed_in_at: row.signed_in_at,
    });
    Ok(accounts.collect())
}

/// Links an account. A subject that is linked already breaks `company_accounts_pkey`, a person who has an
/// account of that issuer `company_accounts_user_key`.
pub async fn link(tx: &mut Tx, account: &Account) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO company_accounts (tenant_id, issuer, subject, user_id, created_at, signed_in_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        tx.tenant().0,
        account.issuer,
        account.subject,
        account.user.0,
        account.created_at,
        account.signed_in_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// False: the person has none of that issuer.
pub async fn unlink(tx: &mut Tx, issuer: &str, user: UserId) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "DELETE FROM company_accounts WHERE tenant_id = $1 AND issuer = $2 AND user_id = $3",
        tx.tenant().0,
        issuer,
        user.0,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn note_sign_in(
    tx: &mut Tx,
    issuer: &str,
    user: UserId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE company_accounts SET signed_in_at = $4
         WHERE tenant_id = $1 AND issuer = $2 AND user_id = $3",
        tx.tenant().0,
        issuer,
        user.0,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// How many active superadmins have an account of that issuer, but for `besides`.
pub async fn superadmins(
    tx: &mut Tx,
    issuer: &str,
    besides: Option<UserId>,
) -> Result<i64, StoreError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM company_accounts a
           JOIN users u ON u.tenant_id = a.tenant_id AND u.user_id = a.user_id
           WHERE a.tenant_id = $1 AND a.issuer = $2 AND u.role = 'superadmin' AND u.status = 'active'
             AND u.user_id IS DISTINCT FROM $3"#,
        tx.tenant().0,
        issuer,
        besides.map(|user| user.0),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(count)
}

/// A person as the gateway takes a token of their company.
#[derive(Debug, Clone, Copy)]
pub struct Holder {
    pub user: UserId,
    pub role: Role,
}

/// The active person of that subject.
pub async fn holder(
    tx: &mut Tx,
    issuer: &str,
    subject: &str,
) -> Result<Option<Holder>, StoreError> {
    let row = sqlx::query!(
        "SELECT u.user_id, u.role, u.status FROM company_accounts a
         JOIN users u ON u.tenant_id = a.tenant_id AND u.user_id = a.user_id
         WHERE a.tenant_id = $1 AND a.issuer = $2 AND a.subject = $3",
        tx.tenant().0,
        issuer,
        subject,
    )
    .fetch_optional(tx.conn())
    .await?;
    let Some(row) = row.filter(|row| row.status == UserStatus::Active.as_str()) else {
        return Ok(None);
    };
    let role = row.role.parse();
    let role = role.map_err(|_| CorruptRow::new("users", row.user_id, "unknown role"))?;
    Ok(Some(Holder { user: UserId(row.user_id), role }))
}

/// The tenants whose gateway takes a token with these claims of this issuer; two stand for several.
pub async fn tenants_of_token(
    db: &Db,
    issuer: &str,
    claims: &Value,
) -> Result<Vec<TenantId>, StoreError> {
    let ids = sqlx::query_scalar!(
        r#"SELECT tenant_id AS "tenant_id!" FROM find_company_issuer($1, $2)"#,
        issuer,
        claims,
    )
    .fetch_all(db.pool())
    .await?;
    Ok(ids.into_iter().map(TenantId).collect())
}

/// Whether a token of the issuer can be of this tenant alone, as `issuer` says; until commit no other tenant
/// can change that.
pub async fn is_distinct(tx: &mut Tx, issuer: &CompanyIssuer) -> Result<bool, StoreError> {
    let distinct = sqlx::query_scalar!(
        r#"SELECT company_issuer_is_distinct($1, $2, $3, $4) AS "distinct!""#,
        tx.tenant().0,
        issuer.issuer,
        issuer.tenant_claim.as_ref().map(|claim| &*claim.name),
        issuer.tenant_claim.as_ref().map(|claim| &*claim.value),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(distinct)
}

/// Whether nothing of a person's can be come by through their account: no password, no company account, no
/// token, connection or session yet.
pub async fn is_untouched(tx: &mut Tx, user: UserId) -> Result<bool, StoreError> {
    let untouched = sqlx::query_scalar!(
        r#"SELECT (u.password_hash IS NULL
             AND NOT EXISTS (SELECT FROM company_accounts a WHERE a.tenant_id = $1 AND a.user_id = $2)
             AND NOT EXISTS (SELECT FROM api_tokens t WHERE t.tenant_id = $1 AND t.user_id = $2)
             AND NOT EXISTS (SELECT FROM web_sessions w WHERE w.tenant_id = $1 AND w.user_id = $2)
             AND NOT EXISTS (SELECT FROM sessions s WHERE s.tenant_id = $1 AND s.owner_user_id = $2)
             AND NOT EXISTS (SELECT FROM mcp_connections c WHERE c.tenant_id = $1 AND c.user_id = $2)
           ) AS "untouched!"
           FROM users u WHERE u.tenant_id = $1 AND u.user_id = $2"#,
        tx.tenant().0,
        user.0,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(untouched.unwrap_or(false))
}

/// The issuer whose tokens an endpoint takes: of a session, or of the only tenant.
pub async fn gateway_issuer(db: &Db, session: Option<Uuid>) -> Result<Option<String>, StoreError> {
    let issuer =
        sqlx::query_scalar!(r#"SELECT issuer AS "issuer!" FROM find_gateway_issuer($1)"#, session,)
            .fetch_optional(db.pool())
            .await?;
    Ok(issuer)
}

/// A sign-in that begins.
#[derive(Debug)]
pub struct NewSignIn<'a> {
    pub id: CompanySignInId,
    pub state: Sha256Digest,
    pub browser: Sha256Digest,
    pub network: Sha256Digest,
    pub revision: i64,
    pub links: Option<UserId>,
    pub sealed: &'a Sealed,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A sign-in that somebody came back from.
#[derive(Debug)]
pub struct SignIn {
    pub id: CompanySignInId,
    pub revision: i64,
    pub links: Option<UserId>,
    pub sealed: Sealed,
}

/// False: there are `most` of the tenant, or `most_here` of this network, already, and nothing was stored.
pub async fn begin(
    tx: &mut Tx,
    new: &NewSignIn<'_>,
    (most, most_here): (u64, u64),
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "INSERT INTO company_sign_ins (tenant_id, sign_in_id, state_digest, browser_digest, revision,
             user_id, sealed, key_id, created_at, expires_at, network_digest)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
         WHERE (SELECT count(*) FROM company_sign_ins WHERE tenant_id = $1) < $12
           AND (SELECT count(*) FROM company_sign_ins
                WHERE tenant_id = $1 AND network_digest = $11 AND expires_at > $9) < $13",
        tx.tenant().0,
        new.id.0,
        new.state.as_bytes(),
        new.browser.as_bytes(),
        new.revision,
        new.links.map(|user| user.0),
        new.sealed.token,
        new.sealed.key_id,
        new.created_at,
        new.expires_at,
        new.network.as_bytes(),
        i64::try_from(most).unwrap_or(i64::MAX),
        i64::try_from(most_here).unwrap_or(i64::MAX),
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes the sign-in up, once: from the browser that began it, in time.
pub async fn take(
    tx: &mut Tx,
    state: Sha256Digest,
    browser: Sha256Digest,
    now: Timestamp,
) -> Result<Option<SignIn>, StoreError> {
    let row = sqlx::query!(
        "DELETE FROM company_sign_ins
         WHERE tenant_id = $1 AND state_digest = $2 AND browser_digest = $3 AND expires_at > $4
         RETURNING sign_in_id, revision, user_id, sealed, key_id",
        tx.tenant().0,
        state.as_bytes(),
        browser.as_bytes(),
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| SignIn {
        id: CompanySignInId(row.sign_in_id),
        revision: row.revision,
        links: row.user_id.map(UserId),
        sealed: Sealed { token: row.sealed, key_id: row.key_id },
    }))
}

/// Sign-ins of all tenants whose time is over.
pub async fn due(
    db: &Db,
    before: Timestamp,
    most: u32,
) -> Result<Vec<(TenantId, CompanySignInId)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT tenant_id AS "tenant_id!", sign_in_id AS "sign_in_id!"
           FROM due_company_sign_ins($1, $2)"#,
        before,
        i32::try_from(most).unwrap_or(i32::MAX),
    )
    .fetch_all(db.pool())
    .await?;
    let ids = rows.into_iter();
    Ok(ids.map(|row| (TenantId(row.tenant_id), CompanySignInId(row.sign_in_id))).collect())
}

pub async fn forget(tx: &mut Tx, ids: &[CompanySignInId]) -> Result<u64, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let done = sqlx::query!(
        "DELETE FROM company_sign_ins WHERE tenant_id = $1 AND sign_in_id = ANY($2)",
        tx.tenant().0,
        &ids,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}
