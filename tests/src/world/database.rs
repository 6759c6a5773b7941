//! One Postgres for all tests of a machine, one migrated template, one clone per test.
//!
//! `BAILIWICK_TEST_DATABASE_URL` (a superuser's) names the Postgres; otherwise a private one below
//! the target directory is started, or found alive: it stays for the next run. Each test is a
//! process of its own under nextest, so what they share is kept by locks in files and database.

use std::{
    fs::File,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use runtime::postgres::{self, PostgresOptions};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, postgres::PgConnectOptions};
use store::setup::{OWNER_ROLE, Setup};
use url::Url;
use uuid::Uuid;

/// Held while the template is made ("blwt" in ASCII).
const TEMPLATE_LOCK: i64 = 0x626c_7774;
/// Dropping a database writes a checkpoint: a test clears up after a few others and no more.
const CLEARED_AT_ONCE: i64 = 3;

/// A database of one test. Its advisory lock tells other tests that it is in use; when the test has
/// ended, however, one of them drops it.
#[derive(Debug)]
pub struct Database {
    pub admin_url: String,
    pub owner_url: String,
    pub app_url: String,
    /// Holds the lock.
    _admin: PgConnection,
}

impl Database {
    /// A fresh clone of the template.
    pub async fn create() -> Self {
        let server = server().await;
        let template = template(&server).await;
        let number = i64::from_be_bytes(Uuid::new_v4().as_bytes()[..8].try_into().unwrap());
        let name = format!("test_{number:016x}");

        let mut admin = connect(&server).await;
        sqlx::query("SELECT pg_advisory_lock($1)").bind(number).execute(&mut admin).await.unwrap();
        clear(&mut admin).await;
        run(&mut admin, &format!("CREATE DATABASE {name} TEMPLATE {template} OWNER {OWNER_ROLE}"))
            .await;
        // A database's own grants are not cloned.
        run(&mut admin, &format!("REVOKE CONNECT, TEMPORARY ON DATABASE {name} FROM PUBLIC")).await;
        run(&mut admin, &format!("GRANT CONNECT ON DATABASE {name} TO bailiwick_app")).await;
        Self {
            admin_url: with(&server, None, Some(&name)),
            owner_url: with(&server, Some(OWNER_ROLE), Some(&name)),
            app_url: with(&server, Some(store::setup::APP_ROLE), Some(&name)),
            _admin: admin,
        }
    }
}

/// Superuser's URL of the Postgres of this run. A database of that name need not be there.
pub async fn server() -> String {
    #[expect(clippy::disallowed_methods, reason = "the tests' one setting; runtime is under test")]
    if let Ok(url) = std::env::var("BAILIWICK_TEST_DATABASE_URL") {
        return url;
    }
    match private_postgres(&target_dir().join("tmp/postgres")).await {
        Ok(url) => url,
        // The checkout lies where only root may go, and Postgres never is root.
        Err(postgres::Error::NotSearchable { .. }) => {
            let place = Sha256::digest(target_dir().as_os_str().as_encoded_bytes());
            let name = format!("bailiwick-tests-{}", hex(&place[..6]));
            private_postgres(&std::env::temp_dir().join(name)).await.unwrap()
        }
        Err(error) => panic!("no postgres for the tests: {error}"),
    }
}

async fn private_postgres(dir: &Path) -> Result<String, postgres::Error> {
    postgres::create_data_dir(dir).unwrap();
    if let Ok(address) = postgres::locate(dir)
        && address.answers().await
    {
        return Ok(address.admin_url());
    }
    // One test starts it; the others wait here.
    let path = dir.join("starting");
    let _starting = tokio::task::spawn_blocking(move || {
        let file = File::create(path).unwrap();
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error).unwrap()
    })
    .await
    .unwrap();
    let options = PostgresOptions {
        durable: false,
        max_connections: 400,
        extra: vec![
            // Nothing here outlives a crash of the machine, and checkpoints cost time.
            ("max_wal_size".to_owned(), "4GB".to_owned()),
            ("checkpoint_timeout".to_owned(), "1h".to_owned()),
            ("autovacuum".to_owned(), "off".to_owned()),
        ],
        ..PostgresOptions::default()
    };
    // The server outlives the value: it is there for the tests after this one.
    Ok(postgres::start(dir, &options).await?.admin_url())
}

/// `target`, wherever cargo was told to put it: the test runs from `target/<profile>/deps`.
fn target_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists())
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), Path::to_owned)
}

/// The name of the database with this version's schema, made by whoever comes first, as the
/// operator would make it.
async fn template(server: &str) -> String {
    let mut hash = Sha256::new();
    for migration in store::MIGRATOR.iter() {
        hash.update(migration.version.to_be_bytes());
        hash.update(&migration.checksum);
    }
    hash.update(include_str!("../../../shared/store/src/setup.rs"));
    // Partitions are made for months from now on.
    hash.update(month());
    let name = format!("template_{}", hex(&hash.finalize()[..8]));

    let mut admin = connect(server).await;
    let known = "SELECT true FROM pg_database WHERE datname = $1 AND datistemplate";
    let there = async |admin: &mut PgConnection| {
        let found = sqlx::query_scalar::<_, bool>(known).bind(&name).fetch_optional(admin).await;
        found.unwrap().is_some()
    };
    if there(&mut admin).await {
        return name;
    }
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(TEMPLATE_LOCK)
        .execute(&mut admin)
        .await
        .unwrap();
    if there(&mut admin).await {
        return name;
    }
    run(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    store::setup::migrate(&Setup {
        admin_url: Some(server),
        owner_url: &with(server, Some(OWNER_ROLE), Some(&name)),
        owner_password: None,
        app_password: None,
    })
    .await
    .unwrap();
    run(&mut admin, &format!("ALTER DATABASE {name} IS_TEMPLATE true ALLOW_CONNECTIONS false"))
        .await;
    name
}

#[expect(clippy::disallowed_methods, reason = "the template is made by the clock of the database")]
fn month() -> String {
    chrono::Utc::now().format("%Y-%m").to_string()
}

/// Drops some databases of tests that ended.
async fn clear(admin: &mut PgConnection) {
    // A lock of 64 bits is shown as its two halves.
    let ended = sqlx::query_scalar::<_, String>(
        "SELECT datname::text FROM pg_database d
         WHERE datname ~ '^test_[0-9a-f]{16}$' AND NOT EXISTS (
             SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1
               AND 'test_' || lpad(to_hex(l.classid::bigint), 8, '0')
                           || lpad(to_hex(l.objid::bigint), 8, '0') = d.datname)
         LIMIT $1",
    )
    .bind(CLEARED_AT_ONCE)
    .fetch_all(&mut *admin)
    .await
    .unwrap();
    for name in ended {
        // Another test may be clearing the same one.
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        let _ = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *admin).await;
    }
}

/// Connects; a Postgres that just starts, or has no room this moment, is tried again.
async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).unwrap();
    let mut last = None;
    for _ in 0..100 {
        match options.connect().await {
            Ok(connection) => return connection,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the tests' postgres does not answer: {last:?}");
}

async fn run(admin: &mut PgConnection, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(admin).await.unwrap();
}

/// The same server for another role or database. The roles have no password: where the given URL
/// has one, its server must trust them.
fn with(server: &str, role: Option<&str>, database: Option<&str>) -> String {
    let mut url = Url::parse(server).unwrap();
    if let Some(role) = role {
        url.set_username(role).unwrap();
    }
    if let Some(database) = database {
        url.set_path(database);
    }
    url.into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
