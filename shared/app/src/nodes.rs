//! This process as the others see it: a row with a lease.

use domain::{Code, Error, limits};
use store::nodes::{NewNode, Renewal};
use tokio::time::{self, MissedTickBehavior};

use crate::Ctx;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Up,
    Api,
    Worker,
}

impl Kind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Api => "api",
            Self::Worker => "worker",
        }
    }

    /// Whether it makes calls of its own.
    #[must_use]
    pub fn serves_calls(self) -> bool {
        match self {
            Self::Up | Self::Api => true,
            Self::Worker => false,
        }
    }
}

/// Registers this process. Earlier ones at the same `place` are dead from now on, whatever their
/// lease says: they stood where this one stands.
///
/// Refused with [`Code::Conflict`] while another living node serves calls and this one would too.
pub async fn register(ctx: &Ctx, kind: Kind, place: &str) -> Result<(), Error> {
    let key_ids: Vec<String> = ctx.vault.key_ids().into_iter().map(str::to_owned).collect();
    let node = NewNode {
        id: ctx.node,
        kind: kind.as_str(),
        place,
        serves_calls: kind.serves_calls(),
        lease: limits::NODE_LEASE_MS.millis(),
        version: env!("CARGO_PKG_VERSION"),
        key_ids: &key_ids,
    };
    let Err(other) = store::nodes::register(&ctx.db, &node).await? else { return Ok(()) };
    tracing::error!(kind = other.kind, place = other.place, "another node serves calls");
    let seconds = limits::NODE_LEASE_MS.millis().as_secs();
    Err(Error::new(
        Code::Conflict,
        format!(
            "another node of this installation ({}) serves calls, and limits are not shared between \
             nodes yet: end it first; one that died is forgotten after {seconds} s",
            other.kind
        ),
    ))
}

/// Renews the lease until the process stops. A node that others have ended in the meantime drains:
/// its calls count as interrupted, and another may serve in its place.
pub async fn keep(ctx: Ctx) {
    let mut pulse = time::interval(limits::NODE_HEARTBEAT_MS.millis());
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut away = false;
    loop {
        tokio::select! {
            () = ctx.stopping.cancelled() => return,
            _ = pulse.tick() => {}
        }
        match store::nodes::renew(&ctx.db, ctx.node, limits::NODE_LEASE_MS.millis()).await {
            Ok(Renewal::Renewed) => away = false,
            Ok(Renewal::Revived) => {
                away = false;
                tracing::warn!("the lease of this node had run out; nobody had taken its place");
            }
            Ok(Renewal::Ended) => {
                tracing::error!("this node was ended by others while its lease was lost: draining");
                ctx.draining.cancel();
                return;
            }
            // Once in an outage; what happened to the lease shows when the database is back.
            Err(error) if !away => {
                away = true;
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "the lease of this node cannot be renewed");
            }
            Err(_) => {}
        }
    }
}

/// The process takes no more part; called when its work has ended.
pub async fn end(ctx: &Ctx) -> Result<(), Error> {
    Ok(store::nodes::end(&ctx.db, ctx.node).await?)
}
