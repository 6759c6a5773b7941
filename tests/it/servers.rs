//! Servers through the REST API: forms, secrets, revisions, switches, deletion.

mod confirming;
mod deletion;
mod exchange;
mod programs;
mod quarantine;
mod secrets;
mod variables;

use domain::Role;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    peer::{Peer, Setup},
    world::{Tenant, World},
};

const SERVERS: &str = "/api/mcp/servers";

/// A world with one tenant, and a token of its superadmin.
async fn acme() -> (World, Tenant, String) {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let root = world.user(&acme, "root@acme.test", Role::Superadmin).await;
    let token = world.full_token(&root).await;
    (world, acme, token)
}

fn form(name: &str, url: &str) -> Value {
    json!({ "name": name, "transport": "http", "url": url, "authMode": "none" })
}

async fn create(world: &World, token: &str, form: Value) -> Value {
    let (status, server) = world.post(token, SERVERS, form).await;
    assert_eq!(status, StatusCode::CREATED, "{server}");
    server
}

fn path(server: &Value) -> String {
    format!("{SERVERS}/{}", server["id"].as_str().unwrap())
}

/// Those of a list that a superadmin made: every tenant has built-in ones besides.
fn custom(list: &Value) -> Vec<&Value> {
    let items = list["items"].as_array().unwrap().iter();
    items.filter(|server| server["id"].as_str().unwrap().starts_with("custom-")).collect()
}

/// The form with members of `changes` in place of its own.
fn with(form: &Value, changes: Value) -> Value {
    let mut form = form.clone();
    let Value::Object(changes) = changes else { panic!("an object") };
    form.as_object_mut().unwrap().extend(changes);
    form
}

