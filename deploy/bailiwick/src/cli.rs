//! The commands, as they are typed.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use domain::{Role, Scope, Scopes, permission::Decision};
use runtime::config::{Settings, SettingsArgs};
use secrecy::SecretString;

/// Governed, audited, durable MCP tool calls, as the person they are made for
#[derive(Debug, Parser)]
#[command(name = "bailiwick", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve everything on this machine, with a Postgres of its own
    ///
    /// All state lies below the data directory (by default `/var/lib/bailiwick` for root, else
    /// `~/.local/share/bailiwick`). The first start makes the tenant `default`, the superadmin
    /// `admin@localhost`, and there the files admin-password, admin-token, agent-token,
    /// encryption-keys and seal-key. Prints `ready http://HOST:PORT` when it can be used.
    Up,
    /// Serve the HTTP API and the gateway, on a database that others run
    Api,
    /// Do what is done by the clock and from the queue
    Worker,
    /// Bring roles, database and schema up to date
    Migrate(Migrate),
    /// Tenants of this installation
    #[command(subcommand)]
    Tenant(Tenant),
    /// People of a tenant
    #[command(subcommand)]
    User(User),
    /// API tokens of people
    #[command(subcommand)]
    Token(Token),
    /// Call a tool through the gateway, as an MCP client
    ///
    /// Takes address and tokens from the data directory of a running `up`, or from `BAILIWICK_URL`,
    /// `BAILIWICK_TOKEN` (scope mcp:call) and `BAILIWICK_APPROVE_TOKEN` (scope approve). Where the call
    /// needs a permission, the question is put on this terminal.
    Call(Call),
}

impl Command {
    /// Unless the operator says otherwise, services log what happens in our words, and commands only
    /// what went wrong.
    pub(crate) fn log_filter<'a>(&self, settings: &'a Settings) -> &'a str {
        if settings.log != Settings::default().log {
            return &settings.log;
        }
        match self {
            // Notices say at each start that all is there already.
            Self::Up | Self::Api | Self::Worker => {
                "info,sqlx::postgres::notice=warn,apalis_core=warn"
            }
            // The client library logs what `call` says in its own words.
            Self::Call(_) => "warn,rmcp=off",
            _ => "warn",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// A role that may make roles and databases, to make those that are missing; other users of this
    /// machine can read a flag [also: `BAILIWICK_ADMIN_DATABASE_URL`]
    #[arg(long, value_name = "URL")]
    pub admin_url: Option<SecretString>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tenant {
    /// Make a tenant
    Create {
        /// 1 to 63 of a-z, 0-9 and -; stands in URLs
        name: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum User {
    /// Add a person; the password is the first line of stdin
    Create {
        email: String,
        /// member, admin or superadmin
        #[arg(long)]
        role: Role,
        #[arg(long, value_name = "NAME", default_value = "default")]
        tenant: String,
        /// Read a password; without it the person cannot sign in with one
        #[arg(long)]
        password_stdin: bool,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token for a person, and print it: it is not shown again
    Create {
        /// Whose token it is
        #[arg(long, value_name = "EMAIL")]
        user: String,
        #[arg(long, value_name = "NAME", default_value = "default")]
        tenant: String,
        /// Of mcp:call, api:read, api:write, approve, admin; approve never with mcp:call
        #[arg(long, value_name = "SCOPE,…", value_parser = scopes)]
        scopes: Scopes,
        /// Such as 12h or 30d [default: 90d]
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<Duration>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// Name of the tool, such as `mcp__demo__greet`
    pub tool: String,
    /// Its input
    #[arg(value_name = "JSON", default_value = "{}")]
    pub input: String,
    /// Answer a question so instead of asking: `allow_once`, `allow_matching` or `deny`
    #[arg(long, value_name = "ANSWER")]
    pub answer: Option<Decision>,
    #[command(flatten)]
    pub output: Output,
}

fn scopes(text: &str) -> Result<Scopes, domain::Error> {
    let scopes = text.split(',').map(|scope| scope.trim().parse::<Scope>());
    Scopes::new(scopes.collect::<Result<Vec<_>, _>>()?)
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let seconds = [('d', 86_400), ('h', 3_600), ('m', 60)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .and_then(|(number, seconds)| number.parse::<u64>().ok()?.checked_mul(seconds));
    match seconds {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err("must be a number with d, h or m, such as 30d".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    use super::{Cli, lifetime, scopes};

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_lifetime_is_a_number_with_a_unit() {
        assert_eq!(lifetime("30d"), Ok(Duration::from_hours(30 * 24)));
        assert_eq!(lifetime("12h"), Ok(Duration::from_hours(12)));
        for wrong in ["", "d", "0d", "30", "-1d", "1.5d", "30D", "99999999999999999999d"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_calls_may_not_permit() {
        assert!(scopes("mcp:call, api:read").is_ok());
        assert!(scopes("mcp:call,approve").is_err());
        assert!(scopes("everything").is_err());
    }
}
