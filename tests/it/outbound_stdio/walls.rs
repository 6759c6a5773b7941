//! What a program can reach of our host, and which programs run at all.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use domain::{
    Code,
    server::stdio::{AllowedProgram, StdioMode},
};
use outbound::{
    mcp::{McpClients, Ran, Target},
    stdio::{Sandbox, StdioRules},
};
use serde_json::{Value, json};
use tests::{
    children::{self, clients_with, for_everybody, marker, rules, said, sandboxes, target},
    upstream::{call, tool_call},
};

use super::PEER;

async fn asked(clients: &McpClients, target: &Target, tool: &str, path: &Path) -> String {
    let arguments = json!({ "path": path }).to_string();
    said(&call(clients, target, tool_call(tool, &arguments)).await.unwrap())
}

/// A data directory as ours is: closed, with a secret, and one more secret beside it.
fn data_directory() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir_in("/var/lib")
        .or_else(|_| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")))
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (data, settings) = (dir.path().join("data"), dir.path().join("settings.toml"));
    fs::create_dir(&data).unwrap();
    fs::write(data.join("key"), "secret").unwrap();
    fs::write(&settings, "secret").unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o600)).unwrap();
    (dir, data, settings)
}

#[tokio::test]
async fn a_program_cannot_read_the_data_directory() {
    let (_program, program) = for_everybody(PEER);
    let (dir, data, settings) = data_directory();
    for sandbox in sandboxes().await {
        let hidden_paths = vec![data.clone(), settings.clone()];
        let clients = clients_with(StdioRules { hidden_paths, ..rules(&program, sandbox) });
        let target = target(&program, &[&marker()]);
        let key = asked(&clients, &target, "read", &data.join("key")).await;
        if sandbox == Sandbox::None {
            // The operator said so by name; and so the files are there to be read.
            assert_eq!(key, "read 6 bytes");
            continue;
        }
        assert!(key.starts_with("not read"), "{sandbox:?}: {key}");
        let listed = asked(&clients, &target, "list", &data).await;
        assert!(
            matches!(listed.as_str(), "0 entries" | "not listed: PermissionDenied"),
            "{listed}"
        );
        let settings = asked(&clients, &target, "read", &settings).await;
        assert!(matches!(settings.as_str(), "read 0 bytes" | "not read: PermissionDenied"));
        let new = dir.path().join("new");
        asked(&clients, &target, "write", &new).await;
        assert!(!new.exists(), "{sandbox:?}");
        let other = asked(&clients, &target, "read", Path::new("/proc/1/environ")).await;
        assert!(!other.starts_with("read") || sandbox == Sandbox::Bubblewrap, "{other}");
    }
}

#[tokio::test]
async fn a_data_directory_behind_links_is_hidden_by_every_path() {
    let (_program, program) = for_everybody(PEER);
    let (dir, data, _) = data_directory();
    fs::create_dir(data.join("store")).unwrap();
    fs::write(data.join("store/result"), "secret").unwrap();
    // Only the wall keeps anybody out.
    for open in [&data, &data.join("store")] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let disk = dir.path().join("disk");
    fs::rename(&data, &disk).unwrap();
    symlink("disk", dir.path().join("link")).unwrap();
    symlink(dir.path().join("link"), &data).unwrap();
    symlink(dir.path(), dir.path().join("round")).unwrap();
    if !sandboxes().await.contains(&Sandbox::Bubblewrap) {
        return;
    }
    // By a name that is a link, and once more what lies in it by another.
    let hidden_paths = vec![dir.path().join("link/store"), data.clone()];
    let wide = vec![program.parent().unwrap().to_owned(), dir.path().to_owned()];
    for readable_paths in [rules(&program, Sandbox::Bubblewrap).readable_paths, wide] {
        let rules = rules(&program, Sandbox::Bubblewrap);
        let hidden_paths = hidden_paths.clone();
        let clients = clients_with(StdioRules { hidden_paths, readable_paths, ..rules });
        let target = target(&program, &[&marker()]);
        for name in ["data", "link", "disk", "round/data", "round/round/disk"] {
            let path = dir.path().join(name);
            assert_eq!(asked(&clients, &target, "list", &path).await, "0 entries", "{name}");
            for file in ["key", "store/result"] {
                let read = asked(&clients, &target, "read", &path.join(file)).await;
                assert_eq!(read, "not read: NotFound", "{name}/{file}");
            }
        }
    }
}

#[tokio::test]
async fn a_program_behind_links_is_started_by_its_own_name() {
    if !sandboxes().await.contains(&Sandbox::Bubblewrap) {
        return;
    }
    let (dir, program) = for_everybody(PEER);
    symlink(".", dir.path().join("here")).unwrap();
    let linked = dir.path().join("here").join("server");
    symlink(program.file_name().unwrap(), dir.path().join("server")).unwrap();
    let clients = clients_with(rules(&linked, Sandbox::Bubblewrap));
    let target = target(&linked, &[&marker()]);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
}

