//! Listing the tools of a hand-written peer.

use std::time::Duration;

use domain::Code;
use tests::{
    peer::{Answer, Era, Peer, Setup, tool},
    upstream::{clients, soon, target},
};

#[tokio::test]
async fn definitions_come_one_by_one_as_the_server_wrote_them() {
    let odd = r#"{ "name":"odd","inputSchema":{"type":"object","maximum":123456789012345678901234567890,"$id":7},"future":[ {} ] }"#;
    let broken = r#"{"title":"a tool without a name"}"#;
    let tools = vec![tool("one"), odd.to_owned(), broken.to_owned(), "17".to_owned()];
    for setup in [Setup::modern(), Setup::older()] {
        let peer = Peer::start(Setup { tools: tools.clone(), page_size: 3, ..setup }).await;
        let found = clients().discover(&target(&peer.url()), false, soon()).await.unwrap();
        let raw: Vec<&str> = found.tools.iter().map(|tool| tool.get()).collect();
        assert_eq!(raw, tools);
        assert!(!found.truncated);
        assert_eq!(found.server_name.as_deref(), Some("peer"));
        assert_eq!(found.server_version.as_deref(), Some("1"));
    }
}

#[tokio::test]
async fn discovery_stops_at_a_thousand_tools() {
    let tools: Vec<String> = (0..1_200).map(|n| tool(&format!("t{n}"))).collect();
    let peer = Peer::start(Setup { tools: tools.clone(), ..Setup::modern() }).await;
    let found = clients().discover(&target(&peer.url()), false, soon()).await.unwrap();
    assert!(found.truncated);
    assert_eq!(found.tools.len(), 1_000);
    assert_eq!(found.tools[999].get(), tools[999]);
}

#[tokio::test]
async fn discovery_stops_at_two_hundred_pages() {
    let tools: Vec<String> = (0..201).map(|n| tool(&format!("t{n}"))).collect();
    let peer = Peer::start(Setup { tools, page_size: 1, ..Setup::modern() }).await;
    let found = clients().discover(&target(&peer.url()), false, soon()).await.unwrap();
    assert_eq!((found.tools.len(), found.truncated), (200, true));
    assert_eq!(peer.received("tools/list").len(), 200);
}

#[tokio::test]
async fn a_repeated_cursor_is_refused() {
    let peer = Peer::start(Setup { repeat_cursor: true, ..Setup::older() }).await;
    let error = clients().discover(&target(&peer.url()), false, soon()).await.unwrap_err();
    assert_eq!(error.code, Code::UpstreamFormat);
    assert!(peer.received("tools/list").len() <= 3);
}

#[tokio::test]
async fn a_server_without_tools_has_none() {
    let peer = Peer::start(Setup::modern()).await;
    let discovered = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"prompts":{}}}"#;
    peer.script_method("server/discover", [Answer::Result(discovered.to_owned())]);
    let found = clients().discover(&target(&peer.url()), false, soon()).await.unwrap();
    assert_eq!(found.tools.len(), 0);
    assert_eq!(peer.received("tools/list").len(), 0);
}

#[tokio::test]
async fn a_refused_credential_is_an_error_and_never_an_empty_list() {
    for method in ["server/discover", "tools/list"] {
        let peer = Peer::start(Setup::modern()).await;
        peer.script_method(method, [Answer::status(401)]);
        let error = clients().discover(&target(&peer.url()), false, soon()).await.unwrap_err();
        assert_eq!(error.code, Code::Unauthorized, "{method}");
        assert_eq!(peer.received("initialize").len(), 0, "a 401 is not an older server");
    }
}

#[tokio::test]
async fn a_fresh_discovery_leaves_no_client_and_no_session() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    clients.discover(&target, true, soon()).await.unwrap();
    assert_eq!(clients.open_clients(), 0);
    peer.until("the session ended", |peer| peer.sessions() == 0).await;
    clients.discover(&target, false, soon()).await.unwrap();
    assert_eq!(clients.open_clients(), 1);
    assert_eq!(peer.sessions(), 1);
}

