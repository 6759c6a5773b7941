//! The tools.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{Implementation, ProgressNotificationParam, ServerCapabilities, ServerConfig},
    schemars::{self, JsonSchema},
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, JsonSchema)]
struct Greet {
    /// Who is greeted
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Sum {
    sum: i64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SlowCount {
    /// Count from 1 to this
    #[schemars(range(min = 1, max = 100))]
    to: u32,
    /// Pause between two numbers
    #[serde(default = "one_second")]
    #[schemars(range(max = 10_000))]
    pause_ms: u64,
}

fn one_second() -> u64 {
    1_000
}

#[derive(Debug, Deserialize, JsonSchema)]
struct RollDice {
    #[serde(default = "six")]
    #[schemars(range(min = 2, max = 1_000))]
    sides: u64,
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    dice: u32,
}

fn six() -> u64 {
    6
}

fn one() -> u32 {
    1
}

#[derive(Debug, Serialize, JsonSchema)]
struct Rolled {
    dice: Vec<u64>,
    total: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct DeleteEverything {
    /// What to delete
    scope: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Tools;

#[tool_router(vis = "pub(crate)")]
impl Tools {
    pub(crate) fn new() -> Self {
        Self
    }

    #[tool(
        title = "Greet",
        description = "Says hello to somebody.",
        annotations(read_only_hint = true)
    )]
    async fn greet(&self, Parameters(Greet { name }): Parameters<Greet>) -> String {
        format!("Hello, {name}!")
    }

    #[tool(
        title = "Add",
        description = "Adds two whole numbers.",
        annotations(read_only_hint = true)
    )]
    async fn add(&self, Parameters(Add { a, b }): Parameters<Add>) -> Result<Json<Sum>, ErrorData> {
        let sum = a.checked_add(b);
        let sum = sum.ok_or_else(|| ErrorData::invalid_params("the sum is too large", None))?;
        Ok(Json(Sum { sum }))
    }

    #[tool(
        title = "Count slowly",
        description = "Counts up with a pause after each number, and reports progress.",
        annotations(read_only_hint = true)
    )]
    async fn slow_count(
        &self,
        Parameters(SlowCount { to, pause_ms }): Parameters<SlowCount>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let (to, pause) = (to.clamp(1, 100), Duration::from_millis(pause_ms.min(10_000)));
        let token = context.meta.get_progress_token();
        for number in 1..=to {
            if let Some(token) = &token {
                let progress = ProgressNotificationParam::new(token.clone(), f64::from(number))
                    .with_total(f64::from(to))
                    .with_message(format!("{number} of {to}"));
                // Progress is a courtesy: a client that left is noticed by its cancellation.
                let _ = context.peer.notify_progress(progress).await;
            }
            tokio::select! {
                () = context.ct.cancelled() => {
                    return Err(ErrorData::internal_error("the count was cancelled", None));
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
        Ok(format!("counted to {to}"))
    }

    #[tool(title = "Roll dice", description = "Rolls dice and adds them up.")]
    async fn roll_dice(
        &self,
        Parameters(RollDice { sides, dice }): Parameters<RollDice>,
    ) -> Json<Rolled> {
        let sides = sides.clamp(2, 1_000);
        // Each state is seeded anew: random enough for a game.
        let roll = |_| RandomState::new().hash_one(()) % sides + 1;
        let dice: Vec<u64> = (0..dice.clamp(1, 100)).map(roll).collect();
        Json(Rolled { total: dice.iter().sum(), dice })
    }

    #[tool(
        title = "Delete everything",
        description = "Deletes everything in the given scope. (It only pretends: this is a demo.)",
        annotations(destructive_hint = true, idempotent_hint = false)
    )]
    async fn delete_everything(
        &self,
        Parameters(DeleteEverything { scope }): Parameters<DeleteEverything>,
    ) -> String {
        format!("Everything in {scope} would be gone now, were this not a demo.")
    }
}

#[tool_handler]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("bailiwick-demo", env!("CARGO_PKG_VERSION")))
    }
}
