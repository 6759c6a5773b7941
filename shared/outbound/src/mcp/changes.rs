//! Which servers said that their tools changed.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use domain::ids::{ServerId, TenantId};
use tokio::sync::Notify;

/// Who changed since somebody last looked: however often a server says it, once.
#[derive(Debug, Default)]
pub(super) struct Changes {
    servers: Mutex<HashSet<(TenantId, ServerId)>>,
    changed: Notify,
}

/// Where one client reports what it hears; nowhere for a client whose finder looks at the tools
/// anyway.
#[derive(Debug, Clone, Default)]
pub(super) struct Hints(Option<(Arc<Changes>, TenantId, ServerId)>);

impl Hints {
    pub(super) fn of(changes: &Arc<Changes>, tenant: TenantId, server: &ServerId) -> Self {
        Self(Some((Arc::clone(changes), tenant, server.clone())))
    }

    /// To be told each notification of the server.
    pub(super) fn heard(&self, method: &str) {
        if method != "notifications/tools/list_changed" {
            return;
        }
        let Some((changes, tenant, server)) = &self.0 else { return };
        let mut servers = changes.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.insert((*tenant, server.clone()));
        drop(servers);
        changes.changed.notify_one();
    }
}

/// The servers whose list of tools changed, as they say so.
#[derive(Debug)]
pub struct ListChanges(pub(super) Arc<Changes>);

impl ListChanges {
    /// The next one. A server that changes again and again before it is asked for comes once.
    /// Cancel-safe.
    pub async fn next(&mut self) -> (TenantId, ServerId) {
        loop {
            if let Some(found) = self.take() {
                return found;
            }
            self.0.changed.notified().await;
        }
    }

    fn take(&self) -> Option<(TenantId, ServerId)> {
        let mut servers = self.0.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = servers.iter().next().cloned()?;
        servers.take(&next)
    }
}
