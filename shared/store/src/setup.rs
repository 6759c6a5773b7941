//! Brings roles, database and schema into being; `bailiwick migrate` and nothing else calls it.
//!
//! Every step may be done already, and several processes may run it at once. Afterwards
//! `bailiwick_owner` owns everything and `bailiwick_app` may read and write rows, and no more.

use std::collections::HashMap;

use domain::limits;
use secrecy::{ExposeSecret, SecretString};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{Db, MIGRATOR, StoreError};

/// Who migrates and owns.
pub const OWNER_ROLE: &str = "bailiwick_owner";
/// Who serves.
pub const APP_ROLE: &str = "bailiwick_app";

/// Session-level advisory lock of everything here ("bail" in ASCII); it is one per database.
const SETUP_LOCK: i64 = 0x6261_696c;

/// How to reach a database that may not exist yet.
#[derive(Debug)]
pub struct Setup<'a> {
    /// A role that may make roles and databases, in any existing database of the cluster; without
    /// it both roles and the database must be there.
    pub admin_url: Option<&'a str>,
    /// As `bailiwick_owner`; names the database.
    pub owner_url: &'a str,
    /// Set with `admin_url` where given; otherwise the roles' passwords stay as they are.
    pub owner_password: Option<&'a SecretString>,
    pub app_password: Option<&'a SecretString>,
}

/// Makes what is missing. Idempotent.
pub async fn migrate(setup: &Setup<'_>) -> Result<(), StoreError> {
    let owner: PgConnectOptions = setup.owner_url.parse()?;
    if let Some(url) = setup.admin_url {
        let database = owner.get_database().unwrap_or(OWNER_ROLE).to_owned();
        make_roles_and_database(setup, url.parse()?, &database).await?;
    }
    let pool = PgPoolOptions::new().max_connections(3).connect_with(owner).await?;
    let done = make_schema(&pool).await;
    pool.close().await;
    done
}

/// Whether the schema has every migration of this program; [`StoreError::Outdated`] otherwise.
/// A newer schema is fine: it was made so that this program runs on it.
pub async fn check(db: &Db) -> Result<(), StoreError> {
    let applied = sqlx::query_as::<_, (i64, Vec<u8>)>(
        "SELECT version, checksum FROM _sqlx_migrations WHERE success",
    )
    .fetch_all(db.pool())
    .await;
    let applied: HashMap<i64, Vec<u8>> = match applied {
        Ok(rows) => rows.into_iter().collect(),
        // 42P01: no such table; 42501: it is there, and the end of `migrate` was not reached.
        Err(sqlx::Error::Database(error))
            if matches!(error.code().as_deref(), Some("42P01" | "42501")) =>
        {
            return Err(StoreError::Outdated);
        }
        Err(error) => return Err(error.into()),
    };
    let current = MIGRATOR.iter().all(|migration| {
        applied
            .get(&migration.version)
            .is_some_and(|checksum| checksum.as_slice() == migration.checksum.as_ref())
    });
    let queue: bool = sqlx::query_scalar("SELECT to_regclass('apalis.jobs') IS NOT NULL")
        .fetch_one(db.pool())
        .await?;
    if current && queue { Ok(()) } else { Err(StoreError::Outdated) }
}

async fn make_roles_and_database(
    setup: &Setup<'_>,
    admin: PgConnectOptions,
    database: &str,
) -> Result<(), StoreError> {
    let mut admin = admin.connect().await?;
    // Ends with the connection, whatever happens in between.
    lock(&mut admin).await?;
    make_role(&mut admin, OWNER_ROLE, setup.owner_password).await?;
    make_role(&mut admin, APP_ROLE, setup.app_password).await?;
    make_database(&mut admin, database).await?;
    admin.close().await?;
    Ok(())
}

