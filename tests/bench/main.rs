//! What a governed call costs, measured: `make bench`.
//!
//! ```text
//! clients ──────────────────────────────▶ echo      subject `direct`
//! clients ──▶ bailiwick up ─────────────▶ echo      subjects `gateway`, `own` (the caller's own token)
//!                  └─ private Postgres
//! ```
//!
//! One echo server, one client code (rmcp's, 2026-07-28). Two installations of the program run
//! side by side, one without history and one with 20,000 calls of it, and take turns, so that whatever
//! else this machine does meets both. Every input is distinct; each call is validated, permitted by a
//! standing grant, authorized, recorded and sealed into a leaf.
//!
//! Times never fail a run: it ends with 0 when everything was measured, and with 1 when a call failed.
//!
//! Settings: `BENCH_SECONDS` for each figure (4), `BENCH_JSON` (a file: one JSON line a figure),
//! `BENCH_SESSIONS` that are abandoned (10,000), `BENCH_CONNECTIONS` that are refreshed (10,000), `BENCH_DIR`
//! where the installations lie (the system's place for temporary files), `BENCH_BIN` (another build of
//! the program).

mod abandoned;
mod callers;
mod connections;
mod database;
mod echo;
mod gateway;
mod installation;
mod machine;
mod measured;
mod plan;
mod report;
mod setup;
mod wire;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use callers::{Access, Caller, Kind, Numbers};
use echo::Echo;
use gateway::Gateway;
use measured::Measured;
use plan::Plan;
use report::{Figure, Report, Subject};

/// Of the installation with history.
const HISTORY: u32 = 20_000;
const CALLERS: [usize; 3] = [1, 16, 32];
/// The two installations take turns this often within one figure.
const TURNS: u32 = 2;
/// A turn without a gateway: thousands of calls all the same.
const DIRECT: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(700);

