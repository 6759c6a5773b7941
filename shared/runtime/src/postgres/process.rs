//! The server's processes as the kernel shows them. A number in a file proves nothing: after a
//! crash or a reboot it may be anybody's.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};

/// The processes that serve one cluster.
#[derive(Debug)]
pub(super) struct Processes {
    data: PathBuf,
    uid: Uid,
}

impl Processes {
    pub(super) fn new(data: PathBuf, uid: Uid) -> Self {
        Self { data, uid }
    }

    /// The server's first process: the one that `postmaster.pid` names, if it serves this cluster.
    pub(super) fn first(&self) -> Option<Pid> {
        self.noted().filter(|pid| self.serves(*pid))
    }

    /// Every process that serves this cluster: also what a killed first process left behind.
    pub(super) fn all(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        processes.filter_map(number).map(Pid::from_raw).filter(|pid| self.serves(*pid)).collect()
    }

    /// Removes `postmaster.pid` if it names a living process that does not serve this cluster:
    /// Postgres would take that one, if it has the same account, for its own. What names a dead
    /// process is left to Postgres, which also looks for shared memory still in use. Only when
    /// [`Processes::all`] is empty.
    pub(super) fn forget_stranger(&self) {
        if let Some(pid) = self.noted()
            && kill(pid, None) != Err(nix::errno::Errno::ESRCH)
            && !self.serves(pid)
        {
            tracing::warn!(pid = pid.as_raw(), "postmaster.pid names a process of somebody else");
            // If it stays, Postgres refuses to start and says why.
            let _ = fs::remove_file(self.data.join("postmaster.pid"));
        }
    }

    /// Signals a process that was just seen to serve this cluster.
    pub(super) fn signal(&self, pid: Pid, signal: Signal) {
        if self.serves(pid) {
            // It may have ended this moment, which is what callers wait for.
            let _ = kill(pid, signal);
        }
    }

    /// Signals every process that serves this cluster.
    pub(super) fn signal_all(&self, signal: Signal) {
        for pid in self.all() {
            self.signal(pid, signal);
        }
    }

    fn noted(&self) -> Option<Pid> {
        let file = fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        let pid = file.lines().next()?.trim().parse().ok()?;
        (pid > 1).then_some(Pid::from_raw(pid))
    }

    /// A process of the right account, named `postgres`, whose working directory is the cluster:
    /// that is where every process of a server stays. (A zombie has none.)
    fn serves(&self, pid: Pid) -> bool {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let same = |one: &Path, other: &Path| match (fs::metadata(one), fs::metadata(other)) {
            (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
            _ => false,
        };
        fs::metadata(&process).is_ok_and(|process| process.uid() == self.uid.as_raw())
            && fs::read_to_string(process.join("comm")).is_ok_and(|name| name == "postgres\n")
            && same(&process.join("cwd"), &self.data)
    }
}
