//! Use cases. Each public function is one thing that a caller can ask for: it loads, decides, saves.
//!
//! **Invariants:** every transaction begins and ends here, and none is open across a network call.

pub mod access;
pub mod audit;
mod authority;
pub mod authorizations;
pub mod broker;
pub mod builtin;
pub mod cas;
pub mod clock;
pub mod company;
pub mod connections;
pub mod definitions;
pub mod delegation;
pub mod discovery;
pub mod doctor;
pub mod epochs;
pub mod events;
pub mod gateway_sessions;
pub mod grants;
pub mod health;
pub mod housekeeping;
pub mod idempotency;
pub mod identity;
pub mod inspect;
pub mod invocations;
pub mod jobs;
pub mod keys;
pub mod list_changes;
pub mod nodes;
pub mod permissions;
pub mod projects;
pub mod results;
pub mod servers;
pub mod sessions;
pub mod setup;
pub mod sign_in;
pub mod signals;
mod slots;
mod target;
pub mod tenants;
pub mod through;
pub mod tick;
pub mod tokens;
pub mod toolset;
pub mod users;
pub mod variables;
pub mod web_sessions;

mod selection;

use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use domain::{
    Error, Timestamp,
    ids::{NodeId, TenantId},
    server::{UrlRules, stdio::StdioMode},
};
use outbound::{blobs::Blobs, mcp::McpClients, oauth::OAuthClient};
use store::Tx;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

pub use clock::Clock;
// What a Ctx is put together from, for the binary, which knows no layer below this one.
pub use coordination::Admission;
pub use signals::Signals;
pub use store::{Db, vault::Vault};

/// What every use case needs; cheap to clone.
#[derive(Debug, Clone)]
pub struct Ctx(Arc<Parts>);

/// The parts of a [`Ctx`], put together once by the binary (or by a test's World).
#[derive(Debug)]
pub struct Parts {
    pub db: Db,
    pub clock: Clock,
    pub vault: Vault,
    pub mcp: McpClients,
    pub oauth: OAuthClient,
    /// Where this process serves the built-in servers, to itself alone. `None`: it makes no calls.
    pub built_in: Option<SocketAddr>,
    pub blobs: Blobs,
    pub admission: Admission,
    /// This process.
    pub node: NodeId,
    pub signals: Signals,
    pub definitions: definitions::DefinitionCache,
    pub url_rules: UrlRules,
    /// Which programs may run on our host.
    pub stdio: StdioMode,
    /// How long a caller that cannot be asked in protocol is held.
    pub permission_wait: Duration,
    /// No new work from here on.
    pub draining: CancellationToken,
    /// What still runs ends now.
    pub stopping: CancellationToken,
    /// Work that outlives its request and must be waited for.
    pub tasks: TaskTracker,
}

impl std::ops::Deref for Ctx {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl From<Parts> for Ctx {
    fn from(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Ctx {
    /// Opens a transaction of `tenant`. In a request that may be repeated ([`idempotency`]), its changes
    /// become visible with the answer.
    pub(crate) async fn begin(&self, tenant: TenantId) -> Result<Tx, Error> {
        idempotency::begin_in_scope(self, tenant).await
    }

    /// For what must not keep the parts alive.
    pub(crate) fn downgrade(&self) -> Weak<Parts> {
        Arc::downgrade(&self.0)
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A new UUIDv7 id that carries this moment.
    #[must_use]
    pub fn mint<Id: From<Uuid>>(&self) -> Id {
        self.clock.mint()
    }
}
