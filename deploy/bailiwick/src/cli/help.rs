//! What `--help` says below the flags: examples that can be typed as they stand, and exit statuses.
//! tests/it/help.rs parses every one.

/// How the heading of the settings begins, see `runtime::config::SettingsArgs`.
const SETTINGS: &str = "Settings";
/// Settings that commands beside the services need; `-h` of all shows these alone.
const ALWAYS: [&str; 3] = ["config", "data_dir", "database_url"];

pub(super) const EXITS: &str = "\
Exit status:
  0  done
  1  refused or failed; stderr says why
  2  the arguments or settings are not usable";

pub(super) const EXITS_SERVE: &str = "\
Exit status:
  0  ended by SIGTERM or SIGINT, in good order
  1  it could not start, or go on; stderr says why
  2  the arguments or settings are not usable; all mistakes are named at once";

pub(super) const EXITS_CALL: &str = "\
Exit status:
  0  the tool answered
  1  the call was refused, denied, or failed; so is a result with isError
  2  the arguments or settings are not usable";

pub(super) const EXITS_CONNECT: &str = "\
Exit status:
  0  done; with --status: you are connected, or need not be
  1  refused or failed; with --status: you are not connected
  2  the arguments or settings are not usable";

pub(super) const EXITS_ROTATE: &str = "\
Exit status:
  0  everything is sealed by the first key
  1  refused or failed, or something is not: stdout or stderr says what
  2  the arguments or settings are not usable";

pub(super) const EXITS_WHY: &str = "\
Exit status:
  0  a call would be sent, or the person is asked first
  1  a call would be refused; or this could not be told
  2  the arguments or settings are not usable";

pub(super) const EXITS_DOCTOR: &str = "\
Exit status:
  0  nothing failed (there may be warnings)
  1  something failed
  2  the arguments are not usable";

pub(super) const PROGRAM: &str = "\
Examples:
  # Everything on this machine, in the foreground
  bailiwick up

  # What is wrong with the installation that runs there?
  bailiwick doctor

  # A token for an agent
  bailiwick token create --user admin@localhost --scopes mcp:call,api:read

`bailiwick help COMMAND` says more of each, as `bailiwick COMMAND --help` does; `-h` says it in short.";

pub(super) const UP: &str = "\
Examples:
  # All state in one directory of yours, reached on this machine alone
  bailiwick up --data-dir ~/bailiwick --listen 127.0.0.1:8080

  # Behind a reverse proxy with TLS, with MCP servers in the company's network
  BAILIWICK_PUBLIC_URL=https://bailiwick.example.org bailiwick up --listen 0.0.0.0:8080 --egress-allow 10.2.0.0/16

  # The same settings from a file
  bailiwick up --config /etc/bailiwick.toml";

pub(super) const API: &str = "\
Examples:
  # Secrets in files, which other users of the machine cannot read
  bailiwick api --listen 0.0.0.0:8080 --public-url https://bailiwick.example.org --database-url-file /run/secrets/database-url --encryption-keys-file /run/secrets/encryption-keys --object-store-url file:///srv/objects

  # All of it from the environment
  BAILIWICK_CONFIG=/etc/bailiwick.toml bailiwick api";

pub(super) const WORKER: &str = "\
Examples:
  # With the settings of `api`
  bailiwick worker --config /etc/bailiwick.toml

  # Tell more of what one part does
  bailiwick worker --config /etc/bailiwick.toml --log info,worker=debug";

pub(super) const MIGRATE: &str = "\
Examples:
  # The first time: roles, database and schema
  BAILIWICK_ADMIN_DATABASE_URL=postgres://postgres@db/postgres bailiwick migrate --owner-database-url-file /run/secrets/owner-url --database-url-file /run/secrets/database-url

  # With a new version: the schema alone
  bailiwick migrate --owner-database-url-file /run/secrets/owner-url

  # The private Postgres of a running `up`
  bailiwick migrate --data-dir ~/bailiwick";

pub(super) const TENANT: &str = "\
Examples:
  # On the installation in the default data directory
  bailiwick tenant create acme

  # On a database that others run, for a script
  BAILIWICK_CONFIG=/etc/bailiwick.toml bailiwick tenant create acme --json

  # Nobody gets in any more: the company's issuer is gone, and passwords were switched off
  bailiwick tenant take-passwords acme";

pub(super) const USER: &str = "\
Examples:
  # The first superadmin of a tenant; type the password and a line end
  bailiwick user create ann@acme.example --role superadmin --tenant acme --password-stdin

  # Somebody who signs in elsewhere, or works with tokens alone
  bailiwick user create bot@acme.example --role member --tenant acme";

