//! What providers gave out, and what people brought, stands nowhere but sealed.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use reqwest::StatusCode;
use serde_json::json;
use sqlx::{AssertSqlSafe, PgPool};
use tests::{authorization_server::Fault, world::rows::tenant_tables};
use tracing_subscriber::EnvFilter;

use super::{Scene, lab::keyed};
use crate::secrets::needles::Secret;

/// All that this process logs, of our own crates in every detail.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn begin() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let ours = "info,api=trace,app=trace,domain=trace,outbound=trace,store=trace";
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(ours))
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        log
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Every row of every tenant, and what waits to be done.
async fn dump(owner: &PgPool) -> String {
    let mut dump = String::new();
    for table in tenant_tables(owner).await {
        let sql = format!("SELECT coalesce(string_agg(t::text, E'\\n'), '') FROM {table} t");
        let rows: String = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(owner).await.unwrap();
        dump += &rows;
    }
    dump
}

fn nothing_in(place: &str, text: &str, secrets: &[Secret]) {
    assert!(!text.is_empty(), "{place} is empty");
    for secret in secrets {
        assert_eq!(secret.find(text), None, "{} in {place}", secret.name);
    }
}

#[tokio::test]
async fn what_a_provider_gave_stands_nowhere_but_sealed() {
    let log = Log::begin();
    let scene = Scene::new().await;
    let owner = scene.world.owner().await;
    let mut answers = Vec::new();
    let mut states = Vec::new();
    // Connected, refreshed, refused, begun and left, denied, failed.
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    for _ in 0..2 {
        scene.peer.set(|door| door.reject_next = 1);
        scene.whoami(&scene.root).await.unwrap();
    }
    for fault in [Fault::error("server_error"), Fault::json(200, json!({})), Fault::CutAfter] {
        scene.provider.set(|knobs| knobs.fail_grant("authorization_code", fault));
        let begun = scene.start(&scene.root).await;
        let callback = scene.provider.walk(&begun.authorization_url, "root").await;
        let client = scene.world.client();
        let answer = client.get(callback.clone()).header("cookie", &begun.cookie).send().await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        answers.push(format!("{:?}", answer.headers()));
        answers.push(answer.text().await.unwrap());
        states
            .push(callback.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned());
        states.push(begun.cookie.split_once('=').unwrap().1.to_owned());
    }
    let begun = scene.start(&scene.root).await;
    states.push(begun.cookie.split_once('=').unwrap().1.to_owned());
    let result = scene.result(&begun, "root").await;
    states.push(result.clone());
    let ann = scene.member("ann@acme.test").await;
    scene.connect(&ann, "alice").await;
    scene.age(&ann, true).await;
    let malformed = Fault::json(200, json!({ "access_token": 7, "refresh_token": "half" }));
    scene.provider.set(|knobs| knobs.fail_grant("refresh_token", malformed));
    answers.push(format!("{:?}", scene.call(&ann, "whoami", "{}").await.outcome.unwrap_err()));
    scene.peer.set(|door| door.reject_next = 100);
    answers.push(format!("{:?}", scene.call(&scene.root, "add", "{}").await.outcome.unwrap_err()));
    let calls = format!("/api/sessions/{}/mcp/invocations", scene.root.session.unwrap());
    for path in ["/api/mcp/connections", "/api/mcp/servers", "/api/sessions", calls.as_str()] {
        let (code, answer) = scene.world.get(&scene.root.token, path).await;
        assert_eq!(code, StatusCode::OK, "{path}: {answer}");
        answers.push(answer.to_string());
    }
    answers.push(scene.connection(&ann).await.to_string());
    answers.push(format!("{:?}", scene.world.ctx.vault));

    let mut secrets: Vec<Secret> = scene
        .provider
        .secrets()
        .iter()
        .map(|secret| Secret::new("a provider's secret", secret))
        .collect();
    secrets.extend(states.iter().map(|state| Secret::new("a state, cookie or result", state)));
    let verifiers = scene.provider.grants("authorization_code").into_iter();
    secrets.extend(verifiers.map(|one| Secret::new("a verifier", one.field("code_verifier"))));
    assert!(secrets.len() > 15, "{}", secrets.len());
    nothing_in("the answers", &answers.concat(), &secrets);
    nothing_in("the log", &log.text(), &secrets);
    let rows = dump(&owner).await;
    assert!(rows.contains("mcp:read"), "the rows are there");
    nothing_in("the rows", &rows, &secrets);
}

#[tokio::test]
async fn what_a_person_brought_stands_nowhere_but_sealed() {
    let log = Log::begin();
    let (scene, peer) = keyed(tests::peer::Setup::modern()).await;
    let secret = "sesame-0f1e2d3c4b5a69788796a5b4c3d2e1f0";
    scene.put_secret(&scene.root, secret).await;
    assert_eq!(scene.code(&scene.root, "echo").await, Ok(()));
    let sent = peer.calls().last().unwrap().header("authorization").to_owned();
    assert_eq!(sent, format!("Bearer {secret}"));
    // The server says it in its refusal.
    let headers = vec![("www-authenticate", format!(r#"Bearer error="{secret}""#))];
    let telling =
        tests::peer::Answer::Status { status: 403, headers, body: format!("no: {secret}") };
    peer.script_method("tools/call", [telling]);
    let error = scene.call(&scene.root, "echo", "{}").await.outcome.unwrap_err();
    let secrets = [Secret::new("the secret", secret)];
    nothing_in("the error", &format!("{error:?} {error}"), &secrets);
    let connections = scene.world.get(&scene.root.token, "/api/mcp/connections").await.1;
    nothing_in("the list", &connections.to_string(), &secrets);
    nothing_in("the log", &log.text(), &secrets);
    nothing_in("the rows", &dump(&scene.world.owner().await).await, &secrets);
}
