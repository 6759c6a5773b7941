//! `bailiwick connect`.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    world::World,
};

use super::{Scene, Someone};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-under-test");

async fn connect(scene: &Scene, who: &Someone, arguments: &[&str], stdin: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("connect").args(arguments).env_clear();
    command.env("HOME", std::env::temp_dir());
    command.env("BAILIWICK_URL", scene.world.url.as_str());
    command.env("BAILIWICK_APPROVE_TOKEN", &who.token);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let stdin = stdin.to_owned();
    let running = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        // It may end without reading.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    });
    running.await.unwrap()
}

fn words(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    texts.concat()
}

#[tokio::test]
async fn a_secret_comes_from_stdin_and_stays_out_of_sight() {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    let fields = json!({ "authMode": "api_key", "apiKeyHeader": "X-Key" });
    let scene = Scene::with(World::new().await, provider, peer, fields).await;
    let ann = scene.member("ann@acme.test").await;

    let status = connect(&scene, &ann, &["tickets", "--status"], "").await;
    assert_eq!(status.status.code(), Some(1), "{}", words(&status));
    assert_eq!(words(&status), "tickets: disconnected\n");
    let nothing = connect(&scene, &ann, &["tickets"], "\n").await;
    assert_eq!(nothing.status.code(), Some(2), "{}", words(&nothing));

    let saved = connect(&scene, &ann, &["tickets"], "sesame of ann\r\n").await;
    assert_eq!(saved.status.code(), Some(0), "{}", words(&saved));
    assert_eq!(words(&saved), "tickets: configured (static)\n");
    let status = connect(&scene, &ann, &["tickets", "--status", "--json"], "").await;
    let shown: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((status.status.code(), &shown["state"]), (Some(0), &json!("connected")));
    assert!(!words(&status).contains("sesame"), "{}", words(&status));

    let out = connect(&scene, &ann, &["tickets", "--disconnect"], "").await;
    assert_eq!((out.status.code(), words(&out)), (Some(0), "tickets: disconnected\n".to_owned()));
    assert_eq!(scene.state(&ann).await, "disconnected");
    let unknown = connect(&scene, &ann, &["nowhere", "--status"], "").await;
    assert_eq!(unknown.status.code(), Some(1), "{}", words(&unknown));
    let path = connect(&scene, &ann, &["../users", "--status"], "").await;
    assert_eq!(path.status.code(), Some(2), "{}", words(&path));
}

#[tokio::test]
async fn for_oauth_it_says_which_page_to_open() {
    let scene = Scene::new().await;
    let ann = scene.member("ann@acme.test").await;
    let page = format!("{}connections?server={}", scene.world.url, scene.server);
    let output = connect(&scene, &ann, &["tickets"], "").await;
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    assert!(words(&output).ends_with(&format!("\n{page}\n")), "{}", words(&output));
    let output = connect(&scene, &ann, &["tickets", "--json"], "").await;
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["connectUrl"], page);
}

#[tokio::test]
async fn a_provider_may_take_its_time_to_revoke() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    let slow = domain::limits::CALL_REST_MS.millis() + std::time::Duration::from_secs(1);
    scene.provider.set(|knobs| knobs.revoke_delay = slow);
    let out = connect(&scene, &scene.root, &["tickets", "--disconnect", "--revoke"], "").await;
    assert_eq!(out.status.code(), Some(0), "{}", words(&out));
    assert!(words(&out).ends_with("at provider failed\n"), "{}", words(&out));
    assert_eq!(scene.state(&scene.root).await, "disconnected");
}
