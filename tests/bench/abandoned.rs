//! Memory while agents come and never say goodbye: each begins a session of the older era, calls once,
//! and drops its socket.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, ensure};
use serde_json::json;

use crate::{
    callers::{Access, Numbers, arguments},
    gateway::Gateway,
    report::Report,
    wire::Connection,
};

const AT_ONCE: usize = 16;
/// Memory is looked at this often besides the beginning.
const LOOKS: usize = 4;

pub(crate) async fn measure(
    gateway: &Gateway,
    sessions: usize,
    numbers: &Arc<Numbers>,
    report: &mut Report,
) -> anyhow::Result<()> {
    println!("\nresident memory of `up` over abandoned sessions");
    report.memory(0, gateway.resident_kb()?);
    for look in 1..=LOOKS {
        let part = sessions * look / LOOKS - sessions * (look - 1) / LOOKS;
        abandon(&gateway.access, part, numbers, report).await;
        report.memory(sessions * look / LOOKS, gateway.resident_kb()?);
    }
    Ok(())
}

async fn abandon(access: &Access, sessions: usize, numbers: &Arc<Numbers>, report: &mut Report) {
    let left = Arc::new(AtomicUsize::new(sessions));
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (access, left, numbers) = (access.clone(), Arc::clone(&left), Arc::clone(numbers));
            tokio::spawn(async move {
                let mut errors = Vec::new();
                let take = |left: usize| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    if let Err(error) = one(&access, numbers.next()).await {
                        errors.push(error);
                    }
                }
                errors
            })
        })
        .collect();
    for task in tasks {
        match task.await {
            Ok(errors) => errors.iter().for_each(|error| report.failed(error)),
            Err(panic) => report.failed(&panic.into()),
        }
    }
}

async fn one(access: &Access, number: u64) -> anyhow::Result<()> {
    let mut connection = Connection::open(&access.url).await?;
    let token = access.token.as_deref();
    let initialize = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" },
        },
    });
    let begun = connection.post(token, &[], &initialize).await?;
    ensure!(begun.status == 200, "initialize: {} {}", begun.status, begun.body);
    let session = begun.mcp_session.context("initialize began no session")?;
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": access.tool, "arguments": arguments(number) },
    });
    let headers = [("mcp-protocol-version", "2025-11-25"), ("mcp-session-id", &session)];
    let called = connection.post(token, &headers, &call).await?;
    let same = called.body.contains(&format!("\"number\":{number}}}"));
    ensure!(called.status == 200 && same, "call: {} {}", called.status, called.body);
    Ok(())
}
