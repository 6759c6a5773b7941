//! Sealing anew: whole, cut off, beside others, and with keys that are not there.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

use domain::Code;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use store::{
    sealed::{self, COLUMNS},
    vault::{Purpose, Vault},
};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    world::{ENCRYPTION_KEY, World},
};

use crate::connections::Scene;

use super::{NEW_KEY, both, id, keys, run, scene, sealed as count, variables};

/// Everything but what was sealed, by table.
async fn rest(owner: &PgPool) -> Vec<String> {
    let mut tables = Vec::new();
    for column in COLUMNS {
        let statement = format!(
            "SELECT coalesce(string_agg(r, E'\\n' ORDER BY r), '')
             FROM (SELECT (to_jsonb(t) - 'sealed' - 'key_id' - 'last_used_at')::text AS r FROM {} t) x",
            column.table
        );
        let row = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(owner).await;
        tables.push(row.unwrap());
    }
    tables
}

#[tokio::test]
async fn everything_is_sealed_by_the_new_key_and_nothing_else_changes() {
    let scene = scene().await;
    let (world, owner) = (&scene.world, scene.world.owner().await);
    let before = rest(&owner).await;
    let (code, done, text) = run(world, &both(), &["rotate", "--json"]).await;
    assert_eq!(code, 0, "{text}");
    assert_eq!((&done["resealed"], &done["complete"]), (&json!(9), &json!(true)), "{done}");
    assert_eq!(done["removable"], json!([id(ENCRYPTION_KEY)]));
    assert_eq!(rest(&owner).await, before);
    let (_, status, _) = run(world, NEW_KEY, &["status", "--json"]).await;
    assert_eq!(status.as_array().unwrap().len(), 1, "{status}");
    assert_eq!(count(&status, &id(NEW_KEY)), 9);
    let events: Vec<Value> =
        sqlx::query_scalar("SELECT details FROM audit_events WHERE action = 'key.rotated'")
            .fetch_all(&owner)
            .await
            .unwrap();
    assert_eq!(events.len(), COLUMNS.len(), "{events:?}");

    // This node has the old key alone: it cannot read, says so, and overwrites nothing.
    assert_eq!(scene.whoami(&scene.root).await, Err(Code::CredentialsUnreadable));
    let connection = scene.connection(&scene.root).await;
    assert_eq!(connection["state"], "reconnect_required", "{connection}");
    assert_eq!(connection["reason"], "unreadable", "{connection}");
    let (status, _) = world.get(&scene.root.token, "/api/mcp/servers").await;
    assert!(status.is_success());
    assert_eq!(rest(&owner).await, before);
    // With the key back under the first one everything is as it was.
    let back = format!("{ENCRYPTION_KEY},{NEW_KEY}");
    let (code, _, text) = run(world, &back, &["rotate"]).await;
    assert_eq!(code, 0, "{text}");
    let removable = format!("can be removed from BAILIWICK_ENCRYPTION_KEYS: {}\n", id(NEW_KEY));
    assert!(text.contains(&removable), "{text}");
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root-at-tickets"));
    assert_eq!(scene.state(&scene.root).await, "connected");
}

#[tokio::test]
async fn what_no_key_opens_is_counted_by_its_kind_and_left_as_it_is() {
    let scene = scene().await;
    let (world, owner) = (&scene.world, scene.world.owner().await);
    // Spoiled; moved from another row; and under a key that nobody has, though its key id says so.
    sqlx::raw_sql(
        "UPDATE mcp_oauth_clients SET sealed = 'spoiled';
         UPDATE mcp_server_secrets SET sealed = (SELECT sealed FROM tenant_variables) WHERE kind = 'env'",
    )
    .execute(&owner)
    .await
    .unwrap();
    let look = "SELECT string_agg(sealed || key_id, ' ' ORDER BY sealed) FROM (
                    SELECT sealed, key_id FROM mcp_oauth_clients UNION ALL
                    SELECT sealed, key_id FROM mcp_server_secrets WHERE kind = 'env') x";
    let before: String = sqlx::query_scalar(look).fetch_one(&owner).await.unwrap();
    for _ in 0..2 {
        let (code, done, text) = run(world, &both(), &["rotate", "--json"]).await;
        assert_eq!(code, 1, "{text}");
        let unreadable = json!({ "OAuth registrations": 1, "environment values of servers": 1 });
        assert_eq!(done["unreadable"], unreadable, "{done}");
        assert_eq!(done["complete"], true);
    }
    let after: String = sqlx::query_scalar(look).fetch_one(&owner).await.unwrap();
    assert_eq!(after, before);
    let (_, status, _) = run(world, &both(), &["status", "--json"]).await;
    assert_eq!(count(&status, &id(NEW_KEY)), 7, "{status}");

    // Without any key at all, and with a wrong one alone.
    for (ring, words) in [("", "no encryption key is configured"), (NEW_KEY, "no key opens")] {
        let other = World::new().await;
        let acme = other.tenant("acme").await;
        variables(&other, &other.owner().await, acme.id, 2).await;
        let (code, _, text) = run(&other, ring, &["rotate"]).await;
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(words), "{text}");
        let (_, status, _) = run(&other, ring, &["status", "--json"]).await;
        assert_eq!(count(&status, &id(ENCRYPTION_KEY)), 2, "{status}");
    }
}

