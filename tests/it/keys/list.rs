//! The one list of sealed columns, and what is counted by it.

use serde_json::json;
use store::sealed::COLUMNS;
use tests::world::{ENCRYPTION_KEY, World};

use super::{NEW_KEY, both, id, run, scene, sealed, variables};

#[tokio::test]
async fn every_sealed_column_of_the_schema_is_in_the_list() {
    let world = World::new().await;
    let owner = world.owner().await;
    let found: Vec<(String, String)> = sqlx::query_as(
        "SELECT c.table_name::text, c.column_name::text
         FROM information_schema.columns c
         JOIN information_schema.tables t USING (table_schema, table_name)
         WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
           -- Ids of rows have a type of their own.
           AND c.data_type <> 'uuid'
           AND (c.column_name LIKE '%sealed%' OR c.column_name LIKE '%key\\_id')
         ORDER BY 1, 2",
    )
    .fetch_all(&owner)
    .await
    .unwrap();
    assert!(found.len() >= 10, "{found:?}");
    let mut listed: Vec<(String, String)> = COLUMNS
        .iter()
        .flat_map(|one| [one.sealed, one.key_id].map(|name| (one.table.into(), name.into())))
        .collect();
    listed.sort();
    listed.dedup();
    assert_eq!(found, listed, "a sealed column needs a line in store::sealed::COLUMNS");
}

#[tokio::test]
async fn status_counts_rows_of_all_tenants_and_columns_for_each_key() {
    let scene = scene().await;
    let world = &scene.world;
    let other = world.tenant("other").await;
    variables(world, &world.owner().await, other.id, 3).await;

    let (code, status, text) = run(world, &both(), &["status", "--json"]).await;
    assert_eq!(code, 0, "{text}");
    assert_eq!(status[0]["keyId"], json!(id(NEW_KEY)));
    assert_eq!((&status[0]["primary"], &status[0]["sealed"]), (&json!(true), &json!(0)));
    assert_eq!((&status[1]["primary"], &status[1]["sealed"]), (&json!(false), &json!(12)));
    // Each column of the list has at least one value here, or a new one was forgotten.
    let columns = status[1]["columns"].as_object().unwrap();
    for column in COLUMNS {
        assert!(columns[column.what].as_u64().unwrap() >= 1, "{}: {status}", column.what);
    }
    assert_eq!(columns["tenant variables"], 4);

    let (code, status, _) = run(world, NEW_KEY, &["status", "--json"]).await;
    let strange = &status[1];
    assert_eq!((code, &strange["known"]), (0, &json!(false)), "{status}");
    assert_eq!(sealed(&status, &id(ENCRYPTION_KEY)), 12);
    let (_, status, _) = run(world, "", &["status", "--json"]).await;
    assert_eq!(status.as_array().unwrap().len(), 1, "{status}");
    let (code, _, text) = run(world, &both(), &["status"]).await;
    assert_eq!(code, 0);
    assert!(text.contains(&format!("{} (primary)  0 sealed\n", id(NEW_KEY))), "{text}");
}
