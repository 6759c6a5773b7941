//! The flags. They have no default and no type here: [`super::load`] checks them together with
//! what stands in the environment and in the file.

use std::path::PathBuf;

use clap::builder::{StringValueParser, TypedValueParser};
use secrecy::{ExposeSecret, SecretString};

/// Flags of every command; `BAILIWICK_LISTEN` and `listen` in the TOML file mean `--listen`.
///
/// Clap's own reading of variables is not used: it would print their values in help texts and
/// could not report all mistakes at once.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(
    next_help_heading = "Settings (--some-name, BAILIWICK_SOME_NAME, or some_name in a file)"
)]
pub struct SettingsArgs {
    /// TOML file with settings [also: `BAILIWICK_CONFIG`]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Directory that holds all state of an installation made by `up`
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<String>,

    /// Database as role `bailiwick_app`; other users of this machine can read a flag
    #[arg(long, global = true, value_name = "URL", value_parser = secret())]
    pub database_url: Option<SecretString>,

    /// File that holds the database URL
    #[arg(long, global = true, value_name = "FILE")]
    pub database_url_file: Option<String>,

    /// Database as role `bailiwick_owner`, for `migrate`; other users can read a flag
    #[arg(long, global = true, value_name = "URL", value_parser = secret())]
    pub owner_database_url: Option<SecretString>,

    /// File that holds the owner's database URL
    #[arg(long, global = true, value_name = "FILE")]
    pub owner_database_url_file: Option<String>,

    /// Address to serve on [default: 127.0.0.1:8080]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub listen: Option<String>,

    /// How browsers and clients reach us; needed unless listening on loopback
    #[arg(long, global = true, value_name = "URL")]
    pub public_url: Option<String>,

    /// Host headers to accept beside those of the public URL, separated by commas
    #[arg(long, global = true, value_name = "HOST,…")]
    pub allowed_hosts: Option<String>,

    /// Networks of the proxies before us, whose X-Forwarded-For says who asks, separated by commas
    #[arg(long, global = true, value_name = "CIDR,…")]
    pub trusted_proxies: Option<String>,

    /// Fernet keys, separated by commas, the primary first; other users can read a flag
    #[arg(long, global = true, value_name = "KEY,…", value_parser = secret())]
    pub encryption_keys: Option<SecretString>,

    /// File that holds the Fernet keys
    #[arg(long, global = true, value_name = "FILE")]
    pub encryption_keys_file: Option<String>,

    /// Ed25519 seed for audit seals, base64url; other users can read a flag
    #[arg(long, global = true, value_name = "KEY", value_parser = secret())]
    pub seal_key: Option<SecretString>,

    /// File that holds the seal key
    #[arg(long, global = true, value_name = "FILE")]
    pub seal_key_file: Option<String>,

    /// Where large results are kept, a `file:` URL of a directory
    #[arg(long, global = true, value_name = "URL")]
    pub object_store_url: Option<String>,

    /// Networks and hosts that may be reached although they are private, separated by commas
    #[arg(long, global = true, value_name = "CIDR|HOST,…")]
    pub egress_allow: Option<String>,

    /// PEM file of certificate authorities to trust beside the system's
    #[arg(long, global = true, value_name = "FILE")]
    pub extra_ca: Option<String>,

    /// Address or page of who runs this installation, for the User-Agent
    #[arg(long, global = true, value_name = "TEXT")]
    pub contact: Option<String>,

    /// How long a caller that cannot be asked in protocol is held [default: 600, which is the most]
    #[arg(long, global = true, value_name = "SECONDS")]
    pub permission_wait_seconds: Option<String>,

    /// Programs on this host as MCP servers: off, allowlist (`[[stdio.allow]]` of the file) or any (one
    /// tenant only) [default: off; `up` on loopback: allowlist with the demo server]
    #[arg(long, global = true, value_name = "MODE")]
    pub stdio: Option<String>,

    /// What shuts programs in: strongest (bubblewrap where it works, else other accounts where we are
    /// root, else nothing is run), bubblewrap, or none [default: strongest]
    #[arg(long, global = true, value_name = "WALL")]
    pub stdio_sandbox: Option<String>,

    /// Folders below /home, /root, /run or /tmp that programs in bubblewrap may read, separated by commas
    #[arg(long, global = true, value_name = "DIR,…")]
    pub stdio_readable: Option<String>,

    /// Form of the log: json or text [default: text on a terminal, else json]
    #[arg(long, global = true, value_name = "FORM")]
    pub log_format: Option<String>,

    /// What is logged, such as info,app=debug [default: info]
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

/// The text of a flag, in a type whose `Debug` does not show it.
fn secret() -> impl TypedValueParser<Value = SecretString> {
    StringValueParser::new().map(SecretString::from)
}

impl SettingsArgs {
    /// What was given, by the setting's name; `<name>_file` for a file that holds the value.
    pub(super) fn given(&self) -> Vec<(&'static str, String)> {
        let plain = [
            ("data_dir", &self.data_dir),
            ("database_url_file", &self.database_url_file),
            ("owner_database_url_file", &self.owner_database_url_file),
            ("listen", &self.listen),
            ("public_url", &self.public_url),
            ("allowed_hosts", &self.allowed_hosts),
            ("trusted_proxies", &self.trusted_proxies),
            ("encryption_keys_file", &self.encryption_keys_file),
            ("seal_key_file", &self.seal_key_file),
            ("object_store_url", &self.object_store_url),
            ("egress_allow", &self.egress_allow),
            ("extra_ca", &self.extra_ca),
            ("contact", &self.contact),
            ("permission_wait_seconds", &self.permission_wait_seconds),
            ("stdio", &self.stdio),
            ("stdio_sandbox", &self.stdio_sandbox),
            ("stdio_readable", &self.stdio_readable),
            ("log_format", &self.log_format),
            ("log", &self.log),
        ];
        let secret = [
            ("database_url", &self.database_url),
            ("owner_database_url", &self.owner_database_url),
            ("encryption_keys", &self.encryption_keys),
            ("seal_key", &self.seal_key),
        ];
        let plain = plain.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        let secret = secret
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?.expose_secret().to_owned())));
        plain.chain(secret).collect()
    }
}
