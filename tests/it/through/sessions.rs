//! The upstream session that an older client holds.

use http::Method;
use serde_json::json;
use tests::peer::Setup;

use super::{Through, everything};

#[tokio::test]
async fn each_client_has_a_session_of_its_own_until_it_ends_it() {
    let through = Through::new(Setup::older()).await;
    let (one, two) =
        (through.initialize(&everything()).await, through.initialize(&everything()).await);
    let shared = 1;
    assert_eq!(through.peer.sessions(), shared + 2);
    let call = json!({"name": "echo", "arguments": {}});
    for session in [&one, &two] {
        let reply = through.older(session, "tools/call", &call).await;
        assert!(reply.json()["result"].is_object(), "{reply:?}");
    }
    let seen: Vec<_> =
        through.peer.calls().iter().map(|call| call.header("mcp-session-id").to_owned()).collect();
    assert_eq!(seen, ["s1", "s2"]);

    assert_eq!(through.http(Method::DELETE, &one).await.status, 204);
    through.peer.until("it is ended upstream", |peer| peer.sessions() == shared + 1).await;
    for method in ["tools/list", "tools/call", "ping"] {
        assert_eq!(through.older(&one, method, &call).await.status, 404, "{method}");
    }
    assert_eq!(through.http(Method::DELETE, &one).await.status, 404);
    assert_eq!(through.older(&two, "tools/call", &call).await.status, 200);
}

#[tokio::test]
async fn a_session_that_the_server_lost_is_over() {
    let through = Through::new(Setup::older()).await;
    let session = through.initialize(&everything()).await;
    through.peer.lose_sessions();
    let call = json!({"name": "echo", "arguments": {}});
    assert_eq!(through.older(&session, "tools/call", &call).await.status, 404);
    assert_eq!(through.older(&session, "resources/list", &json!({})).await.status, 404);
    let again = through.initialize(&everything()).await;
    assert_eq!(through.older(&again, "tools/call", &call).await.status, 200);
    assert!(through.peer.calls().len() >= 2, "the lost one was not renewed in silence");
}

#[tokio::test]
async fn a_server_that_was_configured_anew_ends_its_sessions() {
    let through = Through::new(Setup::older()).await;
    let session = through.initialize(&everything()).await;
    let form = json!({
        "name": "demo", "transport": "http", "url": through.peer.url(), "enabled": true,
        "headers": {"X-New": "1"}, "authMode": "shared_headers",
    });
    let owner = &through.owner;
    let form = serde_json::from_value(form).unwrap();
    app::servers::update(&through.world.ctx, owner, "demo", form).await.unwrap();
    assert_eq!(through.older(&session, "tools/list", &json!({})).await.status, 404);
    assert_eq!(through.http(Method::DELETE, &session).await.status, 404);
}

#[tokio::test]
async fn a_disabled_person_and_an_archived_session_are_told_so() {
    let through = Through::new(Setup::older()).await;
    let session = through.initialize(&everything()).await;
    app::sessions::archive(&through.world.ctx, &through.owner, through.session).await.unwrap();
    let reply = through.older(&session, "tools/list", &json!({})).await.json();
    assert_eq!(reply["error"]["data"]["code"], "SESSION_ARCHIVED");
    assert_eq!(through.begin(&everything()).await.status, 409);

    through.sql("UPDATE api_tokens SET revoked_at = now() WHERE scopes = '{mcp:call}'").await;
    assert_eq!(through.older(&session, "tools/list", &json!({})).await.status, 401);
}

#[tokio::test]
async fn one_person_holds_so_many_sessions_and_the_least_used_gives_way() {
    let through = Through::new(Setup::older()).await;
    let most = domain::limits::OWN_SESSIONS.size();
    let shared = through.peer.sessions();
    let mut sessions = Vec::new();
    for _ in 0..most {
        sessions.push(through.initialize(&everything()).await);
    }
    assert_eq!(through.older(&sessions[0], "tools/list", &json!({})).await.status, 200);
    let last = through.initialize(&everything()).await;
    through.peer.until("one gave way", |peer| peer.sessions() == shared + most).await;
    let status =
        async |session: &str| through.older(session, "tools/list", &json!({})).await.status;
    assert_eq!((status(&sessions[0]).await, status(&last).await), (200, 200));
    assert_eq!(status(&sessions[1]).await, 404, "it was not used since it began");
}
