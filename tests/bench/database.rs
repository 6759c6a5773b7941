//! The private Postgres of an installation, as its superuser.

use std::{path::Path, time::Duration};

use anyhow::Context;
use runtime::postgres::{Address, locate};
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgPoolOptions};

/// Counters reach the statistics by then: a connection hands them in when it was idle for 10 s (PostgreSQL 15 and later:
/// `PGSTAT_IDLE_INTERVAL`), if it was too busy before.
pub(crate) const QUIET: Duration = Duration::from_secs(11);

#[derive(Debug)]
pub(crate) struct Database {
    address: Address,
    admin: sqlx::PgPool,
    history: u32,
}

impl Database {
    /// Makes `history` calls out of the one that was made, and keeps them aside.
    pub(crate) async fn connect(postgres_dir: &Path, history: u32) -> anyhow::Result<Self> {
        let address = locate(postgres_dir)?;
        let url = address.url("bailiwick", "postgres");
        let admin = PgPoolOptions::new().max_connections(1).connect(&url).await?;
        let make = include_str!("history.sql").replace("$ROWS", &history.to_string());
        sqlx::raw_sql(AssertSqlSafe(make)).execute(&admin).await.context("no history")?;
        Ok(Self { address, admin, history })
    }

    /// As its superuser.
    pub(crate) fn admin(&self) -> &sqlx::PgPool {
        &self.admin
    }

    /// As the service's own role.
    pub(crate) fn app_url(&self) -> String {
        self.address.app_url()
    }

    /// Takes out what was measured, and puts the history back.
    pub(crate) async fn reset_history(&self) -> anyhow::Result<()> {
        sqlx::raw_sql("CALL bench.reset()").execute(&self.admin).await?;
        if self.history > 0 {
            let clean = "VACUUM (ANALYZE) cas_objects, tool_calls, invocations, \
                         permission_authorizations, audit_leaves, events";
            sqlx::raw_sql(clean).execute(&self.admin).await?;
        }
        sqlx::raw_sql("CHECKPOINT").execute(&self.admin).await?;
        Ok(())
    }

    /// For everybody, at once.
    pub(crate) async fn set_durable(&self, durable: bool) -> anyhow::Result<()> {
        let value = if durable { "on" } else { "off" };
        let set = format!("ALTER SYSTEM SET synchronous_commit = {value}");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&self.admin).await?;
        sqlx::raw_sql("SELECT pg_reload_conf()").execute(&self.admin).await?;
        for _ in 0..200 {
            if self.show("synchronous_commit").await? == value {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        anyhow::bail!("the server does not take synchronous_commit = {value}")
    }

    /// What the service's own role is shown.
    pub(crate) async fn durability(&self) -> anyhow::Result<String> {
        let mut shown = Vec::new();
        for name in ["synchronous_commit", "fsync", "full_page_writes", "wal_sync_method"] {
            shown.push(format!("{name} = {}", self.show(name).await?));
        }
        Ok(shown.join(", "))
    }

    async fn show(&self, name: &str) -> anyhow::Result<String> {
        let mut app = PgConnection::connect(&self.address.app_url()).await?;
        let show = AssertSqlSafe(format!("SHOW {name}"));
        let value = sqlx::query_scalar(show).fetch_one(&mut app).await?;
        app.close().await?;
        Ok(value)
    }

    /// Pages that were found in shared buffers so far, by statements of the service's database.
    pub(crate) async fn hits(&self) -> anyhow::Result<f64> {
        // From another database, so that asking is not counted.
        let mut other = PgConnection::connect(&self.address.admin_url()).await?;
        let hits = "SELECT blks_hit::float8 FROM pg_stat_database WHERE datname = 'bailiwick'";
        let hits = sqlx::query_scalar(hits).fetch_one(&mut other).await?;
        other.close().await?;
        Ok(hits)
    }
}
