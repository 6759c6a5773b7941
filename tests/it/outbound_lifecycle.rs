//! Clients of a hand-written peer over their life: connecting, losing a session, closing; and where
//! they may go at all.

use domain::{Code, ids::UserId};
use futures::future::join_all;
use outbound::{
    egress::{AllowRule, EgressRules},
    mcp::{Identity, Ran},
};
use tests::{
    peer::{Answer, Peer, Setup},
    upstream::{call, clients, clients_with, soon, target, tool_call},
};
use uuid::Uuid;

#[tokio::test]
async fn many_first_callers_connect_once() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    let calls = (0..50).map(|_| call(&clients, &target, tool_call("echo", "{}")));
    for answer in join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(peer.received("server/discover").len(), 1);
    assert_eq!(peer.received("initialize").len(), 1);
    assert_eq!(clients.open_clients(), 1);
}

#[tokio::test]
async fn callers_share_the_error_of_a_connect_which_is_not_remembered() {
    let peer = Peer::start(Setup::modern()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    peer.script_method("server/discover", [Answer::status(503).held()]);
    let calls = join_all((0..20).map(|_| call(&clients, &target, tool_call("echo", "{}"))));
    let release = async {
        peer.until("a held probe", |peer| peer.held() == 1).await;
        peer.release();
    };
    let (outcomes, ()) = tokio::join!(calls, release);
    for outcome in outcomes {
        let failure = outcome.unwrap_err();
        assert_eq!((failure.error.code, failure.ran), (Code::UpstreamUnavailable, Ran::No));
    }
    assert_eq!(peer.received("server/discover").len(), 1);
    assert_eq!(clients.open_clients(), 0);
    let discovered = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#;
    peer.script_method("server/discover", [Answer::Result(discovered.to_owned())]);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_break_off_the_connect_for_the_others() {
    let peer = Peer::start(Setup::modern()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    let discovered = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#;
    peer.script_method("server/discover", [Answer::Result(discovered.to_owned()).held()]);
    let (patient, hasty) = (clients.clone(), clients.clone());
    let (target_a, target_b) = (target.clone(), target.clone());
    let first = tokio::spawn(async move { call(&hasty, &target_a, tool_call("echo", "{}")).await });
    peer.until("a held probe", |peer| peer.held() == 1).await;
    let second =
        tokio::spawn(async move { call(&patient, &target_b, tool_call("echo", "{}")).await });
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    peer.release();
    second.await.unwrap().unwrap();
    assert_eq!(peer.received("server/discover").len(), 1);
    assert_eq!(peer.calls().len(), 1);
}

#[tokio::test]
async fn a_version_that_is_refused_and_named_as_supported_is_offered_once_more() {
    let peer = Peer::start(Setup::modern()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    let refused = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"not yet",
        "data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}}"#;
    let refused = Answer::Status {
        status: 400,
        headers: vec![("content-type", "application/json".to_owned())],
        body: refused.to_owned(),
    };
    let discovered = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#;
    let discovered = Answer::Result(discovered.to_owned());
    peer.script_method("server/discover", [refused.clone(), discovered]);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    assert_eq!(peer.received("server/discover").len(), 2);

    // Once.
    let stubborn = Peer::start(Setup::modern()).await;
    let target = tests::upstream::target(&stubborn.url());
    stubborn.script_method("server/discover", [refused]);
    let clients = tests::upstream::clients();
    let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::UpstreamFormat, Ran::No));
    assert_eq!(stubborn.received("server/discover").len(), 2);
}

#[tokio::test]
async fn a_lost_session_is_begun_anew_once_and_each_call_sent_again_once() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    peer.lose_sessions();
    let calls = (0..20).map(|_| call(&clients, &target, tool_call("echo", "{}")));
    for answer in join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(peer.received("initialize").len(), 2);
    assert_eq!(peer.received("server/discover").len(), 1);
    assert_eq!(peer.sessions(), 1);
    let answered = peer.calls().iter().filter(|call| call.header("mcp-session-id") == "s1").count();
    assert_eq!(answered, 20);
}

#[tokio::test]
async fn a_session_that_is_lost_at_once_fails_the_call_unrun() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    peer.script_method("tools/call", [Answer::status(404)]);
    let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::UpstreamUnavailable, Ran::No));
    assert_eq!(peer.calls().len(), 3);
}

#[tokio::test]
async fn a_session_that_cannot_be_begun_anew_fails_the_call_unrun() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    peer.lose_sessions();
    // The server came back as one of the newer era.
    peer.change(|setup| *setup = Setup::modern());
    peer.script_method("tools/call", [Answer::status(404), Answer::Result("{}".to_owned())]);
    let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::UpstreamFormat, Ran::No));
    // The next call begins from the beginning.
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
}

#[tokio::test]
async fn a_session_refused_with_400_is_not_relied_on_again() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
    let refusal = Answer::Status {
        status: 400,
        headers: vec![("content-type", "application/json".to_owned())],
        body: body.to_owned(),
    };
    peer.script("echo", [refusal.clone(), Answer::Echo]);
    peer.script_method("ping", [refusal]);
    let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert_eq!(failure.rpc.map(|rpc| rpc.code), Some(-32000));
    assert_eq!(peer.calls().len(), 2, "400 proves nothing: not sent again");
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    assert_eq!(peer.received("initialize").len(), 2);
}

