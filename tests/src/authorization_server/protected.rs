//! MCP servers behind an authorization server.

use std::sync::Arc;

use url::Url;

use super::{AuthorizationServer, Gate, GateKnobs, Served};
use crate::{
    peer::{Peer, Setup},
    sse_peer::{Habits, SsePeer},
};

/// A streamable HTTP server that takes a provider's tokens. It has the tools `whoami`, `add` and `admin_delete` (which
/// needs the scope `mcp:admin`); every other tool is the [`peer`](Self::peer)'s.
pub struct ProtectedPeer {
    pub peer: Peer,
    gate: Arc<Gate>,
}

/// The same over HTTP+SSE.
pub struct ProtectedSsePeer {
    pub peer: SsePeer,
    gate: Arc<Gate>,
}

impl ProtectedPeer {
    /// Of the newer era.
    pub async fn start(provider: &AuthorizationServer) -> Self {
        Self::start_as(provider, Setup::modern()).await
    }

    /// Of the older era, with sessions.
    pub async fn start_older(provider: &AuthorizationServer) -> Self {
        Self::start_as(provider, Setup::older()).await
    }

    pub async fn start_as(provider: &AuthorizationServer, mut setup: Setup) -> Self {
        setup.tools.extend(Gate::tools());
        let peer = Peer::start(setup).await;
        let gate = Arc::new(Gate::new(provider.state(), peer.url()));
        peer.guard(Arc::clone(&gate));
        Self { peer, gate }
    }

    /// The MCP endpoint, which is the resource too.
    #[must_use]
    pub fn url(&self) -> Url {
        self.peer.url()
    }
}

impl ProtectedSsePeer {
    pub async fn start(provider: &AuthorizationServer) -> Self {
        let peer = SsePeer::start(Habits::default()).await;
        let gate = Arc::new(Gate::new(provider.state(), peer.url("/sse")));
        peer.guard(Arc::clone(&gate));
        Self { peer, gate }
    }

    /// The address of the stream, which is the resource too.
    #[must_use]
    pub fn url(&self) -> Url {
        self.peer.url("/sse")
    }
}

macro_rules! gated {
    ($($peer:ty),*) => {$(
        impl $peer {
            /// Turns knobs of the door while it runs.
            pub fn set(&self, change: impl FnOnce(&mut GateKnobs)) {
                self.gate.set(change);
            }

            /// Where its metadata is, with the path inserted.
            #[must_use]
            pub fn metadata_url(&self) -> Url {
                self.gate.metadata_url()
            }

            /// Calls of tools that were let in, by whose token.
            #[must_use]
            pub fn served(&self) -> Vec<Served> {
                self.gate.served()
            }

            /// How many requests were refused for their token.
            #[must_use]
            pub fn refused(&self) -> usize {
                self.gate.refused()
            }

            /// Calls whose argument `subject` is another person than their token's, and that one: must be none.
            #[must_use]
            pub fn mixed(&self) -> Vec<(String, String)> {
                self.gate.mixed()
            }

            /// Persons of each MCP session that more than one person used: must be none.
            #[must_use]
            pub fn shared_sessions(&self) -> Vec<Vec<String>> {
                self.gate.shared_sessions()
            }
        }
    )*};
}

gated!(ProtectedPeer, ProtectedSsePeer);
