//! A call that gets no further than the door leaves its record all the same, with why.

use domain::invocation::Status;
use serde_json::{Value, json};
use tests::peer::{Peer, Setup};

use super::{Through, as_pairs, everything, modern};
use crate::gateway::{Reply, register};

fn call() -> Value {
    json!({ "name": "echo", "arguments": { "n": 1 } })
}

impl Through {
    /// Asked name and code of each record, newest first; none of them reached the server.
    async fn refusals(&self) -> Vec<(String, String)> {
        assert!(self.peer.calls().is_empty());
        let records = self.invocations().await;
        records
            .iter()
            .map(|record| {
                assert_eq!((record.status, &record.source), (Status::Failed, &None));
                assert_eq!(record.attempts, json!([]));
                (record.asked_name.clone(), record.error_code.clone().unwrap())
            })
            .collect()
    }

    async fn call_at(&self, token: &str, sources: &str) -> Reply {
        let (headers, body) = modern("tools/call", &call(), &json!({}), &json!({}));
        let path = format!("/mcp/{}?prefix=off&sources={sources}", self.session);
        self.post_as(token, &path, &as_pairs(&headers), body).await
    }
}

fn echo(code: &str) -> (String, String) {
    ("echo".to_owned(), code.to_owned())
}

#[tokio::test]
async fn a_server_that_is_off_is_not_called_and_the_record_says_so() {
    let through = Through::new(Setup::older()).await;
    let session = through.initialize(&everything()).await;
    app::servers::switch(&through.world.ctx, &through.owner, "demo", false).await.unwrap();
    let refused = through.modern("tools/call", call()).await.json();
    assert_eq!(refused["error"]["data"]["code"], "SOURCE_DISABLED", "{refused}");
    assert_eq!(through.older(&session, "tools/call", &call()).await.status, 404);
    let read = json!({ "uri": "demo://a" });
    through.modern("resources/read", read).await;
    // What is no call leaves none.
    through.modern("tools/list", json!({})).await;
    let read = ("resource.read".to_owned(), "SOURCE_DISABLED".to_owned());
    let off = echo("SOURCE_DISABLED");
    assert_eq!(through.refusals().await, [read, off.clone(), off]);
}

#[tokio::test]
async fn a_server_that_is_not_selected_or_not_there_leaves_a_record_too() {
    let through = Through::new(Setup::modern()).await;
    let other = Peer::start(Setup::modern()).await;
    register(&through.world, &through.owner, "other", &other).await;
    for sources in ["other", "nobody"] {
        assert_eq!(through.call_at(&through.token, sources).await.status, 404);
    }
    assert_eq!(through.refusals().await, [echo("NOT_FOUND"), echo("NOT_FOUND")]);
    assert!(other.calls().is_empty());
}

#[tokio::test]
async fn an_upstream_session_of_an_older_revision_is_refused_on_the_record() {
    let through = Through::new(Setup::older()).await;
    let session = through.initialize(&everything()).await;
    through.sql("UPDATE mcp_servers SET config_revision = config_revision + 1").await;
    assert_eq!(through.older(&session, "tools/call", &call()).await.status, 404);
    assert_eq!(through.refusals().await, [echo("SERVER_CHANGED")]);
}

#[tokio::test]
async fn a_state_that_is_not_good_is_a_call_that_was_refused() {
    let through = Through::new(Setup::modern()).await;
    let mut params = call();
    params["requestState"] = json!("made up");
    let refused = through.modern_with("tools/call", &params, &everything()).await;
    assert_eq!(refused.fault(), -32602, "{refused:?}");
    assert_eq!(through.refusals().await, [echo("INVALID_INPUT")]);
}

#[tokio::test]
async fn before_its_session_is_known_there_is_nothing_to_record_it_in() {
    let through = Through::new(Setup::modern()).await;
    app::sessions::archive(&through.world.ctx, &through.owner, through.session).await.unwrap();
    let refused = through.modern("tools/call", call()).await.json();
    assert_eq!(refused["error"]["data"]["code"], "SESSION_ARCHIVED", "{refused}");
    assert_eq!(through.refusals().await, []);
}
