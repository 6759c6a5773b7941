//! One thing broken at a time in the database, by its owner's hand.

use std::process::Command;

use app::{Clock, Vault, doctor::Patient};
use chrono::TimeDelta;
use tests::world::ENCRYPTION_KEY;

use super::{House, USUAL, server_with_a_secret};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hole_in_the_wall_between_tenants_is_found() {
    for (statement, words) in [
        ("ALTER TABLE users NO FORCE ROW LEVEL SECURITY", "does not hold on users"),
        ("ALTER TABLE mcp_tools DISABLE ROW LEVEL SECURITY", "does not hold on mcp_tools"),
        (
            "CREATE POLICY wide ON sessions TO bailiwick_app USING (true)",
            "does not hold on sessions",
        ),
        (
            "GRANT SELECT ON invocations_default TO bailiwick_app",
            "reaches invocations_default past their table",
        ),
    ] {
        let house = House::new().await;
        house.sql(statement).await;
        let found = house.examine().await;
        found.has("fail", "row-level security", words);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_older_newer_or_half_made_is_told_apart() {
    let house = House::new().await;
    house.sql("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (29990101000000, 'later', true, '', 1)").await;
    let found = house.examine().await;
    found.has("warn", "schema", "newer than this program, by 1 migration");
    assert_eq!(found.status, 0);

    house.sql("UPDATE _sqlx_migrations SET success = false WHERE version = 29990101000000").await;
    let found = house.examine().await;
    found.has("fail", "schema", "migration 29990101000000 began and did not end");

    house
        .sql("DELETE FROM _sqlx_migrations WHERE version = 29990101000000;
              UPDATE _sqlx_migrations SET checksum = 'x' WHERE version = (SELECT min(version) FROM _sqlx_migrations)")
        .await;
    house.examine().await.has("fail", "schema", "ran with another text");

    house.sql("DELETE FROM _sqlx_migrations WHERE version = (SELECT max(version) FROM _sqlx_migrations)").await;
    house.examine().await.has("fail", "schema", "older than this program: it lacks 1 migration");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_no_key_opens_is_counted_and_not_shown() {
    let house = House::new().await;
    server_with_a_secret(&house).await;
    let found = house.examine().await;
    found.has("ok", "stored secrets", "1 value by key");
    found.has("ok", "stored secrets", "(primary)");

    // An older key behind a new primary one still opens it.
    let new = "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItMDA=";
    let both = format!("{new},{ENCRYPTION_KEY}");
    let found = house.examine_with(&[("BAILIWICK_ENCRYPTION_KEYS", &both)]).await;
    found.has("ok", "stored secrets", "(older)");

    let found = house.examine_with(&[("BAILIWICK_ENCRYPTION_KEYS", new)]).await;
    found.has("fail", "stored secrets", "no key opens 1 header values of servers");
    found.has("fail", "stored secrets", "(not in the keyring)");

    // Under a key that is there, and spoiled.
    house.sql("UPDATE mcp_server_secrets SET sealed = 'spoiled'").await;
    let found = house.examine().await;
    found.has("fail", "stored secrets", "no key opens 1 header values of servers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_in_error_and_tools_withheld_are_named_with_our_words() {
    let house = House::new().await;
    server_with_a_secret(&house).await;
    house
        .sql("UPDATE mcp_servers SET status = 'error', status_error = 'the server does not answer'")
        .await;
    let found = house.examine().await;
    found.has("warn", "servers", "in error: acme/Tickets (the server does not answer)");

    house
        .sql("UPDATE mcp_servers SET status = 'ready', status_error = NULL;
              INSERT INTO mcp_tools (tenant_id, server_id, tool_id, agent_name, original_name, pin, problem, first_seen_at)
              SELECT tenant_id, server_id, 'odd', 'mcp__tickets__odd', 'odd', 'invalid', 'no schema', now()
              FROM mcp_servers WHERE slug = 'tickets'")
        .await;
    house.examine().await.has(
        "warn",
        "servers",
        "tools withheld from agents: acme/Tickets (1 tool)",
    );

    house.sql("UPDATE mcp_servers SET transport = 'stdio'").await;
    let found = house.examine().await;
    found.has("fail", "servers", "programs are off here: acme/Tickets");
}

const WORKER: &str =
    "INSERT INTO nodes (node_id, kind, place, serves_calls, lease_expires_at, version)
    VALUES (gen_random_uuid(), 'worker', 'there', false, now() + interval '1 minute', '0.0.1')";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_two_versions_are_named() {
    let house = House::new().await;
    house.sql(WORKER).await;
    let found = house.examine().await;
    found.has("warn", "nodes", "alive: worker 0.0.1; this program is ");
    house
        .sql(&WORKER.replace("'worker'", "'api'").replace("0.0.1", env!("CARGO_PKG_VERSION")))
        .await;
    let words = format!("alive: worker 0.0.1, api {}", env!("CARGO_PKG_VERSION"));
    house.examine().await.has("warn", "nodes", &words);
    // One that has not renewed its lease for a while is no node.
    house.sql("UPDATE nodes SET lease_expires_at = now() - interval '1 minute'").await;
    house.examine().await.has("warn", "nodes", "none was alive in the last 30 s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_nobody_does_is_a_warning_without_a_worker_and_a_failure_beside_one() {
    let house = House::new().await;
    house
        .sql(
            "INSERT INTO ticks (name, due_at) VALUES ('late-one', now() - interval '5 minutes');
              INSERT INTO ticks (name, due_at, epoch) VALUES ('failing-one', now(), 9);
              INSERT INTO apalis.jobs (job, id, job_type, status, run_at)
              VALUES ('{}', 'one', 'discover-tools', 'Pending', now() - interval '1 hour')",
        )
        .await;
    let found = house.examine().await;
    found.has("warn", "ticks", "late: late-one");
    found.has("fail", "ticks", "never succeed: failing-one");
    found.has("warn", "jobs", "due and not taken: 1 job of discover-tools");

    house.sql("UPDATE ticks SET epoch = 1, done_at = now() WHERE name = 'failing-one'").await;
    house.sql(WORKER).await;
    let found = house.examine().await;
    found.has("fail", "ticks", "late: late-one");
    found.has("fail", "jobs", "due and not taken: 1 job of discover-tools");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_questions_without_a_living_owner_are_counted() {
    let house = House::new().await;
    house
        .sql("INSERT INTO sessions (tenant_id, session_id, owner_user_id, title, permission_epoch_id, created_at)
              SELECT tenant_id, gen_random_uuid(), user_id, 'x', gen_random_uuid(), now() FROM users;
              INSERT INTO tool_calls (tenant_id, execution_id, call_id, invocation_id, session_id, node_id, state, created_at)
              SELECT tenant_id, gen_random_uuid(), '1', gen_random_uuid(), session_id, gen_random_uuid(), 'running', now() FROM sessions;
              INSERT INTO permission_requests (tenant_id, permission_request_id, session_id, user_id, owner_kind, execution_id,
                  tool_call_id, action, resource, resource_class, words, example, input_digest, input_shown, expires_at, created_at)
              SELECT tenant_id, gen_random_uuid(), session_id, owner_user_id, 'gateway', gen_random_uuid(),
                  '1', 'tool_call', 'a/b', 'a/b', 'w', 'e', decode(repeat('00', 32), 'hex'), '{}', now() - interval '1 minute', now()
              FROM sessions")
        .await;
    let found = house.examine().await;
    found.has("warn", "calls", "1 open though their node is dead");
    found.has("warn", "questions", "1 pending though their time is over");
    let expected = [USUAL[0], USUAL[1], "warn calls", "warn questions"];
    assert_eq!(found.trouble(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_month_without_its_partition_is_found() {
    let house = House::new().await;
    let drop = |months: u8| {
        format!(
            "DO $$ BEGIN EXECUTE format('DROP TABLE %I', 'invocations_' || to_char(
                 (now() AT TIME ZONE 'UTC') + make_interval(months => {months}), 'YYYYMM')); END $$"
        )
    };
    house.sql(&drop(1)).await;
    house.examine().await.has("warn", "partitions", "invocations has none for the next month");
    house.sql(&drop(0)).await;
    house.examine().await.has("fail", "partitions", "invocations has none for this month");
}

#[tokio::test]
async fn a_clock_that_differs_is_found() {
    let house = House::new().await;
    let vault = Vault::new(&ENCRYPTION_KEY.to_owned().into()).unwrap();
    for (minutes, verdict) in [(0, "ok"), (60, "fail"), (-60, "fail")] {
        // It stands still for as long as the looking takes, which is far below a second.
        let now = Clock::System.now() + TimeDelta::minutes(minutes);
        let clock = Clock::fixed(now);
        let patient =
            Patient { db: &house.world.ctx.db, vault: &vault, clock: &clock, stdio: false };
        let examined = app::doctor::database(&patient).await;
        let finding = examined.findings.iter().find(|finding| finding.what == "clock").unwrap();
        assert_eq!(finding.verdict.as_str(), verdict, "{finding:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_program_that_is_not_there_or_not_ours_is_found() {
    let house = House::new().await;
    let dir = house.objects.path();
    let (open, plain) = (dir.join("open"), dir.join("plain"));
    for (path, bits) in [(&open, 0o777), (&plain, 0o644)] {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        super::mode(path, bits);
    }
    let entry = |name: &str, path: &std::path::Path| {
        format!("[[stdio.allow]]\nname = \"{name}\"\ncommand = \"{}\"\n", path.display())
    };
    let list = [
        entry("gone", &dir.join("gone")),
        entry("open", &open),
        entry("plain", &plain),
        entry("fine", std::path::Path::new("/usr/bin/env")),
    ];
    let config = dir.join("bailiwick.toml");
    std::fs::write(&config, format!("[stdio]\nmode = \"allowlist\"\n{}", list.concat())).unwrap();
    super::mode(&config, 0o600);
    let config = config.display().to_string();
    let found = house.examine_with(&[("BAILIWICK_CONFIG", &config)]).await;
    found.has("fail", "programs", "gone: ");
    found.has("fail", "programs", "is no program");
    found.has("warn", "programs", "open: others may change ");
    let any = house.examine_with(&[("BAILIWICK_STDIO", "any")]).await;
    any.has("warn", "programs", "any program");
}

/// On a machine where one program of the system is missing.
fn without(missing: &str) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--dev-bind", "/", "/", "--ro-bind", "/dev/null", missing]);
    let doctor = super::doctor(&["--json"]);
    command.arg(doctor.get_program()).args(doctor.get_args());
    for (name, value) in doctor.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_that_the_sandbox_lacks_is_named() {
    if outbound::stdio::Stdio::without_bubblewrap().await.is_some() {
        eprintln!("not tried: bubblewrap does not work here");
        return;
    }
    let house = House::new().await;
    let stdio = [("BAILIWICK_STDIO", "any")];
    house.examine_with(&stdio).await.has("ok", "sandbox", "bubblewrap works");
    let mut missing = vec![("bwrap", "bubblewrap is not installed", "apt install bubblewrap")];
    if nix::unistd::geteuid().is_root() {
        missing.push(("setpriv", "needs setpriv of util-linux", "apt install util-linux"));
    }
    for (program, words, mend) in missing {
        let program = std::fs::canonicalize(format!("/usr/bin/{program}")).unwrap();
        let found = house.examine_by(without(program.to_str().unwrap()), &stdio).await;
        found.has("warn", "sandbox", words);
        let check = found.checks.iter().find(|check| check["what"] == "sandbox").unwrap();
        assert!(check["mend"].as_str().unwrap().contains(mend), "{check}");
    }
}