#[tokio::test]
async fn a_row_that_a_key_id_lies_about_is_sealed_anew_too() {
    let world = World::new().await;
    let (acme, owner) = (world.tenant("acme").await, world.owner().await);
    variables(&world, &owner, acme.id, 1).await;
    let lie = sqlx::query("UPDATE tenant_variables SET key_id = $1").bind(id(NEW_KEY));
    lie.execute(&owner).await.unwrap();
    let (code, done, text) = run(&world, &both(), &["rotate", "--json"]).await;
    assert_eq!((code, &done["resealed"]), (0, &json!(1)), "{text}");
    // The old key is needed no more, as was said.
    let (code, done, text) = run(&world, NEW_KEY, &["rotate", "--json"]).await;
    assert_eq!((code, &done["resealed"]), (0, &json!(0)), "{text}");
}

#[tokio::test]
async fn a_row_that_changed_after_it_was_read_is_not_overwritten() {
    let world = World::new().await;
    let (acme, owner) = (world.tenant("acme").await, world.owner().await);
    variables(&world, &owner, acme.id, 3).await;
    let column = COLUMNS.iter().find(|column| column.purpose == Purpose::TenantVariable).unwrap();
    let vault = Vault::new(&both().as_str().into()).unwrap();

    let mut tx = world.ctx.db.begin(acme.id).await.unwrap();
    let values = sealed::page(&mut tx, column, None, 10).await.unwrap();
    let anew: Vec<_> = values
        .into_iter()
        .map(|value| {
            let new = sealed::renew(&tx, &vault, column, &value).unwrap().unwrap();
            (value, new)
        })
        .collect();
    // Meanwhile one is saved anew, one is deleted, and one is held by somebody who has not committed.
    sqlx::query("UPDATE tenant_variables SET sealed = 'newer' WHERE name = 'V0'")
        .execute(&owner)
        .await
        .unwrap();
    sqlx::query("DELETE FROM tenant_variables WHERE name = 'V1'").execute(&owner).await.unwrap();
    let mut held = owner.begin().await.unwrap();
    sqlx::query("UPDATE tenant_variables SET sealed = 'held' WHERE name = 'V2'")
        .execute(&mut *held)
        .await
        .unwrap();
    let replacing = sealed::replace(&mut tx, column, &anew);
    let replaced = tokio::time::timeout(Duration::from_secs(5), replacing).await;
    assert_eq!(replaced.expect("nobody is waited for").unwrap(), 0);
    tx.commit().await.unwrap();
    held.commit().await.unwrap();
    let now: Vec<String> = sqlx::query_scalar("SELECT sealed FROM tenant_variables ORDER BY name")
        .fetch_all(&owner)
        .await
        .unwrap();
    assert_eq!(now, ["newer", "held"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_connect_anew_while_everything_is_sealed_anew() {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    let fields = json!({ "authMode": "bearer" });
    let scene = Scene::with(World::new().await, provider, peer, fields).await;
    let (world, owner) = (&scene.world, scene.world.owner().await);
    variables(world, &owner, scene.tenant.id, 2_000).await;
    let mut generation = 0;
    let rotating = async {
        let mut rotations = Vec::new();
        for ring in [both(), format!("{ENCRYPTION_KEY},{NEW_KEY}")] {
            rotations.push(run(world, &ring, &["rotate", "--json"]).await);
        }
        rotations
    };
    tokio::pin!(rotating);
    let path = scene.path("/connection");
    let revision = scene.revision().await;
    let rotations = loop {
        let body = json!({ "secret": format!("hush-{generation}"), "revision": revision });
        tokio::select! {
            rotations = &mut rotating => break rotations,
            (status, shown) = world.put(&scene.root.token, &path, body) => {
                assert!(status.is_success(), "{shown}");
                generation += 1;
            }
        }
    };
    // The node seals by the old key all the time: away from it there may be no end, back there is one.
    let [away, back] = rotations.as_slice() else { panic!("{rotations:?}") };
    assert!(away.1["resealed"].as_u64().unwrap() > 2_000, "{away:?}");
    assert_eq!((back.0, &back.1["complete"]), (0, &json!(true)), "{back:?}");
    let stored: i64 = sqlx::query_scalar("SELECT generation FROM mcp_connections")
        .fetch_one(&owner)
        .await
        .unwrap();
    // The last one may have been cut off after it was done.
    assert!(stored == generation || stored == generation + 1, "{stored} {generation}");
    assert!(generation > 3, "there was traffic");
    // What was put last is what is there, under a key that opens it.
    let (code, done, text) = run(world, ENCRYPTION_KEY, &["rotate", "--json"]).await;
    assert_eq!((code, &done["unreadable"]), (0, &json!({})), "{text}");
    assert_eq!(scene.state(&scene.root).await, "connected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_by_kill_9_it_goes_on_where_it_was() {
    let world = World::new().await;
    let (acme, owner) = (world.tenant("acme").await, world.owner().await);
    variables(&world, &owner, acme.id, 6_000).await;
    let mut command = keys(&world, &both(), &["rotate"]);
    let killed = tokio::task::spawn_blocking(move || {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        first
    });
    let first = killed.await.unwrap();
    assert!(first.starts_with("sealed anew: 500; looked at: 500 of 6000"), "{first}");
    let (_, status, _) = run(&world, &both(), &["status", "--json"]).await;
    let done = count(&status, &id(NEW_KEY));
    assert!((500..6_000).contains(&done), "{status}");
    assert_eq!(count(&status, &id(ENCRYPTION_KEY)), 6_000 - done, "{status}");

    let (code, rest, text) = run(&world, &both(), &["rotate", "--json"]).await;
    // A batch whose commit the kill came after is done, too.
    assert_eq!((code, &rest["complete"]), (0, &json!(true)), "{text}");
    assert!(rest["resealed"].as_u64().unwrap() <= 6_000 - done, "{rest}");
    let (code, again, _) = run(&world, NEW_KEY, &["rotate", "--json"]).await;
    assert_eq!((code, &again["resealed"]), (0, &json!(0)));
    let audited: i64 = sqlx::query_scalar(
        "SELECT sum((details->>'resealed')::bigint)::bigint FROM audit_events WHERE action = 'key.rotated'",
    )
    .fetch_one(&owner)
    .await
    .unwrap();
    assert_eq!(audited, 6_000);
}

#[tokio::test]
async fn it_waits_until_every_running_process_knows_the_new_key() {
    let world = World::new().await;
    let (acme, owner) = (world.tenant("acme").await, world.owner().await);
    variables(&world, &owner, acme.id, 1).await;
    app::nodes::register(&world.ctx, app::nodes::Kind::Up, "here").await.unwrap();
    let (code, _, text) = run(&world, &both(), &["rotate"]).await;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains(&format!("do not know the key {}", id(NEW_KEY))), "{text}");
    // It knows it, and still seals by the old one.
    let set =
        |ids: String| sqlx::query("UPDATE nodes SET key_ids = string_to_array($1, ',')").bind(ids);
    let ids = format!("{},{}", id(ENCRYPTION_KEY), id(NEW_KEY));
    set(ids).execute(&owner).await.unwrap();
    let (code, done, text) = run(&world, &both(), &["rotate", "--json"]).await;
    assert_eq!((code, &done["behind"]), (1, &json!(["up"])), "{text}");
    assert_eq!((&done["resealed"], &done["removable"]), (&json!(1), &json!([])), "{done}");
    set(format!("{},{}", id(NEW_KEY), id(ENCRYPTION_KEY))).execute(&owner).await.unwrap();
    let (code, done, text) = run(&world, &both(), &["rotate", "--json"]).await;
    assert_eq!((code, &done["removable"]), (0, &json!([id(ENCRYPTION_KEY)])), "{text}");
}
