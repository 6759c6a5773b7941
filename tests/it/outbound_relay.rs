//! What a server says while it is asked, and what it is told.

use domain::Code;
use outbound::mcp::{Call, FromServer, Input, Ran, Relay, Reply, What, is_session_lost};
use serde_json::{Value, value::RawValue};
use tests::{
    peer::{Answer, Framing, Peer, Setup, Step},
    upstream::{call, clients, raw, request, soon, target, text, tool_call},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const DONE: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"said":$REPLY}}"#;

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn relayed(call: Call) -> (Call, mpsc::Receiver<FromServer>) {
    let (relay, said) = Relay::channel();
    (Call { relay: Some(relay), ..call }, said)
}

async fn asked(
    said: &mut mpsc::Receiver<FromServer>,
) -> (String, tokio::sync::oneshot::Sender<Reply>) {
    match said.recv().await.unwrap() {
        FromServer::Request { method, reply, .. } => (method, reply),
        FromServer::Notification { method, .. } => panic!("{method} is no request"),
    }
}

#[tokio::test]
async fn a_question_reaches_the_caller_and_its_answer_the_server_byte_for_byte() {
    let peer = Peer::start(Setup::older()).await;
    let question =
        r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"n":1e999}}"#;
    let steps = vec![Step::say(question), Step::Reply("\"q\""), Step::say(DONE)];
    peer.answer("asks", Answer::Talk(steps));
    let (ask, mut said) = relayed(tool_call("asks", "{}"));
    let (clients, target) = (clients(), target(&peer.url()));
    let answering = async {
        let FromServer::Request { method, params, reply, .. } = said.recv().await.unwrap() else {
            panic!()
        };
        assert_eq!(method, "elicitation/create");
        assert_eq!(params.unwrap().get(), r#"{"n":1e999}"#);
        reply.send(Reply::Result(json(r#"{"action":"accept","n":18446744073709551616}"#))).unwrap();
    };
    let (answer, ()) = tokio::join!(call(&clients, &target, ask), answering);
    assert_eq!(
        text(&answer.unwrap()),
        r#"{"content":[],"said":{"jsonrpc":"2.0","id":"q","result":{"action":"accept","n":18446744073709551616}}}"#
    );
}

#[tokio::test]
async fn a_question_that_is_open_holds_up_neither_the_stream_nor_others() {
    let peer = Peer::start(Setup::older()).await;
    let ask = |id: &str, method: &str| {
        Step::say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#))
    };
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"on"}}"#;
    let steps = vec![
        ask("1", "elicitation/create"),
        Step::say(log),
        ask("2", "roots/list"),
        ask("3", "ping"),
        Step::Reply("3"),
        Step::Reply("2"),
        Step::say(DONE),
    ];
    peer.answer("asks", Answer::Talk(steps));
    let (asks, mut said) = relayed(tool_call("asks", "{}"));
    let (clients, target) = (clients(), target(&peer.url()));
    let mut first = None;
    let answering = async {
        let (method, reply) = asked(&mut said).await;
        assert_eq!(method, "elicitation/create");
        first = Some(reply);
        let told = said.recv().await.unwrap();
        assert!(
            matches!(told, FromServer::Notification { method, .. } if method == "notifications/message")
        );
        let (method, reply) = asked(&mut said).await;
        assert_eq!(method, "roots/list");
        drop(reply);
    };
    let (answer, ()) = tokio::join!(call(&clients, &target, asks), answering);
    let refused = r#"{"content":[],"said":{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"not offered by this client"}}}"#;
    assert_eq!(text(&answer.unwrap()), refused);
    assert!(first.unwrap().is_closed(), "nobody waits for it once the call is over");
}

#[tokio::test]
async fn a_question_that_the_server_takes_back_is_closed() {
    let peer = Peer::start(Setup::older()).await;
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let steps = vec![
        Step::say(r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#),
        Step::say(cancelled),
        Step::Release,
        Step::say(DONE),
    ];
    peer.answer("asks", Answer::Talk(steps));
    let (ask, mut said) = relayed(tool_call("asks", "{}"));
    let (clients, target) = (clients(), target(&peer.url()));
    let answering = async {
        let (_, mut reply) = asked(&mut said).await;
        reply.closed().await;
        peer.release();
    };
    let (answer, ()) = tokio::join!(call(&clients, &target, ask), answering);
    answer.unwrap();
    assert!(!peer.journal().iter().any(|one| one.rpc.is_none() && one.id.as_deref() == Some("7")));
}

#[tokio::test]
async fn progress_comes_with_our_token_and_only_that_of_the_call() {
    for setup in [Setup::older(), Setup::modern()] {
        let peer = Peer::start(setup).await;
        let progress = |token: &str, at: u32| {
            let params = format!(r#"{{"progressToken":{token},"progress":{at}}}"#);
            Step::say(&format!(r#"{{"method":"notifications/progress","params":{params}}}"#))
        };
        let steps =
            vec![progress("$ID", 1), progress("4711", 2), progress("$ID", 3), Step::say(DONE)];
        peer.answer("works", Answer::Talk(steps));
        let (mut work, mut said) = relayed(tool_call("works", "{}"));
        work.progress = true;
        let answer = call(&clients(), &target(&peer.url()), work).await;
        answer.unwrap();
        let received = &peer.calls()[0];
        let sent: Value = serde_json::from_str(&received.body).unwrap();
        assert_eq!(
            sent["params"]["_meta"]["progressToken"].to_string(),
            received.id.clone().unwrap()
        );
        let mut seen = Vec::new();
        while let Some(FromServer::Notification { params, .. }) = said.recv().await {
            let params: Value = serde_json::from_str(params.unwrap().get()).unwrap();
            seen.push(params["progress"].as_u64().unwrap());
        }
        assert_eq!(seen, [1, 3]);
    }
}

#[tokio::test]
async fn a_server_of_the_newer_era_that_asks_on_a_stream_gets_no_answer() {
    let peer = Peer::start(Setup::modern()).await;
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#;
    peer.answer("asks", Answer::Talk(vec![Step::say(question), Step::say(DONE)]));
    let (ask, mut said) = relayed(tool_call("asks", "{}"));
    let (clients, target) = (clients(), target(&peer.url()));
    call(&clients, &target, ask).await.unwrap();
    assert!(said.recv().await.is_none());
    clients.close_all(soon()).await;
    assert!(!peer.journal().iter().any(|one| one.rpc.is_none()));
}

#[tokio::test]
async fn a_cancelled_request_is_cancelled_upstream_by_the_id_that_we_gave() {
    let peer = Peer::start(Setup::older()).await;
    peer.script_method("resources/read", [Answer::Echo.held()]);
    let (clients, target) = (clients(), target(&peer.url()));
    let what = What::Request {
        method: "resources/read",
        params: Some(raw(r#"{"uri":"a:b"}"#)),
        input: None,
    };
    let cancel = CancellationToken::new();
    let reading = clients.call(&target, request(what), soon(), cancel.clone());
    let cancelling = async {
        peer.until("the read is held", |peer| peer.held() == 1).await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(reading, cancelling);
    let failure = outcome.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::Cancelled, Ran::Unknown));
    peer.until("the server is told", |peer| !peer.received("notifications/cancelled").is_empty())
        .await;
    let told: Value =
        serde_json::from_str(&peer.received("notifications/cancelled")[0].body).unwrap();
    let id = peer.received("resources/read")[0].id.clone().unwrap();
    assert_eq!(told["params"]["requestId"].to_string(), id);
}

#[tokio::test]
async fn any_request_goes_through_with_its_params_and_its_result_as_they_are() {
    for (setup, newer) in [(Setup::older(), false), (Setup::modern(), true)] {
        let peer = Peer::start(setup).await;
        for framing in [Framing::Json, Framing::SseCrlf] {
            peer.frame(framing);
            let result = r#"{"contents":[{"uri":"a:b","n":123456789012345678901234567890}]}"#;
            peer.script_method("resources/read", [Answer::Result(result.to_owned())]);
            let params = r#"{"uri":"a:b","later":{"n":1e999}}"#;
            let what =
                What::Request { method: "resources/read", params: Some(raw(params)), input: None };
            let answer = call(&clients(), &target(&peer.url()), request(what)).await.unwrap();
            assert_eq!(text(&answer), result);
            let received = peer.received("resources/read").pop().unwrap();
            assert!(received.body.contains(r#""params":{"uri":"a:b","later":{"n":1e999}"#));
            let named = if newer { ("resources/read", "a:b") } else { ("", "") };
            assert_eq!((received.header("mcp-method"), received.header("mcp-name")), named);
        }
    }
}

#[tokio::test]
async fn an_error_of_the_server_keeps_its_code_its_words_and_its_data() {
    let peer = Peer::start(Setup::older()).await;
    let body = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32042,"message":"go there","data":{"n": 1e999}}}"#;
    let answer = Answer::Content { kind: "application/json", body: body.to_owned() };
    peer.script_method("prompts/get", [answer]);
    let what =
        What::Request { method: "prompts/get", params: Some(raw(r#"{"name":"p"}"#)), input: None };
    let failure = call(&clients(), &target(&peer.url()), request(what)).await.unwrap_err();
    let rpc = failure.rpc.unwrap();
    assert_eq!((rpc.code, rpc.message.as_str()), (-32042, "go there"));
    assert_eq!(rpc.data.unwrap().get(), r#"{"n": 1e999}"#);
    assert!(!is_session_lost(&failure.error));
}

#[tokio::test]
async fn a_server_that_was_told_what_we_can_may_ask_for_input_and_gets_it() {
    let peer = Peer::start(Setup::modern()).await;
    let wanted = r#"{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{}}},"requestState":"st\u0061te"}"#;
    let script =
        || [Answer::Result(wanted.to_owned()), Answer::Result(r#"{"content":[]}"#.to_owned())];
    peer.script("asks", script());
    let (clients, target) = (clients(), target(&peer.url()));
    let able = Call {
        capabilities: Some(raw(r#"{"elicitation":{"form":{}}}"#)),
        ..tool_call("asks", r#"{"a":1}"#)
    };
    let first = call(&clients, &target, able.clone()).await.unwrap();
    assert!(first.input_required);
    assert_eq!(text(&first), wanted);
    let mut second = able;
    let What::Tool { input, .. } = &mut second.what else { panic!() };
    let responses = raw(r#"{"who":{"action":"accept","content":{"n":1e999}}}"#);
    *input = Some(Input { responses: Some(responses), state: Some("state".to_owned()) });
    let last = call(&clients, &target, second).await.unwrap();
    assert!(!last.input_required);
    let bodies: Vec<_> = peer.calls().into_iter().map(|one| (one.id, one.body)).collect();
    assert_ne!(bodies[0].0, bodies[1].0);
    assert!(!bodies[0].1.contains("inputResponses"));
    assert!(
        bodies[0].1.contains(
            r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}"#
        )
    );
    assert!(bodies[1].1.contains(r#""inputResponses":{"who":{"action":"accept","content":{"n":1e999}}},"requestState":"state""#));

    peer.script("asks", script());
    let failure = call(&clients, &target, tool_call("asks", "{}")).await.unwrap_err();
    assert_eq!(failure.error.code, Code::UpstreamFormat);
}

#[tokio::test]
async fn a_server_that_only_wants_to_be_asked_again_is_asked_again() {
    let peer = Peer::start(Setup::modern()).await;
    let (clients, target) = (clients(), target(&peer.url()));
    let later = |state: &str| {
        let more = r#""inputRequests":{},"#;
        Answer::Result(format!(
            r#"{{"resultType":"input_required",{more}"requestState":"{state}"}}"#
        ))
    };
    // It keeps nothing: who asks may be told to come back with what it said.
    peer.script("echo", [later("one"), later("tw\\u006f"), Answer::Echo]);
    let answer = call(&clients, &target, tool_call("echo", r#"{"n":1.10}"#)).await.unwrap();
    assert!(!answer.input_required && text(&answer).contains(r#""structuredContent":{"n":1.10}"#));
    let calls = peer.calls();
    let of = |at: usize| serde_json::from_str::<serde_json::Value>(&calls[at].body).unwrap();
    let states: Vec<_> = (0..3).map(|at| of(at)["params"]["requestState"].clone()).collect();
    assert_eq!(serde_json::json!(states), serde_json::json!([null, "one", "two"]));
    assert!(calls.iter().all(|one| !one.body.contains("inputResponses")));
    assert!(calls[0].id != calls[1].id && calls[1].id != calls[2].id);

    peer.script("echo", [later("again")]);
    let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert_eq!(failure.error.code, Code::UpstreamFormat);
    assert_eq!(peer.calls().len(), 3 + domain::limits::INPUT_ROUNDS.size());
}

#[tokio::test]
async fn a_batch_is_read_as_its_messages() {
    let peer = Peer::start(Setup::older()).await;
    let batch = r#"[{"method":"notifications/message","params":{"data":1}}, {"id":$ID,"result":{"content":[ ]}}]"#;
    let whole = Answer::Content { kind: "application/json", body: batch.to_owned() };
    for answer in [whole, Answer::Talk(vec![Step::say(batch)])] {
        peer.answer("batches", answer);
        let (ask, mut said) = relayed(tool_call("batches", "{}"));
        let answer = call(&clients(), &target(&peer.url()), ask).await.unwrap();
        assert_eq!(text(&answer), r#"{"content":[ ]}"#);
        assert!(matches!(said.recv().await, Some(FromServer::Notification { .. })));
    }
}

#[tokio::test]
async fn a_404_for_a_method_that_is_not_known_loses_no_session() {
    let peer = Peer::start(Setup::older()).await;
    let body = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no such method"}}"#;
    let refusal = Answer::Status {
        status: 404,
        headers: vec![("content-type", "application/json".to_owned())],
        body: body.to_owned(),
    };
    peer.script_method("prompts/list", [refusal]);
    let what = What::Request { method: "prompts/list", params: None, input: None };
    let failure = call(&clients(), &target(&peer.url()), request(what)).await.unwrap_err();
    assert_eq!(failure.rpc.unwrap().code, -32601);
    assert_eq!(peer.received("initialize").len(), 1);
}
