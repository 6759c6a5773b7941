//! Queue messages: identifiers only, so that a worker always reads fresh state.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::ids::{ServerId, TenantId, UserId};

/// A message and the queue that carries it.
pub trait Job: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Queue name, unique in the service. Renaming one strands its pending messages.
    const QUEUE: &'static str;
}

/// Ask a server for its tools and pin what it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoverTools {
    pub tenant_id: TenantId,
    pub server_id: ServerId,
    /// With whose account, where each person has their own.
    #[serde(default)]
    pub user_id: Option<UserId>,
    /// How often this work was tried before; the back-off is ours (see worker/src/outcome.rs).
    pub attempt: u32,
}

impl Job for DiscoverTools {
    const QUEUE: &'static str = "discover-tools";
}
