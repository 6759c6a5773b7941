//! From the server to its resource metadata (RFC 9728).

use std::time::Duration;

use outbound::{
    http::Ran,
    oauth::{DiscoverOptions, OAuthFailure},
};
use serde_json::{Map, Value, json};
use tests::{
    authorization_server::{AuthorizationServer, Prm, ProtectedPeer, ProtectedSsePeer},
    peer::{Answer, Peer, Setup},
};
use url::Url;

use super::{Scene, oauth, scopes, step, words};

fn members(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else { panic!("an object") };
    members
}

/// Paths that the server was asked, without the probe.
fn asked(peer: &Peer) -> Vec<String> {
    let journal = peer.journal().into_iter();
    journal.map(|one| one.path).filter(|path| path != "/mcp").collect()
}

#[tokio::test]
async fn the_challenge_of_a_post_leads_to_the_metadata() {
    let scene = Scene::start().await;
    scene.server.set(|gate| {
        gate.challenges_post_alone = true;
        gate.challenge_scope = Some("mcp:read".to_owned());
    });
    let found = scene.discover().await.unwrap();
    assert_eq!(found.challenge_scopes, scopes("mcp:read"));
    assert_eq!(asked(&scene.server.peer), [scene.server.metadata_url().path()]);
    let probe = &scene.server.peer.journal()[0];
    assert_eq!((probe.method.as_str(), probe.rpc.as_deref()), ("POST", Some("initialize")));
    assert_eq!(probe.header("authorization"), "");
}

#[tokio::test]
async fn a_server_that_lets_everybody_begin_is_asked_for_its_tools() {
    let provider = AuthorizationServer::start().await;
    let older = ProtectedPeer::start_older(&provider).await;
    let newer = ProtectedPeer::start(&provider).await;
    for server in [&older, &newer] {
        server.set(|gate| {
            gate.begins_open = true;
            gate.challenges_post_alone = true;
            gate.challenge_scope = Some("mcp:basic".to_owned());
        });
        let found = oauth().discover(&server.url(), &DiscoverOptions::default()).await.unwrap();
        assert_eq!(found.challenge_scopes, scopes("mcp:basic"));
        let [listed] = &server.peer.received("tools/list")[..] else { panic!("one question") };
        assert_eq!(listed.header("authorization"), "");
    }
    // What was begun was to end.
    let ended = older.peer.journal().into_iter().find(|one| one.method == "DELETE");
    assert_eq!(ended.expect("an end").header("mcp-session-id"), "s0");
}

#[tokio::test]
async fn a_stored_challenge_saves_the_probe() {
    let scene = Scene::start().await;
    let challenge = format!(
        r#"Bearer error="invalid_token", resource_metadata="{}", scope="a b""#,
        scene.server.metadata_url()
    );
    let options = DiscoverOptions { challenge: Some(challenge), ..DiscoverOptions::default() };
    let found = scene.oauth.discover(&scene.server.url(), &options).await.unwrap();
    assert_eq!(found.challenge_scopes, scopes("a b"));
    assert!(scene.server.peer.received("initialize").is_empty());
}

#[tokio::test]
async fn without_a_pointer_the_path_is_asked_and_then_the_root() {
    let scene = Scene::start().await;
    for (challenges, points_to) in [(false, None), (true, Some(String::new()))] {
        scene.server.set(|gate| {
            gate.challenges = challenges;
            gate.points_to = points_to;
        });
        scene.discover().await.unwrap();
    }
    for status in [400, 401, 403, 404, 405, 410, 418, 429] {
        scene.server.set(|gate| {
            gate.prm = Prm::Root;
            gate.prm_status = status;
        });
        let found = scene.discover().await;
        assert!(found.is_ok(), "{status}: {found:?}");
    }
}

#[tokio::test]
async fn a_pointer_that_leads_nowhere_is_no_end() {
    let scene = Scene::start().await;
    for nowhere in ["/nowhere", "/.well-known/oauth-protected-resource"] {
        scene.server.set(|gate| {
            gate.points_to = Some(nowhere.to_owned());
            gate.prm_status = 403;
        });
        scene.discover().await.unwrap();
    }
}

