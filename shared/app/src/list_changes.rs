//! Servers that say that their tools changed are asked for them, but not as often as they like.

use std::{collections::HashMap, time::Duration};

use domain::{
    Error, Timestamp,
    ids::{ServerId, TenantId},
    jobs::DiscoverTools,
    limits,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};

use crate::Ctx;

type Who = (TenantId, ServerId);

/// What became of a word that tools changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A discovery is enqueued.
    Now,
    /// The server was asked not long ago: after this time it may be asked again.
    Later(Duration),
    /// Somebody asked since, or nobody wants to know: no such server, or it is switched off.
    NotAgain,
}

/// Enqueues a discovery for each server that says so, until the node drains. What it said within
/// [`limits::LIST_CHANGE_MS`] of the discovery before is looked into when that time is over.
///
/// The words are hints and are kept in memory alone: one that is lost costs the freshness of a list.
pub async fn watch(ctx: Ctx) {
    let mut changes = ctx.mcp.list_changes();
    let mut heard: HashMap<Who, Timestamp> = HashMap::new();
    let mut waiting: FuturesUnordered<BoxFuture<'static, Who>> = FuturesUnordered::new();
    let mut asked_at: HashMap<Who, Timestamp> = HashMap::new();
    loop {
        tokio::select! {
            () = ctx.draining.cancelled() => return,
            who = changes.next() => {
                if heard.insert(who.clone(), ctx.now()).is_none() {
                    waiting.push(after(own_pause(&ctx), who));
                }
            }
            Some(who) = waiting.next() => {
                let Some(at) = heard.get(&who).copied() else { continue };
                let wait = match pause_since(&ctx, asked_at.get(&who).copied()) {
                    Some(wait) => Some(wait),
                    None => match ask(&ctx, who.0, &who.1, at).await {
                        Ok(Asked::Now) => {
                            asked_at.insert(who.clone(), ctx.now());
                            None
                        }
                        Ok(Asked::NotAgain) => None,
                        Ok(Asked::Later(wait)) => Some(wait),
                        Err(error) => {
                            let error: &dyn std::error::Error = &error;
                            tracing::warn!(error, "a change of tools cannot be looked into yet");
                            Some(limits::LIST_CHANGE_MS.millis())
                        }
                    },
                };
                match wait {
                    Some(wait) => waiting.push(after(wait, who)),
                    None => drop(heard.remove(&who)),
                }
                asked_at.retain(|_, at| pause_since(&ctx, Some(*at)).is_some());
            }
        }
    }
}

/// Has a server asked for its tools that said at `heard_at` that they changed.
pub async fn ask(
    ctx: &Ctx,
    tenant: TenantId,
    server: &ServerId,
    heard_at: Timestamp,
) -> Result<Asked, Error> {
    let mut tx = ctx.begin(tenant).await?;
    let found = store::servers::find(&mut tx, server.as_str()).await?;
    let Some(found) = found.filter(|found| found.id == *server && found.enabled) else {
        return Ok(Asked::NotAgain);
    };
    // A check that began later knows of the change.
    if found.checked_at.is_some_and(|checked| checked > heard_at) {
        return Ok(Asked::NotAgain);
    }
    if let Some(wait) = pause_since(ctx, found.checked_at) {
        return Ok(Asked::Later(wait));
    }
    let job = DiscoverTools { tenant_id: tenant, server_id: found.id, user_id: None, attempt: 0 };
    store::jobs::push(&mut tx, &job).await?;
    tx.commit().await?;
    Ok(Asked::Now)
}

/// How long a server that was asked then is left in peace.
fn pause_since(ctx: &Ctx, asked_at: Option<Timestamp>) -> Option<Duration> {
    let since = (ctx.now() - asked_at?).to_std().unwrap_or_default();
    let wait = limits::LIST_CHANGE_MS.millis().saturating_sub(since);
    (!wait.is_zero()).then_some(wait)
}

/// All nodes hear the same: one that is a little later finds that another has asked.
fn own_pause(ctx: &Ctx) -> Duration {
    Duration::from_millis(u64::from(ctx.node.0.as_bytes()[15]) * 4)
}

fn after(wait: Duration, who: Who) -> BoxFuture<'static, Who> {
    async move {
        tokio::time::sleep(wait).await;
        who
    }
    .boxed()
}
