//! The job process: what is done by the clock, and what is done from the queue.

mod jobs;
mod outcome;
mod schedule;

use app::Ctx;

pub use schedule::TICKS;

/// Runs ticks and jobs until the node drains; what runs then may finish until it stops.
pub async fn run(ctx: Ctx) {
    tokio::join!(app::tick::run(ctx.clone(), TICKS), jobs::monitor(ctx));
}
