//! From the click to the call.

use domain::Code;
use reqwest::StatusCode;
use serde_json::json;
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer, ProtectedSsePeer},
    world::World,
};

use super::Scene;

#[tokio::test]
async fn two_people_connect_and_each_call_is_made_as_its_own_person() {
    let scene = Scene::new().await;
    let (ann, bob) = (scene.member("ann@acme.test").await, scene.member("bob@acme.test").await);
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    scene.connect(&ann, "alice").await;

    assert!(scene.whoami(&ann).await.unwrap().contains("alice"));
    // Nobody else's account is taken because there is one.
    assert_eq!(scene.whoami(&bob).await, Err(Code::ConnectionRequired));
    scene.connect(&bob, "bob").await;
    assert!(scene.whoami(&bob).await.unwrap().contains("bob"));
    assert!(scene.whoami(&ann).await.unwrap().contains("alice"));
    assert_eq!(scene.peer.shared_sessions(), Vec::<Vec<String>>::new());
}

#[tokio::test]
async fn a_token_near_its_end_is_refreshed_once_before_it_is_used() {
    let scene = Scene::new().await;
    scene.provider.set(|knobs| knobs.access_ttl = std::time::Duration::from_secs(2));
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    // The next one lives longer than this test.
    scene.provider.set(|knobs| knobs.access_ttl = std::time::Duration::from_hours(1));
    let calls = (0..10).map(|_| scene.whoami(&scene.root));
    for outcome in futures::future::join_all(calls).await {
        assert!(outcome.unwrap().contains("root"));
    }
    assert_eq!(scene.provider.grants("refresh_token").len(), 1);
    assert_eq!(scene.provider.families_lost_to_reuse(), 0);
}

#[tokio::test]
async fn a_callback_counts_once_and_from_its_own_browser() {
    let scene = Scene::new().await;
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    let other = "blw-oauth-00000000=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    assert_eq!(scene.come_back(&callback, other).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(scene.come_back(&callback, "").await.0, StatusCode::BAD_REQUEST);
    let (status, location) = scene.come_back(&callback, &begun.cookie).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{location}");
    assert_eq!(scene.come_back(&callback, &begun.cookie).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(scene.provider.grants("authorization_code").len(), 1);

    let result = location.split_once("#result=").unwrap().1;
    let stranger = scene.member("eve@acme.test").await;
    let (status, refused) = scene.confirm(&stranger, result).await;
    assert_eq!((status, &refused["code"]), (StatusCode::CONFLICT, &json!("CONFLICT")));
    // It was spent by that.
    assert_eq!(scene.confirm(&scene.root, result).await.0, StatusCode::CONFLICT);
    assert_eq!(scene.state(&scene.root).await, "disconnected");
}

#[tokio::test]
async fn the_same_holds_over_http_and_sse() {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedSsePeer::start(&provider).await;
    let unused = ProtectedPeer::start(&provider).await;
    let fields = json!({ "authMode": "oauth", "transport": "sse", "url": peer.url() });
    let scene = Scene::with(World::new().await, provider, unused, fields).await;
    let ann = scene.member("ann@acme.test").await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    assert_eq!(scene.whoami(&ann).await, Err(Code::ConnectionRequired));
    scene.connect(&ann, "alice").await;
    for (person, account) in [(&ann, "alice"), (&scene.root, "root"), (&ann, "alice")] {
        assert!(scene.whoami(person).await.unwrap().contains(account));
    }
    // A session of its own for each, whose requests are refreshed for like any other.
    peer.set(|door| door.reject_next = 1);
    assert!(scene.whoami(&ann).await.unwrap().contains("alice"));
    assert_eq!(scene.provider.grants("refresh_token").len(), 1);
    assert_eq!(peer.shared_sessions(), Vec::<Vec<String>>::new());
    peer.set(|door| door.reject_next = 100);
    assert_eq!(scene.whoami(&ann).await, Err(Code::ReconnectRequired));
    peer.set(|door| door.reject_next = 0);
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
}
