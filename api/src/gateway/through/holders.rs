//! Who holds how many upstream sessions: each may be a program of its own, so one person has a bounded
//! number of them with one server, and the one that was not used for the longest gives way.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use app::through::OwnSession;
use domain::{
    Caller,
    ids::{ServerId, TenantId, UserId},
    limits,
};

type Holder = (TenantId, UserId, ServerId);

/// The upstream sessions that this process knows of, each with its last use, oldest first.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct Holders(Arc<Mutex<HashMap<Holder, Vec<OwnSession>>>>);

impl Holders {
    /// Notes a use of the session. Answers the one that has to give way for it.
    pub(super) fn used(&self, caller: &Caller, own: &OwnSession) -> Option<OwnSession> {
        let mut holders = self.lock();
        let sessions = holders.entry(holder(caller, own)).or_default();
        sessions.retain(|session| session.id != own.id);
        sessions.push(own.clone());
        (sessions.len() > limits::OWN_SESSIONS.size()).then(|| sessions.remove(0))
    }

    pub(super) fn ended(&self, caller: &Caller, own: &OwnSession) {
        let mut holders = self.lock();
        let holder = holder(caller, own);
        let Some(sessions) = holders.get_mut(&holder) else { return };
        sessions.retain(|session| session.id != own.id);
        if sessions.is_empty() {
            holders.remove(&holder);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Holder, Vec<OwnSession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holder(caller: &Caller, own: &OwnSession) -> Holder {
    (caller.tenant, caller.user, own.server.clone())
}
