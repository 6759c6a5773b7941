//! MCP sessions that their clients ended: nothing is answered in them any more (MCP 2025-11-25:
//! Transports, "Session Management").
//!
//! What a session is stands in its id, and so an id lives on until it expires. That it was ended is
//! remembered here by the process that serves calls. One that started since then does not know it; but
//! whatever a session had upstream is gone all the same.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use domain::limits;
use tokio::time::Instant;

use super::McpSession;

/// The ended sessions of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended(Arc<Mutex<HashMap<McpSession, Instant>>>);

impl Ended {
    pub(super) fn end(&self, session: McpSession) {
        let now = Instant::now();
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() >= limits::ENDED_SESSIONS.size() {
            // No id is good for longer; where that frees nothing, the oldest goes.
            let life = limits::GATEWAY_SESSION_SECONDS.seconds();
            ended.retain(|_, at| now.duration_since(*at) < life);
            if ended.len() >= limits::ENDED_SESSIONS.size() {
                let oldest = ended.iter().min_by_key(|(_, at)| **at).map(|(session, _)| *session);
                oldest.map(|oldest| ended.remove(&oldest));
            }
        }
        ended.insert(session, now);
    }

    pub(super) fn has(&self, session: McpSession) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&session)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_was_ended_is_known_and_memory_is_bounded() {
        let ended = Ended::default();
        let (first, last) = (Uuid::new_v4(), Uuid::new_v4());
        ended.end(first);
        assert!(ended.has(first) && !ended.has(last));
        for _ in 0..limits::ENDED_SESSIONS.size() {
            ended.end(Uuid::new_v4());
        }
        ended.end(last);
        assert!(ended.has(last));
        assert!(ended.0.lock().unwrap().len() <= limits::ENDED_SESSIONS.size());
    }
}