#[tokio::test]
async fn a_200_that_is_not_the_document_is_passed_over() {
    let scene = Scene::start().await;
    for (kind, body) in [
        ("text/html", "<h1>welcome</h1>"),
        ("application/json", r#"{"message":"hello"}"#),
        ("application/json", "[]"),
        ("application/json", r#"{"resource":7}"#),
        ("application/json", ""),
    ] {
        let elsewhere = Peer::start(Setup::modern()).await;
        elsewhere.script_method("LISTEN", [Answer::Content { kind, body: body.to_owned() }]);
        scene.server.set(|gate| gate.points_to = Some(elsewhere.url().to_string()));
        let found = scene.discover().await;
        assert!(found.is_ok(), "{body}: {found:?}");
        assert_eq!(elsewhere.journal().len(), 1);
    }
}

#[tokio::test]
async fn a_server_error_ends_discovery_and_may_be_tried_again() {
    let scene = Scene::start().await;
    for status in [500, 502, 503] {
        scene.server.set(|gate| {
            gate.prm = Prm::Root;
            gate.prm_status = status;
        });
        let failure = scene.discover().await.unwrap_err();
        assert!(failure.retryable(), "{status}: {failure:?}");
    }
    scene.server.set(|gate| {
        gate.prm = Prm::Path;
        gate.status_401 = 503;
    });
    assert!(scene.discover().await.unwrap_err().retryable());
}

#[tokio::test]
async fn slow_down_is_why_nothing_was_found() {
    let scene = Scene::start().await;
    scene.server.set(|gate| {
        gate.prm = Prm::None;
        gate.prm_status = 429;
    });
    let failure = scene.discover().await.unwrap_err();
    assert!(matches!(failure, OAuthFailure::Unavailable { ran: Ran::Unknown | Ran::No, .. }));
}

#[tokio::test]
async fn nothing_found_is_said_and_no_endpoint_is_guessed() {
    let scene = Scene::start().await;
    scene.server.set(|gate| gate.prm = Prm::None);
    for (challenges, status) in [(true, 404), (false, 404), (false, 403)] {
        scene.server.set(|gate| {
            gate.challenges = challenges;
            gate.prm_status = status;
        });
        assert_eq!(scene.fails_at().await, "discovered_nothing");
    }
    let asked = asked(&scene.server.peer);
    assert!(asked.iter().all(|path| path.contains("/.well-known/")), "{asked:?}");
    assert!(scene.provider.journal().is_empty());
}

#[tokio::test]
async fn a_server_that_is_its_own_authorization_server_needs_no_resource_metadata() {
    // MCP 2025-03-26: metadata at the server's own origin.
    let provider = AuthorizationServer::start().await;
    let server: Url = provider.url("/mcp");
    let found = oauth().discover(&server, &DiscoverOptions::default()).await.unwrap();
    assert_eq!(
        (found.resource.as_str(), found.server.issuer),
        (server.as_str(), provider.issuer())
    );
    let issuer = Some("https://other.test".to_owned());
    let options = DiscoverOptions { issuer, ..DiscoverOptions::default() };
    assert_eq!(step(oauth().discover(&server, &options).await), "issuer_not_listed");
}

#[tokio::test]
async fn metadata_of_another_resource_is_refused() {
    let scene = Scene::start().await;
    let origin = scene.server.url().join("/").unwrap();
    for resource in [
        "https://elsewhere.test/mcp".to_owned(),
        format!("{origin}mc"),
        format!("{origin}mcp/more"),
        format!("{origin}other"),
        origin.as_str().replace("127.0.0.1", "localhost"),
        "mcp".to_owned(),
    ] {
        for pointed in [true, false] {
            scene.server.set(|gate| {
                gate.challenges = pointed;
                gate.patch_prm = members(json!({"resource": resource}));
            });
            assert_eq!(scene.fails_at().await, "resource_mismatch", "{resource} {pointed}");
        }
    }
    assert!(scene.provider.journal().is_empty(), "nobody was asked where to sign in");
}

#[tokio::test]
async fn the_resource_is_kept_byte_for_byte() {
    let scene = Scene::start().await;
    let url = scene.server.url();
    let origin = url.origin().ascii_serialization();
    for resource in [origin.clone(), format!("{origin}/"), format!("{url}/"), format!("{url}?t=1")]
    {
        scene.server.set(|gate| gate.patch_prm = members(json!({"resource": resource})));
        scene.provider.set(|knobs| knobs.resources = Some(vec![resource.clone()]));
        let connected = scene.connect().await;
        assert_eq!(connected.found.resource, resource);
        scene.refresh(&connected).await.unwrap();
    }
    let of_code = scene.provider.grants("authorization_code");
    let of_refresh = scene.provider.grants("refresh_token");
    let asked = scene.provider.asked("/authorize");
    assert_eq!((of_code.len(), of_refresh.len(), asked.len()), (4, 4, 4));
    for ((code, refresh), asked) in of_code.iter().zip(&of_refresh).zip(&asked) {
        assert_eq!(code.field("resource"), refresh.field("resource"));
        assert_eq!(code.field("resource"), asked.query["resource"]);
    }
}

#[tokio::test]
async fn a_legacy_sse_server_is_found_without_hanging_on_its_stream() {
    let provider = AuthorizationServer::start().await;
    let server = ProtectedSsePeer::start(&provider).await;
    let found = oauth().discover(&server.url(), &DiscoverOptions::default()).await.unwrap();
    assert_eq!(found.resource, server.url().as_str());
    // One that lets anybody open its stream: the stream is not read to its end, which never comes.
    server.set(|gate| gate.open = true);
    let options = DiscoverOptions { timeout: Duration::from_secs(5), ..DiscoverOptions::default() };
    oauth().discover(&server.url(), &options).await.unwrap();
}

#[tokio::test]
async fn a_session_that_the_probe_began_is_ended() {
    let provider = AuthorizationServer::start().await;
    let server = ProtectedPeer::start_older(&provider).await;
    server.set(|gate| gate.open = true);
    oauth().discover(&server.url(), &DiscoverOptions::default()).await.unwrap();
    assert_eq!(server.peer.received("initialize").len(), 1);
    assert_eq!(server.peer.sessions(), 0);
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_not_followed() {
    let scene = Scene::start().await;
    let elsewhere = Peer::start(Setup::modern()).await;
    let redirecting = Peer::start(Setup::modern()).await;
    redirecting.script_method("LISTEN", [Answer::redirect(302, elsewhere.url().as_str())]);
    scene.server.set(|gate| gate.points_to = Some(redirecting.url().to_string()));
    scene.discover().await.unwrap();
    assert_eq!((redirecting.journal().len(), elsewhere.journal().len()), (1, 0));
}

#[tokio::test]
async fn a_document_without_end_and_a_silent_server_are_bounded() {
    let scene = Scene::start().await;
    let large = Peer::start(Setup::modern()).await;
    large.script_method("LISTEN", [Answer::Large(300_000)]);
    scene.server.set(|gate| gate.points_to = Some(large.url().to_string()));
    scene.discover().await.unwrap();
    let bomb = Peer::start(Setup::modern()).await;
    bomb.script_method("LISTEN", [Answer::Compressed(50_000_000)]);
    scene.server.set(|gate| gate.points_to = Some(bomb.url().to_string()));
    scene.discover().await.unwrap();

    let silent = Peer::start(Setup::modern()).await;
    silent.script_method("LISTEN", [Answer::Echo.held()]);
    scene.server.set(|gate| gate.points_to = Some(silent.url().to_string()));
    let options =
        DiscoverOptions { timeout: Duration::from_millis(200), ..DiscoverOptions::default() };
    let failure = scene.oauth.discover(&scene.server.url(), &options).await.unwrap_err();
    assert!(failure.retryable());
    assert!(!words(&failure).contains("127.0.0.1"));
}
