//! Settings from flags, environment and one TOML file, read once when the process starts.
//!
//! A flag beats a variable, a variable beats the file, the file beats the default. All mistakes
//! are reported together, by the name of the setting and where it came from, never by a secret's
//! value.

mod args;
mod sources;
mod stdio;
#[cfg(test)]
mod tests;
mod values;

use std::{
    ffi::OsStr,
    io::IsTerminal,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use domain::{limits, server::stdio::StdioMode};
use ipnet::IpNet;
use secrecy::SecretString;
use url::Url;

pub use args::SettingsArgs;
pub use sources::{Mistake, Mistakes, READ_ELSEWHERE, Reading};
use sources::{PREFIX, Sources};
pub use stdio::StdioSandbox;
pub use values::{EgressAllow, LogFormat, NotAnEgressRule};

/// Everything an operator can set, checked. Its `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where `up` keeps the state of the installation.
    pub data_dir: Option<PathBuf>,
    /// The database as the role that serves.
    pub database_url: Option<SecretString>,
    /// The database as the role that migrates; it never serves.
    pub owner_database_url: Option<SecretString>,
    pub listen: SocketAddr,
    /// How browsers reach us: scheme, host and port, nothing else. Set wherever `listen` is not
    /// loopback.
    pub public_url: Option<Url>,
    /// `host` or `host:port`, lower case, beside those of `public_url` and `listen`.
    pub allowed_hosts: Vec<String>,
    /// Networks of the proxies before us, whose `X-Forwarded-For` says who asks.
    pub trusted_proxies: Vec<IpNet>,
    /// Fernet keys, separated by commas, the primary first; each has the shape of one.
    pub encryption_keys: Option<SecretString>,
    /// Ed25519 seed: 32 bytes in base64url.
    pub seal_key: Option<SecretString>,
    pub object_store_url: Option<Url>,
    /// Destinations that egress allows although its rules would refuse them.
    pub egress_allow: Vec<EgressAllow>,
    /// PEM file of certificate authorities to trust beside the system's.
    pub extra_ca: Option<PathBuf>,
    /// Who runs this installation, for the User-Agent of what we send.
    pub contact: Option<String>,
    /// At most [`limits::PERMISSION_WAIT_SECONDS`].
    pub permission_wait_seconds: u64,
    /// Which programs may run on this host. `None`: nobody said, which is off but where `up` listens on
    /// loopback.
    pub stdio: Option<StdioMode>,
    pub stdio_sandbox: StdioSandbox,
    /// Absolute folders that programs in bubblewrap may read although they are hidden otherwise.
    pub stdio_readable: Vec<PathBuf>,
    /// Files that were read for these settings: they hold secrets, and programs may not see them.
    pub files: Vec<PathBuf>,
    pub log_format: LogFormat,
    /// Directives of `tracing_subscriber::EnvFilter`, such as `info,app=debug`.
    pub log: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: None,
            database_url: None,
            owner_database_url: None,
            // Loopback: nobody else reaches a service that nobody has configured yet.
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            public_url: None,
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            encryption_keys: None,
            seal_key: None,
            object_store_url: None,
            egress_allow: Vec::new(),
            extra_ca: None,
            contact: None,
            permission_wait_seconds: limits::PERMISSION_WAIT_SECONDS.default,
            stdio: None,
            stdio_sandbox: StdioSandbox::default(),
            stdio_readable: Vec::new(),
            files: Vec::new(),
            log_format: if std::io::stderr().is_terminal() {
                LogFormat::Text
            } else {
                LogFormat::Json
            },
            log: "info".to_owned(),
        }
    }
}

/// Reads and checks every setting. `env` is the process's environment, or a test's; variables
/// that do not begin with `BAILIWICK_` are passed over, and so is one with an empty value, since
/// compose files set those for "nothing".
///
/// Fails with all mistakes there are, in the order of the settings.
pub fn load(
    args: &SettingsArgs,
    env: impl Iterator<Item = (String, String)>,
) -> Result<Settings, Mistakes> {
    let reading = read(args, env);
    if reading.mistakes.0.is_empty() { Ok(reading.settings) } else { Err(reading.mistakes) }
}

/// The same for who wants to know what is wrong, and goes on with the rest.
pub fn read(args: &SettingsArgs, env: impl Iterator<Item = (String, String)>) -> Reading {
    let mut from = Sources::read(args, env);
    let default = Settings::default();

    let settings = Settings {
        data_dir: from.parse("data_dir", values::path),
        database_url: from.parse("database_url", values::database_url),
        owner_database_url: from.parse("owner_database_url", values::database_url),
        listen: from.parse("listen", values::address).unwrap_or(default.listen),
        public_url: from.parse("public_url", values::public_url),
        allowed_hosts: from.parse("allowed_hosts", values::hosts).unwrap_or_default(),
        trusted_proxies: from.parse("trusted_proxies", values::networks).unwrap_or_default(),
        encryption_keys: from.parse("encryption_keys", values::encryption_keys),
        seal_key: from.parse("seal_key", values::seal_key),
        object_store_url: from.parse("object_store_url", values::object_store_url),
        egress_allow: from.parse("egress_allow", values::egress_rules).unwrap_or_default(),
        extra_ca: from.parse("extra_ca", values::certificates),
        contact: from.parse("contact", values::contact),
        permission_wait_seconds: from
            .parse("permission_wait_seconds", values::permission_wait_seconds)
            .unwrap_or(default.permission_wait_seconds),
        stdio: stdio::read(&mut from),
        stdio_sandbox: from.parse("stdio_sandbox", stdio::sandbox).unwrap_or_default(),
        stdio_readable: from.parse("stdio_readable", values::absolute_paths).unwrap_or_default(),
        files: Vec::new(),
        log_format: from.parse("log_format", str::parse).unwrap_or(default.log_format),
        log: from.parse("log", values::log_filter).unwrap_or(default.log),
    };

    // A public address that was given and is wrong has its own mistake already.
    if !settings.listen.ip().is_loopback() && !from.has("public_url") {
        from.mistake("listen", "is not a loopback address, so public_url has to be set too");
    }
    from.finish(settings)
}

/// The variables of this process that [`load`] looks at. A value that is not UTF-8 is passed on
/// with replacement characters, which no setting accepts, so that [`load`] names it.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let ours = |name: &OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    std::env::vars_os().filter(move |(name, _)| ours(name)).map(|(name, value)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    })
}
