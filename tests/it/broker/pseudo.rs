//! Resources, prompts and completion of a server: calls like any other.

use app::broker::{self, Asked, CallRequest, Called};
use domain::{
    Code, Role,
    invocation::{PseudoTool, Status},
    permission::{ApprovalMode, Decision},
};
use serde_json::{json, value::RawValue};
use tests::{peer::Setup, world::eventually};

use super::{Calls, error};
use crate::gateway::caller;

fn request(calls: &Calls, tool: PseudoTool, params: &str) -> CallRequest {
    CallRequest {
        asked: Asked::Pseudo { server: calls.server().clone(), tool },
        arguments: RawValue::from_string(params.to_owned()).unwrap(),
        ..calls.request("echo", "{}")
    }
}

async fn call(calls: &Calls, tool: PseudoTool, params: &str) -> Called {
    let request = request(calls, tool, params);
    let ctx = &calls.gateway.world.ctx;
    broker::start(ctx, &calls.agent, request).finished().await.unwrap()
}

async fn asking() -> Calls {
    Calls::with(Setup::modern(), ApprovalMode::AskForDangerous, json!({})).await
}

/// Answers the only pending question; what it was about.
async fn decide(calls: &Calls, decision: Decision) -> app::permissions::Question {
    let (ctx, owner) = (&calls.gateway.world.ctx, &calls.gateway.owner);
    let pending = Some(domain::permission::RequestState::Pending);
    let session = Some(calls.gateway.session);
    let question = eventually("a question is asked", async || {
        let list = app::permissions::list(ctx, owner, session, pending, None, 10).await.unwrap();
        list.into_iter().next()
    })
    .await;
    app::permissions::decide(ctx, owner, question.id, decision).await.unwrap();
    question
}

const READ: &str = r#"{"uri":"file:///a"}"#;
const COMPLETE: &str =
    r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"}}"#;

#[tokio::test]
async fn reading_a_resource_asks_as_a_tool_does_and_a_grant_covers_the_servers_others() {
    let calls = asking().await;
    let running = broker::start(
        &calls.gateway.world.ctx,
        &calls.agent,
        request(&calls, PseudoTool::ResourceRead, READ),
    );
    let question = decide(&calls, Decision::AllowMatching).await;
    assert_eq!(question.resource, format!("{}/resource.read", calls.server()));
    assert!(question.words.starts_with("Read a resource of demo."), "{}", question.words);
    assert_eq!(question.matches.definition_hash, None);
    assert_eq!(question.input_shown, READ);
    drop(running);
    // Another resource, no question; another kind asks again.
    let second = call(&calls, PseudoTool::ResourceRead, r#"{"uri":"file:///b"}"#).await;
    let records = calls.gateway.invocations().await;
    let record = records.iter().find(|one| one.id == second.invocation);
    let record = record.unwrap_or_else(|| panic!("{second:?}: {records:#?}"));
    assert!(record.authorization.is_some());
    assert_eq!(record.tool.as_ref().unwrap().as_str(), "resource.read");
    assert_eq!(record.asked_name, "resource.read");
    let request = request(&calls, PseudoTool::PromptGet, r#"{"name":"p"}"#);
    let _running = broker::start(&calls.gateway.world.ctx, &calls.agent, request);
    let question = decide(&calls, Decision::Deny).await;
    assert_eq!(question.resource, format!("{}/prompt.get", calls.server()));
}

#[tokio::test]
async fn completion_is_never_asked_about_and_comes_with_what_it_completes() {
    let calls = asking().await;
    let refused = call(&calls, PseudoTool::Completion, COMPLETE).await;
    let refused = error(refused);
    assert_eq!(refused.code, Code::PermissionDenied);
    assert_eq!(refused.details, Some(json!({ "reason": "not_granted" })));

    let prompt = request(&calls, PseudoTool::PromptGet, r#"{"name":"p"}"#);
    let _running = broker::start(&calls.gateway.world.ctx, &calls.agent, prompt);
    decide(&calls, Decision::AllowMatching).await;
    let covered = call(&calls, PseudoTool::Completion, COMPLETE).await;
    let records = calls.gateway.invocations().await;
    let record = records.iter().find(|one| one.id == covered.invocation).unwrap();
    assert!(record.authorization.is_some());
    // A resource's argument is not covered by prompts.
    let resource = COMPLETE.replace("ref/prompt", "ref/resource");
    let refused = error(call(&calls, PseudoTool::Completion, &resource).await);
    assert_eq!(refused.code, Code::PermissionDenied);
}

#[tokio::test]
async fn params_that_mcp_does_not_allow_are_refused_with_their_place() {
    let calls = Calls::new().await;
    for (tool, params, path) in [
        (PseudoTool::ResourceRead, "{}", "/uri"),
        (PseudoTool::PromptGet, r#"{"name":"p","arguments":{"a":1}}"#, "/arguments"),
        (PseudoTool::Completion, r#"{"ref":{"type":"ref/prompt"}}"#, "/argument/name"),
    ] {
        let error = error(call(&calls, tool, params).await);
        assert_eq!(error.code, Code::InvalidInput);
        assert_eq!(error.details.unwrap()["errors"][0]["path"], path);
    }
    let records = calls.gateway.invocations().await;
    assert!(records.iter().all(|record| record.status == Status::Failed) && records.len() == 3);
}

#[tokio::test]
async fn a_server_out_of_reach_is_none() {
    let calls = Calls::new().await;
    let world = &calls.gateway.world;
    // Not selected.
    let mut elsewhere = request(&calls, PseudoTool::ResourceRead, READ);
    elsewhere.asked =
        Asked::Pseudo { server: "custom-000000000000".into(), tool: PseudoTool::ResourceRead };
    let called = broker::start(&world.ctx, &calls.agent, elsewhere).finished().await.unwrap();
    assert!(!called.known);
    assert_eq!(error(called).code, Code::NotFound);
    // A token of single tools reaches nothing that is no tool.
    let mut narrow = calls.agent.clone();
    narrow.reach.tools = Some(vec!["mcp__demo__echo".to_owned()]);
    let read = request(&calls, PseudoTool::ResourceRead, READ);
    let called = broker::start(&world.ctx, &narrow, read).finished().await.unwrap();
    assert_eq!(error(called).code, Code::NotFound);
    // Nobody else's session, of course.
    let bob = world.user(&calls.gateway.person.tenant, "bob@acme.test", Role::Superadmin).await;
    let bob = caller(world, &world.full_token(&bob).await).await;
    let read = request(&calls, PseudoTool::ResourceRead, READ);
    let refused = broker::start(&world.ctx, &bob, read).finished().await.unwrap_err();
    assert_eq!(refused.code, Code::NotFound);
}

#[tokio::test]
async fn a_tool_is_found_by_the_name_that_its_server_gives_it() {
    let calls = Calls::new().await;
    let by_name = |name: &str| CallRequest {
        asked: Asked::Original { server: calls.server().clone(), name: name.to_owned() },
        ..calls.request("echo", r#"{"n":1}"#)
    };
    let ctx = &calls.gateway.world.ctx;
    let called = broker::start(ctx, &calls.agent, by_name("echo")).finished().await.unwrap();
    called.outcome.unwrap();
    let [record] = &calls.gateway.invocations().await[..] else { panic!("one row") };
    assert_eq!(record.request, calls.request_digest("echo", r#"{"n":1}"#));
    let called =
        broker::start(ctx, &calls.agent, by_name("mcp__demo__echo")).finished().await.unwrap();
    assert_eq!(error(called).code, Code::NotFound);
}
