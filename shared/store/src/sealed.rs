//! Every column that holds something sealed, for what concerns all of them: which key sealed how much,
//! and sealing it anew.
//!
//! A new column of the kind is one more line of [`COLUMNS`]; a test compares the list with the schema.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, FromRow};

use crate::{
    StoreError, Tx,
    vault::{Purpose, RowName, Sealed, Vault},
};

/// Sealed values of one purpose in one table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// For people, in the plural.
    pub what: &'static str,
    pub purpose: Purpose,
    pub table: &'static str,
    pub sealed: &'static str,
    pub key_id: &'static str,
    /// The primary key behind `tenant_id`: columns with their types.
    key: &'static [(&'static str, &'static str)],
    /// Which rows: SQL.
    only: &'static str,
    /// [`RowName::server`] and [`RowName::name`]: SQL of type text.
    row: (&'static str, &'static str),
}

/// The columns `sealed` and `key_id` of a table, in all its rows.
const fn column(
    what: &'static str,
    purpose: Purpose,
    table: &'static str,
    key: &'static [(&'static str, &'static str)],
    row: (&'static str, &'static str),
) -> Column {
    Column { what, purpose, table, sealed: "sealed", key_id: "key_id", key, only: "true", row }
}

impl Column {
    const fn only(self, only: &'static str) -> Self {
        Self { only, ..self }
    }
}

const SECRET: &[(&str, &str)] = &[("server_id", "text"), ("kind", "text"), ("name", "text")];
const CONNECTION: &[(&str, &str)] = &[("server_id", "text"), ("user_id", "uuid")];
const CLIENT: &[(&str, &str)] = &[("issuer", "text"), ("redirect_uri", "text")];

/// All of them. What is sealed and given away (`requestState`, `Mcp-Session-Id`) is not stored.
#[rustfmt::skip]
pub const COLUMNS: &[Column] = &[
    column("environment values of servers", Purpose::ServerEnv, "mcp_server_secrets", SECRET, ("server_id", "name")).only("kind = 'env'"),
    column("header values of servers", Purpose::ServerHeader, "mcp_server_secrets", SECRET, ("server_id", "name")).only("kind = 'header'"),
    column("client secrets of servers", Purpose::ClientSecret, "mcp_server_secrets", SECRET, ("server_id", "name")).only("kind = 'client_secret'"),
    column("tenant variables", Purpose::TenantVariable, "tenant_variables", &[("name", "text")], ("''", "name")),
    column("personal credentials", Purpose::Credential, "mcp_connections", CONNECTION, ("server_id", "user_id::text")),
    column("OAuth attempts", Purpose::OauthAttempt, "mcp_oauth_attempts", &[("attempt_id", "uuid")], ("server_id", "attempt_id::text")),
    column("client secrets of company sign-ins", Purpose::CompanySecret, "company_issuers", &[("tenant_id", "uuid")], ("''", "''")),
    column("company sign-ins under way", Purpose::CompanySignIn, "company_sign_ins", &[("sign_in_id", "uuid")], ("''", "sign_in_id::text")),
    column("OAuth registrations", Purpose::OauthClient, "mcp_oauth_clients", CLIENT, ("redirect_uri", "issuer")),
];

/// One sealed value and where it stands.
#[derive(Debug, Clone, FromRow)]
pub struct Value {
    key: Vec<String>,
    server: String,
    name: String,
    token: String,
    key_id: String,
}

/// Where a reading goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(Vec<String>);

impl Value {
    #[must_use]
    pub fn sealed(&self) -> Sealed {
        Sealed { token: self.token.clone(), key_id: self.key_id.clone() }
    }

    /// Of the key that it says sealed it.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    fn row(&self, tx: &Tx) -> RowName<'_> {
        RowName { tenant: tx.tenant(), server: &self.server, name: &self.name }
    }

    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor(self.key.clone())
    }
}

/// How many values of the transaction's tenant each key sealed, as their key ids say.
pub async fn count(tx: &mut Tx, column: &Column) -> Result<BTreeMap<String, u64>, StoreError> {
    let Column { table, sealed, key_id, only, .. } = column;
    let query = format!(
        "SELECT {key_id}, count(*) FROM {table}
         WHERE tenant_id = $1 AND {sealed} IS NOT NULL AND {only} GROUP BY {key_id}"
    );
    let rows: Vec<(String, i64)> =
        sqlx::query_as(AssertSqlSafe(query)).bind(tx.tenant().0).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(|(key, count)| (key, u64::try_from(count).unwrap_or(0))).collect())
}

