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
use tokio::time::Instant;

type Holder = (TenantId, UserId, ServerId);

/// The upstream sessions that this process knows of, oldest use first. One that was not used for as long as
/// its `Mcp-Session-Id` is good has no client any more.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct Holders(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    sessions: HashMap<Holder, Vec<(OwnSession, Instant)>>,
    /// So many holders make it worth looking for those who are gone.
    sweep_at: usize,
}

/// Fewer holders than this are never swept.
const SWEEP_FLOOR: usize = 64;

impl Holders {
    /// Notes a use of the session. Answers the one that has to give way for it.
    pub(super) fn used(&self, caller: &Caller, own: &OwnSession) -> Option<OwnSession> {
        let mut held = self.lock();
        let now = Instant::now();
        if held.sessions.len() >= held.sweep_at.max(SWEEP_FLOOR) {
            held.sweep(now);
        }
        let sessions = held.sessions.entry(holder(caller, own)).or_default();
        sessions.retain(|(session, _)| session.id != own.id);
        sessions.push((own.clone(), now));
        (sessions.len() > limits::OWN_SESSIONS.size()).then(|| sessions.remove(0).0)
    }

    pub(super) fn ended(&self, caller: &Caller, own: &OwnSession) {
        let mut held = self.lock();
        let holder = holder(caller, own);
        let Some(sessions) = held.sessions.get_mut(&holder) else { return };
        sessions.retain(|(session, _)| session.id != own.id);
        if sessions.is_empty() {
            held.sessions.remove(&holder);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn sweep(&mut self, now: Instant) {
        let life = limits::GATEWAY_SESSION_SECONDS.seconds();
        self.sessions.retain(|_, sessions| {
            sessions.retain(|(_, used)| now.duration_since(*used) < life);
            !sessions.is_empty()
        });
        self.sweep_at = self.sessions.len() * 2;
    }
}

fn holder(caller: &Caller, own: &OwnSession) -> Holder {
    (caller.tenant, caller.user, own.server.clone())
}