#[tokio::test]
async fn a_server_is_found_by_id_and_by_slug_until_it_is_deleted() {
    let (world, _, root) = acme().await;
    let body = with(
        &form("Demo", "https://mcp.example.com/mcp"),
        json!({
            "slug": "demo", "description": "says hello", "tags": ["a"], "timeoutSeconds": 5,
            "governance": { "maxConcurrent": 4, "ratePerSecond": 2.5 },
        }),
    );
    let server = create(&world, &root, body).await;

    let id = server["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("custom-") && id.len() == 19, "{id}");
    assert_eq!(server["status"], "disabled");
    assert_eq!(server["enabled"], false);
    assert_eq!((&server["revision"], &server["configRevision"]), (&json!(1), &json!(1)));
    assert_eq!(server["toolCount"], 0);
    assert_eq!(server["timeoutSeconds"], 5);
    assert_eq!(server["governance"].to_string(), r#"{"maxConcurrent":4,"ratePerSecond":2.5}"#);

    for name in [id.as_str(), "demo"] {
        let (status, found) = world.get(&root, &format!("{SERVERS}/{name}")).await;
        assert_eq!((status, &found), (StatusCode::OK, &server));
    }
    let (_, list) = world.get(&root, SERVERS).await;
    assert_eq!(list["next"], Value::Null);
    assert_eq!(custom(&list), [&server]);

    let deleted = world.delete(&root, &format!("{SERVERS}/demo")).await;
    assert_eq!(deleted, (StatusCode::OK, json!({ "deleted": true })));
    assert_eq!(world.get(&root, &path(&server)).await.0, StatusCode::NOT_FOUND);
    assert_eq!(world.delete(&root, &path(&server)).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_list_is_paged_newest_first() {
    let (world, _, root) = acme().await;
    for name in ["one", "two", "three"] {
        create(&world, &root, form(name, "https://mcp.example.com/")).await;
    }
    let (_, first) = world.get(&root, &format!("{SERVERS}?limit=2")).await;
    assert_eq!(
        (&first["items"][0]["name"], &first["items"][1]["name"]),
        (&json!("three"), &json!("two"))
    );
    let next = first["next"].as_str().unwrap();
    let (_, second) = world.get(&root, &format!("{SERVERS}?limit=2&after={next}")).await;
    // The built-in one is as old as the tenant.
    let names = second["items"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|server| server["name"].as_str().unwrap()).collect();
    assert_eq!((names, &second["next"]), (vec!["one", "Who am I"], &Value::Null));
    for nonsense in ["?after=nonsense", "?after=1.a%00", "/tools?after=%00"] {
        let place = match nonsense.strip_prefix("/tools") {
            Some(query) => format!("{}/tools{query}", path(&first["items"][0])),
            None => format!("{SERVERS}{nonsense}"),
        };
        let (status, problem) = world.get(&root, &place).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{place} {problem}");
    }
}

#[tokio::test]
async fn every_mistake_of_a_form_is_answered_at_once_and_nothing_is_stored() {
    let (world, _, root) = acme().await;
    let bad = json!({
        "name": "", "transport": "http", "url": "http://mcp.example.com/#x", "authMode": "none",
        "timeoutSeconds": 1.5, "headers": { "X-Key": "$TOKEN", "Host": "evil" },
        "description": "no\u{0}l", "icon": "no\u{0}l",
    });
    let (status, problem) = world.post(&root, SERVERS, bad).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("INVALID_INPUT"))
    );
    let errors = problem["details"]["errors"].as_array().unwrap();
    let places: Vec<&str> = errors.iter().map(|error| error["path"].as_str().unwrap()).collect();
    for place in [
        "/name",
        "/url",
        "/timeoutSeconds",
        "/headers/X-Key",
        "/headers/Host",
        "/description",
        "/icon",
    ] {
        assert!(places.contains(&place), "{place} is not among {places:?}");
    }
    let (_, list) = world.get(&root, SERVERS).await;
    assert_eq!(custom(&list), [] as [&Value; 0]);
}

#[tokio::test]
async fn unknown_fields_and_modes_of_ours_are_refused() {
    let (world, _, root) = acme().await;
    let plain = form("Demo", "https://mcp.example.com/");
    for changes in [
        json!({ "colour": "red" }),
        json!({ "authMode": "delegation" }),
        // Programs are the operator's to permit.
        json!({ "transport": "stdio", "command": "/bin/sh" }),
        json!({ "revision": 1 }),
    ] {
        let (status, problem) = world.post(&root, SERVERS, with(&plain, changes.clone())).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{changes} {problem}");
    }
}

#[tokio::test]
async fn names_are_unique_without_case_and_slugs_never_change() {
    let (world, _, root) = acme().await;
    let url = "https://mcp.example.com/";
    let first = create(&world, &root, with(&form("Demo", url), json!({ "slug": "demo" }))).await;
    let second = create(&world, &root, form("Other", url)).await;
    assert_eq!(second["slug"], second["id"]);

    let (status, problem) = world.post(&root, SERVERS, form("dEMO", url)).await;
    assert_eq!((status, &problem["details"]), (StatusCode::CONFLICT, &json!({ "field": "name" })));
    let taken = with(&form("Third", url), json!({ "slug": "demo" }));
    let (status, problem) = world.post(&root, SERVERS, taken).await;
    assert_eq!((status, &problem["details"]), (StatusCode::CONFLICT, &json!({ "field": "slug" })));
    let (status, _) = world.put(&root, &path(&second), form("DEMO", url)).await;
    assert_eq!(status, StatusCode::CONFLICT);

    // A form may bring back what it was given, and nothing else.
    let same = with(&form("Other", url), json!({ "slug": second["slug"] }));
    assert_eq!(world.put(&root, &path(&second), same).await.0, StatusCode::OK);
    let other = with(&form("Demo", url), json!({ "slug": "new" }));
    let (status, problem) = world.put(&root, &path(&first), other).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
}

#[tokio::test]
async fn the_configuration_has_a_new_revision_when_its_reach_changes_and_only_then() {
    let (world, _, root) = acme().await;
    let first = with(
        &form("Demo", "https://mcp.example.com/a"),
        json!({
            "authMode": "shared_headers", "headers": { "X-Key": "one" },
        }),
    );
    let server = create(&world, &root, first.clone()).await;
    let kept = with(&first, json!({ "headers": { "X-Key": null } }));

    let mut form_revision = 1;
    for (changes, config_revision) in [
        (json!({ "name": "Renamed", "description": "other", "icon": "i", "tags": ["t"] }), 1),
        (json!({ "timeoutSeconds": 9, "governance": { "maxConcurrent": 2 } }), 1),
        (json!({ "url": "https://mcp.example.com/b" }), 2),
        // The old value again is a new revision too.
        (json!({ "url": "https://mcp.example.com/a" }), 3),
        (json!({ "headers": { "X-Key": "two" } }), 4),
        (json!({ "headers": {} }), 5),
        (json!({ "headers": {}, "authMode": "none" }), 6),
    ] {
        let body = with(&with(&kept, changes.clone()), json!({ "revision": form_revision }));
        let (status, saved) = world.put(&root, &path(&server), body).await;
        assert_eq!(status, StatusCode::OK, "{changes}: {saved}");
        form_revision += 1;
        assert_eq!(saved["revision"], form_revision, "{changes}");
        assert_eq!(saved["configRevision"], config_revision, "{changes}");
    }
}

#[tokio::test]
async fn of_two_saves_from_one_revision_one_wins() {
    let (world, _, root) = acme().await;
    let server = create(&world, &root, form("Demo", "https://mcp.example.com/")).await;
    let save = |name: &str| with(&form(name, "https://mcp.example.com/"), json!({ "revision": 1 }));
    let path = path(&server);
    let (one, two) =
        tokio::join!(world.put(&root, &path, save("One")), world.put(&root, &path, save("Two")));
    let (won, lost) = if one.0 == StatusCode::OK { (one, two) } else { (two, one) };
    assert_eq!((won.0, &won.1["revision"]), (StatusCode::OK, &json!(2)));
    assert_eq!((lost.0, &lost.1["code"]), (StatusCode::CONFLICT, &json!("REVISION_CONFLICT")));
    assert_eq!(lost.1["details"], json!({ "revision": 2 }));
    assert_eq!(world.get(&root, &path).await.1["name"], won.1["name"]);

    // The switch is part of the form: one that was loaded before is stale too.
    let switched = world.put(&root, &format!("{path}/status"), json!({ "enabled": true })).await;
    assert_eq!(switched.1["revision"], 3);
    let again = world.put(&root, &format!("{path}/status"), json!({ "enabled": true })).await;
    assert_eq!((again.0, &again.1["revision"]), (StatusCode::OK, &json!(3)));
    let stale = with(&save("Late"), json!({ "revision": 2 }));
    assert_eq!(world.put(&root, &path, stale).await.0, StatusCode::CONFLICT);
}

#[tokio::test]
async fn of_two_last_servers_one_is_refused() {
    let (world, _, root) = acme().await;
    for index in 1..50 {
        create(&world, &root, form(&format!("Server {index}"), "https://mcp.example.com/")).await;
    }
    let (one, two) = tokio::join!(
        world.post(&root, SERVERS, form("One", "https://mcp.example.com/")),
        world.post(&root, SERVERS, form("Two", "https://mcp.example.com/"))
    );
    let mut statuses = [one.0, two.0];
    statuses.sort();
    assert_eq!(statuses, [StatusCode::CREATED, StatusCode::CONFLICT]);
    let (_, list) = world.get(&root, &format!("{SERVERS}?limit=200")).await;
    assert_eq!(custom(&list).len(), 50);
}

#[tokio::test]
async fn others_see_a_few_fields_of_servers_that_are_switched_on() {
    let (world, acme, root) = acme().await;
    let body = with(
        &form("Demo", "https://mcp.example.com/"),
        json!({
            "authMode": "shared_headers", "headers": { "X-Key": "hush" },
        }),
    );
    let server = create(&world, &root, body).await;
    let admin = world.user(&acme, "admin@acme.test", Role::Admin).await;
    let member = world.user(&acme, "member@acme.test", Role::Member).await;
    let superadmin = world.user(&acme, "second@acme.test", Role::Superadmin).await;
    // The role alone is not enough: the token must be one for administration.
    let plain = [
        world.full_token(&admin).await,
        world.token(&member, "api:read,api:write").await,
        world.token(&superadmin, "api:read,api:write").await,
    ];
    for token in &plain {
        assert_eq!(world.get(token, SERVERS).await.1["items"], json!([]));
        assert_eq!(world.get(token, &path(&server)).await.0, StatusCode::NOT_FOUND);
        assert_eq!(
            world.post(token, &format!("{}/test", path(&server)), json!({})).await.0,
            StatusCode::NOT_FOUND
        );
    }
    world.put(&root, &format!("{}/status", path(&server)), json!({ "enabled": true })).await;
    let visible = json!({
        "id": server["id"], "slug": server["slug"], "name": "Demo", "description": "", "icon": null,
        "tags": [], "authMode": "shared_headers", "enabled": true, "state": "not_required",
        "revision": server["revision"].as_i64().unwrap() + 1,
    });
    for token in &plain {
        assert_eq!(world.get(token, SERVERS).await.1["items"], json!([visible]));
        assert_eq!(world.get(token, &path(&server)).await, (StatusCode::OK, visible.clone()));
        for (status, problem) in [
            world.post(token, SERVERS, form("Mine", "https://mcp.example.com/")).await,
            world.put(token, &path(&server), form("Mine", "https://mcp.example.com/")).await,
            world.delete(token, &path(&server)).await,
            world
                .put(token, &format!("{}/status", path(&server)), json!({ "enabled": false }))
                .await,
            world.post(token, &format!("{}/tools/refresh", path(&server)), json!({})).await,
            world.put(token, &format!("{}/tools/echo", path(&server)), json!({})).await,
        ] {
            assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("DENIED")));
        }
    }
}