#[tokio::test]
async fn a_session_lost_between_two_pages_is_begun_anew() {
    let tools = vec![tool("one"), tool("two")];
    let peer = Peer::start(Setup { tools, page_size: 1, ..Setup::older() }).await;
    let (clients, target) = (clients(), target(&peer.url()));
    clients.discover(&target, false, soon()).await.unwrap();
    peer.lose_sessions();
    let found = clients.discover(&target, false, soon()).await.unwrap();
    assert_eq!(found.tools.len(), 2);
    assert_eq!(peer.received("initialize").len(), 2);
}

#[tokio::test]
async fn an_endless_list_is_a_response_too_large() {
    let peer = Peer::start(Setup::modern()).await;
    peer.script_method("tools/list", [Answer::Compressed(25_000_000)]);
    let error = clients().discover(&target(&peer.url()), false, soon()).await.unwrap_err();
    assert_eq!(error.code, Code::ResponseTooLarge);
}

#[tokio::test]
async fn discovery_ends_at_its_deadline() {
    let peer = Peer::start(Setup::modern()).await;
    peer.script_method("tools/list", [Answer::Echo.held()]);
    let deadline = tokio::time::Instant::now() + Duration::from_millis(300);
    let error = clients().discover(&target(&peer.url()), false, deadline).await.unwrap_err();
    assert_eq!(error.code, Code::Timeout);
}

#[tokio::test]
async fn every_older_version_is_agreed_on_and_kept() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        for strict in [false, true] {
            let era = Era::Older { versions: vec![version], strict };
            let peer = Peer::start(Setup { era, ..Setup::older() }).await;
            let found = clients().discover(&target(&peer.url()), false, soon()).await.unwrap();
            assert_eq!(found.protocol_version, version);
            let list = &peer.received("tools/list")[0];
            assert_eq!(list.header("mcp-protocol-version"), version, "strict: {strict}");
            assert_eq!(list.header("mcp-session-id"), "s0");
        }
    }
}

#[tokio::test]
async fn an_older_server_may_refuse_the_probe_in_any_way() {
    let unsupported = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}}"#;
    let refusals = [
        Answer::status(400),
        Answer::status(404),
        Answer::status(405),
        Answer::status(500),
        Answer::Error { code: -32602, message: "Invalid request parameters".to_owned() },
        Answer::Result("{}".to_owned()),
        Answer::Content { kind: "text/html", body: "<p>no".to_owned() },
        Answer::Cut,
        Answer::Status {
            status: 400,
            headers: vec![("content-type", "application/json".to_owned())],
            body: unsupported.to_owned(),
        },
    ];
    for refusal in refusals {
        let shown = format!("{refusal:?}");
        let peer = Peer::start(Setup::older()).await;
        peer.script_method("server/discover", [refusal]);
        let found = clients().discover(&target(&peer.url()), false, soon()).await;
        assert_eq!(found.expect(&shown).tools.len(), 1, "{shown}");
    }
}

#[tokio::test]
async fn a_server_that_is_silent_to_the_probe_is_asked_to_initialize() {
    let peer = Peer::start(Setup::older()).await;
    peer.script_method("server/discover", [Answer::Echo.held()]);
    let found = clients().discover(&target(&peer.url()), false, soon()).await.unwrap();
    assert_eq!(found.protocol_version, "2025-11-25");
}

#[tokio::test]
async fn a_server_that_knows_no_version_of_ours_is_refused() {
    let era = Era::Older { versions: vec!["2031-01-01"], strict: false };
    let peer = Peer::start(Setup { era, ..Setup::older() }).await;
    let error = clients().discover(&target(&peer.url()), false, soon()).await.unwrap_err();
    assert_eq!(error.code, Code::UpstreamFormat);
}
