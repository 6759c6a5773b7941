//! Secrets appear nowhere: answers, logs, events, errors, command lines, environments, a dump of the
//! whole database, files; in no encoding, though the upstream says them in every way it can.
//!
//! **One place is left out on purpose.** What a tool *answered* is the caller's, byte for byte, and is
//! kept as that call's result (governance, "Normalised result"). So the upstream's results repeat
//! the secret in a second part, where it may be found in that answer and in the bytes of that
//! call's result, and still nowhere else.

mod connections;
mod journey;
pub(crate) mod needles;

use std::{fs, path::Path};

use nix::unistd::Pid;
use tokio::process::Command;

use crate::kill::house::House;
use journey::Journey;
use needles::Secret;

/// Files that are there to hold a secret.
const KEPT: [&str; 5] =
    ["admin-password", "admin-token", "agent-token", "encryption-keys", "seal-key"];

#[tokio::test(flavor = "multi_thread")]
async fn secrets_appear_nowhere() {
    let mut journey = Journey::begin().await;
    journey.configure().await;
    journey.odd_requests().await;
    journey.failing_calls().await;
    journey.questions().await;
    journey.sign_in().await;

    let secrets = journey.secrets();
    journey.answers_hold_none_of(&secrets);
    let house = &journey.house;
    nothing_in("the log", house.log().as_bytes(), &secrets);
    nothing_in("the dump", &dump(house, &[]).await, &secrets);
    processes(house, &secrets);
    files(&house.data(), &secrets);

    // From here on results say the secret, too.
    journey.telling_results().await;
    nothing_in("the log", journey.house.log().as_bytes(), &secrets);
    let others = ["--exclude-table-data=cas_objects"];
    nothing_in("the dump without results", &dump(&journey.house, &others).await, &secrets);
    journey.only_results_hold(&secrets).await;
    journey.clear_up().await;
    nothing_in("the log at the end", journey.house.log().as_bytes(), &secrets);
}

/// Everything that a superuser sees, the queue's schema too.
async fn dump(house: &House, options: &[&str]) -> Vec<u8> {
    let url = house.address().url("bailiwick", "postgres");
    let output = Command::new("pg_dump").args(options).arg(url).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for schema in ["CREATE SCHEMA apalis", "permission_requests", "audit_events", "web_sessions"] {
        assert!(String::from_utf8_lossy(&output.stdout).contains(schema), "no {schema}");
    }
    output.stdout
}

/// Command lines of all, environments of those that we started ourselves.
fn processes(house: &House, secrets: &[Secret]) {
    let all = house.everything();
    let postgres = house.postgres();
    assert!(!postgres.is_empty() && all.len() > postgres.len(), "{all:?} {postgres:?}");
    for pid in &all {
        nothing_in("a command line", &proc_file(*pid, "cmdline"), secrets);
        let environment = proc_file(*pid, "environ");
        if postgres.contains(pid) {
            nothing_in("the environment of Postgres", &environment, secrets);
            let text = String::from_utf8_lossy(&environment).into_owned();
            assert!(!text.contains("BAILIWICK_"), "inherited: {text}");
        } else {
            // The operator put the seal key there; nothing else may have come to it.
            let rest: Vec<Secret> =
                secrets.iter().filter(|one| one.name != "seal key").cloned().collect();
            nothing_in("our environment", &environment, &rest);
        }
    }
}

fn proc_file(pid: Pid, name: &str) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

fn files(dir: &Path, secrets: &[Secret]) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            files(&path, secrets);
        } else if !KEPT.iter().any(|kept| name == *kept) {
            // One that Postgres removes at this moment holds nothing.
            nothing_in(&path.display().to_string(), &fs::read(&path).unwrap_or_default(), secrets);
        }
    }
}

/// What every delegation token of an installation with this one key begins with: its JOSE header.
pub(crate) fn delegation_head(encryption_key: &str) -> String {
    let key = encryption_key.trim();
    let id = domain::json::Sha256Digest::of(key.as_bytes()).to_string()[..8].to_owned();
    let head = format!(r#"{{"typ":"JWT","alg":"HS256","kid":"{id}"}}"#);
    base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, head)
}

/// Panics with the place and the name of what was found there, and what stands around it.
pub(crate) fn nothing_in(place: &str, bytes: &[u8], secrets: &[Secret]) {
    if let Some((secret, form, at)) = needles::find(secrets, bytes) {
        let around = &bytes[at.saturating_sub(300)..(at + 300).min(bytes.len())];
        let around = String::from_utf8_lossy(around);
        panic!("{place}: {} as {form}: …{around}…", secret.name);
    }
}
