//! What `doctor` reads: how the database stands, and what has been left lying in it. Nothing is changed.
//!
//! Queries about the schema itself are not checked at build time: they look at whatever schema there
//! is, which may be older than this program, newer, or broken.

use std::time::Duration;

use crate::{Db, MIGRATOR, StoreError, Tx, nodes::millis};
use domain::{
    Timestamp,
    ids::{TenantId, TokenId},
};

/// The server and the role that we are to it.
#[derive(Debug, Clone, sqlx::FromRow)]
#[expect(clippy::struct_excessive_bools, reason = "each is one answer of the server")]
pub struct Server {
    /// As Postgres says it: `15.4 (Debian …)`.
    pub version: String,
    /// 150004 for 15.4.
    pub version_number: i32,
    pub encoding: String,
    pub role: String,
    pub superuser: bool,
    pub bypasses_rows: bool,
    /// Tables of ours that the role owns, and so could change.
    pub owned_tables: i64,
    pub creates_in_schema: bool,
    pub read_only: bool,
}

/// Who we are there, and what it is. The first question to a database.
pub async fn server(db: &Db) -> Result<Server, StoreError> {
    Ok(sqlx::query_as(
        "SELECT current_setting('server_version') AS version,
                current_setting('server_version_num')::integer AS version_number,
                current_setting('server_encoding') AS encoding,
                current_user::text AS role,
                coalesce(r.rolsuper, false) AS superuser,
                coalesce(r.rolbypassrls, false) AS bypasses_rows,
                (SELECT count(*) FROM pg_class c
                 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
                   AND c.relowner = r.oid) AS owned_tables,
                has_schema_privilege('public', 'CREATE') AS creates_in_schema,
                current_setting('transaction_read_only')::boolean AS read_only
         FROM (VALUES (1)) AS one (row)
         LEFT JOIN pg_roles r ON r.rolname = current_user",
    )
    .fetch_one(db.pool())
    .await?)
}

/// What time the database has.
pub async fn now(db: &Db) -> Result<Timestamp, StoreError> {
    Ok(sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(db.pool()).await?)
}

/// Settings of the server as this connection has them; those that it does not know are left out.
pub async fn settings(db: &Db, names: &[&str]) -> Result<Vec<(String, String)>, StoreError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Ok(sqlx::query_as(
        "SELECT name, value
         FROM unnest($1::text[]) AS n (name), current_setting(n.name, true) AS s (value)
         WHERE value IS NOT NULL",
    )
    .bind(names)
    .fetch_all(db.pool())
    .await?)
}

/// How the schema stands against the migrations of this program.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// Migrations of this program that did not run.
    pub missing: Vec<i64>,
    /// Those that ran with another text.
    pub altered: Vec<i64>,
    /// Those that began and did not end.
    pub unfinished: Vec<i64>,
    /// Those that this program does not know.
    pub newer: Vec<i64>,
    /// The queue's own tables are there.
    pub queue: bool,
}

/// Compares the schema with this program. No schema at all lacks every migration.
pub async fn schema(db: &Db) -> Result<Schema, StoreError> {
    // `to_regclass` would raise for a role that may not look.
    let applied = sqlx::query_as::<_, (i64, Vec<u8>, bool)>(
        "SELECT version, checksum, success FROM _sqlx_migrations ORDER BY version",
    )
    .fetch_all(db.pool())
    .await;
    let applied = match applied {
        Ok(applied) => applied,
        // 42P01: no such table; 42501: `migrate` did not get to its end.
        Err(sqlx::Error::Database(error))
            if matches!(error.code().as_deref(), Some("42P01" | "42501")) =>
        {
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    let mut schema = Schema {
        queue: sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE n.nspname = 'apalis' AND c.relname = 'jobs')",
        )
        .fetch_one(db.pool())
        .await?,
        ..Schema::default()
    };
    for migration in MIGRATOR.iter() {
        match applied.iter().find(|(version, ..)| *version == migration.version) {
            None => schema.missing.push(migration.version),
            Some((version, _, false)) => schema.unfinished.push(*version),
            Some((version, checksum, _)) if checksum.as_slice() != migration.checksum.as_ref() => {
                schema.altered.push(*version);
            }
            Some(_) => {}
        }
    }
    let known = |version| MIGRATOR.iter().any(|migration| migration.version == version);
    let unknown = applied.iter().filter(|(version, ..)| !known(*version));
    for (version, _, success) in unknown {
        let list = if *success { &mut schema.newer } else { &mut schema.unfinished };
        list.push(*version);
    }
    Ok(schema)
}

