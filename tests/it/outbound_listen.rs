//! What a server says outside of any request.

use std::time::Duration;

use outbound::mcp::{FromServer, Listening, McpClients, Reply, Target, is_not_offered};
use serde_json::{Value, value::RawValue};
use tests::{
    peer::{Answer, Peer, Setup, Step},
    upstream::{call, clients, raw, session, soon, target, tool_call},
};
use url::Url;

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn updated(uri: &str) -> Step {
    let params = format!(r#"{{"uri":"{uri}"}}"#);
    Step::say(&format!(r#"{{"method":"notifications/resources/updated","params":{params}}}"#))
}

async fn own(clients: &McpClients, url: &Url) -> Target {
    let mut target = target(url);
    target.key.session = Some(session(1));
    let opened = clients.open(&target, &raw("{}"), "2025-11-25", soon()).await.unwrap();
    target.resume = opened.resume;
    target
}

/// Method and `uri` of the next notification.
async fn told(listening: &mut Listening) -> (String, String) {
    match listening.next().await.unwrap() {
        FromServer::Notification { method, params } => {
            let params: Option<Value> =
                params.map(|params| serde_json::from_str(params.get()).unwrap());
            let uri = params.and_then(|params| params["uri"].as_str().map(str::to_owned));
            (method, uri.unwrap_or_default())
        }
        FromServer::Request { method, .. } => panic!("{method} is no notification"),
    }
}

fn update(uri: &str) -> (String, String) {
    ("notifications/resources/updated".to_owned(), uri.to_owned())
}

#[tokio::test]
async fn a_stream_that_ends_is_resumed_where_it_ended_after_the_pause_that_was_asked() {
    let peer = Peer::start(Setup::older()).await;
    let event = |id: &str, uri: &str| {
        let text = format!("id: {id}\nretry: 120\n");
        [Step::Raw(text), updated(uri)]
    };
    let first = Answer::Talk(event("e1", "a:1").to_vec());
    let second = Answer::Talk([event("e2", "a:2").to_vec(), vec![Step::Release]].concat());
    peer.script_method("LISTEN", [first, second]);
    let clients = clients();
    let target = own(&clients, &peer.url()).await;
    let mut listening = clients.listen(&target, None, soon()).await.unwrap();
    assert!(listening.acknowledged().is_none());
    let began = std::time::Instant::now();
    assert_eq!(told(&mut listening).await, update("a:1"));
    assert_eq!(told(&mut listening).await, update("a:2"));
    assert!(began.elapsed() >= Duration::from_millis(100));
    let requests = peer.requests(&http::Method::GET);
    let resumed: Vec<_> =
        requests.iter().map(|one| one.header("last-event-id").to_owned()).collect();
    assert_eq!(resumed, ["", "e1"]);
    assert_eq!(requests[0].header("accept"), "text/event-stream");
    assert_eq!(requests[0].header("mcp-session-id"), "s0");
}

#[tokio::test]
async fn a_question_on_the_stream_of_an_own_session_is_answered() {
    let peer = Peer::start(Setup::older()).await;
    let question = r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#;
    peer.script_method("LISTEN", [Answer::Talk(vec![Step::say(question), Step::Release])]);
    let clients = clients();
    let target = own(&clients, &peer.url()).await;
    let mut listening = clients.listen(&target, None, soon()).await.unwrap();
    let Some(FromServer::Request { method, reply, .. }) = listening.next().await else { panic!() };
    assert_eq!(method, "roots/list");
    let roots = RawValue::from_string(r#"{"roots":[]}"#.to_owned()).unwrap();
    reply.send(Reply::Result(roots)).unwrap();
    let answer = r#"{"jsonrpc":"2.0","id":5,"result":{"roots":[]}}"#;
    peer.until("the answer", |peer| peer.journal().iter().any(|one| one.body == answer)).await;
}

#[tokio::test]
async fn a_server_without_such_a_stream_says_so_at_once() {
    let clients = clients();
    let older = Peer::start(Setup::older()).await;
    let own = own(&clients, &older.url()).await;
    assert!(is_not_offered(&clients.listen(&own, None, soon()).await.unwrap_err()));
    for setup in [Setup::older(), Setup::modern()] {
        let peer = Peer::start(setup).await;
        let error = clients.listen(&target(&peer.url()), None, soon()).await.unwrap_err();
        assert!(is_not_offered(&error), "{error:?}");
        clients.forget(target(&peer.url()).key.tenant, &target(&peer.url()).key.server).await;
    }
}

#[tokio::test]
async fn the_newer_era_is_asked_with_the_filter_and_acknowledges_it() {
    let peer = Peer::start(Setup::modern()).await;
    let acknowledged = r#"{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$ID},"notifications":{"resourceSubscriptions":["a:1"]}}}"#;
    let over = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete"}}"#;
    let talk = |end: Vec<Step>| {
        Answer::Talk([vec![Step::say(acknowledged), updated("a:1")], end].concat())
    };
    // The first one breaks off, the second ends in good order.
    peer.script_method(
        "subscriptions/listen",
        [talk(Vec::new()), talk(vec![Step::Release, Step::say(over)])],
    );
    let filter = raw(r#"{"resourceSubscriptions":["a:1"],"later":1e999}"#);
    let clients = clients();
    let mut listening = clients.listen(&target(&peer.url()), Some(&filter), soon()).await.unwrap();
    let honoured: Value = serde_json::from_str(listening.acknowledged().unwrap().get()).unwrap();
    assert_eq!(honoured["notifications"]["resourceSubscriptions"][0], "a:1");
    assert_eq!(told(&mut listening).await, update("a:1"));
    assert_eq!(told(&mut listening).await, update("a:1"));
    peer.release();
    assert!(listening.next().await.is_none());
    let asked = peer.received("subscriptions/listen");
    assert_eq!(asked.len(), 2);
    assert!(
        asked[0]
            .body
            .contains(r#""notifications":{"resourceSubscriptions":["a:1"],"later":1e999}"#)
    );
    assert_eq!(asked[0].header("mcp-method"), "subscriptions/listen");
}

#[tokio::test]
async fn a_server_that_listens_in_lines_is_understood() {
    let peer = Peer::start(Setup::modern()).await;
    let lines = [
        r#"{"method":"notifications/subscriptions/acknowledged","params":{"notifications":{}}}"#,
        r#"{"method":"notifications/resources/updated","params":{"uri":"a:1"}}"#,
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete"}}"#,
    ];
    let body = format!("{}\n", lines.join("\n"));
    peer.script_method(
        "subscriptions/listen",
        [Answer::Content { kind: "application/json", body }],
    );
    let mut listening = clients().listen(&target(&peer.url()), None, soon()).await.unwrap();
    assert!(listening.acknowledged().is_some());
    assert_eq!(told(&mut listening).await, update("a:1"));
    assert!(listening.next().await.is_none());
}

#[tokio::test]
async fn who_stops_listening_ends_the_stream() {
    let peer = Peer::start(Setup::older()).await;
    peer.script_method("LISTEN", [Answer::Talk(vec![updated("a:1"), Step::Release])]);
    let clients = clients();
    let target = own(&clients, &peer.url()).await;
    let mut listening = clients.listen(&target, None, soon()).await.unwrap();
    assert_eq!(told(&mut listening).await, update("a:1"));
    peer.until("the stream is held", |peer| peer.held() == 1).await;
    drop(listening);
    peer.until("nobody reads", |peer| peer.held() == 0).await;
}

#[tokio::test]
async fn all_who_listen_to_a_shared_session_share_its_one_stream() {
    let peer = Peer::start(Setup { tells_changes: true, ..Setup::older() }).await;
    let steps = vec![Step::Release, updated("a:1"), Step::say(CHANGED), Step::Reply("0")];
    peer.script_method("LISTEN", [Answer::Talk(steps)]);
    let (clients, target) = (clients(), target(&peer.url()));
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    let mut first = clients.listen(&target, None, soon()).await.unwrap();
    let mut second = clients.listen(&target, None, soon()).await.unwrap();
    peer.release();
    assert_eq!(told(&mut first).await, update("a:1"));
    assert_eq!(told(&mut second).await, update("a:1"));
    assert_eq!(peer.requests(&http::Method::GET).len(), 1);
    let changed = clients.list_changes().next().await;
    assert_eq!(changed, (target.key.tenant, target.key.server.clone()));
    clients.close_all(soon()).await;
    assert_eq!(told(&mut first).await.0, "notifications/tools/list_changed");
    assert!(first.next().await.is_none());
}

#[tokio::test]
async fn changed_tools_are_told_once_however_often_the_server_says_it() {
    let acknowledged = r#"{"method":"notifications/subscriptions/acknowledged","params":{}}"#;
    for (setup, listens) in [(Setup::older(), "LISTEN"), (Setup::modern(), "subscriptions/listen")]
    {
        let peer = Peer::start(Setup { tells_changes: true, ..setup }).await;
        let steps = [acknowledged, CHANGED, CHANGED, CHANGED].map(Step::say).to_vec();
        let steps = [steps, vec![Step::Release]].concat();
        peer.script_method(listens, [Answer::Talk(steps)]);
        let in_call = [CHANGED, r#"{"id":$ID,"result":{"content":[]}}"#].map(Step::say).to_vec();
        peer.answer("changes", Answer::Talk(in_call));
        let (clients, target) = (clients(), target(&peer.url()));
        let mut changes = clients.list_changes();
        call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
        peer.until("the stream was read", |peer| peer.held() == 1).await;
        let server = (target.key.tenant, target.key.server.clone());
        assert_eq!(changes.next().await, server);
        let again = tokio::time::timeout(Duration::from_millis(50), changes.next()).await;
        assert!(again.is_err(), "it was told twice");
        call(&clients, &target, tool_call("changes", "{}")).await.unwrap();
        assert_eq!(changes.next().await, server);
    }
}

#[tokio::test]
async fn a_server_that_tells_no_changes_is_not_listened_to() {
    for setup in [
        Setup::older(),
        Setup::modern(),
        Setup { sessions: false, tells_changes: true, ..Setup::older() },
    ] {
        let peer = Peer::start(setup).await;
        let (clients, target) = (clients(), target(&peer.url()));
        call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
        call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
        clients.close_all(soon()).await;
        assert!(peer.requests(&http::Method::GET).is_empty());
        assert!(peer.received("subscriptions/listen").is_empty());
    }
}
