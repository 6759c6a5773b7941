//! The data directory of an installation made by `up`.
//!
//! ```text
//! DIR/postgres/         the private Postgres; its lock is the installation's
//! DIR/objects/          large bodies
//! DIR/admin-password, admin-token, agent-token, encryption-keys, seal-key
//!                       made at the first start: the bare value and a line end, mode 0600
//! DIR/installed         the first start is complete: nothing above is made again
//! DIR/url               where the running `up` is reached
//! ```

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use base64::{
    Engine,
    prelude::{BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD},
};
use nix::unistd::geteuid;
use runtime::{config::Settings, postgres};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::failure::Failure;

pub(crate) const ADMIN_PASSWORD: &str = "admin-password";
pub(crate) const ADMIN_TOKEN: &str = "admin-token";
pub(crate) const AGENT_TOKEN: &str = "agent-token";
pub(crate) const ENCRYPTION_KEYS: &str = "encryption-keys";
pub(crate) const SEAL_KEY: &str = "seal-key";
const INSTALLED: &str = "installed";
const URL: &str = "url";

/// A data directory, which exists or not.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    dir: PathBuf,
}

impl Installation {
    /// The directory of the settings, else the default one.
    pub(crate) fn of(settings: &Settings) -> Result<Self, Failure> {
        let dir = settings.data_dir.clone().or_else(default_dir);
        let dir =
            dir.ok_or_else(|| Failure::usage("there is no home directory: name a --data-dir"))?;
        let dir = std::path::absolute(&dir)
            .map_err(|error| Failure::because("the data directory's path is not usable", error))?;
        Ok(Self { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn postgres_dir(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    /// Makes the directory, closed to others.
    pub(crate) fn create(&self) -> Result<(), Failure> {
        postgres::create_data_dir(&self.dir)
            .map_err(|error| self.failure("cannot be made, or closed to others", error))?;
        let objects = self.dir.join("objects");
        match fs::DirBuilder::new().mode(0o700).create(&objects) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(self.failure("cannot hold objects", error))
            }
            _ => fs::set_permissions(&objects, Permissions::from_mode(0o700))
                .map_err(|error| self.failure("cannot hold objects", error)),
        }
    }

    pub(crate) fn object_store(&self) -> Result<Url, Failure> {
        directory_url(&self.dir.join("objects"))
    }

    /// Whether the first start is complete.
    pub(crate) fn is_installed(&self) -> bool {
        self.dir.join(INSTALLED).exists()
    }

    pub(crate) fn set_installed(&self) -> Result<(), Failure> {
        self.write(INSTALLED, "1")
    }

    /// The value of a file; `None` where there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<SecretString>, Failure> {
        match fs::read_to_string(self.dir.join(name)) {
            Ok(text) => Ok(Some(text.trim_end().into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failure(&format!("has no readable {name}"), error)),
        }
    }

    /// The value of a file, which is made by `make` where there is none.
    pub(crate) fn read_or_make(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<SecretString, Failure>,
    ) -> Result<SecretString, Failure> {
        if let Some(value) = self.read(name)? {
            return Ok(value);
        }
        let value = make()?;
        self.write(name, value.expose_secret())?;
        Ok(value)
    }

    /// Where the running `up` is reached, or was last.
    pub(crate) fn url(&self) -> Result<Option<String>, Failure> {
        Ok(self.read(URL)?.map(|url| url.expose_secret().to_owned()))
    }

    pub(crate) fn set_url(&self, url: &str) -> Result<(), Failure> {
        self.write(URL, url)
    }

    /// Whole or not at all, and durable: under its own name a file is complete, however this process
    /// ends.
    pub(crate) fn write(&self, name: &str, value: &str) -> Result<(), Failure> {
        let write = || {
            let unfinished = self.dir.join(format!(".{name}.tmp"));
            let _ = fs::remove_file(&unfinished);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(format!("{value}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, self.dir.join(name))?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|error| self.failure(&format!("cannot hold {name}"), error))
    }

    fn failure(&self, what: &str, error: io::Error) -> Failure {
        Failure::because(format!("the data directory {} {what}", self.dir.display()), error)
    }
}

pub(crate) fn directory_url(dir: &Path) -> Result<Url, Failure> {
    Url::from_directory_path(dir).map_err(|()| Failure::new("the directory's path is no URL"))
}

/// The XDG Base Directory Specification's place for data; root's home is closed to the account that
/// runs its Postgres, so that root's installation lies where services keep their state.
fn default_dir() -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some("/var/lib/bailiwick".into());
    }
    let xdg = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let data = xdg.or_else(|| Some(std::env::home_dir()?.join(".local/share")));
    Some(data?.join("bailiwick"))
}

/// 32 random bytes in padded URL-safe base64: a Fernet key.
pub(crate) fn new_encryption_key() -> Result<SecretString, Failure> {
    Ok(BASE64_URL_SAFE.encode(random::<32>()?).into())
}

/// 32 random bytes in URL-safe base64: an Ed25519 seed.
pub(crate) fn new_seal_key() -> Result<SecretString, Failure> {
    Ok(BASE64_URL_SAFE_NO_PAD.encode(random::<32>()?).into())
}

/// 144 bits, so that nobody guesses it, without characters that a shell would eat.
pub(crate) fn new_password() -> Result<SecretString, Failure> {
    Ok(BASE64_URL_SAFE_NO_PAD.encode(random::<18>()?).into())
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}
