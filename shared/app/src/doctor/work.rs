//! Whether the work is done: nodes, ticks, jobs, and what dead nodes left.

use std::{collections::BTreeSet, time::Duration};

use domain::limits;
use tokio::time;

use super::{Examined, Finding, Patient, ask, counted, named};

const NODES: &str = "nodes";
const TICKS: &str = "ticks";
const JOBS: &str = "jobs";
const CALLS: &str = "calls";
const QUESTIONS: &str = "questions";

const START_WORKER: &str = "start `bailiwick worker` (or `bailiwick up`)";

/// Who lives.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) count: usize,
    /// One that does ticks and jobs.
    worker: bool,
}

pub(super) async fn nodes(patient: &Patient<'_>, examined: &mut Examined) -> Nodes {
    let seen = limits::NODE_SEEN_SECONDS.seconds();
    let question = store::doctor::nodes(patient.db, seen, limits::NODE_LEASE_MS.millis());
    let Some(nodes) = ask(NODES, &mut examined.findings, question).await else {
        return Nodes::default();
    };
    let is = |kinds: &[&str]| nodes.iter().any(|node| kinds.contains(&node.kind.as_str()));
    examined.serving = is(&["up", "api"]);
    let worker = is(&["up", "worker"]);
    let versions: BTreeSet<&str> = nodes.iter().map(|node| version(&node.version)).collect();
    let alive: Vec<String> =
        nodes.iter().map(|node| format!("{} {}", node.kind, version(&node.version))).collect();
    let ours = env!("CARGO_PKG_VERSION");

    let found = format!("alive: {}", named(&alive));
    examined.findings.push(if nodes.is_empty() {
        let seconds = seen.as_secs();
        let found = format!("none was alive in the last {seconds} s");
        Finding::warn(
            NODES,
            found,
            "start `bailiwick up`, or `bailiwick api` and `bailiwick worker`",
        )
    } else if versions.len() > 1 {
        Finding::warn(NODES, found, "bring all of them to one version: restart the older ones")
    } else if !versions.contains(ours) {
        let found = format!("{found}; this program is {ours}");
        Finding::warn(NODES, found, "restart them with this program, or use theirs")
    } else if !examined.serving {
        Finding::warn(NODES, format!("{found}; none serves calls"), "start `bailiwick api`")
    } else if !worker {
        Finding::fail(NODES, format!("{found}; none works"), START_WORKER)
    } else {
        Finding::ok(NODES, found)
    });
    Nodes { count: nodes.len(), worker }
}

fn version(version: &str) -> &str {
    if version.is_empty() { "of an older version" } else { version }
}

pub(super) async fn ticks(patient: &Patient<'_>, nodes: &Nodes, findings: &mut Vec<Finding>) {
    let late = limits::TICK_LATE_SECONDS.seconds();
    let failing = Duration::from_hours(limits::TICK_FAILING_HOURS.default);
    let Some(ticks) = ask(TICKS, findings, store::doctor::ticks(patient.db, late, failing)).await
    else {
        return;
    };
    let those = |is: fn(&store::doctor::Tick) -> bool| -> Vec<&str> {
        ticks.iter().filter(|tick| is(tick)).map(|tick| tick.name.as_str()).collect()
    };
    let late = those(|tick| tick.late);
    let failing = those(|tick| tick.failing && !tick.late);
    if !late.is_empty() && nodes.worker {
        let mend = "look into the worker's log for the tick; restart the worker";
        findings.push(Finding::fail(TICKS, format!("late: {}", named(&late)), mend));
    } else if !late.is_empty() {
        findings.push(Finding::warn(TICKS, format!("late: {}", named(&late)), START_WORKER));
    }
    if !failing.is_empty() {
        let found = format!("never succeed: {}", named(&failing));
        let mend = "look into the worker's log for `the tick failed`: its error says why";
        findings.push(Finding::fail(TICKS, found, mend));
    }
    if late.is_empty() && failing.is_empty() {
        findings.push(Finding::ok(TICKS, format!("{} on time", counted(ticks.len(), "tick"))));
    }
}

pub(super) async fn jobs(patient: &Patient<'_>, nodes: &Nodes, findings: &mut Vec<Finding>) {
    let question = store::doctor::jobs(patient.db, limits::JOB_STUCK_SECONDS.seconds());
    let Some(queues) = ask(JOBS, findings, question).await else { return };
    for queue in &queues {
        let name = &queue.queue;
        if queue.waiting > 0 {
            let found = format!("due and not taken: {} of {name}", counted(queue.waiting, "job"));
            findings.push(if nodes.worker {
                Finding::fail(JOBS, found, "restart the worker; its log says what ends it")
            } else {
                Finding::warn(JOBS, found, START_WORKER)
            });
        }
        if queue.held > 0 {
            let found = format!("taken and not done: {} of {name}", counted(queue.held, "job"));
            let mend = "restart the worker: its queue gives such jobs to others";
            findings.push(Finding::warn(JOBS, found, mend));
        }
        if queue.given_up > 0 {
            let found = format!("given up: {} of {name}", counted(queue.given_up, "job"));
            let mend = "look into the worker's log; refresh the servers that are in error";
            findings.push(Finding::warn(JOBS, found, mend));
        }
    }
    if queues.is_empty() {
        findings.push(Finding::ok(JOBS, "none is stuck"));
    }
}

/// Calls and questions whose owner died. The worker settles them within seconds, so what is still
/// there at a second look stays.
pub(super) async fn left_over(patient: &Patient<'_>, nodes: &Nodes, findings: &mut Vec<Finding>) {
    let (calls, questions) = count(patient, findings).await;
    let some = calls.is_some_and(|count| count > 0) || questions.is_some_and(|count| count > 0);
    let (calls, questions) = if some && nodes.worker {
        time::sleep(3 * limits::TICK_MS.millis()).await;
        count(patient, findings).await
    } else {
        (calls, questions)
    };
    let mend = if nodes.worker {
        "look into the worker's log for reap-calls and expire-questions"
    } else {
        START_WORKER
    };
    for (what, left, words) in [
        (CALLS, calls, "open though their node is dead"),
        (QUESTIONS, questions, "pending though their time is over, or their owner gone"),
    ] {
        match left {
            Some(0) => findings.push(Finding::ok(what, "none is without a living owner")),
            Some(left) => {
                let found = format!("{left} {words}");
                findings.push(if nodes.worker {
                    Finding::fail(what, found, mend)
                } else {
                    Finding::warn(what, found, mend)
                });
            }
            None => {}
        }
    }
}

async fn count(patient: &Patient<'_>, findings: &mut Vec<Finding>) -> (Option<i64>, Option<i64>) {
    let most = i32::try_from(limits::REAPER_BATCH.default).unwrap_or(i32::MAX);
    let (db, now) = (patient.db, patient.clock.now());
    let calls = ask(CALLS, findings, store::doctor::dead_calls(db, most)).await;
    let questions = ask(QUESTIONS, findings, store::doctor::dead_questions(db, now, most)).await;
    (calls, questions)
}