/// The role may sign in and nothing else: neither superuser nor BYPASSRLS, whatever it was before.
async fn make_role(
    admin: &mut PgConnection,
    role: &str,
    password: Option<&SecretString>,
) -> Result<(), StoreError> {
    let known: Option<(bool, bool)> = sqlx::query_as(
        "SELECT rolcanlogin, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = $1",
    )
    .bind(role)
    .fetch_optional(&mut *admin)
    .await?;
    match known {
        None => run(admin, &format!("CREATE ROLE {role} LOGIN")).await?,
        Some((false, _)) => run(admin, &format!("ALTER ROLE {role} LOGIN")).await?,
        Some((true, _)) => {}
    }
    if known.is_some_and(|(_, above_rows)| above_rows) {
        run(admin, &format!("ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS")).await?;
    }
    if let Some(password) = password {
        let statement: String =
            sqlx::query_scalar("SELECT format('ALTER ROLE %I PASSWORD %L', $1, $2)")
                .bind(role)
                .bind(password.expose_secret())
                .fetch_one(&mut *admin)
                .await?;
        run(admin, &statement).await?;
    }
    Ok(())
}

async fn make_database(admin: &mut PgConnection, database: &str) -> Result<(), StoreError> {
    let owner: Option<String> = sqlx::query_scalar(
        "SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = $1",
    )
    .bind(database)
    .fetch_optional(&mut *admin)
    .await?;
    if owner.as_deref() == Some(OWNER_ROLE) {
        return Ok(());
    }
    // Who is no superuser may give a database only to a role that they belong to.
    let superuser: bool =
        sqlx::query_scalar("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            .fetch_one(&mut *admin)
            .await?;
    if !superuser {
        run(admin, &format!("GRANT {OWNER_ROLE} TO CURRENT_USER")).await?;
    }
    let template = match owner {
        None => "CREATE DATABASE %I OWNER %I TEMPLATE template0 ENCODING 'UTF8'",
        Some(_) => "ALTER DATABASE %I OWNER TO %I",
    };
    let statement: String = sqlx::query_scalar("SELECT format($1, $2, $3)")
        .bind(template)
        .bind(database)
        .bind(OWNER_ROLE)
        .fetch_one(&mut *admin)
        .await?;
    run(admin, &statement).await
}

async fn make_schema(pool: &PgPool) -> Result<(), StoreError> {
    let mut owner = pool.acquire().await?;
    lock(&mut owner).await?;
    MIGRATOR.run(pool).await?;
    for extension in ["pgcrypto", "hstore"] {
        // They belong to the queue library's own migrations, which would make them too; here their
        // schema is ours to say.
        run(&mut owner, &format!("CREATE EXTENSION IF NOT EXISTS {extension} SCHEMA public"))
            .await?;
    }
    apalis_postgres::PostgresStorage::setup(pool).await?;
    owner.execute(GRANTS).await?;
    let revoke: String = sqlx::query_scalar(
        "SELECT format('REVOKE CONNECT, TEMPORARY ON DATABASE %1$I FROM PUBLIC;
                        GRANT CONNECT ON DATABASE %1$I TO bailiwick_app', current_database())",
    )
    .fetch_one(&mut *owner)
    .await?;
    owner.execute(AssertSqlSafe(revoke)).await?;
    let months = i32::try_from(limits::PARTITION_MONTHS_AHEAD.default).unwrap_or(i32::MAX);
    sqlx::query("SELECT make_partitions(now(), $1)").bind(months).execute(&mut *owner).await?;
    // The lock goes with its connection.
    owner.close().await?;
    Ok(())
}

/// What the app role needs besides its grants on tables of ours: to see which migrations ran, and the
/// queue. No DDL anywhere.
const GRANTS: &str = "
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    GRANT SELECT ON _sqlx_migrations TO bailiwick_app;
    GRANT USAGE ON SCHEMA apalis TO bailiwick_app;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA apalis TO bailiwick_app;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA apalis TO bailiwick_app;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA apalis TO bailiwick_app;
    REVOKE ALL ON apalis._sqlx_migrations FROM bailiwick_app;
";

async fn lock(connection: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_lock($1)").bind(SETUP_LOCK).execute(connection).await?;
    Ok(())
}

/// A statement that takes no parameters; names in it are ours or quoted by Postgres.
async fn run(connection: &mut PgConnection, statement: &str) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await?;
    Ok(())
}
