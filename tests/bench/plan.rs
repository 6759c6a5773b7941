//! What this run was asked for.

use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use anyhow::Context;
use tempfile::TempDir;

/// `bailiwick` itself under another name: cargo builds it together with this bench, and as optimised.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-under-test");

#[derive(Debug)]
pub(crate) struct Plan {
    /// Of each figure.
    seconds: f64,
    pub(crate) sessions: usize,
    /// That are refreshed.
    pub(crate) connections: usize,
    pub(crate) json: Option<PathBuf>,
    dir: Option<PathBuf>,
    /// The program that is measured.
    pub(crate) binary: PathBuf,
}

impl Plan {
    pub(crate) fn of_environment() -> anyhow::Result<Self> {
        let binary = variable("BENCH_BIN").map_or_else(|| PROGRAM.into(), PathBuf::from);
        anyhow::ensure!(binary.is_file(), "{} is not there", binary.display());
        Ok(Self {
            seconds: number("BENCH_SECONDS", 4.0)?,
            sessions: number("BENCH_SESSIONS", 10_000)?,
            connections: number("BENCH_CONNECTIONS", 10_000)?,
            json: variable("BENCH_JSON").map(PathBuf::from),
            dir: variable("BENCH_DIR").map(PathBuf::from),
            binary,
        })
    }

    /// One of `turns` parts of a figure's time.
    pub(crate) fn turn(&self, turns: u32) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(turns))
    }

    /// Removed when dropped. The account of the private Postgres must pass through it, which holds no
    /// secret itself.
    pub(crate) fn directory(&self) -> anyhow::Result<TempDir> {
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let dir = tempfile::Builder::new().prefix("blw-bench-").tempdir_in(&parent);
        let dir = dir.with_context(|| format!("no directory below {}", parent.display()))?;
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o711))?;
        Ok(dir)
    }
}

fn number<N: std::str::FromStr>(name: &str, default: N) -> anyhow::Result<N> {
    match variable(name) {
        None => Ok(default),
        Some(text) => text.parse().ok().with_context(|| format!("{name} is no number: {text}")),
    }
}

/// An empty variable is an unset one: that is what make hands on.
fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "a bench has no settings file")]
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
