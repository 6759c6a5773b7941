//! One place, one process.

use tests::world::eventually;

use super::house::{House, program};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_use_is_not_taken_twice() {
    let house = House::new();
    let mut up = house.up().await;
    let mut command = program(&["up", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(house.data());
    let second = house.run(command).await;
    assert_eq!(second.status.code(), Some(1));
    let words = String::from_utf8(second.stderr).unwrap();
    assert!(words.contains("another launcher") && words.contains("uses"), "{words}");

    let refused = async |what: &str| {
        let api = house.run(house.api_command()).await;
        let words = String::from_utf8(api.stderr).unwrap();
        assert_eq!(api.status.code(), Some(1), "{what}: {words}");
        assert!(words.contains("limits are not shared between nodes yet"), "{what}: {words}");
    };
    refused("beside `up`").await;
    assert!(up.lives());

    // It dies, its Postgres stays, and its lease runs out.
    up.kill().await;
    let mut first =
        eventually("`api` takes its place", async || house.serve(house.api_command()).await).await;
    refused("beside another `api`").await;
    assert!(first.lives());
    first.terminate();
    assert_eq!(first.ended().await.code(), Some(0));
}
