//! Servers that are programs, and servers of HTTP+SSE: the same form over other transports.

use domain::server::stdio::{AllowedProgram, ArgPattern, Pattern, StdioMode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    children::{for_everybody, marker},
    sse_peer::{Habits, SsePeer},
    world::World,
};

use super::{Through, everything};

/// A world where the peer program may be run with whatever arguments.
pub(super) async fn program() -> (World, TempDir, String) {
    let (dir, peer) = for_everybody(env!("CARGO_BIN_EXE_stdio-peer"));
    let command = peer.to_str().unwrap().to_owned();
    let stdio = StdioMode::Allowlist(vec![AllowedProgram {
        name: "peer".to_owned(),
        command: command.clone(),
        args: vec![ArgPattern::Rest { rest: Pattern::new(".*").unwrap() }],
        cwd: None,
        env: Vec::new(),
        writable: Vec::new(),
    }]);
    (World::with_stdio(stdio).await, dir, command)
}

pub(super) fn form(command: &str, args: &[&str]) -> Value {
    json!({ "transport": "stdio", "command": command, "args": args })
}

/// The form over both, with what must live as long.
async fn both() -> [(Through, Box<dyn std::any::Any>); 2] {
    let (world, dir, command) = program().await;
    let stdio = Through::to(world, form(&command, &[&marker(), "more"])).await;
    let peer = SsePeer::start(Habits { more: true, ..Habits::default() }).await;
    let url = peer.url("/sse");
    let sse = Through::to(World::new().await, json!({ "transport": "sse", "url": url })).await;
    [(stdio, Box::new(dir)), (sse, Box::new(peer))]
}

#[tokio::test]
async fn tools_and_resources_of_either_era_pass() {
    for (through, _alive) in both().await {
        let begun = through.begin(&everything()).await;
        let session = begun.header("mcp-session-id").to_owned();
        assert_eq!(
            begun.json()["result"]["capabilities"],
            json!({"tools": {"listChanged": true}, "resources": {"listChanged": true}})
        );
        let list = through.older(&session, "tools/list", &json!({})).await.json();
        assert!(list["result"]["tools"].as_array().unwrap().len() >= 4, "{list}");
        let call = json!({"name": "echo", "arguments": {"n": 1}});
        let read = json!({"uri": "demo://a"});
        let contents = json!([{"uri": "demo://a", "text": "A"}]);

        let called = through.older(&session, "tools/call", &call).await.json();
        assert_eq!(called["result"]["content"][0]["text"], r#"{"n":1}"#);
        let listed = through.older(&session, "resources/list", &json!({})).await.json();
        assert_eq!(listed["result"]["resources"][0]["uri"], "demo://a");
        let older = through.older(&session, "resources/read", &read).await.json();
        assert_eq!(older["result"]["contents"], contents);

        let called = through.modern("tools/call", call).await.json();
        assert_eq!(called["result"]["content"][0]["text"], r#"{"n":1}"#);
        let newer = through.modern("resources/read", read).await.json();
        assert_eq!(newer["result"]["contents"], contents);
        let prompts = through.older(&session, "prompts/list", &json!({})).await;
        assert_eq!(prompts.fault(), -32601, "it offers none");
    }
}

#[tokio::test]
async fn a_question_of_the_server_reaches_the_client_and_the_answer_the_server() {
    for (through, _alive) in both().await {
        let session = through.initialize(&everything()).await;
        let ask = json!({"name": "ask", "arguments": {"method": "elicitation/create"}});
        let mut stream = through.open_older(&session, "tools/call", &ask).await;
        let asked = stream.next().await;
        assert_eq!(asked["method"], "elicitation/create");
        assert_eq!(asked["params"]["message"], "other: who are you?");
        let answer = json!({"action": "accept", "content": {}});
        assert_eq!(through.answer(&session, &asked["id"], &answer).await, 202);
        let done = stream.next().await;
        let told = done["result"]["content"][0]["text"].as_str().unwrap();
        let told: Value = serde_json::from_str(told).unwrap();
        assert_eq!(told, json!({"result": answer, "error": null}));
    }
}

#[tokio::test]
async fn changes_of_the_list_reach_whoever_listens() {
    const CHANGED: &str = "notifications/tools/list_changed";
    for (through, _alive) in both().await {
        let session = through.initialize(&everything()).await;
        let call = |name: &str| json!({"name": name, "arguments": {}});
        let mut stream = through.open_older(&session, "tools/call", &call("change")).await;
        assert_eq!(stream.next().await["method"], CHANGED, "beside the call");
        assert_eq!(stream.next().await["id"], 1);

        let mut standing = through.get(&session).await;
        through.older(&session, "tools/call", &call("change_later")).await;
        assert_eq!(standing.next().await["method"], CHANGED, "outside of any");

        let mut subscription = through.subscribe(json!({"toolsListChanged": true})).await;
        let honoured = subscription.next().await["params"]["notifications"].clone();
        assert_eq!(honoured, json!({"toolsListChanged": true}));
    }
}
