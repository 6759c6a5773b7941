//! The database itself: who we are there, what it is, how the schema stands.

use chrono::TimeDelta;
use domain::limits;
use store::doctor::Server;

use super::{Finding, Patient, ask, counted, look, named};

const ROLE: &str = "database role";
const SCHEMA: &str = "schema";
const ROWS: &str = "row-level security";
const PARTITIONS: &str = "partitions";
const CLOCK: &str = "clock";
const SETTINGS: &str = "postgres settings";
const CONNECTIONS: &str = "connections";

/// PostgreSQL 13, which has `gen_random_uuid` and `xid8`.
const OLDEST: i32 = 130_000;

/// The first question. `None`: the database does not answer.
pub(super) async fn server(patient: &Patient<'_>, findings: &mut Vec<Finding>) -> Option<Server> {
    let server = match look(store::doctor::server(patient.db)).await {
        Ok(server) => server,
        Err(unseen) => {
            findings.push(Finding::fail(
                "database",
                format!("does not answer: {unseen}"),
                "start it, or mend database_url: address, name of the database, role and password; \
                 what needs the database was not looked at",
            ));
            return None;
        }
    };
    let found = format!("PostgreSQL {}", server.version);
    findings.push(if server.version_number < OLDEST {
        Finding::fail("database", found, "move to PostgreSQL 13 or later")
    } else if server.encoding != "UTF8" {
        let found = format!("{found}, encoding {}", server.encoding);
        Finding::fail("database", found, "dump it into a database with the encoding UTF8")
    } else if server.read_only {
        let found = format!("{found}, read-only");
        Finding::fail("database", found, "let database_url name the primary, not a standby")
    } else {
        Finding::ok("database", found)
    });
    findings.push(role(&server));
    Some(server)
}

fn role(server: &Server) -> Finding {
    let as_app = "let database_url name the role bailiwick_app; `bailiwick migrate --admin-url URL` makes \
                  it, and takes away what it may not have";
    let role = &server.role;
    if server.superuser || server.bypasses_rows {
        let why = if server.superuser { "is a superuser" } else { "has BYPASSRLS" };
        let found = format!("{role} {why}: nothing keeps tenants apart");
        return Finding::fail(ROLE, found, as_app);
    }
    if role != store::setup::APP_ROLE {
        let found = format!("{role} is not the role that serves, and sees no rows");
        return Finding::fail(ROLE, found, as_app);
    }
    if server.owned_tables > 0 || server.creates_in_schema {
        let found = format!("{role} may change the schema");
        return Finding::fail(
            ROLE,
            found,
            "give the tables to bailiwick_owner and run `bailiwick migrate`",
        );
    }
    Finding::ok(ROLE, format!("{role}, neither superuser nor BYPASSRLS"))
}

/// How far our clock is from the database's.
pub(super) async fn clock(patient: &Patient<'_>, findings: &mut Vec<Finding>) {
    let before = patient.clock.now();
    let Some(theirs) = ask(CLOCK, findings, store::doctor::now(patient.db)).await else { return };
    let after = patient.clock.now();
    // Whatever lies within the question's own time is no difference.
    let off = if theirs < before {
        before - theirs
    } else if theirs > after {
        theirs - after
    } else {
        TimeDelta::zero()
    };
    let most =
        TimeDelta::milliseconds(i64::try_from(limits::CLOCK_SKEW_MS.default).unwrap_or(i64::MAX));
    let found = format!("{} ms from the database's", off.num_milliseconds());
    let mend = "let both machines follow a time server (chrony, systemd-timesyncd)";
    findings.push(if off > most * 10 {
        Finding::fail(CLOCK, found, mend)
    } else if off > most {
        Finding::warn(CLOCK, found, mend)
    } else {
        Finding::ok(CLOCK, found)
    });
}

/// Whether the rest can be asked: every migration of ours has run.
pub(super) async fn migrations(patient: &Patient<'_>, findings: &mut Vec<Finding>) -> bool {
    let Some(schema) = ask(SCHEMA, findings, store::doctor::schema(patient.db)).await else {
        return false;
    };
    let migrate = "run `bailiwick migrate` of this version (`up` does it when it starts), then start the service again";
    if !schema.unfinished.is_empty() {
        let found = format!("migration {} began and did not end", named(&schema.unfinished));
        let mend = "restore the database from its backup, or undo by hand what the migration did and \
                    delete its row of _sqlx_migrations; then run `bailiwick migrate`";
        findings.push(Finding::fail(SCHEMA, found, mend));
    }
    if !schema.altered.is_empty() {
        let found = format!("migration {} ran with another text", named(&schema.altered));
        let mend = "use the program that made this database, or one that follows it";
        findings.push(Finding::fail(SCHEMA, found, mend));
    }
    if !schema.missing.is_empty() {
        let lacks = counted(schema.missing.len(), "migration");
        findings.push(Finding::fail(
            SCHEMA,
            format!("older than this program: it lacks {lacks}"),
            migrate,
        ));
    } else if !schema.queue {
        findings.push(Finding::fail(SCHEMA, "the queue's tables are missing", migrate));
    }
    if !schema.newer.is_empty() {
        let found =
            format!("newer than this program, by {}", counted(schema.newer.len(), "migration"));
        findings.push(Finding::warn(SCHEMA, found, "bring this program up to date"));
    }
    let usable = schema.missing.is_empty() && schema.queue;
    let clean = schema.unfinished.is_empty() && schema.altered.is_empty();
    if usable && clean && schema.newer.is_empty() {
        findings.push(Finding::ok(SCHEMA, "at the version of this program"));
    }
    usable
}

