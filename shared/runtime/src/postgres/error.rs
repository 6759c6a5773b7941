//! Why there is no private Postgres, in words for the operator of this machine.

use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no usable postgres server was found ({}): run `apt install postgresql`, or set \
         BAILIWICK_PG_BIN to the directory of `postgres` and `initdb`", .tried.join("; ")
    )]
    NoBinaries { tried: Vec<String> },
    #[error(
        "{} was made by postgres {data}, but there is no usable server of that version ({}): run \
         `apt install postgresql-{data}`, or set BAILIWICK_PG_BIN", .dir.display(), .tried.join("; ")
    )]
    OtherVersion { dir: PathBuf, data: u32, tried: Vec<String> },
    #[error("another launcher (process {holder}) uses {}", .dir.display())]
    Held { dir: PathBuf, holder: String },
    #[error(
        "the account `{account}`, which runs the private postgres because it must not run as root, \
         may not enter {}: allow it with `chmod o+x`, or choose another data directory",
        .directory.display()
    )]
    NotSearchable { directory: PathBuf, account: String },
    #[error("there is neither an account `postgres` nor `nobody` to run the private postgres as")]
    NoAccount,
    #[error("{} belongs to root, and a postgres server must not run as root", .data.display())]
    OwnedByRoot { data: PathBuf },
    #[error("{} must be a directory of mode 0700 that belongs to user {uid}", .directory.display())]
    SocketDirectory { directory: PathBuf, uid: u32 },
    #[error("no private postgres has been started in {}", .dir.display())]
    NeverStarted { dir: PathBuf },
    #[error("initdb failed: {output}")]
    Initdb { output: String },
    #[error("postgres ended while it started ({status}): {log}")]
    Ended { status: String, log: String },
    #[error("postgres does not accept connections in time: {log}")]
    NotReady { log: String },
    #[error("postgres does not end (process {pid})")]
    StillRunning { pid: i32 },
    /// [`super::PrivatePostgres::stop`] was called meanwhile.
    #[error("the private postgres was stopped")]
    Stopped,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

/// Names what was tried when an operation of the system fails.
pub(super) trait While<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> While<T> for Result<T, E> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::Io { what: what(), source: error.into() })
    }
}
