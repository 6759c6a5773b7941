//! bubblewrap (bwrap(1)): a child sees a read-only host without its secrets, and nobody else's
//! processes.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use domain::{Error, limits};

use super::{
    StdioRules,
    account::Account,
    command::{Laid, Place, limits, misconfigured, surround},
};
use crate::mcp::Program;

/// A bubblewrap that was seen to work.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    bwrap: PathBuf,
    /// setpriv(1), which changes the account inside; where we are root.
    setpriv: Option<PathBuf>,
}

/// Where programs of the system stand.
const DIRECTORIES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];
const HOME: &str = "/tmp/home";
/// Other people's files, sockets of services, and what passes through on its way.
const HIDDEN: [&str; 3] = ["/root", "/home", "/run"];
const SCRATCH: [&str; 2] = ["/tmp", "/var/tmp"];

impl Bubblewrap {
    /// Runs one for a moment, as children will be run. Otherwise says why there is none.
    pub(super) async fn find() -> Result<Self, String> {
        let program = |name: &str| {
            DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|p| p.exists())
        };
        let bwrap = program("bwrap").ok_or("bubblewrap is not installed")?;
        let setpriv = if rustix::process::geteuid().is_root() {
            Some(program("setpriv").ok_or("bubblewrap needs setpriv of util-linux beside it")?)
        } else {
            None
        };
        let found = Self { bwrap, setpriv };
        let mut command = tokio::process::Command::new(&found.bwrap);
        let nobody = found.setpriv.is_some().then_some((65_534, 65_534));
        command.args(found.arguments(&StdioRules::default(), &[], Path::new(HOME), nobody));
        command.arg(&found.bwrap).arg("--version");
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let ran = command.kill_on_drop(true).output();
        match tokio::time::timeout(limits::STDIO_PROBE_MS.millis(), ran).await {
            Ok(Ok(output)) if output.status.success() => Ok(found),
            Ok(Ok(output)) => {
                let said = String::from_utf8_lossy(&output.stderr);
                tracing::warn!(said = %said.escape_debug(), "bubblewrap does not work here");
                Err("bubblewrap may not make a sandbox here".to_owned())
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "bubblewrap cannot be started");
                Err("bubblewrap cannot be started".to_owned())
            }
            Err(_) => Err("bubblewrap did not make a sandbox in time".to_owned()),
        }
    }

    /// Whether children need an account of their own.
    pub(super) fn changes_account(&self) -> bool {
        self.setpriv.is_some()
    }

    pub(super) fn lay(
        &self,
        program: &Program,
        place: &Place<'_>,
        account: Option<&Account>,
    ) -> Result<Laid, Error> {
        if !is_shown(&program.command, place) {
            let words = "the server's program lies where children see nothing: the operator must \
                         list its directory as readable";
            return Err(misconfigured(words));
        }
        let cwd = place.cwd.as_deref().unwrap_or(Path::new(HOME));
        if place.cwd.is_some() && !is_shown(cwd, place) {
            let words = "the server's working directory lies where children see nothing: the \
                         operator must list it as readable";
            return Err(misconfigured(words));
        }
        let mut command = Command::new(&self.bwrap);
        let ids = account.map(|account| (account.uid, account.gid));
        command.args(self.arguments(place.rules, &place.writable, cwd, ids));
        command.arg(&program.command).args(&program.args);
        surround(&mut command, program, Path::new(HOME), Path::new("/tmp"));
        // Where it is installed with privileges of its own, it needs them; it forbids them inside.
        Ok(Laid { command, home: None, limits: limits(account), no_new_privileges: false })
    }

    /// Everything before the program. What comes later covers what came before.
    fn arguments(
        &self,
        rules: &StdioRules,
        writable: &[PathBuf],
        cwd: &Path,
        account: Option<(u32, u32)>,
    ) -> Vec<OsString> {
        let mut line = Line::default();
        line.add(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
        line.add(["--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
        if account.is_some() {
            line.add(["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]);
            line.add(["--cap-add", "CAP_SETPCAP"]);
        } else {
            line.add(["--unshare-user"]);
        }
        line.add(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
        let size = limits::STDIO_SCRATCH_BYTES.default.to_string();
        for scratch in SCRATCH.into_iter().filter(|path| is_own_directory(path)) {
            line.add(["--size", &size, "--perms", "1777", "--tmpfs", scratch]);
        }
        let hidden: Vec<&str> = HIDDEN.into_iter().filter(|path| is_own_directory(path)).collect();
        for hidden in &hidden {
            line.add(["--tmpfs", hidden]);
        }
        let names = fs::canonicalize("/etc/resolv.conf").ok();
        for names in names.iter().filter(|names| HIDDEN.iter().any(|top| names.starts_with(top))) {
            line.bind("--ro-bind", names);
        }
        for path in &rules.readable_paths {
            line.way_to(path);
            line.bind("--ro-bind-try", path);
        }
        for path in writable {
            line.way_to(path);
            line.bind("--bind-try", path);
        }
        for path in rules.hidden_paths.iter().filter_map(|path| fs::canonicalize(path).ok()) {
            if path.is_dir() {
                line.add([OsString::from("--tmpfs"), path.clone().into()]);
                line.add([OsString::from("--remount-ro"), path.into()]);
            } else {
                line.add([OsString::from("--ro-bind"), "/dev/null".into(), path.into()]);
            }
        }
        for hidden in &hidden {
            line.add(["--remount-ro", hidden]);
        }
        line.add(["--perms", "0777", "--dir", HOME]);
        line.add([OsString::from("--chdir"), cwd.into(), "--".into()]);
        if let (Some(setpriv), Some((uid, gid))) = (&self.setpriv, account) {
            line.add([setpriv]);
            line.add(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
            line.add(["--bounding-set", "-all", "--inh-caps", "-all", "--"]);
        }
        line.0
    }
}

#[derive(Default)]
struct Line(Vec<OsString>);

impl Line {
    fn add<A: Into<OsString>>(&mut self, arguments: impl IntoIterator<Item = A>) {
        self.0.extend(arguments.into_iter().map(Into::into));
    }

    /// Makes the directories above a path that stands where all is hidden: bubblewrap would close them
    /// to other accounts.
    fn way_to(&mut self, path: &Path) {
        let top = HIDDEN.iter().chain(&SCRATCH).find(|top| path.starts_with(top));
        let Some(top) = top.filter(|_| path.exists()) else { return };
        let above: Vec<&Path> =
            path.ancestors().skip(1).take_while(|above| *above != Path::new(top)).collect();
        for directory in above.into_iter().rev() {
            self.add(["--perms", "0755", "--dir"]);
            self.add([directory]);
        }
    }

    fn bind(&mut self, how: &str, path: &Path) {
        self.add([OsString::from(how), path.into(), path.into()]);
    }
}

/// A directory itself and not a link to one, which may be one of the others (`/var/tmp`).
fn is_own_directory(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Whether a child will find `path`.
fn is_shown(path: &Path, place: &Place<'_>) -> bool {
    let Ok(path) = fs::canonicalize(path) else { return false };
    let under = |list: &[PathBuf]| {
        list.iter().filter_map(|top| fs::canonicalize(top).ok()).any(|top| path.starts_with(top))
    };
    if under(&place.rules.hidden_paths) {
        return false;
    }
    let covered = HIDDEN.iter().chain(&SCRATCH).any(|top| path.starts_with(top));
    !covered || under(&place.rules.readable_paths) || under(&place.writable)
}
