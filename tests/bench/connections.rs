//! What people's own connections cost: reading back by whose right a request leaves, and refreshing.

mod people;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::ensure;
use app::Clock;
use domain::ids::{ServerId, TenantId, TokenId, ToolId, UserId};
use futures::future::join_all;
use serde_json::json;
use sqlx::Row;
use store::{Db, connections::Asked};
use tests::authorization_server::{AuthorizationServer, ProtectedPeer};
use uuid::Uuid;

use crate::{
    callers::Access, echo, gateway::Gateway, machine, measured::Measured, plan::Plan,
    report::Report, wire::Connection,
};

const READERS: [usize; 2] = [1, 16];
/// A connection for each reader.
const POOL: u32 = 16;
/// People who call at the same time.
const AT_ONCE: usize = 32;
/// A token is refreshed that long before its end (`REFRESH_MARGIN_SECONDS`).
pub(crate) const WINDOW: Duration = Duration::from_mins(1);

/// Asks as the service does before each request, for the own connection that calls were measured with.
pub(crate) async fn read_back(
    gateway: &Gateway,
    plan: &Plan,
    report: &mut Report,
) -> anyhow::Result<()> {
    let row = sqlx::query(
        "SELECT c.tenant_id, c.server_id, c.user_id, t.token_id
         FROM mcp_connections c
         JOIN api_tokens t ON t.tenant_id = c.tenant_id AND t.user_id = c.user_id
         WHERE 'mcp:call' = ANY (t.scopes) AND c.kind = 'bearer' LIMIT 1",
    )
    .fetch_one(gateway.database.admin())
    .await?;
    let (tenant, server) = (TenantId(row.try_get(0)?), ServerId(row.try_get(1)?));
    let (user, token) = (UserId(row.try_get(2)?), TokenId(row.try_get::<Uuid, _>(3)?));
    let tool: ToolId = echo::TOOL.into();
    let db = Db::connect_lazy(&gateway.database.app_url(), POOL)?;
    println!("\nreading back by whose right a request leaves");
    for readers in READERS {
        let until = Instant::now() + plan.turn(1);
        let before = (machine::cpu(std::process::id()), gateway.cpu());
        let asking = (0..readers).map(|_| async {
            let (began, mut latencies) = (Instant::now(), Vec::new());
            while Instant::now() < until {
                let asked = Asked {
                    tenant,
                    user: Some(user),
                    token: Some(token),
                    server: &server,
                    tool: Some(&tool),
                    at: Clock::System.now(),
                };
                let one = Instant::now();
                let now = store::connections::read_back(&db, &asked).await?;
                latencies.push(one.elapsed());
                ensure!(now.own.is_some_and(|own| own.sealed.is_some()), "nothing was read back");
            }
            anyhow::Ok(Measured::of(latencies, began.elapsed()))
        });
        let mut sum = Measured::default();
        for measured in join_all(asking).await {
            sum.beside(measured?);
        }
        sum.cpu = machine::cpu(std::process::id()).saturating_sub(before.0);
        sum.postgres_cpu = gateway.cpu().postgres.saturating_sub(before.1.postgres);
        report.read_back(readers, sum);
    }
    Ok(())
}

/// Everybody's token is near its end: each person calls once, and each call refreshes first.
pub(crate) async fn refresh(
    gateway: &Gateway,
    plan: &Plan,
    report: &mut Report,
) -> anyhow::Result<()> {
    println!("\nrefreshing {} connections, one call each", plan.connections);
    let provider = AuthorizationServer::start().await;
    provider.set(|knobs| knobs.access_ttl = Duration::from_hours(1));
    let peer = ProtectedPeer::start(&provider).await;
    let (server, accesses) = people::seed(gateway, &provider, &peer, plan.connections).await?;
    server.let_near_end(gateway).await?;

    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Measured::default()));
    let (before, requests) = (gateway.cpu(), peer.peer.journal().len());
    let began = Instant::now();
    let callers = (0..AT_ONCE).map(|_| async {
        let mut latencies = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(access) = accesses.get(number) else { return latencies };
            let one = Instant::now();
            match call(access, number).await {
                Ok(()) => latencies.push(one.elapsed()),
                Err(error) => failed.lock().unwrap_or_else(PoisonError::into_inner).fail(&error),
            }
        }
    });
    let latencies = join_all(callers).await.concat();
    let mut measured = Measured::of(latencies, began.elapsed());
    let after = gateway.cpu();
    measured.cpu = after.ours.saturating_sub(before.ours);
    measured.postgres_cpu = after.postgres.saturating_sub(before.postgres);
    measured.upstream = u64::try_from(peer.peer.journal().len() - requests)?;
    measured.add(failed.into_inner().unwrap_or_else(PoisonError::into_inner));
    let (asked, kept) = (provider.renewals().len(), server.refreshed(gateway).await?);
    println!("  {asked} were refreshed at the provider, {kept} are kept");
    report.refreshed(measured, gateway.resident_kb()?);
    ensure!(asked == plan.connections && kept == asked, "not each was refreshed once");
    Ok(())
}

/// Over a connection of its own: people are different programs.
async fn call(access: &Access, number: usize) -> anyhow::Result<()> {
    let mut connection = Connection::open(&access.url).await?;
    let subject = people::subject(number);
    let arguments = json!({ "subject": subject });
    let answer = connection.call_modern(access, u64::try_from(number)?, &arguments).await?;
    let said = format!("\"sub\":\"{subject}\"");
    ensure!(answer.contains(&said), "not the answer: {answer}");
    Ok(())
}
