//! Programs that go wrong, and that nobody else is hurt by it.

use std::time::Duration;

use domain::Code;
use outbound::mcp::Ran;
use tests::{
    children::{alive, said},
    upstream::{call, tool_call},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::peer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gigabyte_on_stderr_hurts_nobody() {
    let (clients, loud, _) = peer(&[]);
    let (others, quiet, _) = peer(&[]);
    call(&clients, &loud, tool_call("echo", "{}")).await.unwrap();
    call(&others, &quiet, tool_call("echo", "{}")).await.unwrap();
    let before = resident();
    let shout = clients.call(
        &loud,
        tool_call("shout", r#"{"count":1000000000}"#),
        Instant::now() + Duration::from_mins(1),
        CancellationToken::new(),
    );
    let meanwhile = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..50 {
            for (clients, target) in [(&clients, &loud), (&others, &quiet)] {
                let began = Instant::now();
                call(clients, target, tool_call("echo", "{}")).await.unwrap();
                slowest = slowest.max(began.elapsed());
            }
        }
        slowest
    };
    let (shouted, slowest) = tokio::join!(shout, meanwhile);
    assert_eq!(said(&shouted.unwrap()), "shouted");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}

#[tokio::test]
async fn a_program_that_never_answers_times_out_alone() {
    let (clients, silent, _) = peer(&["silent"]);
    let (others, quiet, _) = peer(&[]);
    let deadline = Instant::now() + Duration::from_millis(500);
    let never = clients.call(&silent, tool_call("x", "{}"), deadline, CancellationToken::new());
    let (failure, answer) = tokio::join!(never, call(&others, &quiet, tool_call("echo", "{}")));
    let failure = failure.unwrap_err();
    assert_eq!((failure.error.code, failure.ran), (Code::Timeout, Ran::No));
    answer.unwrap();
}

/// As `npx` and `uvx` are when they download what they run.
#[tokio::test]
async fn a_program_that_takes_long_to_start_is_waited_for() {
    for modes in [["late=22", "plain"], ["late=7", "modern"]] {
        let (clients, target, marker) = peer(&modes);
        let deadline = Instant::now() + target.patience(Duration::from_secs(5));
        let found = clients.discover(&target, false, deadline).await.unwrap();
        assert_eq!(found.tools.len(), 1, "{modes:?}");
        assert_eq!(alive(&marker).len(), 1, "it was started once");
    }
}

#[tokio::test]
async fn a_call_that_is_never_answered_leaves_its_sibling_alone() {
    let (clients, target, marker) = peer(&[]);
    let deadline = Instant::now() + Duration::from_millis(300);
    let never = clients.call(&target, tool_call("never", "{}"), deadline, CancellationToken::new());
    let sibling = call(&clients, &target, tool_call("sleep", r#"{"count":600}"#));
    let (failure, answer) = tokio::join!(never, sibling);
    assert_eq!(failure.unwrap_err().error.code, Code::Timeout);
    assert_eq!(said(&answer.unwrap()), "slept");
    assert_eq!(alive(&marker).len(), 1);
}

#[tokio::test]
async fn a_program_that_dies_in_a_call_ends_what_it_was_doing_and_is_started_again() {
    let (clients, target, _) = peer(&[]);
    let (others, quiet, _) = peer(&[]);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
    let sibling = call(&clients, &target, tool_call("never", "{}"));
    let elsewhere = call(&others, &quiet, tool_call("sleep", r#"{"count":300}"#));
    let dying = call(&clients, &target, tool_call("die", "{}"));
    let (sibling, elsewhere, dying) = tokio::join!(sibling, elsewhere, dying);
    elsewhere.unwrap();
    for failure in [sibling.unwrap_err(), dying.unwrap_err()] {
        assert_eq!((failure.error.code, failure.ran), (Code::UpstreamUnavailable, Ran::Unknown));
        assert_eq!(failure.error.to_string(), "the server's program ended (exit code 3)");
        assert_eq!(failure.error.untrusted.as_deref(), Some("Error: it all went wrong"));
    }
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_begin_says_why() {
    let (clients, target, marker) = peer(&["picky", "modern"]);
    let failure = call(&clients, &target, tool_call("echo", "{}")).await.unwrap_err();
    assert_eq!(failure.ran, Ran::No);
    assert!(alive(&marker).len() <= 1);
}

#[tokio::test]
async fn what_a_program_does_not_read_was_not_run() {
    let (clients, target, _) = peer(&[]);
    call(&clients, &target, tool_call("deafen", "{}")).await.unwrap();
    let arguments = format!(r#"{{"a":"{}"}}"#, "x".repeat(500_000));
    let deadline = Instant::now() + Duration::from_millis(500);
    let large =
        clients.call(&target, tool_call("echo", &arguments), deadline, CancellationToken::new());
    let later = async {
        tokio::task::yield_now().await;
        clients.call(&target, tool_call("echo", "{}"), deadline, CancellationToken::new()).await
    };
    let (large, later) = tokio::join!(large, later);
    let (large, later) = (large.unwrap_err(), later.unwrap_err());
    assert_eq!((large.error.code, large.ran), (Code::Timeout, Ran::Unknown));
    assert_eq!((later.error.code, later.ran), (Code::Timeout, Ran::No));
}

#[tokio::test]
async fn an_answer_over_its_limit_fails_its_own_call_and_no_other() {
    let (clients, target, marker) = peer(&[]);
    for tool in ["long", "long_id_last"] {
        for count in [2_000_000, 30_000_000] {
            let mut long = tool_call(tool, &format!(r#"{{"count":{count}}}"#));
            long.response_limit = 1_000;
            let sibling = call(&clients, &target, tool_call("sleep", r#"{"count":300}"#));
            let (long, sibling) = tokio::join!(call(&clients, &target, long), sibling);
            let failure = long.unwrap_err();
            assert_eq!(
                (failure.error.code, failure.ran),
                (Code::ResponseTooLarge, Ran::Unknown),
                "{tool} {count}: {}",
                failure.error
            );
            assert_eq!(said(&sibling.unwrap()), "slept");
        }
    }
    let answer = call(&clients, &target, tool_call("long_garbage", r#"{"count":30000000}"#));
    assert_eq!(said(&answer.await.unwrap()), "said");
    assert_eq!(alive(&marker).len(), 1, "one program all the time");
}

#[tokio::test]
async fn a_message_over_every_limit_that_names_nobody_ends_the_program() {
    let (clients, target, _) = peer(&[]);
    let riddle = call(&clients, &target, tool_call("long_riddle", r#"{"count":30000000}"#));
    assert_eq!(riddle.await.unwrap_err().error.code, Code::ResponseTooLarge);
    call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
}

/// Bytes of memory that this process really has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}
