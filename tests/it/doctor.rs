//! `bailiwick doctor`: it names what was broken, and what mends it, and changes nothing.
#![expect(clippy::unwrap_used, reason = "a test, and what helps it, fails by panicking")]

mod broken;
mod installation;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use domain::Role;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use tests::world::{ENCRYPTION_KEY, World, rows};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-under-test");
const TROUBLESHOOTING: &str = include_str!("../../docs/troubleshooting.md");
const SEAL_KEY: &str = "c2VhbC1zZWFsLXNlYWwtc2VhbC1zZWFsLXNlYWwtMDA";

/// The program without the settings of whoever runs the tests.
fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("doctor").args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("BAILIWICK_")) {
            command.env_remove(name);
        }
    }
    command
}

/// What it found, and its exit status.
#[derive(Debug)]
struct Found {
    checks: Vec<Value>,
    status: i32,
    text: String,
}

impl Found {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let object: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {errors}"));
        let checks = object["checks"].as_array().unwrap().clone();
        let failed = checks.iter().any(|check| check["verdict"] == "fail");
        let status = output.status.code().unwrap();
        assert_eq!(
            (object["ok"].as_bool().unwrap(), status),
            (!failed, i32::from(failed)),
            "{text}"
        );
        for check in &checks {
            // Whatever is not fine says what mends it.
            assert_eq!(check["mend"].is_null(), check["verdict"] == "ok", "{check}");
            let heading = format!("\n### {}\n", check["what"].as_str().unwrap());
            assert!(
                TROUBLESHOOTING.contains(&heading),
                "docs/troubleshooting.md lacks {heading:?}"
            );
        }
        Self { checks, status, text }
    }

    /// The words of the one finding of this kind.
    #[track_caller]
    fn has(&self, verdict: &str, what: &str, words: &str) {
        let fits = |check: &&Value| {
            check["verdict"] == verdict
                && check["what"] == what
                && check["found"].as_str().unwrap().contains(words)
        };
        assert_eq!(
            self.checks.iter().filter(fits).count(),
            1,
            "{verdict} {what} {words}: {self:#?}"
        );
    }

    /// What is not `ok`, as `fail what`.
    fn trouble(&self) -> Vec<String> {
        let word = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
        let not_fine = self.checks.iter().filter(|check| check["verdict"] != "ok");
        not_fine
            .map(|check| format!("{} {}", word(check, "verdict"), word(check, "what")))
            .collect()
    }
}

/// A world as `api` and `worker` would have it: the doctor gets their settings.
struct House {
    world: World,
    objects: tempfile::TempDir,
    owner: PgPool,
}

/// What every world has: its Postgres is made for tests, no node is registered in it.
const USUAL: [&str; 2] = ["warn nodes", "warn postgres settings"];

impl House {
    async fn new() -> Self {
        let world = World::new().await;
        let acme = world.tenant("acme").await;
        world.user(&acme, "ann@acme.test", Role::Superadmin).await;
        let owner = world.owner().await;
        Self { world, objects: tempfile::tempdir().unwrap(), owner }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let port = self.world.url.port().unwrap();
        vec![
            ("BAILIWICK_DATABASE_URL", self.world.database.app_url.clone()),
            ("BAILIWICK_ENCRYPTION_KEYS", ENCRYPTION_KEY.to_owned()),
            ("BAILIWICK_SEAL_KEY", SEAL_KEY.to_owned()),
            ("BAILIWICK_OBJECT_STORE_URL", format!("file://{}", self.objects.path().display())),
            ("BAILIWICK_LISTEN", format!("127.0.0.1:{port}")),
        ]
    }

