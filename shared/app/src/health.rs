//! Whether this node can serve.

use crate::Ctx;

/// What is missing to serve, in fixed words; empty when nothing is.
pub async fn missing(ctx: &Ctx) -> Vec<String> {
    let mut missing = Vec::new();
    match store::setup::check(&ctx.db).await {
        Ok(()) => {}
        Err(error @ store::StoreError::Outdated) => missing.push(error.to_string()),
        Err(_) => missing.push("the database does not answer".to_owned()),
    }
    if ctx.draining.is_cancelled() {
        missing.push("shutting down".to_owned());
    }
    missing
}