#[tokio::test]
async fn under_bubblewrap_a_program_sees_nobodys_home_sockets_or_processes() {
    if !sandboxes().await.contains(&Sandbox::Bubblewrap) {
        return;
    }
    let (_program, program) = for_everybody(PEER);
    let clients = clients_with(rules(&program, Sandbox::Bubblewrap));
    let target = target(&program, &[&marker()]);
    for (hidden, expected) in [("/home", "0 entries"), ("/root", "0 entries")] {
        assert_eq!(asked(&clients, &target, "list", Path::new(hidden)).await, expected, "{hidden}");
    }
    let postgres = asked(&clients, &target, "list", Path::new("/run/postgresql")).await;
    assert_eq!(postgres, "not listed: NotFound");
    for closed in ["/usr/new", "/etc/new", "/root/new"] {
        let written = asked(&clients, &target, "write", Path::new(closed)).await;
        assert!(written.starts_with("not written"), "{closed}: {written}");
    }
    assert_eq!(asked(&clients, &target, "write", Path::new("/tmp/new")).await, "written");
    assert_eq!(asked(&clients, &target, "write", Path::new("/tmp/home/new")).await, "written");
    let processes = call(&clients, &target, tool_call("processes", "{}")).await.unwrap();
    assert_eq!(said(&processes), "2", "the sandbox's own first process, and the program");
    let status = said(&call(&clients, &target, tool_call("status", "{}")).await.unwrap());
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(field("NoNewPrivs:"), "1");
    for capabilities in ["CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(capabilities), "0000000000000000");
    }
    if nix::unistd::geteuid().is_root() {
        assert_ne!(field("Uid:"), "0");
    }
}

#[tokio::test]
async fn a_program_has_the_environment_that_it_was_given_and_a_private_home() {
    let (_program, program) = for_everybody(PEER);
    for sandbox in sandboxes().await {
        let clients = clients_with(rules(&program, sandbox));
        let mut target = target(&program, &[&marker()]);
        children::program(&mut target).env =
            vec![("TOKEN".to_owned(), "t0k\nen".to_owned().into())];
        let answer = call(&clients, &target, tool_call("environment", "{}")).await.unwrap();
        let environment: Value = serde_json::from_str(&said(&answer)).unwrap();
        let mut variables: BTreeMap<String, String> =
            serde_json::from_value::<Vec<(String, String)>>(environment["variables"].clone())
                .unwrap()
                .into_iter()
                .collect();
        // The sandbox's shell-like habit.
        variables.remove("PWD");
        let names: Vec<&str> = variables.keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "LANG", "PATH", "TMPDIR", "TOKEN"], "{sandbox:?}");
        assert_eq!(variables["TOKEN"], "t0k\nen");
        assert_eq!(environment["directory"], variables["HOME"].as_str());
        let file = Path::new(&variables["HOME"]).join("file");
        assert_eq!(asked(&clients, &target, "write", &file).await, "written", "{sandbox:?}");
        if sandbox != Sandbox::Bubblewrap {
            let home = fs::metadata(&variables["HOME"]).unwrap();
            assert_eq!(home.permissions().mode() & 0o777, 0o700);
        }
        clients.close_all(tests::upstream::soon()).await;
        assert!(!file.exists(), "{sandbox:?}");
    }
}

#[tokio::test]
async fn a_program_is_held_to_its_limits() {
    let (_program, program) = for_everybody(PEER);
    for sandbox in sandboxes().await {
        let clients = clients_with(rules(&program, sandbox));
        let target = target(&program, &[&marker()]);
        let limits = said(&call(&clients, &target, tool_call("limits", "{}")).await.unwrap());
        let hard = |name: &str| {
            let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
            line[name.len()..].split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(hard("Max core file size"), "0", "{sandbox:?}");
        assert_eq!(hard("Max open files"), "1024");
        assert_eq!(hard("Max data size"), "4294967296");
        let root = nix::unistd::geteuid().is_root();
        assert!(hard("Max processes") != "unlimited" || root && sandbox == Sandbox::None);
    }
}

#[tokio::test]
async fn only_what_the_operator_listed_is_started() {
    let listed = |args: Value, env: Value| {
        let entry = json!({"name": "peer", "command": PEER, "args": args, "env": env});
        let entry: AllowedProgram = serde_json::from_value(entry).unwrap();
        entry.validate().unwrap();
        let mode = StdioMode::Allowlist(vec![entry]);
        clients_with(StdioRules { mode, ..rules(Path::new(PEER), Sandbox::None) })
    };
    let marker = marker();
    let mut target = target(Path::new(PEER), &[&marker]);
    children::program(&mut target).env = vec![("TOKEN".to_owned(), "x".to_owned().into())];
    let pattern = json!([{"matches": "marker-[0-9a-f-]+"}]);
    let allowed = listed(pattern.clone(), json!(["TOKEN"]));
    call(&allowed, &target, tool_call("echo", "{}")).await.unwrap();
    for refusing in [
        listed(pattern, json!([])),
        listed(json!(["other"]), json!(["TOKEN"])),
        listed(json!([]), json!(["TOKEN"])),
        clients_with(StdioRules::default()),
    ] {
        refused(&refusing, &target).await;
    }
    let any = clients_with(rules(Path::new(PEER), Sandbox::None));
    for name in ["LD_PRELOAD", "NODE_OPTIONS", "PATH"] {
        let mut steered = target.clone();
        children::program(&mut steered).env = vec![(name.to_owned(), "x".to_owned().into())];
        refused(&any, &steered).await;
    }
    for command in ["stdio-peer", "./stdio-peer", "/nowhere/stdio-peer"] {
        let mut elsewhere = target.clone();
        children::program(&mut elsewhere).command = command.into();
        refused(&any, &elsewhere).await;
    }
}

async fn refused(clients: &McpClients, target: &Target) {
    let failure = call(clients, target, tool_call("echo", "{}")).await.unwrap_err();
    let code = (failure.error.code, failure.ran);
    assert_eq!(code, (Code::ServerMisconfigured, Ran::No), "{}", failure.error);
}

#[tokio::test]
async fn another_account_is_no_wall_where_the_data_is_open_to_all() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not tried: only root can give programs other accounts");
        return;
    }
    let (_program, program) = for_everybody(PEER);
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let sandbox = Sandbox::Account { uid: 61_184, gid: 65_534 };
    let hidden_paths = vec![open.path().to_owned()];
    let clients = clients_with(StdioRules { hidden_paths, ..rules(&program, sandbox) });
    refused(&clients, &target(&program, &[&marker()])).await;
}
