//! The wall between tenants, as the database keeps it by itself: found in its catalog, not listed.

use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use tests::world::{World, rows};
use uuid::Uuid;

const ACME: Uuid = Uuid::from_u128(0xa);
const GLOBEX: Uuid = Uuid::from_u128(0xb);

/// Tables without row-level security; the queue's own schema besides.
const GLOBAL: [&str; 6] = [
    "_sqlx_migrations",
    "nodes",
    "sign_in_throttles",
    "spent_delegation_tokens",
    "tenants",
    "ticks",
];

/// `insufficient_privilege`: no grant, or against a policy.
const REFUSED: &str = "42501";

#[tokio::test]
async fn the_app_role_is_neither_superuser_nor_above_rows() {
    let world = World::new().await;
    let app = world.app_role().await;
    let (name, superuser, bypass): (String, bool, bool) = sqlx::query_as(
        "SELECT current_user::text, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user",
    )
    .fetch_one(&app)
    .await
    .unwrap();
    assert_eq!((name.as_str(), superuser, bypass), ("bailiwick_app", false, false));
    let roles: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member
         WHERE r.rolname = 'bailiwick_app'",
    )
    .fetch_one(&app)
    .await
    .unwrap();
    assert_eq!(roles, 0, "it is no member of a role that could be more");
}

#[tokio::test]
async fn the_app_role_defines_nothing() {
    let world = World::new().await;
    let app = world.app_role().await;
    for statement in [
        "CREATE TABLE mine (id int)",
        "CREATE TEMPORARY TABLE mine (id int)",
        "CREATE TABLE apalis.mine (id int)",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql RETURN 1",
        "ALTER TABLE users ADD COLUMN mine int",
        "ALTER TABLE users DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant_rows ON users",
        "SELECT drop_partitions(now())",
        "SET ROLE bailiwick_owner",
    ] {
        let refused = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&app).await.unwrap_err();
        assert_eq!(code(&refused), REFUSED, "{statement}: {refused}");
    }
}

#[tokio::test]
async fn every_table_is_forced_behind_the_wall_or_known_to_be_global() {
    let world = World::new().await;
    let owner = world.owner().await;
    let unforced: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
           AND NOT (relrowsecurity AND relforcerowsecurity)
         ORDER BY relname",
    )
    .fetch_all(&owner)
    .await
    .unwrap();
    assert_eq!(unforced, GLOBAL);

    // A partition has no policy of its own: only its parent may be reached.
    let reachable: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relispartition
           AND (has_table_privilege('bailiwick_app', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')
                OR has_any_column_privilege('bailiwick_app', oid, 'SELECT, INSERT, UPDATE'))",
    )
    .fetch_all(&owner)
    .await
    .unwrap();
    assert!(reachable.is_empty(), "partitions that the app role reaches: {reachable:?}");
}

#[tokio::test]
async fn without_a_tenant_and_with_another_no_table_gives_or_takes_a_row() {
    let world = World::new().await;
    let owner = world.owner().await;
    seed(&owner).await;
    let before = rows::digest(&owner, None).await;

    // One connection: what a transaction leaves behind on it, the next would find.
    let app = world.app_role().await;
    let tables = rows::tenant_tables(&owner).await;
    assert!(tables.len() >= 18, "the catalog query finds the tables: {tables:?}");
    for table in &tables {
        let table = Table::look_up(&owner, table).await;
        for tenant in [None, Some(GLOBEX)] {
            table.is_readable_by_its_own(&app).await;
            table.gives_nothing(&app, tenant).await;
            table.is_readable_by_its_own(&app).await;
            table.takes_nothing(&app, tenant).await;
        }
    }
    assert_eq!(rows::digest(&owner, None).await, before);
}

#[tokio::test]
async fn a_migration_of_data_reaches_all_tenants() {
    let world = World::new().await;
    let owner = world.owner().await;
    seed(&owner).await;
    let changed = sqlx::query("UPDATE users SET email = 'new-' || email").execute(&owner).await;
    assert_eq!(changed.unwrap().rows_affected(), 2);
}

async fn seed(owner: &PgPool) {
    for tenant in [ACME, GLOBEX] {
        let statements = include_str!("tenancy/seed.sql").replace("$TENANT", &tenant.to_string());
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(owner).await.unwrap();
    }
}

/// A tenant table with what can be done to it.
struct Table {
    name: String,
    /// Such as can be written.
    columns: String,
    /// One that the app role may change, if any.
    updatable: Option<String>,
    deletable: bool,
    insertable: bool,
    /// A row of ACME.
    row: serde_json::Value,
}

