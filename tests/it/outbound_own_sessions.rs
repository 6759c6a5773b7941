//! Upstream sessions that somebody holds for themselves.

use domain::Code;
use outbound::mcp::{McpClients, Opened, Ran, Resume, Target, is_session_lost};
use serde_json::Value;
use tests::{
    peer::{Answer, Era, Peer, Setup},
    upstream::{call, clients, raw, session, soon, target, tool_call},
};
use url::Url;

fn own(url: &Url, id: u128) -> Target {
    let mut target = target(url);
    target.key.session = Some(session(id));
    target
}

async fn open(clients: &McpClients, target: &Target, version: &str) -> Opened {
    let capabilities = raw(r#"{"elicitation":{},"experimental":{"n":1e999}}"#);
    clients.open(target, &capabilities, version, soon()).await.unwrap()
}

#[tokio::test]
async fn an_own_session_declares_its_holders_capabilities_and_is_nobody_elses() {
    let peer = Peer::start(Setup::older()).await;
    let clients = clients();
    let (mine, shared) = (own(&peer.url(), 1), target(&peer.url()));
    let opened = open(&clients, &mine, "2025-06-18").await;
    assert_eq!(opened.about.version, "2025-06-18");
    assert_eq!(opened.about.capabilities.get(), r#"{"tools":{}}"#);
    assert!(opened.about.raw.starts_with(br#"{"protocolVersion":"2025-06-18""#));
    let begun = &peer.received("initialize")[0].body;
    assert!(begun.contains(r#""capabilities":{"elicitation":{},"experimental":{"n":1e999}}"#));
    assert!(begun.contains(r#""clientInfo":{"name":"bailiwick""#));
    assert!(peer.received("server/discover").is_empty());

    call(&clients, &mine, tool_call("echo", "{}")).await.unwrap();
    call(&clients, &shared, tool_call("echo", "{}")).await.unwrap();
    let sessions: Vec<_> =
        peer.calls().iter().map(|one| one.header("mcp-session-id").to_owned()).collect();
    assert_eq!(sessions, ["s0", "s1"]);
    assert_eq!(peer.calls()[0].header("mcp-protocol-version"), "2025-06-18");
}

#[tokio::test]
async fn another_process_goes_on_with_a_session_and_may_end_it() {
    let peer = Peer::start(Setup::older()).await;
    let (here, there) = (clients(), clients());
    let mut target = own(&peer.url(), 1);
    target.resume = open(&here, &target, "2025-11-25").await.resume;
    call(&here, &target, tool_call("echo", "{}")).await.unwrap();
    here.close_all(soon()).await;
    assert_eq!(peer.sessions(), 1, "it outlives the process that began it");

    call(&there, &target, tool_call("echo", "{}")).await.unwrap();
    let calls = peer.calls();
    assert_eq!(calls[1].header("mcp-session-id"), "s0");
    assert_eq!(calls[1].header("mcp-protocol-version"), "2025-11-25");
    assert_ne!(calls[0].id, calls[1].id, "a session sees no id twice");
    assert_eq!(peer.received("initialize").len(), 1);

    clients().close(&target).await;
    assert_eq!(peer.sessions(), 0);
}

#[tokio::test]
async fn a_lost_own_session_is_not_begun_anew() {
    let peer = Peer::start(Setup::older()).await;
    let clients = clients();
    let target = own(&peer.url(), 1);
    open(&clients, &target, "2025-11-25").await;
    peer.lose_sessions();
    for _ in 0..2 {
        let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
        assert_eq!((failure.error.code, failure.ran), (Code::NotFound, Ran::No));
        assert!(is_session_lost(&failure.error));
    }
    assert_eq!(peer.received("initialize").len(), 1);
    let unknown = call(&clients, &own(&peer.url(), 2), tool_call("echo", "{}")).await.unwrap_err();
    assert!(is_session_lost(&unknown.error), "nobody opened it");
}

#[tokio::test]
async fn a_server_that_says_lost_by_a_400_of_its_own_is_asked_once_more() {
    let peer = Peer::start(Setup::older()).await;
    let clients = clients();
    let target = own(&peer.url(), 1);
    open(&clients, &target, "2025-11-25").await;
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
    let refusal = Answer::Status {
        status: 400,
        headers: vec![("content-type", "application/json".to_owned())],
        body: body.to_owned(),
    };
    peer.script_method("tools/call", [refusal.clone()]);
    let first = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert_eq!(first.error.code, Code::ToolError);
    peer.script_method("ping", [refusal]);
    let second = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert!(is_session_lost(&second.error));
    assert_eq!(second.ran, Ran::No);
    assert_eq!(peer.calls().len(), 1);
}

#[tokio::test]
async fn a_server_without_initialize_is_used_all_the_same() {
    let peer = Peer::start(Setup::modern()).await;
    let clients = clients();
    let mut target = own(&peer.url(), 1);
    let opened = open(&clients, &target, "2025-11-25").await;
    assert_eq!(opened.about.version, "2026-07-28");
    assert_eq!(opened.about.instructions.as_deref(), Some("ask"));
    assert_eq!(opened.about.server_info.unwrap().get(), r#"{"name":"peer","version":"1"}"#);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    target.resume = opened.resume;
    assert!(matches!(&target.resume, Some(Resume { session_id: None, .. })));
    call(&tests::upstream::clients(), &target, tool_call("echo", "{}")).await.unwrap();
    let sent: Value = serde_json::from_str(&peer.calls()[1].body).unwrap();
    let meta = &sent["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}

#[tokio::test]
async fn a_server_that_refuses_the_clients_version_gets_one_that_it_names() {
    let era = Era::Older { versions: vec!["2025-11-25"], strict: true };
    let peer = Peer::start(Setup { era, ..Setup::older() }).await;
    let opened = open(&clients(), &own(&peer.url(), 1), "2025-03-26").await;
    assert_eq!(opened.about.version, "2025-11-25");
}

#[tokio::test]
async fn a_shared_client_tells_what_its_server_says_of_itself() {
    for (setup, version) in [(Setup::older(), "2025-11-25"), (Setup::modern(), "2026-07-28")] {
        let peer = Peer::start(setup).await;
        let about = clients().about(&target(&peer.url()), soon()).await.unwrap();
        assert_eq!(about.version, version);
        assert_eq!(about.capabilities.get(), r#"{"tools":{}}"#);
        assert_eq!(about.server_info.unwrap().get(), r#"{"name":"peer","version":"1"}"#);
    }
}

#[tokio::test]
async fn a_forgotten_servers_own_sessions_end() {
    let peer = Peer::start(Setup::older()).await;
    let clients = clients();
    let target = own(&peer.url(), 1);
    open(&clients, &target, "2025-11-25").await;
    clients.forget(target.key.tenant, &target.key.server).await;
    peer.until("it ended", |peer| peer.sessions() == 0).await;
    let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert!(is_session_lost(&failure.error));
}