#[tokio::test]
async fn saving_an_enabled_server_and_switching_one_on_ask_for_its_tools() {
    let (world, _, root) = acme().await;
    let owner = world.owner().await;
    let jobs = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM apalis.jobs WHERE job_type = 'discover-tools'")
            .fetch_one(&owner)
            .await
            .unwrap()
    };
    let plain = form("Demo", "https://mcp.example.com/");
    let server = create(&world, &root, plain.clone()).await;
    assert_eq!(jobs().await, 0);
    world.put(&root, &format!("{}/status", path(&server)), json!({ "enabled": true })).await;
    assert_eq!(jobs().await, 1);
    world.put(&root, &path(&server), with(&plain, json!({ "enabled": true }))).await;
    assert_eq!(jobs().await, 2);
    world.put(&root, &path(&server), plain).await;
    assert_eq!(jobs().await, 2);
}

#[tokio::test]
async fn a_test_works_on_a_disabled_server_and_only_a_superadmins_is_written_down() {
    let (world, acme, root) = acme().await;
    let peer = Peer::start(Setup::modern()).await;
    let server = create(&world, &root, form("Demo", peer.url().as_str())).await;
    let test = format!("{}/test", path(&server));

    let (status, checked) = world.post(&root, &test, json!({})).await;
    assert_eq!((status, &checked["status"]), (StatusCode::OK, &json!("ready")), "{checked}");
    assert_eq!(checked["tools"][0]["name"], "echo");
    assert_eq!(checked["tools"][0]["inputSchema"], json!({ "type": "object" }));
    assert!(checked["durationMs"].is_u64() && checked.get("error").is_none());
    assert!(peer.calls().is_empty());
    let (_, tested) = world.get(&root, &path(&server)).await;
    assert_eq!((&tested["status"], &tested["enabled"]), (&json!("disabled"), &json!(false)));
    assert_eq!((&tested["toolCount"], &tested["revision"]), (&json!(0), &json!(1)));
    let checked_at = tested["checkedAt"].clone();
    assert!(checked_at.is_string());

    world.put(&root, &format!("{}/status", path(&server)), json!({ "enabled": true })).await;
    let member = world.user(&acme, "member@acme.test", Role::Member).await;
    let member = world.token(&member, "api:read,api:write").await;
    drop(peer);
    let (status, failed) = world.post(&member, &test, json!({})).await;
    assert_eq!(
        (status, &failed["status"], &failed["tools"]),
        (StatusCode::OK, &json!("error"), &json!([]))
    );
    assert_eq!(
        failed["error"],
        json!({
            "code": "UPSTREAM_UNAVAILABLE", "message": "the server could not be reached",
        })
    );
    let (_, after) = world.get(&root, &path(&server)).await;
    assert_eq!((&after["status"], &after["checkedAt"]), (&json!("ready"), &checked_at));

    world.post(&root, &test, json!({})).await;
    let (_, after) = world.get(&root, &path(&server)).await;
    assert_eq!(
        (&after["status"], &after["statusError"]),
        (&json!("error"), &json!("the server could not be reached"))
    );
}
