//! The command line and the surroundings of a child.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use domain::{Code, Error, limits};
use rustix::process::{Resource, Rlimit};
use secrecy::ExposeSecret;
use tempfile::TempDir;

use super::{
    StdioRules,
    account::{self, Account},
};
use crate::mcp::Program;

/// Where a program runs and what it may touch.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    /// `None`: its private home.
    pub(super) cwd: Option<PathBuf>,
    pub(super) writable: Vec<PathBuf>,
    pub(super) rules: &'a StdioRules,
}

/// A command ready to be started.
#[derive(Debug)]
pub(super) struct Laid {
    pub(super) command: Command,
    /// The home on the host, where the sandbox has none of its own.
    pub(super) home: Option<TempDir>,
    pub(super) limits: Vec<(Resource, Rlimit)>,
    /// Forbid privileges before the first program runs. Not where that one needs them.
    pub(super) no_new_privileges: bool,
}

impl Surroundings<'_> {
    /// Says early and in clear words what would otherwise be an exit code.
    pub(super) fn must_exist(&self, command: &Path) -> Result<(), Error> {
        if !fs::metadata(command).is_ok_and(|found| found.is_file()) {
            return Err(misconfigured("the server's program does not exist on this host"));
        }
        if self.cwd.as_ref().is_some_and(|cwd| !cwd.is_dir()) {
            return Err(misconfigured(
                "the server's working directory does not exist on this host",
            ));
        }
        Ok(())
    }
}

/// Without a sandbox that has a file system of its own.
pub(super) fn bare(
    program: &Program,
    around: &Surroundings<'_>,
    account: Option<&Account>,
) -> Result<Laid, Error> {
    let mut home = tempfile::Builder::new();
    home.prefix("bailiwick-").permissions(Permissions::from_mode(0o700));
    let home = home.tempdir().map_err(no_home)?;
    let mut command = Command::new(&program.command);
    command.args(&program.args).current_dir(around.cwd.as_deref().unwrap_or(home.path()));
    surround(&mut command, program, home.path(), home.path());
    if let Some(Account { uid, gid, .. }) = account {
        chown(home.path(), Some(*uid), Some(*gid)).map_err(no_home)?;
        command.uid(*uid).gid(*gid);
    }
    let limits = limits(account);
    Ok(Laid { command, home: Some(home), limits, no_new_privileges: true })
}

/// An environment of its own, pipes, and a process group.
pub(super) fn surround(command: &mut Command, program: &Program, home: &Path, scratch: &Path) {
    const SEARCHED: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    // A script beside its interpreter finds that one first.
    let own = program.command.parent().and_then(Path::to_str).filter(|own| !own.contains(':'));
    let searched = own.map_or_else(|| SEARCHED.to_owned(), |own| format!("{own}:{SEARCHED}"));
    command.env_clear();
    command.env("LANG", "C.UTF-8");
    for (name, value) in &program.env {
        command.env(name, value.expose_secret());
    }
    command.env("PATH", searched).env("HOME", home).env("TMPDIR", scratch);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
}

/// What each child may use at most; never more than we may ourselves.
pub(super) fn limits(account: Option<&Account>) -> Vec<(Resource, Rlimit)> {
    let ours = rustix::process::geteuid();
    let processes = limits::STDIO_PROCESSES.default;
    let processes = match account {
        Some(_) => Some(processes),
        // Root is not held to it.
        None if ours.is_root() => None,
        // The kernel counts all that runs under the account, ours included.
        None => Some(processes + account::threads_of(ours.as_raw())),
    };
    let mut limits = vec![
        (Resource::Core, 0),
        (Resource::Nofile, limits::STDIO_FILES.default),
        (Resource::Data, limits::STDIO_MEMORY_BYTES.default),
    ];
    limits.extend(processes.map(|processes| (Resource::Nproc, processes)));
    let within = |resource, wanted: u64| {
        let most = rustix::process::getrlimit(resource).maximum;
        let value = Some(most.map_or(wanted, |most| most.min(wanted)));
        (resource, Rlimit { current: value, maximum: value })
    };
    limits.into_iter().map(|(resource, wanted)| within(resource, wanted)).collect()
}

pub(super) fn misconfigured(words: &str) -> Error {
    Error::new(Code::ServerMisconfigured, words)
}

fn no_home(error: io::Error) -> Error {
    Error::new(Code::UpstreamUnavailable, "no private directory can be made for the program")
        .because(error)
}
