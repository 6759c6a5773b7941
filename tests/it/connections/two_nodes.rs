//! Two people on one server, on two nodes, with tokens that end all the time.

use std::time::Duration;

use serde_json::{Value, json};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    world::{World, eventually},
};
use url::Url;

use super::{Scene, Someone};
use crate::gateway::{Reply, as_pairs, modern};

const CALLS: usize = 200;
/// After each the tokens are let run out, so that both nodes come to know of it at once.
const ROUNDS: usize = 5;
const LIFE: Duration = Duration::from_secs(2);
/// A refresh is due a tenth of the life before its end, or half as much again (`connection::refresh_at`), by a clock
/// that begins when the answer is there.
const EARLIEST: Duration = Duration::from_millis(1_650);

#[tokio::test(flavor = "multi_thread")]
async fn two_people_on_two_nodes_never_meet_and_each_end_is_refreshed_once() {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    two_people(provider, peer).await;
}

/// The same where the server has sessions.
#[tokio::test(flavor = "multi_thread")]
async fn two_people_on_two_nodes_never_share_a_session() {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start_older(&provider).await;
    two_people(provider, peer).await;
}

async fn two_people(provider: AuthorizationServer, peer: ProtectedPeer) {
    let world = World::new().await;
    let other = world.another_node().await;
    let scene = Scene::with(world, provider, peer, json!({ "authMode": "oauth" })).await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    scene.provider.set(|knobs| knobs.access_ttl = LIFE);
    let people = [
        (scene.member("ann@acme.test").await, "alice"),
        (scene.member("bob@acme.test").await, "bob"),
    ];
    for (who, account) in &people {
        scene.connect(who, account).await;
    }

    let nodes = [&scene.world.url, &other.url];
    for _ in 0..ROUNDS {
        for (_, account) in &people {
            let what = format!("the token of {account} is over");
            let over = async || (!scene.provider.has_good_token(account)).then_some(());
            eventually(&what, over).await;
        }
        let calls = (0..CALLS / ROUNDS).map(|number| {
            let ((who, account), node) = (&people[number % 2], nodes[number / 2 % 2]);
            call(&scene, node, who, account)
        });
        for (said, account) in futures::future::join_all(calls).await {
            assert_eq!(said["structuredContent"]["sub"], *account, "{said}");
        }
    }

    assert_eq!(scene.peer.mixed(), []);
    assert_eq!(scene.peer.shared_sessions(), Vec::<Vec<String>>::new());
    let renewals = scene.provider.renewals();
    for (who, account) in &people {
        let served = scene.peer.served().into_iter().filter(|call| call.subject == *account);
        assert_eq!(served.count(), CALLS / 2, "{account}");
        let own: Vec<_> = renewals.iter().filter(|one| one.subject == *account).collect();
        assert!(own.len() >= ROUNDS, "{account}: {own:?}");
        // A second one for the same end would follow the first at once.
        assert!(own.iter().all(|one| one.after >= EARLIEST), "{account}: {own:?}");
        assert_eq!(scene.state(who).await, "connected");
    }
    // None failed, and nobody was asked again.
    assert_eq!(scene.provider.grants("refresh_token").len(), renewals.len());
    assert_eq!(scene.provider.families_lost_to_reuse(), 0);
    assert_eq!(scene.provider.grants("authorization_code").len(), 3);
    assert_eq!(scene.provider.asked("/authorize").len(), 3);
}

/// Over a node's MCP endpoint; whose token it must come with stands in the arguments.
async fn call<'a>(scene: &Scene, node: &Url, by: &Someone, account: &'a str) -> (Value, &'a str) {
    let params = json!({ "name": "mcp__tickets__whoami", "arguments": { "subject": account } });
    let (headers, body) = modern("tools/call", &params.to_string());
    let url = node.join(&format!("/mcp/{}", by.session.unwrap())).unwrap();
    let mut request = scene.world.client().post(url).bearer_auth(&by.agent).body(body);
    request = request.header("content-type", "application/json");
    request = request.header("accept", "application/json, text/event-stream");
    for (name, value) in as_pairs(&headers) {
        request = request.header(name, value);
    }
    let reply = Reply::of(request.send().await.unwrap()).await;
    (reply.json()["result"].clone(), account)
}
