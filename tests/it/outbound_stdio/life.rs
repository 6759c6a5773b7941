//! No process is left behind, whatever ends first.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use domain::Code;
use futures::future::join_all;
use outbound::stdio::Sandbox;
use tests::{
    children::{alive, clients, for_everybody, marker, sandboxes, target, until_gone},
    upstream::{call, soon, tool_call},
};

use super::{HOST, PEER};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_connects_cancelled_at_random_moments_leave_no_process() {
    let (_dir, program) = for_everybody(PEER);
    for sandbox in sandboxes().await {
        let marker = marker();
        let clients = clients(&program, sandbox);
        let attempt = async |n: u32, patience: Duration| {
            let modes = if n.is_multiple_of(3) { "stubborn" } else { "plain" };
            let target = target(&program, &[&marker, modes]);
            let connect = clients.discover(&target, true, soon());
            tokio::time::timeout(patience, connect).await.is_ok()
        };
        // How long ten at a time take here tells what the middle of it is.
        let began = Instant::now();
        join_all((0..10).map(|n| attempt(n, Duration::from_secs(20)))).await;
        let whole = began.elapsed();
        let mut connected = 0;
        for wave in 0..10_u32 {
            let attempts = (0..10).map(|n| {
                let percent = (wave * 10 + n) * 37 % 101 + 10;
                attempt(n, whole * percent / 100)
            });
            connected += join_all(attempts).await.into_iter().filter(|done| *done).count();
        }
        eprintln!("{sandbox:?}: {connected} of 100 were not cancelled");
        until_gone(&marker).await;
    }
}

#[tokio::test]
async fn a_process_that_a_program_started_ends_with_it() {
    let (_dir, program) = for_everybody(PEER);
    for sandbox in sandboxes().await {
        let marker = marker();
        let clients = clients(&program, sandbox);
        let target = target(&program, &[&marker]);
        call(&clients, &target, tool_call("grandchild", "{}")).await.unwrap();
        if sandbox != Sandbox::None {
            // Out of its group: only a sandbox still has it.
            let apart = tool_call("grandchild", r#"{"apart":true}"#);
            call(&clients, &target, apart).await.unwrap();
        }
        let failure = call(&clients, &target, tool_call("die", "{}")).await.unwrap_err();
        assert_eq!(failure.error.code, Code::UpstreamUnavailable, "{sandbox:?}");
        until_gone(&marker).await;
    }
}

/// The gateway is killed with -9: nobody is left who could end anything.
#[tokio::test]
async fn a_program_dies_with_us_when_we_are_killed() {
    let (_dir, program) = for_everybody(PEER);
    for sandbox in sandboxes().await {
        let marker = marker();
        let name = format!("{sandbox:?}").to_lowercase();
        let name = name.split(' ').next().unwrap();
        let mut host = Command::new(HOST)
            .args([program.to_str().unwrap(), &marker, name])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{sandbox:?}");
        assert!(alive(&marker).len() >= 2, "{sandbox:?}");
        host.kill().unwrap();
        host.wait().unwrap();
        until_gone(&marker).await;
    }
}