    /// With some settings replaced or added.
    async fn examine_with(&self, other: &[(&'static str, &str)]) -> Found {
        self.examine_by(doctor(&["--json"]), other).await
    }

    async fn examine_by(&self, mut command: Command, other: &[(&'static str, &str)]) -> Found {
        command.envs(self.settings());
        command.envs(other.iter().copied());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let found = Found::of(&output);
        for secret in [ENCRYPTION_KEY, SEAL_KEY, "hush-hush"] {
            assert!(!found.text.contains(secret), "{secret} is shown: {}", found.text);
        }
        found
    }

    async fn examine(&self) -> Found {
        self.examine_with(&[]).await
    }

    /// Breaks something, as the owner of the tables.
    async fn sql(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&self.owner).await.unwrap();
    }
}

// The API must answer while this thread waits for the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_installation_is_found_sound_and_nothing_is_changed() {
    let house = House::new().await;
    let before = rows::digest(&house.owner, None).await;
    let found = house.examine().await;
    assert_eq!(found.status, 0);
    assert_eq!(found.trouble(), USUAL);
    found.has("ok", "settings", "usable; set: database_url, listen, encryption_keys");
    found.has("ok", "database role", "bailiwick_app, neither superuser nor BYPASSRLS");
    found.has("ok", "schema", "at the version of this program");
    found.has("ok", "row-level security", "forced on");
    found.has("ok", "clock", "ms from the database's");
    found.has("ok", "partitions", "made for 7 months");
    found.has("ok", "stored secrets", "none");
    found.has("ok", "tenants", "1 tenant, each with a superadmin");
    found.has("ok", "object store", "written, read and deleted");
    found.has("ok", "listener", "ready at http://127.0.0.1:");
    assert_eq!(rows::digest(&house.owner, None).await, before);
    let left = std::fs::read_dir(house.objects.path()).unwrap();
    let left: Vec<PathBuf> = left.map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| std::fs::read_dir(path).unwrap().next().is_none()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_reads_a_line_for_each_with_what_mends_it() {
    let house = House::new().await;
    house.sql("UPDATE users SET status = 'disabled'").await;
    let mut command = doctor(&[]);
    command.envs(house.settings());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = text.lines().find(|line| line.starts_with("fail ")).unwrap();
    assert!(
        line.contains("tenants") && line.contains("  no active superadmin in acme  → add one: ")
    );
    assert!(text.lines().last().unwrap().contains("checks: 1 failed, 2 warned"), "{text}");
    let ok = text.lines().filter(|line| line.starts_with("ok    ")).count();
    assert!(ok > 12, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_are_wrong_hide_nothing_else() {
    let house = House::new().await;
    let config = house.objects.path().join("bailiwick.toml");
    std::fs::write(&config, "contact = \"ops@acme.test\"\n").unwrap();
    mode(&config, 0o644);
    let config = config.display().to_string();
    let found = house
        .examine_with(&[
            ("BAILIWICK_LIKE_THIS", "1"),
            ("BAILIWICK_PERMISSION_WAIT_SECONDS", "soon"),
            ("BAILIWICK_EGRESS_ALLOW", "0.0.0.0/0,169.254.169.254"),
            ("BAILIWICK_CONFIG", &config),
        ])
        .await;
    found.has("fail", "settings", "like_this (from BAILIWICK_LIKE_THIS): no such setting");
    found.has("fail", "settings", "permission_wait_seconds");
    found.has("warn", "settings", "can be read by others");
    found.has("warn", "egress", "0.0.0.0/0 lets every private network through");
    found.has("warn", "egress", "169.254.169.254/32 is never reached");
    found.has("ok", "schema", "at the version of this program");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_api_and_worker_need_is_named_when_it_is_missing() {
    let house = House::new().await;
    let found = house
        .examine_with(&[
            ("BAILIWICK_ENCRYPTION_KEYS", ""),
            ("BAILIWICK_OBJECT_STORE_URL", ""),
            ("BAILIWICK_SEAL_KEY", ""),
        ])
        .await;
    found.has("fail", "settings", "encryption_keys is not set");
    found.has("fail", "settings", "object_store_url is not set");
    found.has("warn", "seal key", "nothing can seal the audit");
    let nowhere = "file:///nowhere/objects";
    let found = house.examine_with(&[("BAILIWICK_OBJECT_STORE_URL", nowhere)]).await;
    found.has("fail", "object store", "cannot be opened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_costs_only_what_stands_in_it() {
    let house = House::new().await;
    let away = "postgres://bailiwick_app:hush-hush@127.0.0.1:1/bailiwick";
    let found = house.examine_with(&[("BAILIWICK_DATABASE_URL", away)]).await;
    found.has("fail", "database", "does not answer");
    found.has("ok", "object store", "written, read and deleted");
    found.has("ok", "encryption keys", "the primary first");
    found.has("ok", "listener", "ready at");
    assert_eq!(found.trouble(), ["fail database"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_row_security_does_not_hold_is_refused_by_name() {
    let house = House::new().await;
    let admin = house.world.database.admin_url.clone();
    let found = house.examine_with(&[("BAILIWICK_DATABASE_URL", &admin)]).await;
    found.has("fail", "database role", "is a superuser: nothing keeps tenants apart");
    let owner = house.world.database.owner_url.clone();
    let found = house.examine_with(&[("BAILIWICK_DATABASE_URL", &owner)]).await;
    found.has("fail", "database role", "bailiwick_owner is not the role that serves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_public_url_that_the_node_does_not_know_is_found() {
    let house = House::new().await;
    let public = [("BAILIWICK_PUBLIC_URL", "https://bailiwick.invalid")];
    let found = house.examine_with(&public).await;
    found.has("fail", "listener", "does not answer for the host bailiwick.invalid");
    found.has("warn", "public URL", "https://bailiwick.invalid cannot be reached from here");
    // Behind a proxy of the right name that serves something else.
    let others = tests::peer::Peer::start(tests::peer::Setup::modern()).await;
    let port = others.url().port().unwrap();
    let public = format!("http://127.0.0.1:{port}");
    let found = house.examine_with(&[("BAILIWICK_PUBLIC_URL", &public)]).await;
    found.has("fail", "public URL", "is answered by something else");
    let listen = format!("127.0.0.1:{port}");
    let found = house.examine_with(&[("BAILIWICK_LISTEN", &listen)]).await;
    found.has("fail", "listener", "another program answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_are_not_usable_are_usage() {
    assert_eq!(doctor(&["--loudly"]).output().unwrap().status.code(), Some(2));
    let nowhere = doctor(&["--json", "--data-dir", "/nowhere/at/all"]).output().unwrap();
    let found = Found::of(&nowhere);
    found.has("fail", "data directory", "no installation in /nowhere/at/all");
    assert_eq!(found.status, 1);
}

fn mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A server with one secret header, made by REST.
async fn server_with_a_secret(house: &House) {
    let acme = tests::world::Tenant { id: tenant(house).await, slug: "acme".to_owned() };
    let bea = house.world.user(&acme, "bea@acme.test", Role::Superadmin).await;
    let token = house.world.full_token(&bea).await;
    let form = json!({
        "name": "Tickets", "slug": "tickets", "transport": "http", "url": "http://127.0.0.1:9/mcp",
        "authMode": "shared_headers", "headers": { "X-Key": "hush-hush" }, "enabled": true,
    });
    let (status, body) = house.world.post(&token, "/api/mcp/servers", form).await;
    assert!(status.is_success(), "{body}");
}

async fn tenant(house: &House) -> domain::ids::TenantId {
    let found = sqlx::query_scalar("SELECT tenant_id FROM tenants WHERE slug = 'acme'");
    domain::ids::TenantId(found.fetch_one(&house.owner).await.unwrap())
}
