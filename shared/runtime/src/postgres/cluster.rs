//! Making a cluster, and the command line that serves it.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Child;

use super::{
    PostgresOptions,
    account::{Account, private_dir, scratch},
    address::{Address, PORT, SUPERUSER},
    binaries::Binaries,
    error::{Error, While},
};
use crate::terminal;

/// A larger log is put aside when the server starts. It writes little: see [`arguments`].
const LOG_BYTES: u64 = 16 * 1024 * 1024;
/// Of the log in an error.
const LOG_TAIL_BYTES: u64 = 2_000;

/// Makes the cluster in `base/data`, unless there is one.
pub(super) async fn create(
    base: &Path,
    account: &Account,
    binaries: &Binaries,
    durable: bool,
) -> Result<(), Error> {
    let data = base.join("data");
    if data.join("PG_VERSION").exists() {
        return Ok(());
    }
    // Under its own name a cluster is complete, however this process ends.
    let unfinished = scratch(base, "data");
    private_dir(&unfinished, account)?;

    let mut command = account.command(&binaries.initdb());
    command.arg("--pgdata").arg(&unfinished).arg(format!("--username={SUPERUSER}"));
    // Trust: see the module's comment. Hosts: nothing listens, and if it did it would refuse.
    command.args(["--auth-local=trust", "--auth-host=reject", "--encoding=UTF8"]);
    // Sorted by bytes, which no update of the C library changes under our indexes; letters are
    // still known as letters.
    command.args(["--lc-collate=C", "--lc-ctype=C.UTF-8", "--text-search-config=english"]);
    command.arg("--no-instructions");
    if !durable {
        command.arg("--no-sync");
    }
    let output = command.output().await.during(|| "running initdb".to_owned())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Initdb { output: terminal::escape(said.trim()).into_owned() });
    }
    fs::rename(&unfinished, &data).during(|| format!("naming {}", data.display()))?;
    File::open(base).and_then(|base| base.sync_all()).during(|| "syncing".to_owned())
}

/// The server's arguments. The command line beats every file in the cluster.
pub(super) fn arguments(data: &Path, address: &Address, options: &PostgresOptions) -> Vec<String> {
    let socket_dir = address.socket_dir().display().to_string().replace('"', "\"\"");
    let mut settings: Vec<(&str, String)> = vec![
        ("listen_addresses", String::new()),
        // Quoted: it is a list, and a path may hold a comma.
        ("unix_socket_directories", format!("\"{socket_dir}\"")),
        ("unix_socket_permissions", "0700".to_owned()),
        ("port", PORT.to_owned()),
        ("max_connections", options.max_connections.to_string()),
        ("timezone", "UTC".to_owned()),
        ("log_timezone", "UTC".to_owned()),
        // Statements and details of errors hold what users wrote.
        ("log_min_error_statement", "panic".to_owned()),
        ("log_error_verbosity", "terse".to_owned()),
        ("log_checkpoints", "off".to_owned()),
    ];
    if !options.durable {
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            settings.push((name, "off".to_owned()));
        }
    }
    let extra = options.extra.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let mut arguments = vec!["-D".to_owned(), data.display().to_string()];
    for (name, value) in settings.into_iter().chain(extra) {
        arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
    }
    arguments
}

/// Whether the server that runs in `data` was started with these arguments: `postmaster.opts`
/// holds its command line, each argument in quotes.
pub(super) fn runs_with(data: &Path, arguments: &[String]) -> bool {
    let expected = format!(" \"{}\"", arguments.join("\" \""));
    fs::read_to_string(data.join("postmaster.opts"))
        .is_ok_and(|line| line.trim_end_matches('\n').ends_with(&expected))
}

/// Starts the server as a child of this process that outlives it.
pub(super) fn spawn(
    base: &Path,
    account: &Account,
    binaries: &Binaries,
    arguments: &[String],
) -> Result<Child, Error> {
    let log = open_log(base)?;
    let also = log.try_clone().during(|| "opening the log".to_owned())?;
    account
        .command(&binaries.postgres())
        .args(arguments)
        // From its first moment it is recognised as a server of this cluster.
        .current_dir(base.join("data"))
        .stdout(also)
        .stderr(log)
        .stdin(Stdio::null())
        // The terminal's Ctrl-C is for the launcher, which ends the server in its own order.
        .process_group(0)
        .kill_on_drop(false)
        .spawn()
        .during(|| "running postgres".to_owned())
}

/// The end of the server's log, for an error.
pub(super) fn log_tail(base: &Path) -> String {
    let read = || {
        let mut log = File::open(log_path(base))?;
        let length = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut tail = Vec::new();
        log.read_to_end(&mut tail)?;
        std::io::Result::Ok(tail)
    };
    let tail = read().unwrap_or_default();
    terminal::escape(String::from_utf8_lossy(&tail).trim()).into_owned()
}

fn open_log(base: &Path) -> Result<File, Error> {
    let path = log_path(base);
    if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES) {
        let aside = base.join("postgres.log.old");
        fs::rename(&path, aside).during(|| "putting the log aside".to_owned())?;
    }
    let mut open = OpenOptions::new();
    open.create(true).append(true).mode(0o600);
    open.open(&path).during(|| format!("opening {}", path.display()))
}

fn log_path(base: &Path) -> PathBuf {
    base.join("postgres.log")
}
