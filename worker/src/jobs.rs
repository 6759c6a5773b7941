//! The queues. The library that serves them is the runner; that a job is done at least once, and does
//! no harm when it is done twice, is up to us.

mod discover_tools;

use std::time::Duration;

use apalis::{
    layers::WorkerBuilderExt,
    prelude::{BackendExt, Monitor, MonitorError, ParallelizeExt, Strategy, WorkerBuilder},
};
use apalis_postgres::{Config, PostgresStorage};
use app::Ctx;
use domain::{
    Code, Error,
    ids::TenantId,
    jobs::{DiscoverTools, Job},
    limits,
};

use crate::outcome::Outcome;

/// Serves the queues until the node drains. Jobs that run then may finish until it stops.
pub(crate) async fn monitor(ctx: Ctx) {
    let mut failing = false;
    while !ctx.draining.is_cancelled() {
        let served = tokio::select! {
            () = ctx.stopping.cancelled() => return,
            served = serve(&ctx) => served,
        };
        // Any failed statement of the library ends its worker: each outage of the database does.
        match served {
            Err(error) if !failing => {
                failing = true;
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "the queue's worker ended, it is started again and again");
            }
            Err(_) => {}
            Ok(()) => failing = false,
        }
        tokio::select! {
            () = ctx.draining.cancelled() => return,
            () = tokio::time::sleep(limits::JOB_POLL_MS.millis()) => {}
        }
    }
}

/// Until the node drains, or until the library gives up.
async fn serve(ctx: &Ctx) -> Result<(), MonitorError> {
    let monitored = ctx.clone();
    let draining = ctx.draining.clone();
    Monitor::new()
        .register(move |restarts| {
            let backend = PostgresStorage::<DiscoverTools>::new(&monitored.db.queue_pool())
                .with_config(config(DiscoverTools::QUEUE))
                .poll_with_strategy(Strategy::new().interval(limits::JOB_POLL_MS.millis()));
            WorkerBuilder::new(worker_name(&monitored, DiscoverTools::QUEUE, restarts))
                .backend(backend)
                .data(monitored.clone())
                .concurrency(limits::JOB_CONCURRENCY.size())
                .parallelize(tokio::spawn)
                .catch_panic()
                .build(discover_tools::run)
        })
        // Started again by `monitor`, which pauses; the library would not.
        .should_restart(|_, _| false)
        .run_with_signal(async move {
            draining.cancelled().await;
            Ok(())
        })
        .await
}

/// `batch_size(1)`: with more, a worker whose buffer is not empty sends no heartbeats, and its jobs
/// are given to others while it runs them.
fn config(queue: &str) -> Config {
    Config::default()
        .queue(queue)
        .batch_size(1)
        .heartbeat_interval(limits::JOB_HEARTBEAT_MS.millis())
        .missed_heartbeats(limits::JOB_HEARTBEATS_MISSED.size())
        // To the library this is the acknowledgement: without it a finished job runs for ever, and
        // once more after each restart.
        .persist_results(true)
}

/// Never used twice: a worker that comes back under its old name keeps its lost jobs for ever.
fn worker_name(ctx: &Ctx, queue: &str, restarts: usize) -> String {
    let start: domain::ids::NodeId = ctx.mint();
    format!("{queue}-{}-{start}-{restarts}", ctx.node)
}

/// A job that knows how often it was tried.
trait Tried: Job {
    fn tenant(&self) -> TenantId;
    fn attempt(&self) -> u32;
    fn again(&self) -> Self;
}

/// Does `work` within the time of a job, and settles what becomes of one that was not done. An error
/// leaves the job to the queue's own attempts: it could not even be put off.
async fn settle<J: Tried>(
    ctx: &Ctx,
    job: &J,
    work: impl Future<Output = Result<(), Error>> + Send,
) -> Result<(), Error> {
    let result = tokio::select! {
        () = ctx.stopping.cancelled() => {
            return Err(Error::new(Code::Interrupted, "the worker stopped during the job"));
        }
        result = tokio::time::timeout(limits::JOB_TIMEOUT_SECONDS.seconds(), work) => result,
    };
    let result = result.unwrap_or_else(|_| Err(Error::new(Code::Timeout, "the job took too long")));
    let Err(error) = result else { return Ok(()) };

    let (queue, tenant, code) = (J::QUEUE, job.tenant(), error.code);
    let outcome = Outcome::of(&error, job.attempt());
    {
        // Not held across an await: it may not be sent to another thread.
        let error: &dyn std::error::Error = &error;
        match outcome {
            Outcome::RetryAfter(wait) => {
                let wait_ms = millis(wait);
                tracing::info!(queue, %tenant, %code, wait_ms, error, "the job is tried again");
            }
            Outcome::Park => {
                tracing::info!(queue, %tenant, %code, error, "the job waits for a change");
            }
            Outcome::GiveUp => tracing::warn!(queue, %tenant, %code, error, "the job is given up"),
        }
    }
    if let Outcome::RetryAfter(wait) = outcome {
        app::jobs::push_later(ctx, tenant, &job.again(), wait).await?;
    }
    Ok(())
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}