/// The second wall between tenants.
pub(super) async fn rows(patient: &Patient<'_>, findings: &mut Vec<Finding>) {
    let mend = "find out who changed it; then, as bailiwick_owner, enable and force row security on \
                the table and give it back its policies, as `protect_tenant_table` of the migrations does";
    let tables = ask(ROWS, findings, store::doctor::row_security(patient.db)).await;
    let partitions = ask(ROWS, findings, store::doctor::open_partitions(patient.db)).await;
    let (Some((open, held)), Some(partitions)) = (tables, partitions) else { return };
    if !open.is_empty() {
        findings.push(Finding::fail(ROWS, format!("does not hold on {}", named(&open)), mend));
    }
    if !partitions.is_empty() {
        let found = format!("the role reaches {} past their table", named(&partitions));
        findings.push(Finding::fail(
            ROWS,
            found,
            "revoke all of bailiwick_app on these partitions",
        ));
    }
    if open.is_empty() && partitions.is_empty() {
        findings.push(Finding::ok(ROWS, format!("forced on {}", counted(held, "table"))));
    }
}

pub(super) async fn partitions(patient: &Patient<'_>, findings: &mut Vec<Finding>) {
    let question = store::doctor::partitions(patient.db, patient.clock.now());
    let Some(tables) = ask(PARTITIONS, findings, question).await else { return };
    let mend = "let a worker run (the tick make-partitions), or run `bailiwick migrate`";
    let before = findings.len();
    for table in &tables {
        let name = &table.table;
        if table.months == 0 {
            let found = format!("{name} has none for this month");
            findings.push(Finding::fail(PARTITIONS, found, mend));
        } else if table.months == 1 {
            let found = format!("{name} has none for the next month");
            findings.push(Finding::warn(PARTITIONS, found, mend));
        }
        if table.strays > 0 {
            let found = format!(
                "{} in {name}_default: they stay there for ever",
                counted(table.strays, "row")
            );
            let mend = "as bailiwick_owner, detach the default partition, make that of the month, and \
                        move the rows";
            findings.push(Finding::warn(PARTITIONS, found, mend));
        }
    }
    if findings.len() == before {
        let months = tables.iter().map(|table| table.months).min().unwrap_or_default();
        findings.push(Finding::ok(PARTITIONS, format!("made for {}", counted(months, "month"))));
    }
}

/// What the server was told that costs durability, or connections.
pub(super) async fn settings(
    patient: &Patient<'_>,
    server: &Server,
    nodes: usize,
    findings: &mut Vec<Finding>,
) {
    let names = [
        "fsync",
        "full_page_writes",
        "synchronous_commit",
        "idle_in_transaction_session_timeout",
        "max_connections",
        "superuser_reserved_connections",
    ];
    let Some(settings) = ask(SETTINGS, findings, store::doctor::settings(patient.db, &names)).await
    else {
        return;
    };
    let value = |name: &str| {
        settings.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    };
    let before = findings.len();
    let durable = ["fsync", "full_page_writes", "synchronous_commit"];
    let off: Vec<&str> = durable.into_iter().filter(|name| value(name) == "off").collect();
    if !off.is_empty() {
        let found = format!("off: {}; a crash loses calls that were answered", named(&off));
        findings.push(Finding::warn(SETTINGS, found, "set them to on, and reload"));
    }
    if value("idle_in_transaction_session_timeout") == "0" {
        findings.push(Finding::warn(
            SETTINGS,
            "idle_in_transaction_session_timeout does not reach the server: a silent node keeps its locks",
            "let the connection pooler pass start-up options on, or set it for the role bailiwick_app",
        ));
    }
    if findings.len() == before {
        findings.push(Finding::ok(SETTINGS, "durable, and a silent transaction is ended"));
    }
    connections(
        server,
        nodes,
        value("max_connections"),
        value("superuser_reserved_connections"),
        findings,
    );
}

fn connections(
    server: &Server,
    nodes: usize,
    most: &str,
    reserved: &str,
    findings: &mut Vec<Finding>,
) {
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    let room = number(most).saturating_sub(number(reserved));
    let nodes = u64::try_from(nodes.max(1)).unwrap_or(u64::MAX);
    let wanted = nodes.saturating_mul(limits::DATABASE_CONNECTIONS.default);
    let found = format!("{} may take {wanted} of {room} connections", counted(nodes, "node"));
    findings.push(if wanted > room {
        let mend = format!("raise max_connections of PostgreSQL {}", server.version);
        Finding::warn(CONNECTIONS, found, mend)
    } else {
        Finding::ok(CONNECTIONS, found)
    });
}
