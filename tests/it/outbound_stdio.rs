//! Programs on our host as MCP servers: what they say, and how they end.

use std::{path::Path, time::Duration};

use domain::Code;
use outbound::{
    mcp::{McpClients, Ran, Target},
    stdio::Sandbox,
};
use tests::{
    children::{alive, clients, marker, said, target, until_alive, until_gone},
    upstream::{call, raw, soon, text, tool_call},
};
use tokio_util::sync::CancellationToken;

mod faults;
mod life;
mod messages;
mod places;
mod walls;

const PEER: &str = env!("CARGO_BIN_EXE_stdio-peer");
const HOST: &str = env!("CARGO_BIN_EXE_stdio-host");

/// A peer without a sandbox, and what it is found by.
fn peer(modes: &[&str]) -> (McpClients, Target, String) {
    let marker = marker();
    let arguments: Vec<&str> = [marker.as_str()].into_iter().chain(modes.iter().copied()).collect();
    let target = target(Path::new(PEER), &arguments);
    (clients(Path::new(PEER), Sandbox::None), target, marker)
}

#[tokio::test]
async fn a_program_of_either_era_is_called() {
    for modes in [&[][..], &["modern"], &["picky"]] {
        let (clients, target, marker) = peer(modes);
        let arguments = "{\n \"n\" : 1,\r\n \"text\":\"a\\nb\" }";
        let answer = call(&clients, &target, tool_call("echo", arguments)).await.unwrap();
        assert_eq!(said(&answer), r#"{"n":1,"text":"a\nb"}"#, "{modes:?}");
        assert_eq!(alive(&marker).len(), 1, "{modes:?}");
        let found = clients.discover(&target, false, soon()).await.unwrap();
        assert_eq!(found.tools.len(), 1);
        clients.close_all(soon()).await;
        assert!(alive(&marker).is_empty());
    }
}

#[tokio::test]
async fn many_calls_share_one_program_and_each_gets_its_own_answer() {
    let (clients, target, marker) = peer(&[]);
    let calls = (0..200).map(|n| {
        let (clients, target) = (clients.clone(), target.clone());
        async move {
            let arguments = format!(r#"{{"n":{n}}}"#);
            let answer = call(&clients, &target, tool_call("echo", &arguments)).await.unwrap();
            assert_eq!(said(&answer), arguments);
        }
    });
    futures::future::join_all(calls).await;
    assert_eq!(alive(&marker).len(), 1);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_taken_back_with_our_id() {
    let (clients, target, _) = peer(&[]);
    let deadline = tokio::time::Instant::now() + Duration::from_millis(300);
    let call_that_waits = tool_call("never", "{}");
    let failure = clients
        .call(&target, call_that_waits, deadline, CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::Timeout, Ran::Unknown));
    let answer = call(&clients, &target, tool_call("cancelled", "{}")).await.unwrap();
    let id: u64 = said(&answer).parse().unwrap();
    assert!(id > 0);
}

#[tokio::test]
async fn what_a_server_asks_of_a_shared_client_is_refused_and_a_ping_answered() {
    let (clients, target, _) = peer(&[]);
    let answer = call(&clients, &target, tool_call("ask", "{}")).await.unwrap();
    assert_eq!(said(&answer), r#"{"result":{},"error":null}"#);
    let ask = tool_call("ask", r#"{"method":"elicitation/create"}"#);
    let answer = call(&clients, &target, ask).await.unwrap();
    assert!(said(&answer).contains("-32601"), "{}", said(&answer));
}

#[tokio::test]
async fn a_program_is_ended_when_its_server_is_forgotten_however_it_resists() {
    let (clients, target, marker) = peer(&["stubborn"]);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    call(&clients, &target, tool_call("grandchild", "{}")).await.unwrap();
    until_alive(&marker, 2).await;
    clients.forget(target.key.tenant, &target.key.server).await;
    until_gone(&marker).await;
}

#[tokio::test]
async fn what_is_not_json_is_never_read_into_an_answer() {
    let (clients, target, _) = peer(&["greeting"]);
    let answer = call(&clients, &target, tool_call("echo", r#"{"a":1}"#)).await.unwrap();
    assert_eq!(said(&answer), r#"{"a":1}"#);
    let failure = call(&clients, &target, tool_call("not_a_number", "{}")).await.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::UpstreamFormat, Ran::Unknown));
    let answer = call(&clients, &target, tool_call("batch", "{}")).await.unwrap();
    assert_eq!(text(&answer), raw(r#"{"content":[]}"#).get());
}
