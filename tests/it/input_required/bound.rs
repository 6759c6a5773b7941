//! A state is good for its own call of its own caller, for a while.

use domain::{Role, invocation::Status, permission::Decision};
use serde_json::json;
use tests::peer::tool;

use super::{Asking, Told, question, refusal, says, told};
use crate::gateway::{Reply, session};

/// The state with one character changed.
fn changed(state: &str) -> String {
    let middle = state.len() / 2;
    let other = if &state[middle..=middle] == "A" { "B" } else { "A" };
    format!("{}{other}{}", &state[..middle], &state[middle + 1..])
}

fn is_refused(reply: &Reply) {
    let answer = reply.json();
    assert_eq!(answer["error"]["code"], -32602, "{reply:?}");
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(words.starts_with("this requestState is not good for this call"), "{words}");
}

#[tokio::test]
async fn a_changed_or_foreign_state_is_refused_and_harms_nothing() {
    let asking = Asking::new().await;
    let gateway = &asking.gateway;
    let first = asking.begin(1).await;
    let (state, accept) = (first.state.as_str(), || Some(says("decline")));

    // Another text, another input, another tool.
    let long = "x".repeat(100_000);
    for text in ["", "x", &changed(state), &long] {
        is_refused(&asking.send(&Asking::params(1, Some(text), accept())).await);
    }
    is_refused(&asking.send(&Asking::params(2, Some(state), accept())).await);
    let mut other = Asking::params(1, Some(state), accept());
    other["name"] = json!("mcp__demo__other");
    is_refused(&asking.send(&other).await);

    // Another token of the same person, another person, another session.
    let good = Asking::params(1, Some(state), accept());
    let second = gateway.world.token(&gateway.person, "mcp:call").await;
    let request = asking.request(&second, &asking.url(), &good);
    is_refused(&Reply::of(request.send().await.unwrap()).await);
    let bob = gateway.world.user(&gateway.person.tenant, "bob@acme.test", Role::Superadmin).await;
    let bobs = gateway.world.token(&bob, "mcp:call").await;
    let url = gateway.world.url.join("/mcp").unwrap();
    is_refused(&Reply::of(asking.request(&bobs, &url, &good).send().await.unwrap()).await);
    let mode = domain::permission::ApprovalMode::AskForDangerous;
    let elsewhere = session(&gateway.world, &gateway.owner, &gateway.server, mode).await;
    let url = gateway.world.url.join(&format!("/mcp/{elsewhere}")).unwrap();
    is_refused(&Reply::of(asking.request(&gateway.token, &url, &good).send().await.unwrap()).await);

    // A session id of the older protocol is sealed too, and for something else.
    let mcp = gateway.initialize("2025-11-25").await;
    is_refused(&asking.send(&Asking::params(1, Some(&mcp), accept())).await);

    // None of them declined it. Each was a call of its own, in the session and by the person of whom it
    // came: all but Bob's and the one elsewhere.
    let records = gateway.invocations().await;
    let refused = |code: Option<&str>| code == Some("INVALID_INPUT");
    assert_eq!(records.iter().filter(|one| refused(one.error_code.as_deref())).count(), 8);
    assert_eq!(records.len(), 9);
    assert_eq!(asking.question_state().await, "pending");
    asking.decide(&first, Decision::AllowOnce).await;
    let answer = asking.again(1, &first, "accept").await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
}