pub(super) const PASSWORD: &str = "\
Examples:
  # Type the password and a line end
  bailiwick user password ann@acme.example --tenant acme --password-stdin";

pub(super) const TOKEN: &str = "\
Examples:
  # For an agent or an MCP client
  bailiwick token create --user ann@acme.example --tenant acme --scopes mcp:call,api:read --expires 30d

  # To decide its questions, on another device
  bailiwick token create --user ann@acme.example --tenant acme --scopes api:read,approve

  # To configure servers; the token alone goes into the file
  bailiwick token create --user admin@localhost --scopes api:read,api:write,approve,admin | tail -n1 > token";

pub(super) const KEYS: &str = "\
Examples:
  # Which key sealed how much?
  bailiwick keys status

  # Seal everything by the first key
  bailiwick keys rotate";

pub(super) const KEYS_STATUS: &str = "\
Examples:
  # The installation in the default data directory
  bailiwick keys status

  # That of `api` and `worker`, with their settings, for a script
  bailiwick keys status --config /etc/bailiwick.toml --json";

pub(super) const KEYS_ROTATE: &str = "\
Examples:
  # After the new key was put in front, and all processes were started again
  bailiwick keys rotate --data-dir ~/bailiwick

  # The same where the keys are settings
  bailiwick keys rotate --config /etc/bailiwick.toml --encryption-keys-file /run/secrets/encryption-keys";

pub(super) const CALL: &str = "\
Examples:
  # On the installation in the default data directory; a question is put here
  bailiwick call mcp__demo__greet '{\"name\": \"Ada\"}'

  # Elsewhere, as the person of a token
  BAILIWICK_URL=https://bailiwick.example.org BAILIWICK_TOKEN=blw_… bailiwick call mcp__demo__greet '{\"name\": \"Ada\"}'

  # In a script: permit this call, and print one JSON object
  bailiwick call mcp__demo__greet '{\"name\": \"Ada\"}' --answer allow_once --json";

pub(super) const CONNECT: &str = "\
Examples:
  # Type the token or key, or open the page that leads to the provider
  bailiwick connect tickets

  # A key out of a file, at an installation elsewhere
  BAILIWICK_URL=https://bailiwick.example.org BAILIWICK_APPROVE_TOKEN=blw_… bailiwick connect tickets < key

  # Am I connected? For a script
  bailiwick connect tickets --status --json

  # Take the account out, and have the provider end the grant
  bailiwick connect tickets --disconnect --revoke";

pub(super) const WHY: &str = "\
Examples:
  # Why do I not get this tool?
  bailiwick why mcp__demo__greet

  # Why did it fail for her, in that session?
  bailiwick why mcp__tickets__search --user ann@acme.example --session 0198c2f4-8d3e-7c1a-9b00-5f2d7a1c4e11

  # For a script
  bailiwick why mcp__demo__greet --json";

pub(super) const DOCTOR: &str = "\
Examples:
  # The installation in the default data directory
  bailiwick doctor

  # One that `up` made elsewhere
  bailiwick doctor --data-dir /srv/bailiwick

  # That of `api` and `worker`, with their settings
  bailiwick doctor --config /etc/bailiwick.toml

  # For a monitor: {\"ok\": …, \"checks\": [{\"verdict\", \"what\", \"found\", \"mend\"}]}
  bailiwick doctor --json";

pub(super) const COMPLETIONS: &str = "\
Examples:
  # bash, for you alone; for all: /usr/share/bash-completion/completions/bailiwick
  bailiwick completions bash > ~/.local/share/bash-completion/completions/bailiwick

  # zsh, where ~/.zfunc stands in fpath
  bailiwick completions zsh > ~/.zfunc/_bailiwick

  # fish
  bailiwick completions fish > ~/.config/fish/completions/bailiwick.fish";

/// Examples, then how it ends.
pub(super) fn long(examples: &str, exits: &str) -> String {
    format!("{examples}\n\n{exits}")
}

/// Names the variable of each setting in its help, and leaves most settings out of `-h`.
pub(super) fn with_settings(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| {
        if !arg.get_help_heading().is_some_and(|heading| heading.starts_with(SETTINGS)) {
            return arg;
        }
        let variable = format!("BAILIWICK_{}", arg.get_id().as_str().to_ascii_uppercase());
        let said = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let hidden = !ALWAYS.contains(&arg.get_id().as_str());
        let arg = arg.hide_short_help(hidden);
        if said.contains("BAILIWICK_") {
            arg
        } else {
            arg.help(format!("{said} [env: {variable}]"))
        }
    })
}