/// Tables with a tenant that row-level security does not hold: not forced, or with a policy of the app
/// role that does not ask for the tenant; and how many tables it holds.
pub async fn row_security(db: &Db) -> Result<(Vec<String>, i64), StoreError> {
    let tables: Vec<(String, bool)> = sqlx::query_as(
        "SELECT c.relname::text,
                c.relrowsecurity AND c.relforcerowsecurity AND NOT EXISTS (
                    SELECT FROM pg_policy p
                    WHERE p.polrelid = c.oid
                      AND p.polroles <> ARRAY(SELECT oid FROM pg_roles WHERE rolname = 'bailiwick_owner')
                      AND coalesce(pg_get_expr(p.polqual, p.polrelid), 'true') NOT LIKE '%current_tenant()%')
         FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
           -- Partitions are reached through their table alone; `tenants` is how a tenant is found.
           AND NOT c.relispartition AND c.relname <> 'tenants'
         ORDER BY c.relname",
    )
    .fetch_all(db.pool())
    .await?;
    let held = tables.iter().filter(|(_, held)| *held).count();
    let open = tables.into_iter().filter(|(_, held)| !held).map(|(name, _)| name).collect();
    Ok((open, i64::try_from(held).unwrap_or(i64::MAX)))
}

/// Partitions that the serving role could reach past the policies of their table.
pub async fn open_partitions(db: &Db) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c
         WHERE c.relnamespace = 'public'::regnamespace AND c.relispartition AND c.relkind IN ('r', 'p')
           AND has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE')
         ORDER BY c.relname",
    )
    .fetch_all(db.pool())
    .await?)
}

/// One table that is partitioned by month.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Partitioned {
    pub table: String,
    /// How many months from the present one on have their partition, without a gap; 0: not even this.
    pub months: i64,
    /// Rows in the default partition, as the statistics know them: they came when none was there.
    pub strays: i64,
}

/// Partitions from the month of `now` on.
pub async fn partitions(db: &Db, now: Timestamp) -> Result<Vec<Partitioned>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT t.relname::text AS \"table\",
                coalesce((
                    SELECT min(step) FROM generate_series(0, 24) AS g (step)
                    WHERE NOT EXISTS (
                        SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                        WHERE i.inhparent = t.oid
                          AND c.relname = t.relname || '_' || to_char(
                              ($1 AT TIME ZONE 'UTC') + make_interval(months => step), 'YYYYMM'))
                ), 25)::bigint AS months,
                coalesce((SELECT pg_stat_get_live_tuples(d.oid) FROM pg_class d
                          WHERE d.relnamespace = t.relnamespace
                            AND d.relname = t.relname || '_default'), 0) AS strays
         FROM pg_class t
         WHERE t.relnamespace = 'public'::regnamespace AND t.relkind = 'p'
         ORDER BY t.relname",
    )
    .bind(now)
    .fetch_all(db.pool())
    .await?)
}

/// A process that renewed its lease lately.
#[derive(Debug, Clone)]
pub struct Node {
    pub kind: String,
    /// `''`: a version that did not say.
    pub version: String,
}

/// Nodes that have not ended and were alive within `seen`; each renews its lease for `lease`.
pub async fn nodes(db: &Db, seen: Duration, lease: Duration) -> Result<Vec<Node>, StoreError> {
    Ok(sqlx::query_as!(
        Node,
        "SELECT kind, version FROM nodes
         WHERE ended_at IS NULL
           AND lease_expires_at > clock_timestamp() + ($2::bigint - $1::bigint) * interval '1 millisecond'
         ORDER BY started_at",
        millis(seen),
        millis(lease),
    )
    .fetch_all(db.pool())
    .await?)
}

/// What a tick has missed.
#[derive(Debug, Clone)]
pub struct Tick {
    pub name: String,
    /// It has been due for longer than it may be.
    pub late: bool,
    /// It has not succeeded for longer than its period.
    pub failing: bool,
}

