//! What becomes of the secrets of a server: the edit table, sealing, and that none comes back.

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    peer::{Peer, Setup},
    world::World,
};

use super::{SERVERS, acme, create, form, path, with};

#[expect(clippy::needless_pass_by_value, reason = "every call makes the value in place")]
fn shared(url: &str, headers: Value) -> Value {
    with(&form("Demo", url), json!({ "authMode": "shared_headers", "headers": headers }))
}

/// What the server is sent under these header names.
async fn sent(
    world: &World,
    root: &str,
    server: &Value,
    peer: &Peer,
    names: [&str; 3],
) -> [String; 3] {
    let (_, checked) = world.post(root, &format!("{}/test", path(server)), json!({})).await;
    assert_eq!(checked["status"], "ready", "{checked}");
    let last = peer.received("tools/list").pop().unwrap();
    names.map(|name| last.header(name).to_owned())
}

#[tokio::test]
async fn null_keeps_a_string_replaces_and_what_is_left_out_is_deleted() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let url = peer.url().to_string();
    let names = ["x-a", "x-b", "x-c"];
    let first = shared(&url, json!({ "X-A": "one", "X-B": "two", "X-C": "three" }));
    let server = create(&world, &root, first).await;
    assert_eq!(server["headers"], json!({ "X-A": null, "X-B": null, "X-C": null }));
    assert_eq!(sent(&world, &root, &server, &peer, names).await, ["one", "two", "three"]);

    let edit = shared(&url, json!({ "X-A": null, "X-B": "new" }));
    let (status, saved) = world.put(&root, &path(&server), edit).await;
    assert_eq!((status, &saved["headers"]), (StatusCode::OK, &json!({ "X-A": null, "X-B": null })));
    assert_eq!(sent(&world, &root, &server, &peer, names).await, ["one", "new", ""]);

    // An empty string is a value: the name stays.
    let edit = shared(&url, json!({ "X-A": "", "X-B": null }));
    let (_, saved) = world.put(&root, &path(&server), edit).await;
    assert_eq!(saved["headers"], json!({ "X-A": null, "X-B": null }));
    assert_eq!(sent(&world, &root, &server, &peer, names).await, ["", "new", ""]);
}

#[tokio::test]
async fn null_for_a_name_without_a_value_refuses_the_whole_save() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let url = peer.url().to_string();
    let server = create(&world, &root, shared(&url, json!({ "X-A": "one" }))).await;
    let (_, before) = world.get(&root, &path(&server)).await;
    for headers in [
        json!({ "X-A": "changed", "X-B": null }),
        // Another spelling is another name: there is no renaming.
        json!({ "x-a": null }),
    ] {
        let renamed = with(&shared(&url, headers.clone()), json!({ "name": "Renamed" }));
        let (status, problem) = world.put(&root, &path(&server), renamed).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{headers}: {problem}");
    }
    assert_eq!(world.get(&root, &path(&server)).await.1, before);
    let names = ["x-a", "x-b", "x-c"];
    assert_eq!(sent(&world, &root, &server, &peer, names).await, ["one", "", ""]);
    let (status, _) = world.post(&root, SERVERS, shared(&url, json!({ "X-A": null }))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn two_dollars_are_sent_as_one_and_a_variable_is_missing() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let url = peer.url().to_string();
    let server =
        create(&world, &root, shared(&url, json!({ "X-A": "a$$b", "X-B": "$$NAME" }))).await;
    let names = ["x-a", "x-b", "x-c"];
    assert_eq!(sent(&world, &root, &server, &peer, names).await, ["a$b", "$NAME", ""]);
    let (status, problem) =
        world.put(&root, &path(&server), shared(&url, json!({ "X-A": "$NAME" }))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
}

#[tokio::test]
async fn a_secret_is_in_no_answer_and_in_no_row() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let secret = "sesame-open-0123456789";
    let forms = [secret.to_owned(), BASE64_STANDARD.encode(secret), hex(secret)];
    let body = shared(peer.url().as_str(), json!({ "X-A": secret, "X-B": secret }));
    let server = create(&world, &root, with(&body, json!({ "enabled": true }))).await;
    let mut answers = vec![server.to_string()];
    let bad =
        shared(peer.url().as_str(), json!({ "X-A": secret, "Bad Name": secret, "X-B": "$X" }));
    for (_, answer) in [
        world.get(&root, SERVERS).await,
        world.get(&root, &path(&server)).await,
        world.put(&root, &path(&server), bad).await,
        world.put(&root, &path(&server), with(&body, json!({ "revision": 77 }))).await,
        world.post(&root, &format!("{}/test", path(&server)), json!({})).await,
        world.post(&root, &format!("{}/tools/refresh", path(&server)), json!({})).await,
        world.get(&root, &format!("{}/tools", path(&server))).await,
        world.put(&root, &path(&server), body).await,
        world.delete(&root, &path(&server)).await,
    ] {
        answers.push(answer.to_string());
    }
    let rows = every_row(&world).await;
    assert!(rows.contains("server.deleted"), "the dump has the audit");
    for form in &forms {
        assert!(answers.iter().all(|answer| !answer.contains(form)), "{answers:#?}");
        assert!(!rows.contains(form));
    }
    assert_eq!(peer.received("tools/list")[0].header("x-a"), secret);
}

#[tokio::test]
async fn a_sealed_value_does_not_open_in_another_row() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let url = peer.url().to_string();
    let rich = create(&world, &root, shared(&url, json!({ "X-Key": "rich" }))).await;
    let body = with(&shared(&url, json!({ "X-Key": "poor" })), json!({ "name": "Other" }));
    let poor = create(&world, &root, body).await;
    sqlx::query(
        "UPDATE mcp_server_secrets SET sealed = (SELECT sealed FROM mcp_server_secrets WHERE server_id = $1)
         WHERE server_id = $2",
    )
    .bind(rich["id"].as_str())
    .bind(poor["id"].as_str())
    .execute(&world.owner().await)
    .await
    .unwrap();
    let (_, checked) = world.post(&root, &format!("{}/test", path(&poor)), json!({})).await;
    assert_eq!(
        checked["error"],
        json!({
            "code": "CREDENTIALS_UNREADABLE", "message": "a stored secret of the server cannot be opened",
        })
    );
    assert!(peer.journal().is_empty());
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap()
}

fn hex(text: &str) -> String {
    text.bytes().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect()
}

/// Every row of every table, as text.
pub(super) async fn every_row(world: &World) -> String {
    let owner = world.owner().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
         WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
    .fetch_all(&owner)
    .await
    .unwrap();
    let mut rows = String::new();
    for table in tables {
        let dump = format!("SELECT coalesce(string_agg(t::text, E'\\n'), '') FROM {table} t");
        let text: String =
            sqlx::query_scalar(sqlx::AssertSqlSafe(dump)).fetch_one(&owner).await.unwrap();
        rows.push_str(&text);
        rows.push('\n');
    }
    rows
}
