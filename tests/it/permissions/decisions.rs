//! What each decision does, and what it leaves alone.

use app::permissions::Resolution;
use domain::permission::AuthorizationSource;
use serde_json::{Value, json};

use super::{Desk, allowed, id_of, texts};

#[tokio::test]
async fn a_question_says_what_is_asked_and_what_a_grant_would_cover() {
    let desk = Desk::new().await;
    let asked = desk.question("forecast", r#"{"city":"Aarhus","limit":9007199254740993}"#);
    let id = desk.ask_about(&asked).await;
    let shown = desk.shown(id).await;
    assert_eq!(shown["state"], "pending");
    assert_eq!(shown["sessionId"], desk.session.to_string());
    assert_eq!(shown["action"], "tool_call");
    assert_eq!(shown["resource"], "custom-0123456789ab/forecast");
    assert_eq!(shown["resourceClass"], "custom-0123456789ab/forecast");
    assert_eq!(
        shown["words"],
        "Call forecast of Weather. Allowing matching calls covers every call of this tool in this \
         session, as it is defined now."
    );
    assert_eq!(shown["example"], "forecast of Weather with any other input");
    assert_eq!(shown["ownerKind"], "gateway");
    assert_eq!(shown["executionId"], asked.execution.to_string());
    assert_eq!(shown["toolCallId"], "1");
    assert_eq!(shown["input"], json!({ "city": "Aarhus", "limit": 9_007_199_254_740_993_u64 }));
    assert_eq!(shown["inputTruncated"], false);
    assert_eq!(shown["definitionHash"], asked.definition_hash.unwrap().to_string());
    assert!(shown["expiresAt"].is_string() && shown["resolvedAt"].is_null());
}

#[tokio::test]
async fn a_large_input_is_shown_in_part() {
    let desk = Desk::new().await;
    let input = json!({ "text": "ø".repeat(10_000) }).to_string();
    let shown = desk.shown(desk.ask_about(&desk.question("forecast", &input)).await).await;
    let beginning = shown["input"].as_str().unwrap();
    assert_eq!(shown["inputTruncated"], true);
    assert!(beginning.len() <= 4_096 && input.starts_with(beginning));
}

#[tokio::test]
async fn allow_once_answers_this_call_and_nothing_else() {
    let desk = Desk::new().await;
    let asked = desk.question("forecast", r#"{"city":"Aarhus"}"#);
    let (id, other) = (desk.ask_about(&asked).await, desk.ask("forecast").await);
    let waiter = desk.waiter(id);
    let before = desk.epoch().await;

    let (status, answer) = desk.decide(id, "allow_once").await;
    assert_eq!(status, 200, "{answer}");
    let authorization = &answer["authorization"];
    assert_eq!(authorization["outcome"], "allowed");
    assert_eq!(authorization["source"], "user_once");
    assert_eq!(authorization["approvalMode"], "ask_for_dangerous");
    assert_eq!(authorization["userId"], desk.ann.id.to_string());
    assert_eq!(authorization["resource"], "custom-0123456789ab/forecast");
    // Bound to the exact call.
    assert_eq!(authorization["permissionRequestId"], id.to_string());
    assert_eq!(authorization["executionId"], asked.execution.to_string());
    assert_eq!(authorization["toolCallId"], "1");
    assert_eq!(authorization["definitionHash"], asked.definition_hash.unwrap().to_string());
    assert_eq!(authorization["inputDigest"], asked.input_digest.to_string());
    // One epoch, begun by the decision.
    assert_ne!(before["id"], answer["permissionEpoch"]["id"]);
    assert_eq!(answer["permissionEpoch"]["reason"], "decision");
    assert_eq!(authorization["permissionEpochId"], answer["permissionEpoch"]["id"]);
    assert_eq!(desk.epoch().await, answer["permissionEpoch"]);
    assert_eq!(answer["request"]["state"], "allowed");
    assert!(answer["request"]["resolvedAt"].is_string());
    assert_eq!(answer["authorizations"], json!([authorization]));
    assert_eq!(answer["resolvedRequests"], json!([answer["request"]]));
    assert!(answer["grant"].is_null());

    let Resolution::Allowed { authorization: used, source } = waiter.await.unwrap() else {
        panic!("not allowed");
    };
    assert_eq!(authorization["id"], used.to_string());
    assert_eq!(source, AuthorizationSource::UserOnce);
    assert_eq!(desk.state(other).await, "pending");
    assert_eq!(desk.authorizations().await, vec![authorization.clone()]);
}

#[tokio::test]
async fn deny_answers_this_call_and_nothing_else() {
    let desk = Desk::new().await;
    let (id, other) = (desk.ask("forecast").await, desk.ask("forecast").await);
    let waiter = desk.waiter(id);
    let (status, answer) = desk.decide(id, "deny").await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["authorization"]["outcome"], "denied");
    assert_eq!(answer["authorization"]["source"], "user_deny");
    assert_eq!(answer["request"]["state"], "denied");
    assert!(matches!(waiter.await.unwrap(), Resolution::Denied { .. }));
    assert_eq!(desk.state(other).await, "pending");
}

#[tokio::test]
async fn allow_matching_answers_all_that_match_each_with_an_authorization_of_its_own() {
    let desk = Desk::new().await;
    let (first, second) = (desk.ask("forecast").await, desk.ask("forecast").await);
    let other = desk.ask("alarm").await;
    let mut changed = desk.question("forecast", "{}");
    changed.definition_hash = Some(domain::json::Sha256Digest::of(b"another definition"));
    let changed = desk.ask_about(&changed).await;
    let waiters = [desk.waiter(first), desk.waiter(second)];

    let (status, answer) = desk.decide(second, "allow_matching").await;
    assert_eq!(status, 200, "{answer}");
    let records = answer["authorizations"].as_array().unwrap();
    assert_eq!(texts(records, "source"), ["user_grant", "existing_grant"]);
    assert_eq!(texts(records, "permissionRequestId"), [second.to_string(), first.to_string()]);
    assert_eq!(records[0], answer["authorization"]);
    let (grant, epoch) = (&answer["grant"], &answer["permissionEpoch"]);
    for record in records {
        assert_eq!(record["permissionGrantId"], grant["id"]);
        assert_eq!(record["permissionEpochId"], epoch["id"]);
    }
    assert_eq!(grant["state"], "active");
    assert_eq!(grant["resourceClass"], "custom-0123456789ab/forecast");
    let resolved = answer["resolvedRequests"].as_array().unwrap();
    assert_eq!(resolved.iter().map(id_of).collect::<Vec<_>>(), [second, first]);
    for waiter in waiters {
        assert!(allowed(waiter.await.unwrap()));
    }
    assert_eq!(desk.state(other).await, "pending");
    assert_eq!(desk.state(changed).await, "pending", "a grant is for one definition");

    let path = format!("/api/permission-grants?sessionId={}", desk.session);
    assert_eq!(desk.read(&path).await["items"], json!([grant]));
}

#[tokio::test]
async fn a_revoked_grant_covers_nothing_any_more_and_is_revoked_once() {
    let desk = Desk::new().await;
    let (_, answer) = desk.decide(desk.ask("forecast").await, "allow_matching").await;
    let path = format!("/api/permission-grants/{}", answer["grant"]["id"].as_str().unwrap());
    let (status, revoked) = desk.world.delete(&desk.token, &path).await;
    assert_eq!(status, 200, "{revoked}");
    assert_eq!(revoked["state"], "revoked");
    let epoch = desk.epoch().await;
    assert_eq!(epoch["reason"], "grant_revoked");

    let (status, once_more) = desk.world.delete(&desk.token, &path).await;
    assert_eq!((status.as_u16(), &once_more), (200, &revoked));
    assert_eq!(desk.epoch().await, epoch, "nothing changed");
    assert_eq!(desk.state(desk.ask("forecast").await).await, "pending");
}

#[tokio::test]
async fn always_allow_answers_every_pending_question_without_a_grant() {
    let desk = Desk::new().await;
    let ids = [desk.ask("forecast").await, desk.ask("alarm").await];
    let waiters = ids.map(|id| desk.waiter(id));
    let (status, session) = desk.switch("always_allow").await;
    assert_eq!(status, 200, "{session}");
    assert_eq!(session["approvalMode"], "always_allow");
    for waiter in waiters {
        assert!(allowed(waiter.await.unwrap()));
    }
    let epoch = desk.epoch().await;
    assert_eq!(epoch["reason"], "mode_changed");
    let records = desk.authorizations().await;
    assert_eq!(texts(&records, "source"), ["always_allow"; 2]);
    assert_eq!(texts(&records, "approvalMode"), ["always_allow"; 2]);
    let one = epoch["id"].as_str().unwrap();
    assert_eq!(texts(&records, "permissionEpochId"), [one; 2], "one epoch for all");
    assert_eq!(desk.read("/api/permission-grants").await["items"], json!([]));

    let (status, same) = desk.switch("always_allow").await;
    assert_eq!((status.as_u16(), &same), (200, &session));
    assert_eq!(desk.epoch().await, epoch, "no switch, no epoch");
}

#[tokio::test]
async fn an_epoch_can_be_begun_by_hand() {
    let desk = Desk::new().await;
    let first = desk.epoch().await;
    assert_eq!(first["reason"], "session_created");
    let path = format!("/api/sessions/{}/permission-epoch", desk.session);
    let (status, second) = desk.world.post(&desk.token, &path, json!({})).await;
    assert_eq!(status, 201, "{second}");
    assert_eq!(second["reason"], "rotated");
    assert_ne!(first["id"], second["id"]);
    assert_eq!(desk.epoch().await, second);
}

#[tokio::test]
async fn so_many_questions_may_be_open_and_no_more() {
    let desk = Desk::new().await;
    for _ in 0..domain::limits::QUESTIONS_PENDING.default {
        desk.ask("forecast").await;
    }
    let tenant = desk.ann.tenant.id;
    let surplus = desk.question("forecast", "{}");
    let refused = app::permissions::ask(&desk.world.ctx, tenant, &surplus).await.unwrap_err();
    assert_eq!(refused.code, domain::Code::Limited);
    let (status, answer) = desk.switch("always_allow").await;
    assert_eq!(status, 200, "{answer}");
    desk.ask("forecast").await;
}

#[tokio::test]
async fn questions_are_listed_by_state_newest_first() {
    let desk = Desk::new().await;
    let ids = [desk.ask("one").await, desk.ask("two").await, desk.ask("three").await];
    desk.decide(ids[1], "deny").await;
    let list = async |query: &str| -> Vec<_> {
        let page = desk.read(&format!("/api/permission-requests?{query}")).await;
        page["items"].as_array().unwrap().iter().map(id_of).collect()
    };
    let mut newest_first = ids;
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(list(&format!("sessionId={}", desk.session)).await, newest_first);
    assert_eq!(list("state=denied").await, [ids[1]]);
    assert_eq!(list("state=pending").await.len(), 2);
    let (status, _) = desk.world.get(&desk.token, "/api/permission-requests?state=odd").await;
    assert_eq!(status, 422);
}

#[tokio::test]
async fn an_unknown_decision_is_refused_and_changes_nothing() {
    let desk = Desk::new().await;
    let id = desk.ask("forecast").await;
    let (status, problem): (_, Value) = desk.decide(id, "allow_always").await;
    assert_eq!(status, 422, "{problem}");
    assert_eq!(problem["details"]["errors"][0]["path"], "/decision");
    assert_eq!(desk.state(id).await, "pending");
}
