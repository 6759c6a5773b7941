//! Accounts that children run under where this process is root: one for each, so that no child can
//! look at, signal or exhaust another.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, PoisonError},
};

use domain::{Code, Error, limits};
use rustix::process::{Pid, Signal};

/// First account unless the operator names another: the range that systemd gives to services
/// without one of their own (systemd, "Users, Groups, UIDs and GIDs"; 61184-65519).
const FIRST_UID: u32 = 61_184;
/// `nogroup`.
const NO_GROUP: u32 = 65_534;

#[derive(Debug, Clone)]
pub(super) struct Accounts(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    first: u32,
    gid: u32,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    uids: HashSet<u32>,
    /// Where the search begins: the account that was free for longest comes last.
    next: u32,
}

/// One account, its child's alone. Dropped: whatever still runs under it is killed.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pool: Arc<Pool>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self::new(FIRST_UID, NO_GROUP)
    }
}

impl Accounts {
    pub(super) fn new(first: u32, gid: u32) -> Self {
        // Other processes of ours on this host begin elsewhere.
        let next = std::process::id().wrapping_mul(7) % count();
        let taken = Mutex::new(Taken { uids: HashSet::new(), next });
        Self(Arc::new(Pool { first, gid, taken }))
    }

    /// An account that nothing on this host runs under.
    pub(super) fn take(&self) -> Result<Account, Error> {
        let pool = &self.0;
        let used = uids_in_use();
        let mut taken = pool.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for step in 0..count() {
            let uid = pool.first + (taken.next + step) % count();
            if !used.contains(&uid) && taken.uids.insert(uid) {
                taken.next = (uid - pool.first + 1) % count();
                return Ok(Account { uid, gid: pool.gid, pool: Arc::clone(pool) });
            }
        }
        let words = "no account is free to run another program under";
        Err(Error::new(Code::UpstreamUnavailable, words))
    }
}

/// Twice as many as may run: one that was just given back rests.
fn count() -> u32 {
    u32::try_from(2 * limits::STDIO_CHILDREN.default).unwrap_or(u32::MAX)
}

impl Drop for Account {
    fn drop(&mut self) {
        // Each round may meet a fork that the one before missed; who is gone from the process table
        // forks no more.
        for _ in 0..10 {
            let left = processes_of(self.uid);
            if left.is_empty() {
                break;
            }
            for pid in left {
                // Gone by itself in between: what was wanted.
                let _gone = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        let mut taken = self.pool.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.uids.remove(&self.uid);
    }
}

fn uids_in_use() -> HashSet<u32> {
    processes().map(|(_, uid)| uid).collect()
}

fn processes_of(uid: u32) -> Vec<Pid> {
    processes().filter(|(_, owner)| *owner == uid).map(|(pid, _)| pid).collect()
}

/// Processes and threads that count against the limit of an account (getrlimit(2), `RLIMIT_NPROC`).
pub(super) fn threads_of(uid: u32) -> u64 {
    let threads = |pid: Pid| {
        fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).map_or(1, Iterator::count)
    };
    processes_of(uid).into_iter().map(|pid| threads(pid) as u64).sum()
}

/// Every process with its effective user.
fn processes() -> impl Iterator<Item = (Pid, u32)> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        Some((pid, entry.metadata().ok()?.uid()))
    })
}
