//! All SQL of the service, one file per aggregate; the vault beside it.
//!
//! Functions take an open [`Tx`], which is bound to one tenant, and never begin or commit: the use
//! case in `app` owns the transaction. An aggregate that changes state is read with `lock`
//! (`FOR UPDATE`), changed by its method in `domain`, and written back with `save`. Only the
//! statements of a governed call ([`calls`]) and the look-ups that find a tenant are transactions of
//! their own and take the [`Db`].

pub mod audit;
pub mod authorizations;
pub mod builtin;
pub mod calls;
pub mod cas;
pub mod company;
pub mod connections;
pub mod delegation;
pub mod doctor;
pub mod ended_calls;
pub mod epochs;
pub mod events;
pub mod grants;
pub mod idempotency;
pub mod invocations;
pub mod jobs;
pub mod nodes;
pub mod oauth_attempts;
pub mod oauth_clients;
pub mod projects;
pub mod requests;
pub mod sealed;
pub mod servers;
pub mod sessions;
pub mod setup;
pub mod sign_in;
pub mod tenants;
pub mod ticks;
pub mod tokens;
pub mod tools;
pub mod users;
pub mod variables;
pub mod vault;
pub mod web_sessions;

use domain::{Code, ids::TenantId, limits};
use idempotency::Held;
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// The schema, embedded; `migrations/` at the repository root.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();

/// The pool of one process, connected as `bailiwick_app`.
#[derive(Debug, Clone)]
pub struct Db {
    pool: PgPool,
}

impl Db {
    /// A pool for `url`; connections are made when first needed, so that a process can start
    /// while the database does.
    pub fn connect_lazy(url: &str, connections: u32) -> Result<Self, StoreError> {
        let options: PgConnectOptions = url.parse()?;
        let options = options.options([
            // A holder that went silent must not keep locks: nothing of ours is open across the
            // network.
            ("idle_in_transaction_session_timeout", "5s"),
            // Our statements look up keys: planning them anew for each call, over all partitions,
            // costs more than a third of what they do (docs/performance.md).
            ("plan_cache_mode", "force_generic_plan"),
            // None of them runs as long as compiling it would take.
            ("jit", "off"),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(limits::DATABASE_ACQUIRE_MS.millis())
            // A ping before each use would double the round trips of a call. After an outage every
            // idle connection is dead: without any ping each would cost one call its life.
            .test_before_acquire(false)
            .before_acquire(|connection, metadata| {
                Box::pin(async move {
                    let fresh = metadata.idle_for < limits::DATABASE_PING_AFTER_MS.millis();
                    Ok(fresh || connection.ping().await.is_ok())
                })
            })
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Opens a transaction of `tenant`: one round trip. Cancel-safe.
    pub async fn begin(&self, tenant: TenantId) -> Result<Tx, StoreError> {
        // A UUID has no character that could end the literal.
        let begin = format!("BEGIN; SET LOCAL app.tenant_id = '{}'", tenant.0);
        let pool = self.pool.clone();
        // In a task of its own, which ends even if nobody waits for it: the driver counts a transaction
        // when BEGIN was answered. Cut off before, its connection would go back to the pool with the
        // transaction open, and whatever came next would be part of it, to be rolled back some time.
        let task = tokio::spawn(async move { pool.begin_with(AssertSqlSafe(begin)).await });
        let inner = task.await.map_err(|_| StoreError::Driver(sqlx::Error::WorkerCrashed))??;
        Ok(Tx { inner, tenant, held: None })
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    /// For tables without a tenant and for the finders: `nodes`, `ticks`, `tenants`, `due_*`.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The pool for the queue library, which wants it whole.
    #[must_use]
    pub fn queue_pool(&self) -> PgPool {
        self.pool.clone()
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// An open transaction of one tenant; dropped, it rolls back.
#[derive(Debug)]
pub struct Tx {
    inner: sqlx::Transaction<'static, sqlx::Postgres>,
    tenant: TenantId,
    held: Option<Held>,
}

impl Tx {
    /// The tenant that row-level security holds this transaction to; part of every key.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(crate) fn conn(&mut self) -> &mut PgConnection {
        &mut self.inner
    }

    /// From now on its [`commit`](Self::commit) only leaves it there, if it changed something.
    #[must_use]
    pub fn held_by(mut self, held: &Held) -> Self {
        self.held = Some(held.clone());
        self
    }

    /// Its changes and its queue messages become visible together: now, or with the answer of the
    /// request that [holds](Self::held_by) it.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        let Some(held) = self.held.take() else { return Ok(self.inner.commit().await?) };
        let rest =
            if idempotency::has_changed(&mut self).await? { held.keep(self) } else { Some(self) };
        match rest {
            Some(tx) => Ok(tx.inner.commit().await?),
            None => Ok(()),
        }
    }
}

/// A row that no version of this program should have written.
#[derive(Debug, thiserror::Error)]
#[error("corrupt row {id} in {table}: {problem}")]
pub struct CorruptRow {
    pub table: &'static str,
    pub id: String,
    pub problem: &'static str,
}

impl CorruptRow {
    #[expect(clippy::needless_pass_by_value, reason = "ids are small, and callers read better")]
    pub(crate) fn new(table: &'static str, id: impl ToString, problem: &'static str) -> Self {
        Self { table, id: id.to_string(), problem }
    }
}

/// Why a statement failed. The source chain has the driver's words; they are for the log.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("a database statement failed")]
    Driver(#[from] sqlx::Error),
    #[error("a job could not be enqueued")]
    Enqueue(#[from] apalis_postgres::Error),
    #[error("the schema could not be brought up to date")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("the schema is not at this version: run `bailiwick migrate`")]
    Outdated,
    #[error(transparent)]
    Corrupt(#[from] CorruptRow),
}

impl StoreError {
    /// The name of the constraint that refused the statement.
    #[must_use]
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Driver(sqlx::Error::Database(error)) => error.constraint(),
            _ => None,
        }
    }

    /// Whether the database went away, so that the same statement may do later.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        use sqlx::Error::{Database, Io, PoolClosed, PoolTimedOut, Protocol, WorkerCrashed};
        match self {
            Self::Driver(Io(_) | PoolClosed | PoolTimedOut | Protocol(_) | WorkerCrashed) => true,
            // Class 57: operator intervention (shutdown, crash, starting up); 08: connection.
            Self::Driver(Database(error)) => {
                error.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
            }
            _ => false,
        }
    }
}

impl From<StoreError> for domain::Error {
    fn from(error: StoreError) -> Self {
        if error.is_outage() {
            return domain::Error::new(Code::Unavailable, "the database is unavailable")
                .retry_after(limits::DATABASE_RETRY_MS.millis())
                .because(error);
        }
        if matches!(error, StoreError::Outdated) {
            return domain::Error::new(Code::Unavailable, error.to_string());
        }
        domain::Error::internal(error)
    }
}