/// All ticks. `late` and `failing` say from when on they are.
pub async fn ticks(db: &Db, late: Duration, failing: Duration) -> Result<Vec<Tick>, StoreError> {
    Ok(sqlx::query_as!(
        Tick,
        r#"SELECT name,
                  due_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                      AND coalesce(lease_expires_at < clock_timestamp(), true) AS "late!",
                  -- One that never was done has been tried more than once or twice by now.
                  coalesce(done_at < clock_timestamp() - $2::bigint * interval '1 millisecond', epoch > 2)
                      AS "failing!"
           FROM ticks ORDER BY name"#,
        millis(late),
        millis(failing),
    )
    .fetch_all(db.pool())
    .await?)
}

/// Jobs of one queue that do not move.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Queue {
    pub queue: String,
    /// Due, and nobody took them.
    pub waiting: i64,
    /// Taken, and not done.
    pub held: i64,
    /// Tried as often as a job is.
    pub given_up: i64,
}

/// Queues with jobs that have been due or held for longer than `stuck`, or that were given up.
pub async fn jobs(db: &Db, stuck: Duration) -> Result<Vec<Queue>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT * FROM (
             SELECT job_type AS queue,
                    count(*) FILTER (
                        WHERE (status = 'Pending' OR (status = 'Failed' AND attempts < max_attempts))
                          AND run_at < old) AS waiting,
                    count(*) FILTER (WHERE status IN ('Queued', 'Running') AND lock_at < old) AS held,
                    count(*) FILTER (WHERE status = 'Failed' AND attempts >= max_attempts) AS given_up
             FROM apalis.jobs, (SELECT clock_timestamp() - $1 * interval '1 millisecond') AS o (old)
             GROUP BY job_type) AS q
         WHERE waiting + held + given_up > 0
         ORDER BY queue",
    )
    .bind(millis(stuck))
    .fetch_all(db.pool())
    .await?)
}

/// Calls that are open although nobody makes them any more, at most `most`.
pub async fn dead_calls(db: &Db, most: i32) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM due_dead_calls($1)"#, most)
        .fetch_one(db.pool())
        .await?)
}

/// Questions whose time is over, or whose owner is gone, at most `most`.
pub async fn dead_questions(db: &Db, now: Timestamp, most: i32) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM due_questions($1, $2)"#, now, most)
        .fetch_one(db.pool())
        .await?)
}

/// All tenants, by name.
pub async fn tenants(db: &Db) -> Result<Vec<(TenantId, String)>, StoreError> {
    let rows = sqlx::query!("SELECT tenant_id, slug FROM tenants ORDER BY slug")
        .fetch_all(db.pool())
        .await?;
    Ok(rows.into_iter().map(|row| (TenantId(row.tenant_id), row.slug)).collect())
}

/// People of the transaction's tenant who may configure it.
pub async fn superadmins(tx: &mut Tx) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM users
           WHERE tenant_id = $1 AND role = 'superadmin' AND status = 'active'"#,
        tx.tenant().0,
    )
    .fetch_one(tx.conn())
    .await?)
}

/// A server that is switched on.
#[derive(Debug, Clone)]
pub struct EnabledServer {
    pub name: String,
    pub transport: String,
    pub status: String,
    /// Our words, never the peer's.
    pub status_error: Option<String>,
    /// Tools that agents do not get: the definition changed, or cannot be used.
    pub withheld_tools: i64,
}

/// Servers of the transaction's tenant that are switched on, by name.
pub async fn enabled_servers(tx: &mut Tx) -> Result<Vec<EnabledServer>, StoreError> {
    Ok(sqlx::query_as!(
        EnabledServer,
        r#"SELECT name, transport, status, status_error,
                  (SELECT count(*) FROM mcp_tools t
                   WHERE t.tenant_id = s.tenant_id AND t.server_id = s.server_id
                     AND t.removed_at IS NULL AND t.pin <> 'approved') AS "withheld_tools!"
           FROM mcp_servers s WHERE tenant_id = $1 AND enabled ORDER BY lower(name)"#,
        tx.tenant().0,
    )
    .fetch_all(tx.conn())
    .await?)
}

/// When a token of the transaction's tenant ends by itself.
pub async fn token_ends(tx: &mut Tx, id: TokenId) -> Result<Option<Timestamp>, StoreError> {
    Ok(sqlx::query_scalar!(
        "SELECT expires_at FROM api_tokens WHERE tenant_id = $1 AND token_id = $2",
        tx.tenant().0,
        id.0,
    )
    .fetch_optional(tx.conn())
    .await?)
}
