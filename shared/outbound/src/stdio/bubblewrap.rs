//! bubblewrap (bwrap(1)): a child sees a read-only host without its secrets, and nobody else's
//! processes.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use domain::{Error, limits};

use super::{
    StdioRules,
    account::Account,
    command::{Laid, Surroundings, limits, misconfigured, surround},
};
use crate::mcp::Program;
use view::{HOME, Line, Tops, View};

mod trail;
mod view;

/// A bubblewrap that was seen to work.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    bwrap: PathBuf,
    /// setpriv(1), which changes the account inside; where we are root.
    setpriv: Option<PathBuf>,
    tops: Tops,
}

/// Why programs cannot be shut in by it; public words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoBubblewrap {
    #[error("bubblewrap is not installed")]
    NotInstalled,
    /// For root alone, whose children change their account.
    #[error("bubblewrap needs setpriv of util-linux beside it")]
    NoSetpriv,
    /// The kernel or a security module says so.
    #[error("bubblewrap may not make a sandbox here")]
    Forbidden,
    #[error("bubblewrap cannot be started")]
    NotStarted,
    #[error("bubblewrap did not make a sandbox in time")]
    Late,
    #[error("{0}")]
    Paths(String),
}

/// A program of the system that can be run.
fn installed(name: &str) -> Option<PathBuf> {
    let can_be_run = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(can_be_run)
}

/// Where programs of the system stand.
const DIRECTORIES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];

