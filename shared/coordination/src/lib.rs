//! What calls share so that they do not overrun a server: rate limits and concurrency slots.
//!
//! One process keeps them for itself for now; that is why a second node which serves calls is
//! refused (`app::nodes`). [`Admission`] is the seam where a shared implementation joins.

mod local;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use local::{Slot, Ticket};

/// The calls that are limited together, with the numbers that hold from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Tenant and server.
    pub key: String,
    /// At least 1; fewer is read as 1, so that a group cannot be shut by its numbers.
    pub max_concurrent: u32,
    /// Calls that may wait; 0: a call that cannot start at once is refused.
    pub max_queue_depth: u32,
    /// A call that waited this long is taken out.
    pub queue_timeout: Duration,
    /// From the start of one call to the start of the next.
    pub min_interval: Duration,
}

/// How a call waits if it has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Depth and time-out hold.
    Bounded,
    /// A call that was released by a decision: it has waited already, so it waits outside depth and
    /// time-out, yet in the same order as all others.
    Unbounded,
}

/// What became of a call that wants to start.
#[derive(Debug)]
#[must_use]
pub enum Entry {
    /// It may run as long as it keeps the slot.
    Admitted(Slot),
    /// It waits.
    Queued(Ticket),
    /// As many as may wait do wait.
    Refused,
}

/// The call waited as long as it may, and was taken out of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueTimeout {
    pub queue_wait: Duration,
}

/// The limits of all groups. Clones share them.
///
/// Times are tokio's, so that a test can pause the clock.
#[derive(Debug, Clone)]
pub struct Admission(Shared);

#[derive(Debug, Clone)]
enum Shared {
    Local(local::Groups),
}

impl Admission {
    /// Limits that hold within this process.
    #[must_use]
    pub fn local() -> Self {
        Self(Shared::Local(local::Groups::default()))
    }

    /// Asks for a slot of `group`. Whoever came earlier starts earlier, whatever its [`Queue`].
    ///
    /// The numbers of the newest `group` hold for all calls of its key; the time-out of a call that
    /// waits already stays what it was.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn enter(&self, group: &Group, queue: Queue) -> Entry {
        let Shared::Local(groups) = &self.0;
        groups.enter(group, queue)
    }

    /// Takes a slot again for a call that gave its own back while its caller was asked something. It does
    /// not wait and may be one too many: others start when there is room again. It is no start, so
    /// pacing does not count it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn retake(&self, group: &Group) -> Slot {
        let Shared::Local(groups) = &self.0;
        groups.retake(group)
    }

    /// Lets no call of `key` start for `pause`. A shorter pause never ends a longer one early.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn cool_down(&self, key: &str, pause: Duration) {
        let Shared::Local(groups) = &self.0;
        groups.cool_down(key, pause);
    }

    /// Calls that wait, of both kinds.
    #[must_use]
    pub fn waiting(&self, key: &str) -> usize {
        let Shared::Local(groups) = &self.0;
        groups.waiting(key)
    }

    /// Calls that hold a slot.
    #[must_use]
    pub fn running(&self, key: &str) -> usize {
        let Shared::Local(groups) = &self.0;
        groups.running(key)
    }
}
