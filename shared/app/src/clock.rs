//! The only source of the current time.

use std::sync::{Arc, Mutex, PoisonError};

use domain::Timestamp;
use uuid::Uuid;

/// The machine's clock, or one that a test moves.
#[derive(Debug, Clone)]
pub enum Clock {
    System,
    Fixed(Arc<Mutex<Timestamp>>),
}

impl Clock {
    /// A clock that stands still until [`Clock::advance`].
    #[must_use]
    pub fn fixed(now: Timestamp) -> Self {
        Self::Fixed(Arc::new(Mutex::new(now)))
    }

    /// Now, in whole microseconds: what Postgres stores is what we compare and hash.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn now(&self) -> Timestamp {
        use chrono::SubsecRound;
        match self {
            Self::System => chrono::Utc::now().trunc_subsecs(6),
            Self::Fixed(now) => *now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// A new UUIDv7 id that carries this moment.
    #[must_use]
    pub fn mint<Id: From<Uuid>>(&self) -> Id {
        let now = self.now();
        let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
        let time =
            uuid::Timestamp::from_unix(uuid::NoContext, seconds, now.timestamp_subsec_nanos());
        Id::from(Uuid::new_v7(time))
    }

    /// Moves a fixed clock; a system clock takes no notice.
    pub fn advance(&self, by: chrono::TimeDelta) {
        if let Self::Fixed(now) = self {
            *now.lock().unwrap_or_else(PoisonError::into_inner) += by;
        }
    }
}
