//! `bailiwick up` as its user starts, kills and stops it.
#![expect(clippy::unwrap_used, reason = "a test, and what helps it, fails by panicking")]

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tests::peer::{Peer, Setup};

const DEMO: &str = env!("CARGO_BIN_EXE_demo-under-test");
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-under-test");
const MADE: [&str; 5] =
    ["admin-password", "admin-token", "agent-token", "encryption-keys", "seal-key"];

/// A data directory; what still serves it at the end of the test is killed.
struct Place {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The private Postgres does not run as root and has to pass through.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
        Self { dir, program: PROGRAM.into() }
    }

    /// With the program and the demo server beside each other, as they are installed. The path of the
    /// demo server.
    fn with_demo() -> (Self, PathBuf) {
        let mut place = Self::new();
        let installed = place.dir.path().join("bin");
        fs::create_dir(&installed).unwrap();
        let (program, demo) = (installed.join("bailiwick"), installed.join("bailiwick-demo"));
        for (built, installed) in [(PROGRAM, &program), (DEMO, &demo)] {
            fs::copy(built, installed).unwrap();
        }
        place.program = program;
        (place, demo.canonicalize().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A command of the program on this directory.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--data-dir").arg(self.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let ours = name.to_str().is_some_and(|name| name.starts_with("BAILIWICK_"));
            if ours && name != "BAILIWICK_PG_BIN" {
                command.env_remove(name);
            }
        }
        command.env("BAILIWICK_EGRESS_ALLOW", "127.0.0.0/8").env("BAILIWICK_LOG_FORMAT", "json");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts `up` and waits for its line.
    fn up(&self) -> Up {
        let log = fs::File::create(self.dir.path().join("log")).unwrap();
        let mut command = self.command(&["up", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = || fs::read_to_string(self.dir.path().join("log")).unwrap();
        let url = line.strip_prefix("ready ").unwrap_or_else(|| panic!("{line:?}: {}", log()));
        Up { child, url: url.trim_end().to_owned() }
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }

    fn files(&self) -> BTreeMap<&'static str, String> {
        MADE.iter().map(|name| (*name, self.file(name))).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = postmaster(&self.path()) {
            let _ = kill(pid, Signal::SIGQUIT);
        }
    }
}

/// The running private Postgres of a data directory.
fn postmaster(dir: &Path) -> Option<Pid> {
    let text = fs::read_to_string(dir.join("postgres/data/postmaster.pid")).ok()?;
    let pid = Pid::from_raw(text.lines().next()?.parse().ok()?);
    kill(pid, None).is_ok().then_some(pid)
}

struct Up {
    child: Child,
    url: String,
}

impl Up {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// How long it took to end in good order.
    fn stop(mut self) -> Duration {
        let begin = Instant::now();
        self.signal(Signal::SIGTERM);
        assert!(self.child.wait().unwrap().success());
        begin.elapsed()
    }

    fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap();
    }

    async fn ask(
        &self,
        method: reqwest::Method,
        token: &str,
        path: &str,
        body: Option<Value>,
    ) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request =
            client.request(method, format!("{}{path}", self.url)).bearer_auth(token.trim_end());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let value: Value = answer.json().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {value}");
        value
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Registers the peer and lets all sessions use it.
async fn register(up: &Up, token: &str, peer: &Peer) {
    let form = json!({
        "name": "Demo", "slug": "demo", "transport": "http", "url": peer.url(), "authMode": "none",
        "enabled": true,
    });
    let server = up.ask(reqwest::Method::POST, token, "/api/mcp/servers", Some(form)).await;
    let id = server["id"].as_str().unwrap();
    let refresh = format!("/api/mcp/servers/{id}/tools/refresh");
    up.ask(reqwest::Method::POST, token, &refresh, None).await;
    let selection = json!({ "enabledSourceIds": [id] });
    up.ask(reqwest::Method::PATCH, token, "/api/tenant", Some(selection)).await;
}

#[tokio::test]
async fn the_first_start_makes_what_the_interface_says_and_the_end_takes_postgres_along() {
    let place = Place::new();
    let up = place.up();
    for name in MADE {
        let value = place.file(name);
        assert!(value.len() > 20 && value.trim_end().len() + 1 == value.len(), "{name}: {value:?}");
        let mode = fs::metadata(place.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let files = place.files();
    let me = up.ask(reqwest::Method::GET, &files["admin-token"], "/api/me", None).await;
    assert_eq!(me["user"]["email"], "admin@localhost");
    assert_eq!(me["tenant"]["slug"], "default");
    assert_eq!(me["role"], "superadmin");
    assert_eq!(me["scopes"], json!(["api:read", "api:write", "approve", "admin"]));
    let agent = up.ask(reqwest::Method::GET, &files["agent-token"], "/api/me", None).await;
    assert_eq!(agent["user"], me["user"]);
    assert_eq!(agent["scopes"], json!(["mcp:call", "api:read"]));

    // The installation is taken.
    let second = place.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(1));

    let took = up.stop();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(postmaster(&place.path()), None);

    // Nothing is made a second time.
    let again = place.up();
    assert_eq!(place.files(), files);
    again.stop();
}

#[tokio::test]
async fn after_kill_9_a_second_start_takes_over() {
    let place = Place::new();
    let first = place.up();
    let files = place.files();
    first.kill();
    assert!(postmaster(&place.path()).is_some(), "it outlives its launcher");

    let second = place.up();
    assert_eq!(place.files(), files);
    second.ask(reqwest::Method::GET, &files["admin-token"], "/api/me", None).await;
    second.stop();
    assert_eq!(postmaster(&place.path()), None);
}

#[tokio::test]
async fn an_interrupted_first_start_is_completed() {
    let place = Place::new();
    place.up().kill();
    let files = place.files();
    // As if it had been killed before the agent's token was written.
    for name in ["installed", "agent-token"] {
        fs::remove_file(place.path().join(name)).unwrap();
    }
    let up = place.up();
    for name in MADE.iter().filter(|name| **name != "agent-token") {
        assert_eq!(place.file(name), files[name], "{name}");
    }
    let agent = place.file("agent-token");
    let me = up.ask(reqwest::Method::GET, &agent, "/api/me", None).await;
    assert_eq!(me["user"]["email"], "admin@localhost");
    let users = up.ask(reqwest::Method::GET, &files["admin-token"], "/api/users", None).await;
    assert_eq!(users["items"].as_array().unwrap().len(), 1);
    up.stop();
}

// The peer must answer while this thread waits for the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_works_beside_a_running_service_and_a_person_calls_a_tool() {
    let place = Place::new();
    let nothing = place.run(&["tenant", "create", "acme"]);
    assert_eq!(nothing.status.code(), Some(1), "nothing runs yet");
    assert!(text(&nothing.stderr).contains("nothing runs on"), "{}", text(&nothing.stderr));

    let up = place.up();
    let made = place.run(&["tenant", "create", "acme", "--json"]);
    let tenant: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(tenant["slug"], "acme");
    assert_eq!(place.run(&["tenant", "create", "acme"]).status.code(), Some(1), "it is taken");
    assert_eq!(place.run(&["tenant", "create"]).status.code(), Some(2));

    let arguments = ["user", "create", "ann@acme.test", "--role", "admin", "--tenant", "acme"];
    assert!(place.run(&arguments).status.success());
    let arguments = [
        "token",
        "create",
        "--user",
        "ann@acme.test",
        "--tenant",
        "acme",
        "--scopes",
        "api:read",
        "--expires",
        "30d",
    ];
    let made = place.run(&arguments);
    let token = text(&made.stdout).lines().last().unwrap().to_owned();
    let me = up.ask(reqwest::Method::GET, &token, "/api/me", None).await;
    assert_eq!(me["user"]["email"], "ann@acme.test");
    assert!(place.run(&["migrate"]).status.success());

    let peer = Peer::start(Setup::modern()).await;
    register(&up, &place.file("admin-token"), &peer).await;
    let call = ["call", "mcp__demo__echo", r#"{"say": "hello"}"#, "--json", "--answer"];
    let allowed = place.run(&[&call[..], &["allow_once"]].concat());
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
    let allowed: Value = serde_json::from_slice(&allowed.stdout).unwrap();
    assert_eq!(allowed["result"]["structuredContent"]["say"], "hello");
    assert_eq!(allowed["decisions"][0]["authorization"]["id"], allowed["authorizationId"]);
    assert!(allowed["invocationId"].is_string());
    assert_eq!(peer.calls().len(), 1);

    let denied = place.run(&[&call[..], &["deny"]].concat());
    assert_eq!(denied.status.code(), Some(1));
    let denied: Value = serde_json::from_slice(&denied.stdout).unwrap();
    assert_eq!(denied["result"]["_meta"]["bailiwick/error"]["error"]["code"], "PERMISSION_DENIED");
    assert_eq!(peer.calls().len(), 1, "the server never heard of it");
    up.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_loopback_the_demo_beside_the_program_may_be_run_and_nothing_else() {
    let (place, demo) = Place::with_demo();
    let up = place.up();
    let token = place.file("admin-token");
    let programs = up.ask(reqwest::Method::GET, &token, "/api/mcp/stdio-programs", None).await;
    assert_eq!(
        programs,
        json!({ "mode": "allowlist", "programs": [{
            "name": "demo", "command": demo, "args": ["--stdio"], "cwd": null, "env": [],
        }] })
    );
    let form = json!({
        "name": "Demo", "slug": "demo", "transport": "stdio", "command": demo, "args": ["--stdio"],
        "authMode": "none", "enabled": true,
    });
    let server = up.ask(reqwest::Method::POST, &token, "/api/mcp/servers", Some(form)).await;
    let id = server["id"].as_str().unwrap();
    let refresh = format!("/api/mcp/servers/{id}/tools/refresh");
    let tools = up.ask(reqwest::Method::POST, &token, &refresh, None).await;
    assert!(tools["items"].as_array().unwrap().len() >= 4, "{tools}");
    let selection = json!({ "enabledSourceIds": [id] });
    up.ask(reqwest::Method::PATCH, &token, "/api/tenant", Some(selection)).await;
    let call =
        ["call", "mcp__demo__add", r#"{"a": 2, "b": 3}"#, "--json", "--answer", "allow_once"];
    let called = place.run(&call);
    assert!(called.status.success(), "{}", text(&called.stderr));
    let called: Value = serde_json::from_slice(&called.stdout).unwrap();
    assert_eq!(called["result"]["structuredContent"]["sum"], 5, "{called}");

    let other = json!({
        "name": "Other", "transport": "stdio", "command": "/usr/bin/env", "authMode": "none",
    });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let servers = client.post(format!("{}/api/mcp/servers", up.url)).bearer_auth(token.trim_end());
    assert_eq!(servers.json(&other).send().await.unwrap().status(), 422);
    up.stop();
}

#[test]
fn settings_that_are_not_usable_are_named_together() {
    let place = Place::new();
    let mut command = place.command(&["up"]);
    let output =
        command.env("BAILIWICK_LISTEN", "here").env("BAILIWICK_LIKE_THIS", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let words = text(&output.stderr);
    assert!(words.contains("BAILIWICK_LISTEN") && words.contains("BAILIWICK_LIKE_THIS"), "{words}");
}
