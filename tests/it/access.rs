//! `explain` says of a call what the broker answers, has no effect, and tells nobody what is not theirs.
#![expect(clippy::unwrap_used, reason = "a test, and what helps it, fails by panicking")]

use std::{process::Command, time::Duration};

use app::{
    access::{self, Question, Standing},
    broker::{self, Asking, Gate, Outcome},
};
use domain::{Code, Role, Via, ids::TokenId};
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use tests::world::rows;

use crate::connections::{Scene, Someone, request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-under-test");
const TOOL: &str = "mcp__tickets__whoami";

/// One thing that is other than it should be, in SQL: `$SERVER`, `$USER`, `$SESSION` and `$TOKEN` are Ann's.
const FAULTS: &[(&str, &str)] = &[
    ("disabled", "UPDATE users SET status = 'disabled' WHERE user_id = '$USER'"),
    ("archived", "UPDATE sessions SET archived_at = now() WHERE session_id = '$SESSION'"),
    ("unselected", "UPDATE sessions SET enabled_source_ids = '{}' WHERE session_id = '$SESSION'"),
    ("server off", "UPDATE mcp_servers SET enabled = false WHERE server_id = '$SERVER'"),
    ("tool off", "UPDATE mcp_tools SET enabled = false WHERE original_name = 'whoami'"),
    ("removed", "UPDATE mcp_tools SET removed_at = now() WHERE original_name = 'whoami'"),
    ("quarantined", "UPDATE mcp_tools SET pin = 'quarantined', pending_definition = '{}',
        pending_hash = sha256('x') WHERE original_name = 'whoami'"),
    ("denied", "UPDATE mcp_tools SET policy = 'deny' WHERE original_name = 'whoami'"),
    ("asks", "UPDATE sessions SET approval_mode = 'ask_for_dangerous' WHERE session_id = '$SESSION'"),
    ("asks, but allowed", "UPDATE sessions SET approval_mode = 'ask_for_dangerous' WHERE session_id = '$SESSION';
        UPDATE mcp_tools SET policy = 'allow' WHERE original_name = 'whoami'"),
    ("disconnected", "UPDATE mcp_connections SET state = 'disconnected', sealed = NULL, key_id = NULL WHERE user_id = '$USER'"),
    ("to be reconnected", "UPDATE mcp_connections SET state = 'reconnect_required', reason = 'refused', sealed = NULL,
        key_id = NULL WHERE user_id = '$USER'"),
    ("unreadable", "UPDATE mcp_connections SET sealed = 'spoiled' WHERE user_id = '$USER' AND sealed IS NOT NULL"),
    ("shared value unreadable", "INSERT INTO mcp_server_secrets (tenant_id, server_id, kind, name, sealed, key_id)
        SELECT tenant_id, server_id, 'header', 'X-Odd', 'spoiled', 'k' FROM mcp_servers WHERE server_id = '$SERVER'"),
    ("limits unreadable", "UPDATE mcp_servers SET governance = '{\"odd\": 1}' WHERE server_id = '$SERVER'"),
    ("token of other sources", "UPDATE api_tokens SET sources = '{custom-000000000001}' WHERE token_id = '$TOKEN'"),
    ("token of other tools", "UPDATE api_tokens SET tools = '{mcp__a__b}' WHERE token_id = '$TOKEN'"),
    ("token of other sessions", "UPDATE api_tokens SET session_ids = ARRAY[gen_random_uuid()] WHERE token_id = '$TOKEN'"),
    ("token revoked", "UPDATE api_tokens SET revoked_at = now() WHERE token_id = '$TOKEN'"),
];

/// A snapshot of what the faults change, and its way back.
const KEEP: &[&str] =
    &["users", "sessions", "mcp_servers", "mcp_tools", "mcp_connections", "api_tokens"];

struct Stage {
    scene: Scene,
    owner: PgPool,
    ann: Someone,
    token: TokenId,
}

impl Stage {
    async fn new() -> Self {
        let scene = Scene::new().await;
        scene.connect(&scene.root, "root").await;
        scene.discover().await;
        let ann = scene.member("ann@acme.test").await;
        scene.connect(&ann, "alice").await;
        let owner = scene.world.owner().await;
        let agent = app::identity::authenticate(&scene.world.ctx, &ann.agent, Via::Gateway);
        let token = agent.await.unwrap().token().unwrap();
        for table in KEEP {
            run(&owner, &format!("CREATE TABLE kept_{table} AS TABLE {table}")).await;
        }
        Self { scene, owner, ann, token }
    }

    async fn break_by(&self, fault: &str) {
        let statement = fault
            .replace("$SERVER", self.scene.server.as_str())
            .replace("$USER", &self.ann.person.id.to_string())
            .replace("$SESSION", &self.ann.session.unwrap().to_string())
            .replace("$TOKEN", &self.token.0.to_string());
        run(&self.owner, &statement).await;
    }

    async fn mend(&self) {
        let undo = "UPDATE users u SET status = k.status FROM kept_users k WHERE k.user_id = u.user_id;
            UPDATE sessions s SET archived_at = k.archived_at, enabled_source_ids = k.enabled_source_ids,
                approval_mode = k.approval_mode FROM kept_sessions k WHERE k.session_id = s.session_id;
            UPDATE mcp_servers s SET enabled = k.enabled, governance = k.governance FROM kept_mcp_servers k
                WHERE k.server_id = s.server_id AND k.tenant_id = s.tenant_id;
            UPDATE mcp_tools t SET enabled = k.enabled, removed_at = k.removed_at, pin = k.pin, policy = k.policy,
                pending_definition = k.pending_definition, pending_hash = k.pending_hash
                FROM kept_mcp_tools k WHERE k.server_id = t.server_id AND k.tool_id = t.tool_id;
            UPDATE mcp_connections c SET state = k.state, reason = k.reason, sealed = k.sealed, key_id = k.key_id
                FROM kept_mcp_connections k WHERE k.server_id = c.server_id AND k.user_id = c.user_id;
            UPDATE api_tokens t SET sources = k.sources, tools = k.tools, session_ids = k.session_ids,
                revoked_at = k.revoked_at FROM kept_api_tokens k WHERE k.token_id = t.token_id;
            DELETE FROM mcp_server_secrets WHERE name = 'X-Odd'";
        run(&self.owner, undo).await;
    }

    /// What the broker answers to Ann's agent: a code, that it asks, or that it was done.
    async fn called(&self) -> Result<Standing, Code> {
        let ctx = &self.scene.world.ctx;
        let agent = app::identity::authenticate(ctx, &self.ann.agent, Via::Gateway).await;
        let agent = agent.map_err(|error| error.code)?;
        let mut request = request(&self.scene.world, &self.ann, "whoami", "{}");
        request.asking = Asking::Return { hold: Duration::ZERO, resume: None };
        let called = broker::start(ctx, &agent, request).finished().await;
        match called.map_err(|error| error.code)?.outcome {
            Ok(Outcome::Done(_)) => Ok(Standing::Passed),
            Ok(Outcome::Waiting(_)) => Ok(Standing::Asks),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.code),
        }
    }

    async fn explained(&self) -> access::Explanation {
        let ctx = &self.scene.world.ctx;
        let viewer = self.scene.root.caller(&self.scene.world).await;
        let question = Question {
            user: Some("ann@acme.test".to_owned()),
            tool: TOOL.to_owned(),
            session: self.ann.session,
            token: Some(self.token),
        };
        access::explain(ctx, &viewer, &question).await.unwrap()
    }
}

async fn run(owner: &PgPool, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(owner).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_to_refuse_first_is_what_the_broker_answers() {
    let stage = Stage::new().await;
    let mut stops = Vec::new();
    // Each alone, and each with each other one: the order shows.
    for (at, (one, first)) in FAULTS.iter().enumerate() {
        for (other, second) in &FAULTS[at..] {
            stage.break_by(first).await;
            if one != other {
                stage.break_by(second).await;
            }
            let told = stage.explained().await;
            let answered = stage.called().await;
            let said = match told.outcome {
                Standing::Refused => Err(told.code.unwrap()),
                standing => Ok(standing),
            };
            assert_eq!(said, answered, "{one} + {other}: {told:#?}");
            stops.extend(told.stopped_by);
            stage.mend().await;
        }
    }
    assert_eq!(stage.called().await, Ok(Standing::Passed));
    for gate in Gate::ALL {
        // A disabled person has no token that can be used: their account is told apart elsewhere.
        let never = matches!(gate, Gate::Account | Gate::Input | Gate::Limits);
        assert_eq!(stops.contains(gate), !never, "{gate:?}");
    }
}

#[tokio::test]
async fn it_changes_nothing_and_sends_nothing() {
    let stage = Stage::new().await;
    let (world, owner) = (&stage.scene.world, &stage.owner);
    let before = (rows::digest(owner, None).await, stage.scene.peer.served().len());
    stage.explained().await;
    for session in ["", "&session="] {
        let id = stage.ann.session.unwrap().to_string();
        let id = if session.is_empty() { "" } else { &id };
        let path = format!("/api/access/explain?tool={TOOL}{session}{id}");
        let (status, told) = world.get(&stage.ann.token, &path).await;
        assert_eq!(status, StatusCode::OK, "{told}");
    }
    let after = (rows::digest(owner, None).await, stage.scene.peer.served().len());
    assert_eq!(after, before);
}

#[tokio::test]
async fn each_gate_says_what_decides_it_and_who_may_change_it() {
    let stage = Stage::new().await;
    let world = &stage.scene.world;
    // A new session uses what the tenant does: nothing yet.
    let path = format!("/api/access/explain?tool={TOOL}");
    let (status, told) = world.get(&stage.ann.token, &path).await;
    assert_eq!(status, StatusCode::OK, "{told}");
    assert_eq!((&told["outcome"], &told["stoppedBy"]), (&json!("refused"), &json!("selection")));
    assert_eq!(told["code"], "NOT_FOUND");
    assert_eq!(told["userId"], stage.ann.person.id.to_string());
    let checks = told["checks"].as_array().unwrap();
    let gates: Vec<&str> = checks.iter().map(|one| one["gate"].as_str().unwrap()).collect();
    let all: Vec<&str> = Gate::ALL.iter().map(|gate| gate.as_str()).collect();
    assert_eq!(gates, all);
    for check in checks {
        for word in ["result", "reason", "setting", "changedBy"] {
            assert!(!check[word].as_str().unwrap().is_empty(), "{check}");
        }
        assert_eq!(check["result"] == "refused", check["code"].is_string(), "{check}");
        assert!(check["result"] != "refused" || check["mend"].is_string(), "{check}");
    }
    stage.break_by("UPDATE users SET status = 'disabled' WHERE user_id = '$USER'").await;
    let viewer = stage.scene.root.caller(world).await;
    let user = Some(stage.ann.person.id.to_string());
    let question =
        Question { user, tool: TOOL.to_owned(), session: stage.ann.session, token: None };
    let told = access::explain(&world.ctx, &viewer, &question).await.unwrap();
    assert_eq!((told.stopped_by, told.code), (Some(Gate::Account), Some(Code::Unauthenticated)));
}

#[tokio::test]
async fn about_others_only_admins_may_ask_and_nobody_learns_what_they_do_not_see() {
    let stage = Stage::new().await;
    let world = &stage.scene.world;
    let bob = stage.scene.member("bob@acme.test").await;
    let ask = async |by: &Someone, rest: &str| {
        let path = format!("/api/access/explain?tool={TOOL}{rest}");
        let (status, told) = world.get(&by.token, &path).await;
        (status.as_u16(), told)
    };
    let ann = stage.ann.person.id;
    for of in [ann.to_string(), "ann@acme.test".to_owned(), "nobody@acme.test".to_owned()] {
        assert_eq!(ask(&bob, &format!("&user={of}")).await.0, 403, "{of}");
    }
    assert_eq!(ask(&bob, "&user=bob@acme.test").await.0, 200);
    let admin = Someone::new(world, &stage.scene.tenant, "eve@acme.test", Role::Admin).await;
    assert_eq!(ask(&admin, "&user=ann@acme.test").await.0, 200);
    assert_eq!(ask(&admin, "&user=nobody@acme.test").await.0, 404);
    let foreign = world.tenant("globex").await;
    let gus = Someone::new(world, &foreign, "gus@globex.test", Role::Superadmin).await;
    assert_eq!(ask(&gus, &format!("&user={ann}")).await.0, 404);
    let session = stage.ann.session.unwrap();
    assert_eq!(ask(&bob, &format!("&session={session}")).await.0, 404);
    assert_eq!(ask(&gus, &format!("&session={session}")).await.0, 404);
    assert_eq!(ask(&bob, &format!("&token={}", stage.token.0)).await.0, 404);
    assert_eq!(ask(&admin, &format!("&user={ann}&session={session}")).await.0, 200);
    assert_eq!(ask(&bob, "&session=odd").await.0, 422);

    // A server that is off, was never used and is not selected: an unknown tool, but for admins.
    stage.break_by("UPDATE mcp_servers SET enabled = false").await;
    let (_, told) = ask(&bob, "").await;
    assert_eq!((&told["stoppedBy"], &told["serverId"]), (&json!("tool"), &Value::Null), "{told}");
    let (_, told) = ask(&admin, &format!("&user={}", bob.person.id)).await;
    assert_eq!(told["stoppedBy"], "selection", "{told}");
    assert_eq!(told["serverId"], stage.scene.server.as_str());
}

#[tokio::test]
async fn why_prints_it_readable_and_as_json() {
    let stage = Stage::new().await;
    stage.break_by("UPDATE mcp_tools SET enabled = false WHERE original_name = 'whoami'").await;
    let why = async |more: Vec<String>| {
        let mut command = Command::new(PROGRAM);
        command.args(["why", TOOL]).args(more).env_clear();
        command.env("HOME", std::env::temp_dir());
        command.env("BAILIWICK_URL", stage.scene.world.url.as_str());
        command.env("BAILIWICK_APPROVE_TOKEN", &stage.scene.root.token);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    let session = stage.ann.session.unwrap().to_string();
    let of_ann = ["--user", "ann@acme.test", "--session", &session].map(str::to_owned).to_vec();
    let output = why(of_ann.clone()).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("refused      tool_switch"), "{text}");
    assert!(text.contains("decided by `enabled` of the tool; changed by a superadmin"), "{text}");
    assert!(text.ends_with("a call ends in SOURCE_DISABLED at: tool_switch\n"), "{text}");
    let output = why([of_ann.clone(), vec!["--json".to_owned()]].concat()).await;
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["stoppedBy"], "tool_switch", "{told}");
    stage.mend().await;
    let output = why(of_ann).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.ends_with("a call would be sent\n"), "{text}");
}
