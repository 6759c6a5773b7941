//! What is done again and again, by one node at a time.
//!
//! Each tick is a row with a lease and a fencing number. Every node that runs this loop looks for due
//! ones; whoever takes a tick does its work, and whoever lost it cannot say "done".

use std::{collections::HashSet, panic::AssertUnwindSafe, time::Duration};

use domain::{Error, limits};
use futures::{FutureExt, future::BoxFuture};
use tokio::{
    task::JoinSet,
    time::{self, MissedTickBehavior},
};

use crate::Ctx;

/// One thing that is done again and again.
#[derive(Debug, Clone, Copy)]
pub struct Tick {
    /// Its row. Renaming a tick makes a new one.
    pub name: &'static str,
    /// From the end of one run to the next.
    pub period: Duration,
    /// Must bear to be done twice, and to be dropped in the middle.
    pub work: fn(Ctx) -> BoxFuture<'static, Result<(), Error>>,
}

/// Runs due ticks until the node drains, then waits for those that run. A tick that fails, panics or
/// takes too long is tried again in its period and holds up no other; a database outage is waited
/// out.
pub async fn run(ctx: Ctx, ticks: &'static [Tick]) {
    let names: Vec<String> = ticks.iter().map(|tick| tick.name.to_owned()).collect();
    let mut pulse = time::interval(limits::TICK_MS.millis());
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut state = State::default();
    loop {
        tokio::select! {
            () = ctx.draining.cancelled() => break,
            _ = pulse.tick() => state.start_due(&ctx, ticks, &names).await,
            Some(ended) = state.running.join_next() => state.note(ended),
        }
    }
    loop {
        tokio::select! {
            () = ctx.stopping.cancelled() => return,
            ended = state.running.join_next() => match ended {
                Some(ended) => state.note(ended),
                None => return,
            },
        }
    }
}

#[derive(Default)]
struct State {
    /// All rows exist.
    ensured: bool,
    /// The database did not answer the last time.
    away: bool,
    running: JoinSet<(&'static str, Result<(), Failure>)>,
    at_work: HashSet<&'static str>,
    /// Said already.
    failing: HashSet<&'static str>,
}

/// Why a tick's work was not done.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Failed(#[from] Error),
    #[error("it took longer than its lease")]
    TooLong,
    #[error("it panicked: {0}")]
    Panicked(String),
}

impl State {
    async fn start_due(&mut self, ctx: &Ctx, ticks: &'static [Tick], names: &[String]) {
        let due = match self.due(ctx, names).await {
            Ok(due) => due,
            Err(error) => {
                if !self.away {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "no ticks: looking goes on"
                    );
                }
                self.away = true;
                return;
            }
        };
        self.away = false;
        for tick in ticks.iter().filter(|tick| due.iter().any(|name| name == tick.name)) {
            if self.at_work.insert(tick.name) {
                let ctx = ctx.clone();
                self.running.spawn(async move { (tick.name, once(&ctx, tick).await) });
            }
        }
    }

    async fn due(&mut self, ctx: &Ctx, names: &[String]) -> Result<Vec<String>, Error> {
        if !self.ensured {
            store::ticks::ensure(&ctx.db, names).await?;
            self.ensured = true;
        }
        // After an outage our own lease may have run out, and we look before it is next renewed: our
        // calls and questions are no orphans. What became of the lease, `nodes::keep` deals with.
        store::nodes::renew(&ctx.db, ctx.node, limits::NODE_LEASE_MS.millis()).await?;
        Ok(store::ticks::due(&ctx.db, names).await?)
    }

    /// Logs a failure once, and its end.
    fn note(&mut self, ended: Result<(&'static str, Result<(), Failure>), tokio::task::JoinError>) {
        // A panic is caught in `once`, and nothing aborts these tasks.
        let Ok((tick, result)) = ended else { return };
        self.at_work.remove(tick);
        match result {
            Ok(()) if self.failing.remove(tick) => tracing::info!(tick, "the tick works again"),
            Err(failure) if self.failing.insert(tick) => {
                let error: &dyn std::error::Error = &failure;
                tracing::error!(tick, error, "the tick failed, it is tried again and again");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Takes the tick, does its work and gives it back; nothing if somebody else has it.
async fn once(ctx: &Ctx, tick: &Tick) -> Result<(), Failure> {
    let lease = limits::TICK_LEASE_MS.millis();
    let taken = store::ticks::take(&ctx.db, tick.name, ctx.node, lease).await;
    let Some(epoch) = taken.map_err(Error::from)? else { return Ok(()) };

    let work = AssertUnwindSafe(async { (tick.work)(ctx.clone()).await }).catch_unwind();
    let result = match time::timeout(lease, work).await {
        Ok(Ok(result)) => result.map_err(Failure::from),
        Ok(Err(panic)) => Err(Failure::Panicked(words(panic.as_ref()))),
        Err(_) => Err(Failure::TooLong),
    };
    // Ticks are looked for once in `TICK_MS`: due half of that early, none is found a whole one late.
    let pause = tick.period.saturating_sub(limits::TICK_MS.millis() / 2);
    let given = store::ticks::give_back(&ctx.db, tick.name, epoch, pause, result.is_ok()).await;
    if !given.map_err(Error::from)? {
        tracing::warn!(tick = tick.name, "the tick was taken over while its work was done");
    }
    result
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words").to_owned()
}
