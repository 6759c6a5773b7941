//! What an older client tells, and takes back.

use serde_json::{Value, json};
use tests::peer::{Answer, Setup};

use super::{Through, everything};

const CHANGED: &str = "notifications/roots/list_changed";

impl Through {
    async fn tell(&self, session: &str, message: Value) {
        let reply = self.post(&[("mcp-session-id", session)], message.to_string()).await;
        assert_eq!((reply.status, reply.body.as_str()), (202, ""));
    }
}

fn changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": CHANGED })
}

#[tokio::test]
async fn a_change_of_roots_reaches_the_clients_own_upstream_session() {
    let through = Through::new(Setup::older()).await;
    let (one, two) =
        (through.initialize(&everything()).await, through.initialize(&everything()).await);
    through.tell(&two, changed()).await;
    let told = through.peer.received(CHANGED);
    assert_eq!(told.len(), 1, "at once, and to one session");
    assert_eq!(told[0].header("mcp-session-id"), "s2");
    assert_eq!(
        serde_json::from_str::<Value>(&told[0].body).unwrap(),
        json!({ "jsonrpc": "2.0", "method": CHANGED })
    );
    through.tell(&one, changed()).await;
    assert_eq!(through.peer.received(CHANGED)[1].header("mcp-session-id"), "s1");
    let declared = through.peer.received("initialize").last().unwrap().body.clone();
    let declared: Value = serde_json::from_str(&declared).unwrap();
    assert_eq!(declared["params"]["capabilities"]["roots"], json!({ "listChanged": true }));
}

#[tokio::test]
async fn without_roots_or_an_upstream_session_nobody_is_told() {
    let through = Through::new(Setup::older()).await;
    let session = through.initialize(&json!({ "elicitation": {} })).await;
    through.tell(&session, changed()).await;
    // Of the form with all servers.
    let prefixed = crate::gateway::Gateway::initialize(&through, "2025-11-25").await;
    let path = crate::gateway::Gateway::path(&through);
    let headers = [("mcp-session-id", prefixed.as_str())];
    let reply = through.post_as(&through.token, &path, &headers, changed().to_string()).await;
    assert_eq!(reply.status, 202);
    // A server that was switched off, or knows no sessions.
    let session = through.initialize(&everything()).await;
    app::servers::switch(&through.world.ctx, &through.owner, "demo", false).await.unwrap();
    through.tell(&session, changed()).await;
    assert!(through.peer.received(CHANGED).is_empty());

    let newer = Through::new(Setup::modern()).await;
    let session = newer.initialize(&everything()).await;
    newer.tell(&session, changed()).await;
    assert!(newer.peer.received(CHANGED).is_empty());
}

#[tokio::test]
async fn news_of_roots_does_not_wait_for_the_call_that_has_the_slot() {
    let through = Through::new(Setup::older()).await;
    through.peer.answer("echo", Answer::Echo.held());
    let session = through.initialize(&everything()).await;
    let call = json!({ "name": "echo", "arguments": {} });
    let mut stream = through.open_older(&session, "tools/call", &call).await;
    through.peer.until("it is called", |peer| peer.held() == 1).await;
    through.tell(&session, changed()).await;
    assert_eq!(through.peer.received(CHANGED).len(), 1);
    through.peer.release();
    assert!(stream.next().await["result"].is_object());
}

#[tokio::test]
async fn a_list_that_is_cancelled_is_cancelled_with_the_server() {
    let through = Through::new(Setup::older()).await;
    let listed = Answer::Result(r#"{"resources":[]}"#.to_owned());
    through.peer.script_method("resources/list", [listed.held()]);
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, "resources/list", &json!({})).await;
    through.peer.until("it is asked", |peer| peer.held() == 1).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    through.tell(&session, cancel).await;
    assert!(stream.maybe_next().await.is_none(), "nothing more is said");
    through
        .peer
        .until("the server is told", |peer| !peer.received("notifications/cancelled").is_empty())
        .await;
    let told: Value =
        serde_json::from_str(&through.peer.received("notifications/cancelled")[0].body).unwrap();
    let asked = through.peer.received("resources/list")[0].id.clone().unwrap();
    assert_eq!(told["params"]["requestId"].to_string(), asked);
}