/// 404 is what the specification has a server say; these are what some say instead.
#[tokio::test]
async fn a_session_refused_in_whatever_way_is_not_relied_on_for_ever() {
    let said = |code| Answer::Error { code, message: "Session not found".to_owned() };
    for refusal in [Answer::status(410), Answer::status(422), Answer::status(500), said(-32001)] {
        let peer = Peer::start(Setup::older()).await;
        let (clients, target) = (clients(), target(&peer.url()));
        call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
        peer.script("echo", [refusal.clone(), Answer::Echo]);
        peer.script_method("ping", [refusal.clone()]);
        let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
        assert_eq!(failure.ran, Ran::Unknown, "{refusal:?}: it proves nothing");
        assert_eq!(peer.calls().len(), 2, "{refusal:?}: not sent again");
        call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
        assert_eq!(peer.received("initialize").len(), 2, "{refusal:?}");
        let begun = &peer.received("initialize")[1];
        assert_eq!(begun.header("mcp-session-id"), "", "{refusal:?}");
    }
}

#[tokio::test]
async fn a_session_that_answers_a_ping_stays() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    peer.script("echo", [Answer::status(500), Answer::status(503), Answer::Echo]);
    for _ in 0..2 {
        call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    }
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    assert_eq!(peer.received("initialize").len(), 1);
    // 503 is about who stands before the server.
    assert_eq!(peer.received("ping").len(), 1);
}

#[tokio::test]
async fn a_session_that_comes_with_a_refusal_is_given_back() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    let headers = vec![("mcp-session-id", "unasked".to_owned())];
    let refusal = Answer::Status { status: 400, headers, body: String::new() };
    peer.script_method("server/discover", [refusal]);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    peer.until("the session was given back", |peer| {
        let ended = peer.requests(&http::Method::DELETE);
        ended.iter().any(|one| one.header("mcp-session-id") == "unasked")
    })
    .await;
}

#[tokio::test]
async fn a_server_without_session_ids_works_as_well() {
    let peer = Peer::start(Setup { sessions: false, ..Setup::older() }).await;
    let (clients, target) = (clients(), target(&peer.url()));
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    clients.close_all(soon()).await;
    assert_eq!(peer.calls()[0].header("mcp-session-id"), "");
    assert_eq!(peer.requests(&http::Method::DELETE).len(), 0);
}

#[tokio::test]
async fn revisions_and_identities_have_clients_of_their_own_and_are_forgotten_together() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, first) = (clients(), target(&peer.url()));
    let mut second = first.clone();
    second.key.revision = 2;
    let mut third = first.clone();
    third.key.identity = Identity::User { user: UserId(Uuid::from_u128(9)), generation: 1 };
    let mut other = first.clone();
    other.key.server = "custom-00000000000f".into();
    for target in [&first, &second, &third, &other] {
        call(&clients, target, tool_call("echo", "{}")).await.unwrap();
    }
    assert_eq!((clients.open_clients(), peer.sessions()), (4, 4));
    clients.forget(first.key.tenant, &first.key.server).await;
    assert_eq!(clients.open_clients(), 1);
    peer.until("three sessions ended", |peer| peer.sessions() == 1).await;
    clients.close_all(soon()).await;
    assert_eq!((clients.open_clients(), peer.sessions()), (0, 0));
}

#[tokio::test]
async fn a_call_in_flight_outlives_the_forgetting_of_its_client() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    peer.answer("wait", Answer::Echo.held());
    let work = call(&clients, &target, tool_call("wait", "{}"));
    let forget = async {
        peer.until("a held call", |peer| peer.held() == 1).await;
        clients.forget(target.key.tenant, &target.key.server).await;
        assert_eq!(peer.sessions(), 1, "its session is still needed");
        peer.release();
    };
    let (answer, ()) = tokio::join!(work, forget);
    answer.unwrap();
    peer.until("the session ended", |peer| peer.sessions() == 0).await;
}

#[tokio::test]
async fn loopback_is_refused_unless_the_operator_lists_it() {
    let peer = Peer::start(Setup::modern()).await;
    let port = peer.address().port();
    let by_name = format!("http://localhost:{port}/mcp").parse().unwrap();
    let host = |name: &str| vec![AllowRule::Host(name.to_owned())];
    let reached = |allow: Vec<AllowRule>, own: Vec<std::net::SocketAddr>, url: url::Url| async move {
        let clients = clients_with(EgressRules { allow, own });
        call(&clients, &target(&url), tool_call("echo", "{}")).await.map_err(|failure| {
            assert_eq!((failure.error.code, failure.ran), (Code::ServerMisconfigured, Ran::No));
            assert!(!failure.error.to_string().contains("127.0.0.1"));
        })
    };
    let by_name: url::Url = by_name;
    reached(vec![], vec![], peer.url()).await.unwrap_err();
    reached(vec![], vec![], by_name.clone()).await.unwrap_err();
    reached(host("127.0.0.1"), vec![peer.address()], peer.url()).await.unwrap_err();
    reached(host("localhost"), vec![peer.address()], by_name.clone()).await.unwrap_err();
    assert_eq!(peer.connections(), 0);
    reached(host("127.0.0.1"), vec![], peer.url()).await.unwrap();
    reached(host("localhost"), vec![], by_name).await.unwrap();
}
