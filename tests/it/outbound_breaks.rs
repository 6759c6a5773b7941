//! Answers that break off, or end without their own end.

use domain::Code;
use outbound::mcp::Ran;
use tests::{
    peer::{Answer, Peer, Setup, Step},
    upstream::{call, clients, target, text, tool_call},
};

/// Something is read, then the connection breaks.
fn breaks(first: &str) -> Answer {
    Answer::Talk(vec![Step::Raw(first.to_owned()), Step::Release, Step::Break])
}

#[tokio::test]
async fn a_connection_that_breaks_within_an_answer_is_no_odd_answer() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    peer.answer("echo", breaks(": working\n\n"));
    let calling = call(&clients, &target, tool_call("echo", "{}"));
    let (outcome, ()) = tokio::join!(calling, async {
        peer.until("the stream has begun", |peer| peer.held() == 1).await;
        peer.release();
    });
    let failure = outcome.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::UpstreamUnavailable, Ran::Unknown));
    assert_eq!(peer.calls().len(), 1);
}

#[tokio::test]
async fn a_stream_whose_connection_breaks_is_resumed() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    peer.answer("echo", breaks("id: event-$ID\nretry: 10\ndata:\n\n"));
    peer.script_method("GET", [Answer::Result(r#"{"content":["late"]}"#.to_owned())]);
    peer.frame(tests::peer::Framing::Sse);
    let calling = call(&clients, &target, tool_call("echo", "{}"));
    let (outcome, ()) = tokio::join!(calling, async {
        peer.until("the stream has begun", |peer| peer.held() == 1).await;
        peer.release();
    });
    assert_eq!(text(&outcome.unwrap()), r#"{"content":["late"]}"#);
    assert_eq!(peer.calls().len(), 1);
}

#[tokio::test]
async fn an_answer_without_the_blank_line_after_it_is_taken_where_it_is_whole() {
    for setup in [Setup::modern(), Setup::older()] {
        let peer = Peer::start(setup).await;
        let (clients, target) = (clients(), target(&peer.url()));
        let ended = |event: &str| Answer::Stream { pieces: vec![event.to_owned()], broken: false };
        for end in ["", "\n", "\r\n"] {
            let event = format!(r#"data: {{"jsonrpc":"2.0","id":$ID,"result":{{"n":1}}}}{end}"#);
            peer.answer("echo", ended(&event));
            let answer = call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
            assert_eq!(text(&answer), r#"{"n":1}"#, "{end:?}");
        }
        peer.answer("echo", ended(r#"data: {"jsonrpc":"2.0","id":$ID,"result":{"n":1}"#));
        let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
        assert_eq!((failure.error.code, failure.ran), (Code::UpstreamUnavailable, Ran::Unknown));
    }
}

#[tokio::test]
async fn a_byte_order_mark_before_an_answer_is_ignored() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    let body = "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"n\":1}}".to_owned();
    peer.answer("echo", Answer::Content { kind: "application/json", body });
    let answer = call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    assert_eq!(text(&answer), r#"{"n":1}"#);
}

#[tokio::test]
async fn headers_over_the_limit_are_refused() {
    let peer = Peer::start(Setup::older()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    let most = domain::limits::HEADER_BYTES.size();
    for (size, ok) in [(most - 1_000, true), (most, false)] {
        let headers = vec![("x-big", "x".repeat(size))];
        let body = r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#.to_owned();
        peer.answer("echo", Answer::Status { status: 200, headers, body });
        let outcome = call(&clients, &target, tool_call("echo", "{}")).await;
        let code = outcome.err().map(|failure| failure.error.code);
        assert_eq!(code, (!ok).then_some(Code::UpstreamFormat), "{size}");
    }
}
