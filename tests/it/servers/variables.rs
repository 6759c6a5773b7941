//! Variables of the tenant: sealed, sent to their hosts alone, and a new one is a new configuration.

use serde_json::{Value, json};
use tests::{
    peer::{Peer, Setup},
    world::World,
};

use super::{StatusCode, acme, create, form, path, with};
use crate::gateway::{as_pairs, modern};

const VARIABLES: &str = "/api/tenant/variables";

async fn set(world: &World, root: &str, name: &str, value: &str, hosts: Value) -> Value {
    let body = json!({ "value": value, "hosts": hosts });
    let (status, variable) = world.put(root, &format!("{VARIABLES}/{name}"), body).await;
    assert_eq!(status, StatusCode::OK, "{variable}");
    variable
}

fn using(url: &str, value: &str) -> Value {
    let shared = json!({ "authMode": "shared_headers", "headers": { "X-Key": value } });
    with(&form("Demo", url), shared)
}

#[tokio::test]
async fn a_variable_is_sealed_sent_and_never_given_back() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let variable = set(&world, &root, "KEY", "s3cret-value", json!(["127.0.0.1"])).await;
    assert_eq!(
        (&variable["name"], &variable["hosts"], &variable["usedBy"]),
        (&json!("KEY"), &json!(["127.0.0.1"]), &json!([]))
    );
    assert!(variable["updatedAt"].is_string());

    let server = create(&world, &root, using(peer.url().as_str(), "Bearer $KEY for $$5")).await;
    let (status, checked) = world.post(&root, &format!("{}/test", path(&server)), json!({})).await;
    assert_eq!((status, &checked["status"]), (StatusCode::OK, &json!("ready")), "{checked}");
    assert_eq!(peer.received("tools/list")[0].header("x-key"), "Bearer s3cret-value for $5");
    assert_eq!(checked["contacted"]["variables"], json!(["KEY"]));
    assert_eq!(checked["contacted"]["headers"], json!(["X-Key"]));

    let (_, list) = world.get(&root, VARIABLES).await;
    assert_eq!(list["items"][0]["usedBy"][0]["serverId"], server["id"]);
    assert_eq!(list["items"][0]["usedBy"][0]["allowed"], true);
    for answer in [&variable, &list, &checked, &server] {
        assert!(!answer.to_string().contains("s3cret"), "{answer}");
    }
    let rows = super::secrets::every_row(&world).await;
    assert!(rows.contains("variable.set") && !rows.contains("s3cret-value"));
}

#[tokio::test]
async fn a_variable_goes_to_its_hosts_alone() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let url = peer.url().to_string();
    set(&world, &root, "ELSEWHERE", "one", json!(["api.example.com", "stdio"])).await;
    set(&world, &root, "NOWHERE", "two", json!([])).await;
    for value in ["$ELSEWHERE", "$NOWHERE", "$MISSING"] {
        let (status, problem) = world.post(&root, "/api/mcp/servers", using(&url, value)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{value} {problem}");
        assert_eq!(problem["details"]["errors"][0]["path"], "/headers/X-Key");
        assert!(problem["detail"].as_str().unwrap().contains(value), "{problem}");
    }

    // A host that is taken away later ends the use at once.
    set(&world, &root, "KEY", "three", json!(["127.0.0.1"])).await;
    let server = create(&world, &root, using(&url, "$KEY")).await;
    let narrowed = set(&world, &root, "KEY", "four", json!(["api.example.com"])).await;
    assert_eq!(narrowed["usedBy"][0]["allowed"], false);
    let (_, checked) = world.post(&root, &format!("{}/test", path(&server)), json!({})).await;
    assert_eq!(
        checked["error"],
        json!({
            "code": "SERVER_MISCONFIGURED",
            "message": "the variable $KEY is not for where this server is",
        })
    );
    assert!(peer.journal().is_empty());
    // Nor is such a header kept by a save.
    let kept = with(&using(&url, ""), json!({ "headers": { "X-Key": null } }));
    let (status, problem) = world.put(&root, &path(&server), kept).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
}

