//! A child and its end.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus};

use domain::limits;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tempfile::TempDir;
use tokio::{
    process::{ChildStdin, ChildStdout},
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{Held, Work, places::Uses, spawner, stderr::LastWords};

/// A running program.
#[derive(Debug)]
pub(crate) struct Child {
    /// Closed: the program is asked to end.
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) life: Life,
    /// To be dropped when requests are noted.
    pub(crate) starting: Work,
}

/// Dropped: the program is ended, with all that it started, however long it resists.
#[derive(Debug)]
pub(crate) struct Life {
    _stop: DropGuard,
    uses: Uses,
    watch: Watch,
}

/// Sees a program live, without keeping it alive. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    stop: CancellationToken,
    ended: watch::Receiver<Option<ExitStatus>>,
    pub(crate) last_words: LastWords,
}

impl Life {
    pub(crate) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Something begins in it; to be dropped when it is over. `None`: the program has to go.
    pub(crate) fn begin(&self) -> Option<Work> {
        self.uses.begin()
    }

    /// Whether nothing more begins in it.
    pub(crate) fn must_go(&self) -> bool {
        self.uses.must_go()
    }

    /// Asks the program to end. Whoever holds its standard input closes it.
    pub(crate) fn stop(&self) {
        self.watch.stop();
    }

    /// Waits until the program and all that it started are gone.
    pub(crate) async fn gone(&self) {
        self.watch.gone().await;
    }
}

impl Watch {
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until it is to end.
    pub(crate) async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    pub(crate) async fn gone(&self) {
        self.gone_as().await;
    }

    /// Waits until the program is gone; how it ended.
    pub(crate) async fn gone_as(&self) -> Option<ExitStatus> {
        let mut ended = self.ended.clone();
        ended.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }
}

/// How a program ended, for an error.
pub(crate) fn ending(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("the server's program ended (exit code {code})"),
        Some((_, Some(signal))) => format!("the server's program was ended by signal {signal}"),
        _ => "the server's program closed its output".to_owned(),
    }
}

/// Takes over a process that was just started. Its end is seen to from here on, whatever happens to
/// the [`Child`].
pub(super) fn adopt(
    mut process: tokio::process::Child,
    home: Option<TempDir>,
    held: Held,
    starting: Work,
    tasks: &TaskTracker,
    runtime: &Handle,
) -> io::Result<Child> {
    let group = Group(Some(spawner::pid(&process)?));
    let exit = Exit::of(spawner::pid(&process)?)?;
    let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("a pipe is missing"));
    };
    let last_words = LastWords::default();
    let reading = last_words.clone().collect(stderr);
    let (ended, receiver) = watch::channel(None);
    let (stop, uses) = (held.place.end.clone(), held.place.uses());
    let kept = Kept { group, process, exit, held, home };
    let stopping = stop.clone();
    let keeping = async move {
        // A process that escaped must not keep us reading.
        let mut reading = tokio::spawn(reading);
        let status = kept.until_gone(stopping).await;
        if tokio::time::timeout(limits::STDIO_LAST_WORDS_MS.millis(), &mut reading).await.is_err() {
            reading.abort();
        }
        ended.send_replace(Some(status));
    };
    tasks.spawn_on(keeping, runtime);
    let watch = Watch { stop: stop.clone(), ended: receiver, last_words };
    let life = Life { _stop: stop.drop_guard(), uses, watch };
    Ok(Child { stdin, stdout, life, starting })
}

/// In the order in which they are let go.
struct Kept {
    group: Group,
    process: tokio::process::Child,
    exit: Exit,
    held: Held,
    home: Option<TempDir>,
}

impl Kept {
    async fn until_gone(mut self, stop: CancellationToken) -> ExitStatus {
        let grace = limits::STDIO_GRACE_MS.millis();
        tokio::select! {
            () = self.exit.happened() => {}
            () = stop.cancelled() => {
                for signal in [Signal::TERM, Signal::KILL] {
                    if tokio::time::timeout(grace, self.exit.happened()).await.is_ok() {
                        break;
                    }
                    self.group.send(signal);
                }
                self.exit.happened().await;
            }
        }
        // The leader is dead but not yet reaped, so the group's number is still its own.
        self.group.send(Signal::KILL);
        self.group.0 = None;
        let status = self.process.wait().await;
        let Self { held, home, .. } = self;
        // Looks at the process table and at the disk.
        let left = tokio::task::spawn_blocking(move || drop((held, home)));
        if let Err(error) = left.await {
            tracing::error!(%error, "what a program left was not cleared");
        }
        status.unwrap_or_default()
    }
}

/// The process group of a child. Dropped, it is killed at once.
struct Group(Option<Pid>);

impl Group {
    fn send(&self, signal: Signal) {
        if let Some(leader) = self.0 {
            // Nobody there any more: what was wanted.
            let _gone = rustix::process::kill_process_group(leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.send(Signal::KILL);
    }
}

/// Sees a process end without reaping it: until then its number, and its group's, are no other's.
struct Exit {
    process: Pid,
    /// Some child of ours changed its state.
    changes: tokio::signal::unix::Signal,
}

impl Exit {
    fn of(process: Pid) -> io::Result<Self> {
        // Listening comes before the first look.
        Ok(Self { process, changes: signal(SignalKind::child())? })
    }

    async fn happened(&mut self) {
        while !self.has_happened() {
            self.changes.recv().await;
        }
    }

    fn has_happened(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(self.process), look) {
            Ok(ended) => ended.is_some(),
            Err(rustix::io::Errno::INTR) => false,
            Err(error) => {
                tracing::error!(%error, "a program cannot be watched any more");
                true
            }
        }
    }
}
