//! What tests of stdio servers share: where the peer program runs, and who is left in the process table.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use domain::{
    ids::{ServerId, TenantId},
    server::stdio::StdioMode,
};
use outbound::{
    egress::EgressRules,
    http::{GuardedHttp, HttpOptions},
    mcp::{Answer, ClientKey, Identity, McpClients, Program, Reach, Target},
    stdio::{Sandbox, Stdio, StdioRules},
};
use serde_json::Value;
use uuid::Uuid;

/// Clients that may run any program behind `sandbox`.
#[must_use]
pub fn clients(program: &Path, sandbox: Sandbox) -> McpClients {
    clients_with(rules(program, sandbox))
}

#[must_use]
pub fn clients_with(rules: StdioRules) -> McpClients {
    let http = GuardedHttp::new(EgressRules::default(), &HttpOptions::default());
    McpClients::new(http.expect("legal settings"), Stdio::new(rules))
}

/// Any program; the directory of `program` can be read wherever it is.
#[must_use]
pub fn rules(program: &Path, sandbox: Sandbox) -> StdioRules {
    StdioRules {
        mode: StdioMode::Any,
        sandbox,
        hidden_paths: Vec::new(),
        readable_paths: program.parent().map(PathBuf::from).into_iter().collect(),
    }
}

/// The sandboxes that work on this machine. Says which do not.
pub async fn sandboxes() -> Vec<Sandbox> {
    let mut working = vec![Sandbox::None];
    let account = Sandbox::Account { uid: 61_184, gid: 65_534 };
    for sandbox in [Sandbox::Bubblewrap, account] {
        match Stdio::new(rules(Path::new("/"), sandbox)).sandbox().await {
            Ok(_) => working.push(sandbox),
            Err(error) => eprintln!("not tried on this machine: {sandbox:?}: {error}"),
        }
    }
    working
}

/// The peer program where any account can run it.
#[must_use]
pub fn for_everybody(program: &str) -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("stdio-peer");
    fs::copy(program, &copy).unwrap();
    (dir, copy)
}

/// A mark for the command line of one test's programs.
#[must_use]
pub fn marker() -> String {
    format!("marker-{}", Uuid::new_v4())
}

/// A server of its own that runs `program` with a marker and modes.
#[must_use]
pub fn target(program: &Path, arguments: &[&str]) -> Target {
    Target {
        key: ClientKey {
            tenant: TenantId(Uuid::from_u128(1)),
            server: ServerId::from(format!("custom-{}", Uuid::new_v4()).as_str()),
            revision: 1,
            identity: Identity::Anonymous,
            session: None,
        },
        reach: Reach::Stdio(Program {
            command: program.to_owned(),
            args: arguments.iter().map(ToString::to_string).collect(),
            cwd: None,
            env: Vec::new(),
        }),
        resume: None,
        parts: Vec::new(),
        authority: None,
    }
}

/// The program of a target.
pub fn program(target: &mut Target) -> &mut Program {
    match &mut target.reach {
        Reach::Stdio(program) => program,
        Reach::Http { .. } | Reach::Own { .. } | Reach::Sse { .. } => panic!("it is not a program"),
    }
}

/// The text that a tool answered.
#[must_use]
pub fn said(answer: &Answer) -> String {
    let result: Value = serde_json::from_slice(&answer.raw).unwrap();
    result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

/// Processes of this machine whose command line has the marker, sandboxes included.
#[must_use]
pub fn alive(marker: &str) -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
    })
    .collect()
}

/// Programs with the marker, without what shuts them in.
#[must_use]
pub fn programs(marker: &str) -> usize {
    let is_program = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = line.split(|byte| *byte == 0);
        let first = arguments.next().is_some_and(|name| name.ends_with(b"stdio-peer"));
        first && arguments.next() == Some(marker.as_bytes())
    };
    alive(marker).iter().filter(|pid| is_program(pid)).count()
}

/// Waits until no process with the marker is left; panics after 15 s.
pub async fn until_gone(marker: &str) {
    until_alive(marker, 0).await;
}

/// Waits until so many processes have the marker; panics after 15 s.
pub async fn until_alive(marker: &str, count: usize) {
    let waiting = async {
        while alive(marker).len() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(15), waiting).await;
    assert!(waited.is_ok(), "{count} are wanted, and after 15 s there are {:?}", alive(marker));
}