fn main() -> ExitCode {
    let mut report = Report::default();
    let outcome = Plan::of_environment().and_then(|plan| {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(async {
            tokio::select! {
                outcome = run(&plan, &mut report) => outcome,
                _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
            }
        })?;
        report.write_json(plan.json.as_deref())
    });
    match outcome {
        Ok(()) if report.errors() == 0 => ExitCode::SUCCESS,
        Ok(()) => {
            eprintln!("bench: {} calls failed", report.errors());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let began = Instant::now();
    let bench = Bench { plan, echo: Echo::start()?, numbers: Arc::default() };
    let dir = plan.directory()?;
    println!("{}", machine::words());
    println!("two installations start below {}", dir.path().display());
    let both = [
        Gateway::start(plan, dir.path(), "empty", 0, &bench.echo).await?,
        Gateway::start(plan, dir.path(), "full", HISTORY, &bench.echo).await?,
    ];
    bench.buffer_hits(&both, report).await?;
    for durable in [true, false] {
        for gateway in &both {
            gateway.database.set_durable(durable).await?;
        }
        println!("\n{}", both[0].database.durability().await?);
        report.head();
        for callers in CALLERS {
            // A disk has moods: it is asked beside each figure, not once.
            report.fdatasync(durable, machine::fdatasync(dir.path())?);
            bench.figures(&both, Kind::Mcp, callers, durable, report).await?;
        }
        for callers in [1, 16] {
            bench.figures(&both, Kind::Raw, callers, durable, report).await?;
        }
    }
    abandoned::measure(&both[0], plan.sessions, &bench.numbers, report).await?;
    connections::read_back(&both[0], plan, report).await?;
    // Last: a client is kept for each of those people.
    connections::refresh(&both[0], plan, report).await?;
    report.aims();
    println!("\n{} s", began.elapsed().as_secs());
    Ok(())
}

struct Bench<'a> {
    plan: &'a Plan,
    echo: Echo,
    numbers: Arc<Numbers>,
}

impl Bench<'_> {
    /// Shared-buffer hits of a call.
    async fn buffer_hits(&self, both: &[Gateway; 2], report: &mut Report) -> anyhow::Result<()> {
        let mut connected = Vec::new();
        for gateway in both {
            gateway.database.reset_history().await?;
            let callers = self.warm(&gateway.access, Kind::Mcp, 4).await?;
            connected.push((gateway, callers, Measured::default()));
        }
        tokio::time::sleep(database::QUIET).await;
        let before = [both[0].database.hits().await?, both[1].database.hits().await?];
        for _ in 0..TURNS {
            for (gateway, callers, sum) in &mut connected {
                let ready = std::mem::take(callers);
                let (measured, again) = self.turn(ready, gateway).await;
                sum.add(measured);
                *callers = again;
            }
        }
        tokio::time::sleep(database::QUIET).await;
        println!("\nshared-buffer hits a call (four callers, taking turns)");
        for ((gateway, callers, sum), before) in connected.into_iter().zip(before) {
            let hits = gateway.database.hits().await? - before;
            report.hits(gateway.history, hits / f64::from(sum.calls().max(1)), &sum);
            callers::end(callers).await;
        }
        Ok(())
    }

    /// One figure of each installation and one without any, measured in turns: what is added by a
    /// gateway is the difference of two that the machine was as busy for.
    async fn figures(
        &self,
        both: &[Gateway; 2],
        kind: Kind,
        callers: usize,
        durable: bool,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let direct = Access { url: self.echo.url(), tool: echo::TOOL.to_owned(), token: None };
        let mut direct = (self.warm(&direct, kind, callers).await?, Measured::default());
        let mut connected = Vec::new();
        for gateway in both {
            gateway.database.reset_history().await?;
            let ready = self.warm(&gateway.access, kind, callers).await?;
            connected.push((Subject::Gateway(kind), gateway, ready, Measured::default()));
        }
        if kind == Kind::Mcp {
            let ready = self.warm(&both[0].own, kind, callers).await?;
            connected.push((Subject::Own, &both[0], ready, Measured::default()));
        }
        for _ in 0..TURNS {
            let requests = self.echo.requests();
            let ready = std::mem::take(&mut direct.0);
            let (mut measured, again) = callers::round(ready, DIRECT, &self.numbers).await;
            measured.upstream = self.echo.requests() - requests;
            direct.0 = again;
            direct.1.add(measured);
            for (_, gateway, callers, sum) in &mut connected {
                let ready = std::mem::take(callers);
                let (measured, again) = self.turn(ready, gateway).await;
                sum.add(measured);
                *callers = again;
            }
        }
        let (again, measured) = direct;
        callers::end(again).await;
        let (subject, beside) = (Subject::Direct(kind), durable);
        report.figure(Figure { subject, callers, history: None, beside, measured });
        for (subject, gateway, again, measured) in connected {
            callers::end(again).await;
            let history = Some(gateway.history);
            report.figure(Figure { subject, callers, history, beside, measured });
        }
        Ok(())
    }

    /// Connected callers, their server's pools and plans warm.
    async fn warm(
        &self,
        access: &Access,
        kind: Kind,
        callers: usize,
    ) -> anyhow::Result<Vec<Caller>> {
        let callers = callers::connect(access, kind, callers).await?;
        let (warmed, callers) = callers::round(callers, WARM_UP, &self.numbers).await;
        warmed.must_be_clean()?;
        Ok(callers)
    }

    /// One turn's calls, and what they cost the installation.
    async fn turn(&self, callers: Vec<Caller>, gateway: &Gateway) -> (Measured, Vec<Caller>) {
        let time = self.plan.turn(TURNS);
        let (before, requests) = (gateway.cpu(), self.echo.requests());
        let (mut measured, callers) = callers::round(callers, time, &self.numbers).await;
        let after = gateway.cpu();
        measured.upstream = self.echo.requests() - requests;
        measured.cpu = after.ours.saturating_sub(before.ours);
        measured.postgres_cpu = after.postgres.saturating_sub(before.postgres);
        (measured, callers)
    }
}
