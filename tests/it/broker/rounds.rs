//! A server of 2026-07-28 that asks its client something before it answers: one call, several rounds.

use app::{
    broker::{self, Asking, CallRequest, Called, Inquiry, Outcome, Resume},
    through::Upstream,
};
use domain::{Code, elicitation::Askable, permission::ApprovalMode};
use serde_json::{Value, json, value::RawValue};
use tests::peer::{Answer, Setup};

use super::{Calls, error, raw};

/// The server's `requestState`, and what it asks.
fn asks(state: Option<&str>, question: Option<&str>) -> Answer {
    let mut result = json!({ "resultType": "input_required" });
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    if let Some(question) = question {
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let params = json!({ "message": question, "requestedSchema": schema });
        result["inputRequests"] =
            json!({ "who": { "method": "elicitation/create", "params": params } });
    }
    Answer::Result(result.to_string())
}

fn request(calls: &Calls, resume: Option<&str>, responses: Option<&str>) -> CallRequest {
    let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
    let resume = resume.map(|state| Resume { state: state.to_owned(), declined: false });
    CallRequest {
        asking: Asking::Return { hold: std::time::Duration::ZERO, resume },
        upstream: Upstream {
            askable: Askable { form: true, ..Askable::default() },
            ..Upstream::default()
        },
        responses: responses.map(|json| raw(json).into()),
        ..calls.request("echo", r#"{"n":1}"#)
    }
}

async fn call(calls: &Calls, resume: Option<&str>, responses: Option<&str>) -> Called {
    let request = request(calls, resume, responses);
    let ctx = &calls.gateway.world.ctx;
    broker::start(ctx, &calls.agent, request).finished().await.unwrap()
}

/// The state was not good: a call that ended so.
async fn refused(calls: &Calls, resume: &str) -> Code {
    let request = request(calls, Some(resume), None);
    let ctx = &calls.gateway.world.ctx;
    broker::start(ctx, &calls.agent, request).finished().await.unwrap_err().code
}

fn inquiry(called: Called) -> Inquiry {
    match called.outcome.unwrap() {
        Outcome::Inquiry(inquiry) => inquiry,
        other => panic!("no question of the server: {other:?}"),
    }
}

/// The params of the call that reached the server last.
fn sent(calls: &Calls) -> Value {
    let body: Value = serde_json::from_str(&calls.peer().calls().last().unwrap().body).unwrap();
    body["params"].clone()
}

const NAME: &str = r#"{"who":{"action":"accept","content":{"name":"Ann"}}}"#;

#[tokio::test]
async fn the_rounds_of_a_call_are_attempts_of_one_invocation() {
    let calls = Calls::new().await;
    calls.peer().script(
        "echo",
        [
            asks(Some("state-one-of-the-server"), Some("Name?")),
            asks(Some("s2"), None),
            Answer::Echo,
        ],
    );
    let called = call(&calls, None, None).await;
    let invocation = called.invocation;
    let first = inquiry(called);
    assert!(!first.state.contains("state-one-of-the-server"));
    let requests: Value = serde_json::from_str(&first.input.requests_json().unwrap()).unwrap();
    assert_eq!(requests["who"]["params"]["message"], "demo: Name?");
    let [record] = &calls.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(record.status.as_str(), "waiting");

    let second = call(&calls, Some(&first.state), Some(NAME)).await;
    assert_eq!(second.invocation, invocation);
    let second = inquiry(second);
    assert_eq!(second.input.requests_json(), None);
    let params = sent(&calls);
    assert_eq!(params["requestState"], "state-one-of-the-server");
    assert_eq!(params["inputResponses"], serde_json::from_str::<Value>(NAME).unwrap());

    // A state is good for its round alone.
    assert_eq!(refused(&calls, &first.state).await, Code::InvalidInput);
    let last = call(&calls, Some(&second.state), None).await;
    assert_eq!(last.invocation, invocation);
    raw(last);
    assert_eq!(sent(&calls)["requestState"], "s2");
    assert!(sent(&calls).get("inputResponses").is_none());
    assert_eq!(refused(&calls, &second.state).await, Code::InvalidInput);

    let records = calls.gateway.invocations().await;
    let refusals = records.iter().filter(|one| one.error_code.as_deref() == Some("INVALID_INPUT"));
    assert_eq!((records.len(), refusals.count()), (3, 2));
    let record = records.iter().find(|one| one.id == invocation).unwrap();
    assert_eq!(record.status.as_str(), "succeeded");
    assert!(record.authorization.is_some());
    let outcomes: Vec<&Value> =
        record.attempts.as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
    assert_eq!(outcomes, ["input_required", "input_required", "answered"]);
    assert_eq!(calls.peer().calls().len(), 3);
}

#[tokio::test]
async fn a_question_to_the_person_comes_before_the_servers_to_the_client() {
    let calls = Calls::with(Setup::modern(), ApprovalMode::AskForDangerous, json!({})).await;
    calls
        .peer()
        .script("echo", [asks(Some("state-one-of-the-server"), Some("Name?")), Answer::Echo]);
    let Ok(Outcome::Waiting(waiting)) = call(&calls, None, None).await.outcome else {
        panic!("a person is to be asked")
    };
    assert!(calls.peer().calls().is_empty());
    let (ctx, owner) = (&calls.gateway.world.ctx, &calls.gateway.owner);
    let once = domain::permission::Decision::AllowOnce;
    app::permissions::decide(ctx, owner, waiting.question, once).await.unwrap();
    let asked = inquiry(call(&calls, Some(&waiting.state), None).await);
    // The authorization stands for all rounds, and is used once.
    raw(call(&calls, Some(&asked.state), Some(NAME)).await);
    let [record] = &calls.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(record.attempts.as_array().unwrap().len(), 2);
    assert_eq!(refused(&calls, &waiting.state).await, Code::InvalidInput);
}

#[tokio::test]
async fn answers_that_nobody_asked_for_reach_no_server() {
    let calls = Calls::new().await;
    raw(call(&calls, None, Some(NAME)).await);
    // A person approves what they see, and this is no part of it.
    assert!(sent(&calls).get("inputResponses").is_none());
    assert!(sent(&calls).get("requestState").is_none());
}

#[tokio::test]
async fn what_nobody_should_be_asked_ends_the_call() {
    let calls = Calls::new().await;
    let secret = json!({
        "resultType": "input_required",
        "inputRequests": { "key": { "method": "elicitation/create", "params": {
            "message": "Key?",
            "requestedSchema": {
                "type": "object", "properties": { "password": { "type": "string" } },
            },
        } } },
    });
    calls.peer().answer("echo", Answer::Result(secret.to_string()));
    assert_eq!(error(call(&calls, None, None).await).code, Code::PermissionDenied);
    // One that offers nothing is asked nothing.
    calls.peer().answer("echo", asks(Some("s"), Some("Name?")));
    let called = calls.call("echo", "{}").await;
    let code = error(called).code;
    assert!([Code::UpstreamFormat, Code::ToolError].contains(&code), "{code}");
    assert!(calls.gateway.invocations().await.iter().all(|record| record.status.is_final()));
}

#[tokio::test]
async fn policy_and_switches_hold_in_every_round() {
    let calls = Calls::new().await;
    calls
        .peer()
        .script("echo", [asks(Some("state-one-of-the-server"), Some("Name?")), Answer::Echo]);
    let first = inquiry(call(&calls, None, None).await);
    let (ctx, owner) = (&calls.gateway.world.ctx, &calls.gateway.owner);
    let change = app::servers::tools::ToolChange {
        policy: Some(domain::permission::ToolPolicy::Deny),
        ..Default::default()
    };
    app::servers::tools::change(ctx, owner, "demo", &"echo".into(), change).await.unwrap();
    let denied = error(call(&calls, Some(&first.state), Some(NAME)).await);
    assert_eq!(denied.code, Code::PermissionDenied);
    assert_eq!(calls.peer().calls().len(), 1);
}

#[tokio::test]
async fn a_client_that_never_answers_leaves_no_open_record() {
    let calls = Calls::new().await;
    calls.peer().answer("echo", asks(Some("state-one-of-the-server"), Some("Name?")));
    inquiry(call(&calls, None, None).await);
    let world = &calls.gateway.world;
    assert_eq!(app::broker::reap(&world.ctx, 10).await.unwrap(), 0);
    sqlx::query("UPDATE tool_calls SET resumable_until = now() - interval '1 second'")
        .execute(&world.owner().await)
        .await
        .unwrap();
    assert_eq!(app::broker::reap(&world.ctx, 10).await.unwrap(), 1);
    let [record] = &calls.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(record.error_code.as_deref(), Some("CANCELLED"));
    assert_eq!(record.attempts.as_array().unwrap().len(), 1, "what was sent is not forgotten");
}