impl Table {
    async fn look_up(owner: &PgPool, name: &str) -> Self {
        let (columns, updatable, insertable, deletable): (String, Option<String>, bool, bool) =
            sqlx::query_as(
                "SELECT string_agg(quote_ident(attname), ', ') FILTER (WHERE attidentity = ''),
                        min(quote_ident(attname)) FILTER (
                            WHERE has_column_privilege('bailiwick_app', attrelid, attnum, 'UPDATE')),
                        has_any_column_privilege('bailiwick_app', $1::regclass, 'INSERT'),
                        has_table_privilege('bailiwick_app', $1::regclass, 'DELETE')
                 FROM pg_attribute
                 WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
            )
            .bind(name)
            .fetch_one(owner)
            .await
            .unwrap();
        let statement = format!("SELECT to_jsonb(t) FROM {name} t WHERE tenant_id = $1 LIMIT 1");
        let row = sqlx::query_scalar(AssertSqlSafe(statement)).bind(ACME).fetch_optional(owner);
        let row = row.await.unwrap();
        let row = row.unwrap_or_else(|| panic!("{name} has no row in tests/it/tenancy/seed.sql"));
        Self { name: name.to_owned(), columns, updatable, deletable, insertable, row }
    }

    /// So that what follows finds nothing for another reason than that nothing is there; and the
    /// connection was ACME's last.
    async fn is_readable_by_its_own(&self, app: &PgPool) {
        let mut tx = app.begin().await.unwrap();
        become_tenant(&mut tx, Some(ACME)).await;
        assert!(self.count(&mut tx).await > 0, "{} shows its own tenant's rows", self.name);
        tx.commit().await.unwrap();
    }

    async fn gives_nothing(&self, app: &PgPool, tenant: Option<Uuid>) {
        let mut tx = app.begin().await.unwrap();
        become_tenant(&mut tx, tenant).await;
        let seen = self.count(&mut tx).await;
        assert_eq!(seen, 0, "{} seen as {tenant:?}", self.name);
    }

    async fn takes_nothing(&self, app: &PgPool, tenant: Option<Uuid>) {
        let (name, columns) = (&self.name, &self.columns);
        let column = self.updatable.as_deref().unwrap_or("tenant_id");
        let of_acme = format!("tenant_id = '{ACME}'");
        // Without a tenant no row at all is there; with another one, none of ACME's.
        let which = if tenant.is_none() { "true" } else { of_acme.as_str() };

        let update = format!("UPDATE {name} SET {column} = {column} WHERE {which}");
        self.is_in_vain(app, tenant, &update, self.updatable.is_some()).await;
        let delete = format!("DELETE FROM {name} WHERE {which}");
        self.is_in_vain(app, tenant, &delete, self.deletable).await;

        assert!(self.insertable, "{name} is filled by the app role");
        let mut tx = app.begin().await.unwrap();
        become_tenant(&mut tx, tenant).await;
        let insert = format!(
            "INSERT INTO {name} ({columns}) SELECT {columns} FROM jsonb_populate_record(NULL::{name}, $1)"
        );
        let inserted = sqlx::query(AssertSqlSafe(insert)).bind(&self.row).execute(&mut *tx).await;
        let refused = inserted.expect_err("a row of another tenant is not taken");
        assert_eq!(code(&refused), REFUSED, "INSERT INTO {name} as {tenant:?}: {refused}");
    }

    /// Touches no row where it may be said at all, and is refused where not.
    async fn is_in_vain(&self, app: &PgPool, tenant: Option<Uuid>, statement: &str, granted: bool) {
        let mut tx = app.begin().await.unwrap();
        become_tenant(&mut tx, tenant).await;
        match sqlx::query(AssertSqlSafe(statement)).execute(&mut *tx).await {
            Ok(done) => assert_eq!((done.rows_affected(), granted), (0, true), "{statement}"),
            Err(refused) => {
                assert_eq!(
                    (code(&refused).as_str(), granted),
                    (REFUSED, false),
                    "{statement}: {refused}"
                );
            }
        }
    }

    async fn count(&self, connection: &mut PgConnection) -> i64 {
        let statement = format!("SELECT count(*) FROM {} WHERE tenant_id = '{ACME}'", self.name);
        sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(connection).await.unwrap()
    }
}

async fn become_tenant(connection: &mut PgConnection, tenant: Option<Uuid>) {
    if let Some(tenant) = tenant {
        sqlx::query("SELECT set_config('app.tenant_id', $1, true)")
            .bind(tenant.to_string())
            .execute(connection)
            .await
            .unwrap();
    }
}

fn code(error: &sqlx::Error) -> String {
    let database = error.as_database_error();
    database.and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned()
}