#[tokio::test]
async fn changing_and_deleting_one_advances_each_server_that_uses_it() {
    let (world, _, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let url = peer.url().to_string();
    set(&world, &root, "KEY", "one", json!(["127.0.0.1"])).await;
    let user = create(&world, &root, using(&url, "$KEY")).await;
    let other =
        create(&world, &root, with(&using(&url, "plain"), json!({ "name": "Other" }))).await;
    let revisions = async || {
        let one = world.get(&root, &path(&user)).await.1;
        let two = world.get(&root, &path(&other)).await.1;
        (one["configRevision"].as_i64().unwrap(), two["configRevision"].as_i64().unwrap())
    };
    world.post(&root, &format!("{}/test", path(&user)), json!({})).await;
    assert_eq!(revisions().await, (1, 1));
    set(&world, &root, "KEY", "two", json!(["127.0.0.1"])).await;
    assert_eq!(revisions().await, (2, 1));
    let (_, stale) = world.get(&root, &path(&user)).await;
    assert_eq!(stale["checkedAt"], Value::Null, "what was found out is about another value");

    let (status, deleted) = world.delete(&root, &format!("{VARIABLES}/KEY")).await;
    assert_eq!((status, &deleted["deleted"]), (StatusCode::OK, &json!(true)));
    assert_eq!(deleted["usedBy"][0]["serverId"], user["id"]);
    assert_eq!(revisions().await, (3, 1));
    let (_, checked) = world.post(&root, &format!("{}/test", path(&user)), json!({})).await;
    assert_eq!(checked["error"]["code"], "SERVER_MISCONFIGURED");
    assert_eq!(checked["error"]["message"], "the variable $KEY does not exist");
    let (status, _) = world.delete(&root, &format!("{VARIABLES}/KEY")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let kept = with(&using(&url, ""), json!({ "headers": { "X-Key": null } }));
    let (status, _) = world.put(&root, &path(&user), kept).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_call_sends_the_present_value_and_none_without_it() {
    let (world, acme, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    set(&world, &root, "KEY", "one", json!(["127.0.0.1"])).await;
    let body =
        with(&using(peer.url().as_str(), "$KEY"), json!({ "slug": "demo", "enabled": true }));
    let server = create(&world, &root, body).await;
    world.post(&root, &format!("{}/tools/refresh", path(&server)), json!({})).await;
    let root_user = tests::world::Person {
        tenant: acme.clone(),
        id: serde_json::from_value(world.get(&root, "/api/me").await.1["user"]["id"].clone())
            .unwrap(),
        email: "root@acme.test".to_owned(),
    };
    let agent = world.token(&root_user, "mcp:call").await;
    let session = json!({ "enabledSourceIds": [server["id"]], "approvalMode": "always_allow" });
    let (status, session) = world.post(&root, "/api/sessions", session).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    let call = async || {
        let (headers, body) = modern("tools/call", r#"{"name":"mcp__demo__echo","arguments":{}}"#);
        let place = format!("{}mcp/{}", world.url, session["id"].as_str().unwrap());
        let mut request = world.client().post(place).bearer_auth(&agent).body(body);
        request = request.header("accept", "application/json, text/event-stream");
        request = request.header("content-type", "application/json");
        for (name, value) in as_pairs(&headers) {
            request = request.header(name, value);
        }
        request.send().await.unwrap().text().await.unwrap()
    };
    call().await;
    set(&world, &root, "KEY", "two", json!(["127.0.0.1"])).await;
    call().await;
    let sent: Vec<String> =
        peer.calls().iter().map(|call| call.header("x-key").to_owned()).collect();
    assert_eq!(sent, ["one", "two"]);
    world.delete(&root, &format!("{VARIABLES}/KEY")).await;
    let answer = call().await;
    assert!(answer.contains("SERVER_MISCONFIGURED"), "{answer}");
    assert_eq!(peer.calls().len(), 2);
}

#[tokio::test]
async fn every_mistake_of_a_variable_is_answered_at_once() {
    let (world, _, root) = acme().await;
    let body = json!({ "value": " x", "hosts": ["*.example.com", "https://a", "ok.example"] });
    let (status, problem) = world.put(&root, &format!("{VARIABLES}/1A"), body).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let errors = problem["details"]["errors"].as_array().unwrap();
    let places: Vec<&str> = errors.iter().map(|error| error["path"].as_str().unwrap()).collect();
    assert_eq!(places, ["/name", "/value", "/hosts/0", "/hosts/1"]);
    let (_, list) = world.get(&root, VARIABLES).await;
    assert_eq!(list, json!({ "items": [], "next": null }));
}

#[tokio::test]
async fn a_save_and_a_deletion_of_its_variable_leave_no_server_behind_unseen() {
    let (world, _, root) = acme().await;
    for round in 0..8 {
        set(&world, &root, "KEY", "one", json!(["mcp.example.com"])).await;
        let body = with(
            &using("https://mcp.example.com/", "$KEY"),
            json!({ "name": format!("Server {round}") }),
        );
        let gone = format!("{VARIABLES}/KEY");
        let (saved, deleted) =
            tokio::join!(world.post(&root, "/api/mcp/servers", body), world.delete(&root, &gone));
        assert_eq!(deleted.0, StatusCode::OK);
        let told = deleted.1["usedBy"].as_array().unwrap();
        let told = told.iter().any(|one| one["name"] == format!("Server {round}"));
        // Either the deletion came first and the save was refused, or it names the server.
        assert_eq!(told, saved.0 == StatusCode::CREATED, "{saved:?} {deleted:?}");
    }
}
