//! One server: brought up, adopted, brought up again, ended.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use domain::limits;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::Child,
    sync::Mutex,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use super::{
    PostgresOptions,
    account::Account,
    address::Address,
    binaries::Binaries,
    cluster,
    error::{Error, While},
    process::Processes,
};

/// A start that fails because a crash is not over yet is repeated this often.
const STARTS: u32 = 3;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: Address,
    base: PathBuf,
    account: Account,
    binaries: Binaries,
    arguments: Vec<String>,
    processes: Processes,
    /// One at a time brings up or ends the server.
    turn: Mutex<()>,
    stopped: CancellationToken,
    /// Held as long as this value lives.
    _lock: File,
}

/// A started child that nobody has waited for yet: if the start is given up, it is told to end.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(pid) = self.0.as_ref().and_then(pid_of) {
            // Not reaped yet, so the number is still its own.
            let _ = kill(pid, Signal::SIGINT);
        }
    }
}

impl Server {
    /// Everything short of a running server: directory, lock, binaries, cluster, socket directory.
    pub(super) async fn prepare(dir: &Path, options: &PostgresOptions) -> Result<Self, Error> {
        let base = Account::base_dir(dir)?;
        let lock = lock(&base).await?;
        let data = base.join("data");
        let account = Account::choose(&data)?;
        account.check_reach(&base).await?;
        let binaries = Binaries::find(options.binaries.as_deref(), &base, &account).await?;
        cluster::create(&base, &account, &binaries, options.durable).await?;
        let address = Address::prepare(&base, &account)?;
        let arguments = cluster::arguments(&data, &address, options);
        let processes = Processes::new(data, account.uid);
        Ok(Self {
            address,
            base,
            account,
            binaries,
            arguments,
            processes,
            turn: Mutex::new(()),
            stopped: CancellationToken::new(),
            _lock: lock,
        })
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.processes.first()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_cancelled()
    }

    /// Returns when a server with our arguments accepts connections: the one that runs, or a new
    /// one.
    pub(super) async fn bring_up(&self) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let deadline = Instant::now() + limits::POSTGRES_START_SECONDS.seconds();
        if let Some(pid) = self.pid() {
            if cluster::runs_with(&self.base.join("data"), &self.arguments) {
                tracing::info!(pid = pid.as_raw(), "a private postgres is there, it is adopted");
                if self.until_ready(deadline, &mut Starting(None)).await? {
                    return Ok(());
                }
            } else {
                tracing::info!(
                    pid = pid.as_raw(),
                    "a private postgres has other settings, it is restarted"
                );
                self.end().await?;
            }
        }
        for attempt in 1.. {
            self.clear_up(deadline).await?;
            let child = cluster::spawn(&self.base, &self.account, &self.binaries, &self.arguments)?;
            let mut starting = Starting(Some(child));
            match self.until_ready(deadline, &mut starting).await {
                Ok(_) => {
                    tracing::info!(
                        pid = self.pid().map(Pid::as_raw),
                        version = self.binaries.major,
                        "a private postgres was started"
                    );
                    if let Some(child) = starting.0.take() {
                        tokio::spawn(reap(child));
                    }
                    return Ok(());
                }
                Err(Error::Ended { .. }) if attempt < STARTS => {
                    time::sleep(limits::POSTGRES_ORPHANS_MS.millis()).await;
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the loop has no other end")
    }

    /// Ends the server for good.
    pub(super) async fn stop(&self) -> Result<(), Error> {
        self.stopped.cancel();
        let _turn = self.turn.lock().await;
        self.end().await
    }

    /// Waits until the server answers. `false`: a server that is no child of ours ended instead.
    async fn until_ready(&self, deadline: Instant, starting: &mut Starting) -> Result<bool, Error> {
        loop {
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            if let Some(child) = &mut starting.0 {
                if let Some(status) =
                    child.try_wait().during(|| "waiting for postgres".to_owned())?
                {
                    starting.0 = None;
                    let log = cluster::log_tail(&self.base);
                    return Err(Error::Ended { status: status.to_string(), log });
                }
            } else if self.pid().is_none() {
                return Ok(false);
            }
            // The answer must be its own: at this moment another could hold the socket still.
            if self.address.answers().await && self.pid().is_some() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Err(Error::NotReady { log: cluster::log_tail(&self.base) });
            }
            time::sleep(limits::POSTGRES_POLL_MS.millis()).await;
        }
    }

    /// Makes way for a new server: waits until nothing serves the cluster any more and removes
    /// what a crash left behind.
    async fn clear_up(&self, deadline: Instant) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            let orphans = self.processes.all();
            let Some(first) = orphans.first() else { break };
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            if Instant::now() >= deadline {
                return Err(Error::StillRunning { pid: first.as_raw() });
            }
            if since.elapsed() >= limits::POSTGRES_ORPHANS_MS.millis() {
                // As their first process would have: they end without touching the data.
                self.processes.signal_all(Signal::SIGQUIT);
            }
            time::sleep(limits::POSTGRES_POLL_MS.millis()).await;
        }
        self.processes.forget_stranger();
        self.address.clear();
        Ok(())
    }

    async fn end(&self) -> Result<(), Error> {
        let stops = [
            (Signal::SIGINT, limits::POSTGRES_STOP_MS.millis()),
            (Signal::SIGQUIT, limits::POSTGRES_QUIT_MS.millis()),
        ];
        for (signal, patience) in stops {
            let deadline = Instant::now() + patience;
            // Without a first process, what is left of the server gets the signal.
            if let Some(first) = self.pid() {
                self.processes.signal(first, signal);
            } else {
                self.processes.signal_all(Signal::SIGQUIT);
            }
            while Instant::now() < deadline {
                if self.processes.all().is_empty() {
                    return Ok(());
                }
                time::sleep(limits::POSTGRES_POLL_MS.millis()).await;
            }
        }
        match self.processes.all().first() {
            Some(pid) => Err(Error::StillRunning { pid: pid.as_raw() }),
            None => Ok(()),
        }
    }
}

/// Takes the lock of `base`, waiting a moment for a holder that is dying.
async fn lock(base: &Path) -> Result<File, Error> {
    let path = base.join("lock");
    let what = || format!("locking {}", path.display());
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = open.open(&path).during(what)?;
    let deadline = Instant::now() + limits::POSTGRES_LOCK_WAIT_MS.millis();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                time::sleep(limits::POSTGRES_POLL_MS.millis()).await;
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message.
                let _ = file.read_to_string(&mut holder);
                let holder = crate::terminal::escape(holder.trim()).into_owned();
                return Err(Error::Held { dir: base.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(error).during(what),
        }
    }
    file.set_len(0).during(what)?;
    writeln!(file, "{}", std::process::id()).during(what)?;
    Ok(file)
}

/// Collects the child's end, so that it does not stay a zombie.
async fn reap(mut child: Child) {
    let pid = child.id();
    match child.wait().await {
        Ok(status) => tracing::info!(pid, %status, "the private postgres ended"),
        Err(error) => tracing::warn!(pid, %error, "the private postgres cannot be waited for"),
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
}
