//! An installation that is killed and started again.

use std::{
    fs::{self, File, Permissions},
    io,
    net::SocketAddr,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-under-test");
/// For a start on a busy machine: a cluster is made, or recovers.
const START: Duration = Duration::from_secs(90);

/// A data directory. Dropped, whatever runs on it is killed.
pub(crate) struct House {
    dir: tempfile::TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The private Postgres does not run as root and has to pass through.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
        Self { dir }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn postgres_data(&self) -> PathBuf {
        self.data().join("postgres/data")
    }

    /// The bare value of a file of the installation.
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.data().join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        text.trim_end().to_owned()
    }

    /// What everything that was started here has said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Starts a serving command, whatever becomes of it.
    fn spawn(&self, mut command: Command) -> Child {
        let log = File::options().create(true).append(true).open(self.dir.path().join("log"));
        command.stdout(Stdio::piped()).stderr(log.unwrap()).spawn().unwrap()
    }

    fn up_command(&self) -> Command {
        let mut command = program(&["up", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(self.data());
        command
    }

    /// `up` that nobody waits for.
    pub(crate) fn begin(&self) -> Child {
        self.spawn(self.up_command())
    }

    /// Starts `up` and waits for its line.
    pub(crate) async fn up(&self) -> Up {
        self.serve(self.up_command()).await.unwrap_or_else(|| panic!("no start: {}", self.log()))
    }

    /// Waits for the line of a serving command; `None`: it ended instead.
    pub(crate) async fn serve(&self, command: Command) -> Option<Up> {
        let mut child = self.spawn(command);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(START, lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("no line: {}", self.log())).unwrap()?;
        let url = line.strip_prefix("ready ").unwrap_or_else(|| panic!("{line:?}"));
        let url = url.trim_end_matches('/').to_owned();
        Some(Up { child, url, _lines: lines })
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, mut command: Command) -> Output {
        timeout(START, command.output()).await.expect("it ends").unwrap()
    }

    /// A command of the node `api` on the private Postgres, on a port of its own.
    pub(crate) fn api_command(&self) -> Command {
        let mut command = program(&["api", "--listen", "127.0.0.1:0"]);
        let objects = url::Url::from_directory_path(self.data().join("objects")).unwrap();
        command
            .env("BAILIWICK_DATABASE_URL", self.address().app_url())
            .env("BAILIWICK_OBJECT_STORE_URL", objects.as_str())
            .env("BAILIWICK_ENCRYPTION_KEYS", self.file("encryption-keys"));
        command
    }

    pub(crate) fn address(&self) -> runtime::postgres::Address {
        runtime::postgres::locate(&self.data().join("postgres")).unwrap()
    }

    /// A pool of the superuser, who sees every row and every connection; made while Postgres may be
    /// coming back.
    pub(crate) async fn superuser(&self) -> PgPool {
        let url = self.address().url("bailiwick", "postgres");
        let begin = Instant::now();
        loop {
            match PgPoolOptions::new().max_connections(3).connect(&url).await {
                Ok(pool) => return pool,
                Err(_) if begin.elapsed() < START => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("postgres does not come back: {error}; {}", self.log()),
            }
        }
    }

    /// The processes of the private Postgres: those that stay in its cluster.
    pub(crate) fn postgres(&self) -> Vec<Pid> {
        let data = self.postgres_data();
        processes(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == data))
    }

    /// kill -9 of the whole private Postgres, its first process first.
    pub(crate) async fn kill_postgres(&self) {
        let first = fs::read_to_string(self.postgres_data().join("postmaster.pid")).unwrap();
        let first = Pid::from_raw(first.lines().next().unwrap().parse().unwrap());
        let all = self.postgres();
        assert!(all.contains(&first), "{first} is the first of {all:?}");
        for pid in [first].iter().chain(&all) {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        gone(|| all.iter().filter(|pid| serves(**pid, &self.postgres_data())).count()).await;
    }

    /// Every process that has to do with this directory.
    pub(crate) fn everything(&self) -> Vec<Pid> {
        let dir = self.dir.path().as_os_str().as_bytes();
        let names = |bytes: io::Result<Vec<u8>>| {
            bytes.is_ok_and(|bytes| bytes.windows(dir.len()).any(|part| part == dir))
        };
        processes(|process| {
            names(fs::read(process.join("cmdline")))
                || names(fs::read(process.join("environ")))
                || fs::read_link(process.join("cwd"))
                    .is_ok_and(|cwd| cwd.starts_with(self.dir.path()))
        })
    }
}

/// A command of the program in an environment of its own.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let ours = name.to_str().is_some_and(|name| name.starts_with("BAILIWICK_"));
        if ours && name != "BAILIWICK_PG_BIN" {
            command.env_remove(name);
        }
    }
    command.env("BAILIWICK_EGRESS_ALLOW", "127.0.0.0/8").env("BAILIWICK_LOG_FORMAT", "json");
    command
}

impl Drop for House {
    fn drop(&mut self) {
        // A process that is about to end may start one more.
        for _ in 0..200 {
            let all = self.everything();
            if all.is_empty() {
                return;
            }
            for pid in all {
                let _ = kill(pid, Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        eprintln!("still running: {:?}", self.everything());
    }
}

fn processes(which: impl Fn(&Path) -> bool) -> Vec<Pid> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            number(entry).filter(|_| which(&path)).map(Pid::from_raw)
        })
        .collect()
}

fn serves(pid: Pid, data: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data)
}

async fn gone(left: impl Fn() -> usize) {
    tests::world::eventually("what was killed is gone", async || (left() == 0).then_some(())).await;
}

/// A serving process; killed when dropped.
pub(crate) struct Up {
    child: Child,
    pub(crate) url: String,
    /// Held open: a closed pipe would end whoever writes to it.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Up {
    pub(crate) fn address(&self) -> SocketAddr {
        self.url.strip_prefix("http://").unwrap().parse().unwrap()
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// kill -9; its Postgres stays.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) fn terminate(&self) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    }

    /// How it ended.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        timeout(START, self.child.wait()).await.expect("it ends").unwrap()
    }
}
