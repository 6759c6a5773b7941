//! An installation of `up`: running, spoiled, stopped.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Found, PROGRAM, doctor, mode};

/// A running `up`; killed with its Postgres at the end of the test.
struct Up {
    dir: tempfile::TempDir,
    child: Child,
}

impl Up {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The private Postgres does not run as root and has to pass through.
        mode(dir.path(), 0o711);
        let mut command = Command::new(PROGRAM);
        command.args(["up", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path().join("data"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
        Self { dir, child }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("data").join(name)
    }

    fn examine(&self) -> Found {
        let dir = self.dir.path().join("data").display().to_string();
        let output = doctor(&["--json", "--data-dir", &dir]).output().unwrap();
        let found = Found::of(&output);
        for name in ["admin-password", "admin-token", "agent-token", "encryption-keys", "seal-key"]
        {
            if let Ok(value) = fs::read_to_string(self.path(name)) {
                assert!(!found.text.contains(value.trim()), "the value of {name} is shown");
            }
        }
        found
    }

    fn stop(&mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let pid = fs::read_to_string(self.path("postgres/data/postmaster.pid")).unwrap_or_default();
        if let Some(Ok(pid)) = pid.lines().next().map(str::parse) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        }
    }
}

#[test]
fn an_installation_is_followed_from_its_first_start_to_its_end() {
    let mut up = Up::start();
    let found = up.examine();
    // What the disk of the tests holds is not ours to say.
    let trouble: Vec<String> =
        found.trouble().into_iter().filter(|one| !one.ends_with("disk space")).collect();
    assert_eq!(trouble, Vec::<String>::new(), "{found:#?}");
    found.has("ok", "data directory", "data");
    found.has("ok", "seal key", "closed to others");
    found.has("ok", "token files", "agent-token is usable until");
    found.has("ok", "nodes", "alive: up ");
    found.has("ok", "listener", "ready at");
    found.has("ok", "programs", "");

    mode(&up.path("seal-key"), 0o640);
    mode(&up.path("admin-token"), 0o604);
    let data = up.dir.path().join("data");
    let usual = fs::metadata(&data).unwrap().permissions().mode() & 0o777;
    mode(&data, 0o755);
    let found = up.examine();
    found.has("fail", "seal key", "others can read the file seal-key");
    found.has("fail", "file modes", "admin-token");
    found.has("fail", "data directory", "has mode 755");
    mode(&data, usual);
    mode(&up.path("seal-key"), 0o600);
    mode(&up.path("admin-token"), 0o600);

    fs::write(up.path("agent-token"), "blw_nobody\n").unwrap();
    fs::rename(up.path("encryption-keys"), up.path("elsewhere")).unwrap();
    fs::remove_file(up.path("admin-token")).unwrap();
    let found = up.examine();
    found.has("warn", "token files", "the token of agent-token: this token is not usable");
    found.has("warn", "token files", "missing: admin-token");
    found.has("fail", "encryption keys", "there are none");

    up.stop();
    let found = up.examine();
    found.has("fail", "database", "the private postgres does not run");
    found.has("warn", "listener", "nothing answers at http://127.0.0.1:");
    found.has("ok", "object store", "written, read and deleted");
    found.has("ok", "seal key", "closed to others");
}
