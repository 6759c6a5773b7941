//! Where a private Postgres is reached, and whether it answers.

use std::{
    fmt::Write,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use domain::limits;
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time,
};

use super::{
    account::{Account, private_dir},
    error::{Error, While},
};

/// Names only the socket's file (`.s.PGSQL.5432`): nothing listens on this or any port.
pub(super) const PORT: &str = "5432";
/// `sun_path` of unix(7) holds 108 bytes with its final zero.
const SOCKET_PATH_BYTES: usize = 107;
const SOCKET: &str = ".s.PGSQL.5432";
const RECORD: &str = "socket-directory";
pub(super) const SUPERUSER: &str = "postgres";

/// The socket of a private Postgres and the URLs that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// UTF-8, so that it can stand in a URL.
    socket_dir: PathBuf,
}

/// Where the server of `dir` listens, or listened last: for commands that work beside a running
/// `up`. Starts nothing and takes no lock; [`Address::answers`] tells whether it lives.
pub fn locate(dir: &Path) -> Result<Address, Error> {
    let record = dir.join(RECORD);
    match fs::read_to_string(&record) {
        Ok(socket_dir) => Ok(Address { socket_dir: socket_dir.trim_end_matches('\n').into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::NeverStarted { dir: dir.to_owned() })
        }
        Err(error) => Err(error).during(|| format!("reading {}", record.display())),
    }
}

impl Address {
    /// Chooses and makes the socket's directory for the server of `dir`, which is absolute, and
    /// notes it down.
    pub(super) fn prepare(dir: &Path, account: &Account) -> Result<Self, Error> {
        let near = dir.join("socket");
        let length = near.as_os_str().len() + 1 + SOCKET.len();
        let fits = length <= SOCKET_PATH_BYTES
            && near.to_str().is_some_and(|path| !path.contains(char::is_control));
        let socket_dir = if fits {
            private_dir(&near, account)?;
            near
        } else {
            let digest = hex::encode(Sha256::digest(dir.as_os_str().as_bytes()));
            let short = Path::new("/tmp").join(format!("blw-{}", &digest[..16]));
            // In /tmp somebody else may have been faster: what lies there must be ours.
            let made = private_dir(&short, account);
            let found = fs::symlink_metadata(&short).during(|| format!("{}", short.display()))?;
            let uid = account.uid.as_raw();
            if !found.is_dir() || found.uid() != uid || found.mode() & 0o7777 != 0o700 {
                return Err(Error::SocketDirectory { directory: short, uid });
            }
            made?;
            short
        };
        let record = dir.join(RECORD);
        fs::write(&record, format!("{}\n", socket_dir.display()))
            .during(|| format!("writing {}", record.display()))?;
        Ok(Self { socket_dir })
    }

    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// `postgres://ROLE@localhost/DATABASE?host=SOCKET_DIR`, which libpq and sqlx read alike.
    #[must_use]
    pub fn url(&self, database: &str, role: &str) -> String {
        let host = percent_encoded(self.socket_dir.to_str().unwrap_or_default());
        let (database, role) = (percent_encoded(database), percent_encoded(role));
        format!("postgres://{role}@localhost/{database}?host={host}")
    }

    /// The superuser, in the database `postgres`: to make roles and databases.
    #[must_use]
    pub fn admin_url(&self) -> String {
        self.url("postgres", SUPERUSER)
    }

    /// Role `bailiwick_owner` in database `bailiwick`: to migrate.
    #[must_use]
    pub fn owner_url(&self) -> String {
        self.url("bailiwick", "bailiwick_owner")
    }

    /// Role `bailiwick_app` in database `bailiwick`: to serve.
    #[must_use]
    pub fn app_url(&self) -> String {
        self.url("bailiwick", "bailiwick_app")
    }

    /// Whether a server accepts connections here now. One that is full does.
    ///
    /// Asked with a start-up packet of our own: the wheel need not have `pg_isready`, and a driver
    /// would be a large dependency for one question.
    pub async fn answers(&self) -> bool {
        let socket = self.socket_dir.join(SOCKET);
        matches!(
            time::timeout(limits::POSTGRES_ANSWER_MS.millis(), ask(&socket)).await,
            Ok(Ok(true))
        )
    }

    /// Removes the socket and its lock file. A restarted server would take a lock file for valid
    /// if another process of its account has the number that stands in there.
    pub(super) fn clear(&self) {
        for name in [SOCKET.to_owned(), format!("{SOCKET}.lock")] {
            // Whatever is left in the way, Postgres itself names when it starts.
            let _ = fs::remove_file(self.socket_dir.join(name));
        }
    }
}

/// PostgreSQL documentation, "Frontend/Backend Protocol", Message Formats: `StartupMessage`, and
/// the code field of `ErrorResponse`.
async fn ask(socket: &Path) -> io::Result<bool> {
    let mut stream = UnixStream::connect(socket).await?;
    let parameters = format!("user\0{SUPERUSER}\0database\0postgres\0\0");
    let length = u32::try_from(8 + parameters.len()).map_err(io::Error::other)?;
    let protocol: u32 = 3 << 16;
    let mut packet = [length.to_be_bytes(), protocol.to_be_bytes()].concat();
    packet.extend_from_slice(parameters.as_bytes());
    stream.write_all(&packet).await?;

    match stream.read_u8().await? {
        b'R' => {
            // Terminate: otherwise the server logs a lost connection.
            stream.write_all(&[b'X', 0, 0, 0, 4]).await?;
            Ok(true)
        }
        b'E' => {
            let mut fields = Vec::new();
            // No error text is longer; the server closes after it.
            stream.take(64 * 1024).read_to_end(&mut fields).await?;
            // cannot_connect_now: it starts, recovers or shuts down.
            Ok(!fields.windows(7).any(|field| field == b"C57P03\0"))
        }
        _ => Ok(false),
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        // The unreserved characters of RFC 3986 section 2.3, and `/`, which a query may hold.
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    encoded
}
