//! Connects the own account to a server: a secret is put in here, OAuth goes on in a browser.

use std::{
    io::{BufRead, IsTerminal, Read},
    process::{ExitCode, Stdio},
    time::Duration,
};

use domain::limits;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use reqwest::Method;
use runtime::{
    config::{self, Settings},
    terminal::escape,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::Url;

use crate::{
    call::{self, rest::Rest},
    cli::Connect,
    failure::Failure,
    installation::{self, Installation},
};

/// Exit code 0 when it is done, and for a `--status` of somebody who is connected or need not be.
pub(crate) async fn run(settings: &Settings, args: &Connect) -> Result<ExitCode, Failure> {
    let (url, token) = find(settings)?;
    let rest = Rest::new(&call::client(&url)?, &url, token);
    let path = path(&args.server)?;
    if args.disconnect {
        let (revoke, provider) = if args.revoke {
            ("?revoke=true", limits::REFRESH_TIMEOUT_MS.millis())
        } else {
            ("", Duration::ZERO)
        };
        let wait = limits::CALL_REST_MS.millis() + provider;
        let path = format!("{path}{revoke}");
        let cleared = rest.send_within(Method::DELETE, &path, None, wait).await?;
        return Ok(told(args, &cleared, None));
    }
    let connection = rest.send(Method::GET, &path, None).await?;
    if args.status {
        told(args, &connection, None);
        let fine = matches!(text(&connection, "state"), "connected" | "not_required");
        return Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    match text(&connection, "kind") {
        "" => Ok(told(args, &connection, None)),
        "oauth" => {
            let page = page(&url, text(&connection, "serverId"))?;
            if !args.output.json {
                open(&page);
            }
            Ok(told(args, &connection, Some(&page)))
        }
        kind => {
            let secret = read_secret(text(&connection, "name"), kind)?;
            let body =
                json!({ "secret": secret.expose_secret(), "revision": connection["revision"] });
            let saved = rest.send(Method::PUT, &path, Some(body)).await?;
            Ok(told(args, &saved, None))
        }
    }
}

/// As `call` finds them: from the variables, else from the data directory.
pub(crate) fn find(settings: &Settings) -> Result<(Url, SecretString), Failure> {
    let variable = |name: &str| {
        // A directory that was named means: that installation, whatever the variables say.
        let mut variables = config::environment().filter(|_| settings.data_dir.is_none());
        variables.find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value)
    };
    if let Some(url) = variable("BAILIWICK_URL") {
        let token = variable("BAILIWICK_APPROVE_TOKEN").ok_or_else(|| {
            Failure::usage("BAILIWICK_URL needs BAILIWICK_APPROVE_TOKEN beside it")
        })?;
        return Ok((call::parse(&url)?, token.into()));
    }
    let installation = Installation::of(settings)?;
    let missing = || {
        Failure::new(format!(
            "no installation in {}: name its --data-dir, or set BAILIWICK_URL and BAILIWICK_APPROVE_TOKEN",
            installation.dir().display()
        ))
    };
    let url = installation.url()?.ok_or_else(missing)?;
    let token = installation.read(installation::ADMIN_TOKEN)?.ok_or_else(missing)?;
    Ok((call::parse(&url)?, token))
}

fn path(server: &str) -> Result<String, Failure> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if server.is_empty() || !server.bytes().all(legal) {
        return Err(Failure::usage(
            "a server is named by its id or slug: letters, digits, - and _",
        ));
    }
    Ok(format!("/api/mcp/servers/{server}/connection"))
}

fn page(url: &Url, server: &str) -> Result<Url, Failure> {
    let mut page = url
        .join("/connections")
        .map_err(|error| Failure::because("the service's URL is not usable", error))?;
    page.query_pairs_mut().append_pair("server", server);
    Ok(page)
}

/// In the person's browser, where there is a screen; the address is printed anyway.
fn open(page: &Url) {
    let screen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if screen {
        let mut opener = std::process::Command::new("xdg-open");
        let opener = opener.arg(page.as_str()).stdin(Stdio::null());
        // Where it is missing, the printed address is what there is.
        let _ = opener.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    }
}

/// From the terminal without an echo, else all of stdin without the line end at its end.
fn read_secret(server: &str, kind: &str) -> Result<SecretString, Failure> {
    let stdin = std::io::stdin();
    let unreadable = |error| Failure::because("the secret cannot be read", error);
    if stdin.is_terminal() {
        let what = if kind == "bearer" { "token" } else { "API key" };
        eprint!("your {what} at {}, not shown: ", escape(server));
        let mut line = String::new();
        let silence = Silence::begin();
        let read = stdin.lock().read_line(&mut line);
        drop(silence);
        eprintln!();
        read.map_err(unreadable)?;
        return given(line);
    }
    let most = limits::CREDENTIAL_BYTES.default + 2;
    let mut text = String::new();
    stdin.lock().take(most).read_to_string(&mut text).map_err(unreadable)?;
    given(text)
}

fn given(mut text: String) -> Result<SecretString, Failure> {
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    if text.is_empty() {
        return Err(Failure::usage("no secret was given: type it, or put it on stdin"));
    }
    Ok(text.into())
}

/// As long as it lives, the terminal shows nothing of what is typed.
struct Silence(Option<Termios>);

impl Silence {
    fn begin() -> Self {
        let stdin = std::io::stdin();
        let Ok(before) = tcgetattr(&stdin) else { return Self(None) };
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        let set = tcsetattr(&stdin, SetArg::TCSAFLUSH, &silent);
        Self(set.is_ok().then_some(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, before);
        }
    }
}

/// One JSON object, or words; `page` is where to go on.
fn told(args: &Connect, connection: &Value, page: Option<&Url>) -> ExitCode {
    if args.output.json {
        let mut object = connection.clone();
        if let Some(page) = page {
            object["connectUrl"] = json!(page);
        }
        println!("{}", escape(&object.to_string()));
        return ExitCode::SUCCESS;
    }
    println!("{}: {}", escape(text(connection, "name")), state(connection));
    let line = |name: &str, words: &str| {
        if !words.is_empty() {
            println!("  {name:<11} {}", escape(words));
        }
    };
    line("because", text(connection, "reason"));
    line("account", text(connection, "account"));
    line("rights", &list(connection, "scopes"));
    line("missing", &list(connection, "needsScopes"));
    line("until", text(connection, "expiresAt"));
    line("last used", text(connection, "lastUsedAt"));
    line("at provider", text(connection, "revocation"));
    if let Some(page) = page {
        println!("open this page, sign in, and connect there:\n{page}");
    }
    ExitCode::SUCCESS
}

fn state(connection: &Value) -> &'static str {
    match (text(connection, "state"), text(connection, "kind")) {
        ("not_required", _) => "not required",
        ("connected", "oauth") if !list(connection, "needsScopes").is_empty() => {
            "needs more rights"
        }
        ("connected", "oauth") => "authorized (OAuth)",
        ("connected", _) => "configured (static)",
        ("reconnect_required", _) => "reconnect",
        _ => "disconnected",
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list(value: &Value, field: &str) -> String {
    let items = value.get(field).and_then(Value::as_array);
    let items: Vec<&str> = items.into_iter().flatten().filter_map(Value::as_str).collect();
    items.join(" ")
}