/// Up to `most` values of the transaction's tenant, in the order of their keys.
pub async fn page(
    tx: &mut Tx,
    column: &Column,
    after: Option<&Cursor>,
    most: i64,
) -> Result<Vec<Value>, StoreError> {
    let Column { table, sealed, key_id, only, key, row: (server, name), .. } = column;
    let names = list(key.iter().map(|(name, _)| (*name).to_owned()));
    let texts = list(key.iter().map(|(name, _)| format!("{name}::text")));
    let from = key.iter().enumerate().map(|(at, (_, kind))| format!("${}::text::{kind}", at + 3));
    let later = match after {
        Some(_) => format!("({names}) > ({})", list(from)),
        None => "true".to_owned(),
    };
    let query = format!(
        "SELECT ARRAY[{texts}] AS key, {server} AS server, {name} AS name, {sealed} AS token,
                {key_id} AS key_id
         FROM {table}
         WHERE tenant_id = $1 AND {sealed} IS NOT NULL AND {only} AND {later}
         ORDER BY {names} LIMIT $2"
    );
    let mut query = sqlx::query_as(AssertSqlSafe(query)).bind(tx.tenant().0).bind(most);
    for part in after.iter().flat_map(|cursor| &cursor.0) {
        query = query.bind(part.clone());
    }
    Ok(query.fetch_all(tx.conn()).await?)
}

/// Whether a key of the ring opens it in its row.
#[must_use]
pub fn opens(tx: &Tx, vault: &Vault, column: &Column, value: &Value) -> bool {
    vault.open(column.purpose, value.row(tx), &value.sealed()).is_ok()
}

/// The same secret sealed by the first key. `None`: it is. `CREDENTIALS_UNREADABLE` where no key opens
/// it, or it was sealed for another row.
pub fn renew(
    tx: &Tx,
    vault: &Vault,
    column: &Column,
    value: &Value,
) -> Result<Option<Sealed>, domain::Error> {
    vault.renew(column.purpose, value.row(tx), &value.sealed())
}

/// Puts new seals in the place of old ones, and touches nothing else of the rows. One that is held by
/// somebody else, or is not what was read any more, stays as it is: nobody waits, and nothing newer is
/// overwritten. Answers how many were put.
pub async fn replace(
    tx: &mut Tx,
    column: &Column,
    values: &[(Value, Sealed)],
) -> Result<u64, StoreError> {
    let Column { table, sealed, key_id, key, .. } = column;
    let parts = list((0..key.len()).map(|at| format!("k{at}")));
    let arrays = list((0..key.len() + 4).map(|at| format!("${}::text[]", at + 2)));
    let same = |table: &str| {
        let each = key.iter().enumerate();
        let each = each.map(|(at, (name, kind))| format!("{table}.{name} = n.k{at}::{kind}"));
        each.collect::<Vec<_>>().join(" AND ")
    };
    let query = format!(
        "WITH new AS (SELECT * FROM unnest({arrays}) AS n ({parts}, was, was_by, token, by)),
              free AS (
                  SELECT n.* FROM {table} t JOIN new n ON {}
                  WHERE t.tenant_id = $1 AND t.{sealed} = n.was AND t.{key_id} = n.was_by
                  FOR NO KEY UPDATE OF t SKIP LOCKED)
         UPDATE {table} u SET {sealed} = n.token, {key_id} = n.by FROM free n
         WHERE u.tenant_id = $1 AND {} AND u.{sealed} = n.was AND u.{key_id} = n.was_by",
        same("t"),
        same("u"),
    );
    let of = |read: &dyn Fn(&(Value, Sealed)) -> String| values.iter().map(read).collect();
    let mut query = sqlx::query(AssertSqlSafe(query)).bind(tx.tenant().0);
    for at in 0..key.len() {
        let part: Vec<String> = of(&|(value, _)| value.key[at].clone());
        query = query.bind(part);
    }
    let columns: [Vec<String>; 4] = [
        of(&|(value, _)| value.token.clone()),
        of(&|(value, _)| value.key_id.clone()),
        of(&|(_, new)| new.token.clone()),
        of(&|(_, new)| new.key_id.clone()),
    ];
    for column in columns {
        query = query.bind(column);
    }
    Ok(query.execute(tx.conn()).await?.rows_affected())
}

fn list(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
