//! An installation of `up`: running, spoiled, stopped.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::{Found, doctor, mode};
use crate::kill::house::House;

fn path(house: &House, name: &str) -> PathBuf {
    house.data().join(name)
}

fn examine(house: &House) -> Found {
    let dir = house.data().display().to_string();
    let output = doctor(&["--json", "--data-dir", &dir]).output().unwrap();
    let found = Found::of(&output);
    for name in ["admin-password", "admin-token", "agent-token", "encryption-keys", "seal-key"] {
        if let Ok(value) = fs::read_to_string(path(house, name)) {
            assert!(!found.text.contains(value.trim()), "the value of {name} is shown");
        }
    }
    found
}

#[tokio::test]
async fn an_installation_is_followed_from_its_first_start_to_its_end() {
    let house = House::new();
    let up = house.up().await;
    let found = examine(&house);
    // What the disk of the tests holds is not ours to say.
    let trouble: Vec<String> =
        found.trouble().into_iter().filter(|one| !one.ends_with("disk space")).collect();
    assert_eq!(trouble, Vec::<String>::new(), "{found:#?}");
    found.has("ok", "data directory", "data");
    found.has("ok", "seal key", "closed to others");
    found.has("ok", "token files", "agent-token is usable until");
    found.has("ok", "nodes", "alive: up ");
    found.has("ok", "listener", "ready at");
    found.has("ok", "programs", "");

    mode(&path(&house, "seal-key"), 0o640);
    mode(&path(&house, "admin-token"), 0o604);
    let data: &Path = &house.data();
    let usual = fs::metadata(data).unwrap().permissions().mode() & 0o777;
    mode(data, 0o755);
    let found = examine(&house);
    found.has("fail", "seal key", "others can read the file seal-key");
    found.has("fail", "file modes", "admin-token");
    found.has("fail", "data directory", "has mode 755");
    mode(data, usual);
    mode(&path(&house, "seal-key"), 0o600);
    mode(&path(&house, "admin-token"), 0o600);

    fs::write(path(&house, "agent-token"), "blw_nobody\n").unwrap();
    fs::rename(path(&house, "encryption-keys"), path(&house, "elsewhere")).unwrap();
    fs::remove_file(path(&house, "admin-token")).unwrap();
    let found = examine(&house);
    found.has("warn", "token files", "the token of agent-token: this token is not usable");
    found.has("warn", "token files", "missing: admin-token");
    found.has("fail", "encryption keys", "there are none");

    up.terminate();
    up.ended().await;
    let found = examine(&house);
    found.has("fail", "database", "the private postgres does not run");
    found.has("warn", "listener", "nothing answers at http://127.0.0.1:");
    found.has("ok", "object store", "written, read and deleted");
    found.has("ok", "seal key", "closed to others");
}
