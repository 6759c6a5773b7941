//! What a program says beside its answers.

use outbound::mcp::{FromServer, Relay, Reply};
use serde_json::value::RawValue;
use tests::{
    children::said,
    upstream::{call, raw, session, soon, tool_call},
};

use super::peer;

#[tokio::test]
async fn progress_reaches_the_call_that_it_is_about() {
    let (clients, target, _) = peer(&[]);
    let (relay, mut heard) = Relay::channel();
    let mut with_progress = tool_call("progress", "{}");
    (with_progress.progress, with_progress.relay) = (true, Some(relay));
    let (other, mut unheard) = Relay::channel();
    let mut sibling = tool_call("sleep", r#"{"count":200}"#);
    sibling.relay = Some(other);
    let (answer, sibling) =
        tokio::join!(call(&clients, &target, with_progress), call(&clients, &target, sibling));
    assert_eq!(
        (said(&answer.unwrap()).as_str(), said(&sibling.unwrap()).as_str()),
        ("done", "slept")
    );
    let Some(FromServer::Notification { method, params }) = heard.recv().await else { panic!() };
    assert_eq!(method, "notifications/progress");
    assert!(params.unwrap().get().contains(r#""progress":1"#));
    assert!(unheard.recv().await.is_none());
}

#[tokio::test]
async fn a_change_of_the_tools_is_told() {
    let (clients, target, _) = peer(&[]);
    let mut changes = clients.list_changes();
    call(&clients, &target, tool_call("change", "{}")).await.unwrap();
    let found = tokio::time::timeout_at(soon(), changes.next()).await.unwrap();
    assert_eq!(found, (target.key.tenant, target.key.server.clone()));
}

#[tokio::test]
async fn in_an_own_session_the_holder_is_asked() {
    let (clients, mut target, _) = peer(&[]);
    target.key.session = Some(session(1));
    let capabilities = raw(r#"{"elicitation":{}}"#);
    let opened = clients.open(&target, &capabilities, "2025-11-25", soon()).await.unwrap();
    assert!(opened.resume.is_none());
    assert_eq!(opened.about.version, "2025-11-25");
    let (relay, mut heard) = Relay::channel();
    let mut ask = tool_call("ask", r#"{"method":"elicitation/create"}"#);
    ask.relay = Some(relay);
    let asked = async {
        let Some(FromServer::Request { method, params, reply, .. }) = heard.recv().await else {
            panic!()
        };
        assert_eq!(method, "elicitation/create");
        assert!(params.unwrap().get().contains("who are you?"));
        let result = "{\n\"action\":\"decline\"}".to_owned();
        reply.send(Reply::Result(RawValue::from_string(result).unwrap())).unwrap();
    };
    let (answer, ()) = tokio::join!(call(&clients, &target, ask), asked);
    assert_eq!(said(&answer.unwrap()), r#"{"result":{"action":"decline"},"error":null}"#);
}

#[tokio::test]
async fn a_question_that_its_holder_drops_is_refused() {
    let (clients, mut target, _) = peer(&[]);
    target.key.session = Some(session(1));
    clients.open(&target, &raw("{}"), "2025-11-25", soon()).await.unwrap();
    let (relay, mut heard) = Relay::channel();
    let mut ask = tool_call("ask", r#"{"method":"roots/list"}"#);
    ask.relay = Some(relay);
    let (answer, ()) = tokio::join!(call(&clients, &target, ask), async {
        drop(heard.recv().await);
    });
    assert!(said(&answer.unwrap()).contains("-32601"));
}