impl Bubblewrap {
    /// Runs one for a moment, as children will be run. Otherwise says why there is none.
    pub(super) async fn find() -> Result<Self, NoBubblewrap> {
        let bwrap = installed("bwrap").ok_or(NoBubblewrap::NotInstalled)?;
        let setpriv = if rustix::process::geteuid().is_root() {
            Some(installed("setpriv").ok_or(NoBubblewrap::NoSetpriv)?)
        } else {
            None
        };
        let found = Self { bwrap, setpriv, tops: Tops::default() };
        let view = View::of(&found.tops, &StdioRules::default(), &[], []);
        let view = view.map_err(|error| NoBubblewrap::Paths(error.public))?;
        let mut command = tokio::process::Command::new(&found.bwrap);
        let nobody = found.setpriv.is_some().then_some((65_534, 65_534));
        command.args(found.arguments(&view, Path::new(HOME), nobody));
        command.arg(&found.bwrap).arg("--version");
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let ran = command.kill_on_drop(true).output();
        match tokio::time::timeout(limits::STDIO_PROBE_MS.millis(), ran).await {
            Ok(Ok(output)) if output.status.success() => Ok(found),
            Ok(Ok(output)) => {
                let said = String::from_utf8_lossy(&output.stderr);
                tracing::warn!(said = %said.escape_debug(), "bubblewrap does not work here");
                Err(NoBubblewrap::Forbidden)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "bubblewrap cannot be started");
                Err(NoBubblewrap::NotStarted)
            }
            Err(_) => Err(NoBubblewrap::Late),
        }
    }

    /// Whether children need an account of their own.
    pub(super) fn changes_account(&self) -> bool {
        self.setpriv.is_some()
    }

    pub(super) fn lay(
        &self,
        program: &Program,
        around: &Surroundings<'_>,
        account: Option<&Account>,
    ) -> Result<Laid, Error> {
        let cwd = around.cwd.as_deref();
        let ways = [Some(program.command.as_path()), cwd];
        let view =
            View::of(&self.tops, around.rules, &around.writable, ways.into_iter().flatten())?;
        if !view.shows(&program.command) {
            let words = "the server's program lies where children see nothing: the operator must \
                         list its directory as readable";
            return Err(misconfigured(words));
        }
        if cwd.is_some_and(|cwd| !view.shows(cwd)) {
            let words = "the server's working directory lies where children see nothing: the \
                         operator must list it as readable";
            return Err(misconfigured(words));
        }
        let mut command = Command::new(&self.bwrap);
        let ids = account.map(|account| (account.uid, account.gid));
        command.args(self.arguments(&view, cwd.unwrap_or(Path::new(HOME)), ids));
        command.arg(&program.command).args(&program.args);
        surround(&mut command, program, Path::new(HOME), Path::new("/tmp"));
        // Where it is installed with privileges of its own, it needs them; it forbids them inside.
        Ok(Laid { command, home: None, limits: limits(account), no_new_privileges: false })
    }

    /// Everything before the program. What comes later covers what came before.
    fn arguments(&self, view: &View, cwd: &Path, account: Option<(u32, u32)>) -> Vec<OsString> {
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
        view.write(&mut line);
        line.add(["--perms", "0777", "--dir"]);
        line.add([view.home()]);
        line.add([OsString::from("--chdir"), cwd.into(), "--".into()]);
        if let (Some(setpriv), Some((uid, gid))) = (&self.setpriv, account) {
            line.add([setpriv]);
            line.add(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
            line.add(["--bounding-set", "-all", "--inh-caps", "-all", "--"]);
        }
        line.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// What a shell says in a sandbox with these tops; `None` where there is no bubblewrap.
    async fn said(tops: &Tops, rules: &StdioRules, script: &str) -> Option<String> {
        let found = match Bubblewrap::find().await {
            Ok(found) => Bubblewrap { tops: tops.clone(), ..found },
            Err(why) => {
                eprintln!("not tried on this machine: {why}");
                return None;
            }
        };
        let view = View::of(&found.tops, rules, &[], []).unwrap();
        let nobody = found.changes_account().then_some((65_534, 65_534));
        let mut command = Command::new(&found.bwrap);
        command.args(found.arguments(&view, Path::new("/"), nobody));
        let output = command.args(["/bin/sh", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap())
    }

    /// `home` and `tmp` of a host where both are links, below a directory of the test.
    fn host() -> (tempfile::TempDir, PathBuf, Tops) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir_in("/var/lib").or_else(|_| tempfile::tempdir()).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("disk/home/ann/tools")).unwrap();
        fs::create_dir_all(top.join("disk/home/ann/.ssh")).unwrap();
        fs::create_dir_all(top.join("disk/tmp")).unwrap();
        fs::write(top.join("disk/home/ann/.ssh/key"), "secret").unwrap();
        fs::write(top.join("disk/home/ann/tools/run"), "tool").unwrap();
        symlink("disk/home", top.join("home")).unwrap();
        symlink(top.join("disk/tmp"), top.join("tmp")).unwrap();
        symlink("ann", top.join("disk/home/me")).unwrap();
        let tops = Tops { hidden: vec![top.join("home")], scratch: vec![top.join("tmp")] };
        (dir, top, tops)
    }

    #[tokio::test]
    async fn a_home_that_is_a_link_is_covered_under_both_names() {
        let (_dir, top, tops) = host();
        let script = format!(
            "cd {} && ls -A home disk/home; cat home/ann/.ssh/key disk/home/ann/.ssh/key 2>&1 \
             | grep -c 'No such file'; touch tmp/new && ls disk/tmp",
            top.display()
        );
        let Some(said) = said(&tops, &StdioRules::default(), &script).await else { return };
        assert_eq!(said, "disk/home:\n\nhome:\n2\nhome\nnew\n");
        assert!(!top.join("disk/tmp/new").exists(), "the private one was written to");
    }

    #[tokio::test]
    async fn a_readable_path_below_links_is_found_by_its_own_name_and_nothing_beside_it() {
        let (_dir, top, tops) = host();
        let rules =
            StdioRules { readable_paths: vec![top.join("home/me/tools")], ..StdioRules::default() };
        let script = format!(
            "cd {} && cat home/me/tools/run disk/home/ann/tools/run; ls -A home/me home",
            top.display()
        );
        let Some(said) = said(&tops, &rules, &script).await else { return };
        assert_eq!(said, "tooltoolhome:\nann\nme\n\nhome/me:\ntools\n");
    }

    #[tokio::test]
    async fn a_wider_readable_path_shows_nothing_that_is_covered_below_it() {
        let (_dir, top, tops) = host();
        let readable_paths = vec![top.join("disk")];
        let rules = StdioRules { readable_paths, ..StdioRules::default() };
        let script = format!("ls -A {}", top.join("disk/home").display());
        let Some(said) = said(&tops, &rules, &script).await else { return };
        assert_eq!(said, "");
    }

    #[test]
    fn a_top_that_leads_to_everything_is_refused_by_name() {
        let (_dir, top, tops) = host();
        symlink("/", top.join("disk/home/all")).unwrap();
        let hidden_paths = vec![top.join("home/all")];
        let rules = StdioRules { hidden_paths, ..StdioRules::default() };
        let error = View::of(&tops, &rules, &[], []).unwrap_err();
        assert!(error.public.contains("home/all leads to /"), "{error}");

        symlink("round", top.join("round")).unwrap();
        let hidden_paths = vec![top.join("round")];
        let rules = StdioRules { hidden_paths, ..StdioRules::default() };
        let error = View::of(&tops, &rules, &[], []).unwrap_err();
        assert!(error.public.contains("round cannot be followed"), "{error}");
    }

    #[test]
    fn a_path_over_a_link_that_programs_can_change_is_refused() {
        let (_dir, top, tops) = host();
        fs::create_dir(top.join("work")).unwrap();
        symlink("/etc", top.join("work/link")).unwrap();
        let writable = [top.join("work"), top.join("work/link")];
        let error = View::of(&tops, &StdioRules::default(), &writable, []).unwrap_err();
        assert!(error.public.contains("work/link leads over the link"), "{error}");
    }

    #[test]
    fn what_is_hidden_below_a_directory_that_programs_can_rename_is_refused() {
        let (_dir, top, tops) = host();
        fs::create_dir_all(top.join("work/service/data")).unwrap();
        let hidden =
            |path: &str| StdioRules { hidden_paths: vec![top.join(path)], ..StdioRules::default() };
        let writable = [top.join("work")];
        let error = View::of(&tops, &hidden("work/service/data"), &writable, []).unwrap_err();
        assert!(error.public.contains("data is to be hidden and lies below"), "{error}");
        // Covered itself it is a mount, which nobody renames.
        View::of(&tops, &hidden("work/service"), &writable, []).unwrap();
        View::of(&tops, &hidden("disk"), &writable, []).unwrap();
    }
}