#[tokio::test]
async fn what_a_state_holds_cannot_be_read() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    for part in ["demo", "echo", &first.invocation, &question(&first).to_string()] {
        assert!(!first.state.contains(part), "{part}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_come_back_is_not_waited_for_for_ever() {
    let asking = Asking::new().await;
    let gateway = &asking.gateway;
    let first = asking.begin(1).await;
    let owner = gateway.world.owner().await;
    let ctx = &gateway.world.ctx;
    // While it may come back, it is nobody's to close, though this node is in no table.
    assert_eq!(app::broker::reap(ctx, 10).await.unwrap(), 0);
    for table in [
        "UPDATE tool_calls SET resumable_until = now() - interval '1 second'",
        "UPDATE permission_requests SET expires_at = now() - interval '1 second'",
    ] {
        sqlx::query(table).execute(&owner).await.unwrap();
    }
    assert_eq!(app::broker::reap(ctx, 10).await.unwrap(), 1);
    assert_eq!(app::permissions::expire_due(ctx, 10).await.unwrap(), 0, "it ended with the call");
    let [record] = &gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(record.status, Status::Cancelled);
    assert_eq!(record.error_message.as_deref(), Some("the caller did not come back in time"));
    assert_eq!(asking.question_state().await, "cancelled");
    is_refused(&asking.send(&Asking::params(1, Some(&first.state), Some(says("accept")))).await);
    let leaves: i64 =
        sqlx::query_scalar("SELECT count(*) FROM audit_leaves WHERE kind = 'invocation'")
            .fetch_one(&owner)
            .await
            .unwrap();
    assert_eq!(leaves, 2, "the call, and the one with its state");
}

#[tokio::test]
async fn each_contact_gives_it_ten_more_minutes() {
    let asking = Asking::new().await;
    let first = asking.begin(1).await;
    let owner = asking.gateway.world.owner().await;
    for table in [
        "UPDATE tool_calls SET resumable_until = now() + interval '1 minute'",
        "UPDATE permission_requests SET expires_at = now() + interval '1 minute'",
    ] {
        sqlx::query(table).execute(&owner).await.unwrap();
    }
    let node = super::nodes::Node::start(&asking, std::time::Duration::from_millis(10)).await;
    let params = Asking::params(1, Some(&first.state), None);
    let again: Told = told(&node.send(&asking, &params).await);
    assert_eq!(question(&again), question(&first));
    let longer: bool = sqlx::query_scalar(
        "SELECT c.resumable_until > now() + interval '9 minutes' AND r.expires_at = c.resumable_until
         FROM tool_calls c, permission_requests r",
    )
    .fetch_one(&owner)
    .await
    .unwrap();
    assert!(longer);
}

#[tokio::test]
async fn a_definition_or_address_that_changes_meanwhile_is_not_called() {
    for definition in [true, false] {
        let asking = Asking::new().await;
        let gateway = &asking.gateway;
        let first = asking.begin(1).await;
        asking.decide(&first, Decision::AllowOnce).await;
        let (ctx, owner) = (&gateway.world.ctx, &gateway.owner);
        if definition {
            gateway.peer.change(|setup| {
                setup.tools = vec![tool("echo").replace("a tool", "another tool")];
            });
            app::discovery::run(ctx, owner.tenant, &gateway.server, None).await.unwrap();
        } else {
            let sql = "UPDATE mcp_servers SET config_revision = config_revision + 1";
            sqlx::query(sql).execute(&gateway.world.owner().await).await.unwrap();
        }
        let answer = asking.again(1, &first, "accept").await;
        let expected = if definition { "TOOL_CHANGED" } else { "SERVER_CHANGED" };
        assert_eq!(refusal(&answer), expected);
        assert!(gateway.peer.calls().is_empty());
        let [record] = &gateway.invocations().await[..] else { panic!("one row") };
        assert_eq!(record.error_code.as_deref(), Some(expected));
        assert_eq!(record.id.to_string(), first.invocation);
    }
}

#[tokio::test]
async fn an_identical_call_of_an_older_client_asks_for_itself() {
    let asking = Asking::new().await;
    let gateway = &asking.gateway;
    let first = asking.begin(1).await;
    let mcp = gateway.initialize("2025-11-25").await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mcp__demo__echo","arguments":{"n":1}}}"#;
    let headers = [("mcp-session-id", mcp.as_str())];
    let path = gateway.path();
    let request = gateway.request(http::Method::POST, &gateway.token, &path, &headers, call);
    let _held = request.send().await.unwrap();
    let owner = gateway.world.owner().await;
    let asked: i64 = sqlx::query_scalar("SELECT count(*) FROM permission_requests")
        .fetch_one(&owner)
        .await
        .unwrap();
    assert_eq!(asked, 2);
    asking.decide(&first, Decision::AllowOnce).await;
    let answer = asking.again(1, &first, "accept").await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer}");
}

#[tokio::test]
async fn of_many_that_come_back_together_one_goes_on() {
    let asking = Asking::new().await;
    let gateway = &asking.gateway;
    app::nodes::register(&gateway.world.ctx, app::nodes::Kind::Api, "here").await.unwrap();
    let first = asking.begin(1).await;
    asking.decide(&first, Decision::AllowOnce).await;
    let all = (0..8).map(|_| asking.again(1, &first, "accept"));
    let answers = futures::future::join_all(all).await;
    let gone_on = answers.iter().filter(|answer| answer.get("result").is_some()).count();
    assert_eq!(gone_on, 1, "{answers:#?}");
    for answer in answers.iter().filter_map(|answer| answer.get("error")) {
        assert!(["INVALID_INPUT", "CONFLICT"].contains(&answer["data"]["code"].as_str().unwrap()));
    }
    assert_eq!(gateway.peer.calls().len(), 1);
}
