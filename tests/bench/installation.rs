//! One `bailiwick up` as a child process.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use url::Url;

use crate::plan::Plan;

/// Making a cluster and bringing its schema up to date, on a machine that does other things too.
const READY: Duration = Duration::from_mins(2);
/// `up` ends within 10 s (docs/operating).
const END: Duration = Duration::from_secs(20);

/// Dropped, it is told to end, and its Postgres with it.
#[derive(Debug)]
pub(crate) struct Installation {
    child: Child,
    dir: PathBuf,
    pub(crate) url: Url,
}

impl Installation {
    /// Blocks until it is ready.
    pub(crate) fn start(plan: &Plan, dir: &Path) -> anyhow::Result<Self> {
        let log = dir.with_extension("log");
        let mut command = Command::new(&plan.binary);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("BAILIWICK_")) {
                command.env_remove(name);
            }
        }
        // Where a Postgres is found belongs to the machine.
        if let Some(binaries) = std::env::var_os("BAILIWICK_PG_BIN") {
            command.env("BAILIWICK_PG_BIN", binaries);
        }
        let child = command
            .arg("up")
            .arg("--data-dir")
            .arg(dir)
            .args(["--listen", "127.0.0.1:0"])
            .env("BAILIWICK_EGRESS_ALLOW", "127.0.0.0/8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("{} does not run", plan.binary.display()))?;
        let placeholder = Url::parse("http://127.0.0.1/")?;
        let mut installation = Self { child, dir: dir.to_owned(), url: placeholder };
        let said = installation.until_ready();
        installation.url = said.with_context(|| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(15).collect();
            let tail: Vec<&str> = lines.into_iter().rev().collect();
            format!("`bailiwick up` is not ready; it said:\n{}", tail.join("\n"))
        })?;
        Ok(installation)
    }

    fn until_ready(&mut self) -> anyhow::Result<Url> {
        let stdout = self.child.stdout.take().context("stdout is piped")?;
        let (send, receive) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("ready ") {
                    let _ = send.send(url.to_owned());
                }
            }
        });
        match receive.recv_timeout(READY) {
            Ok(url) => Ok(Url::parse(url.trim())?),
            Err(_) => match self.child.try_wait()? {
                Some(status) => bail!("it ended with {status}"),
                None => bail!("it printed no line `ready …`"),
            },
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn postgres_dir(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    /// Process id of its Postgres's first process.
    pub(crate) fn postgres_pid(&self) -> anyhow::Result<u32> {
        let file = fs::read_to_string(self.postgres_dir().join("data/postmaster.pid"))
            .context("its postgres left no process id")?;
        let first = file.lines().next().unwrap_or_default();
        first.trim().parse().context("the process id of its postgres is no number")
    }

    /// The value of one of the files that the first start makes.
    pub(crate) fn secret(&self, name: &str) -> anyhow::Result<String> {
        let path = self.dir.join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        Ok(text.trim().to_owned())
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        let postgres = self.postgres_pid();
        signal(self.child.id(), Signal::SIGTERM);
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        eprintln!("`bailiwick up` did not end when told to; it is killed");
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Ok(postgres) = postgres {
            signal(postgres, Signal::SIGQUIT);
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}
