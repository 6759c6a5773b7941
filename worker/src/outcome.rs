//! What becomes of a job that was not done.

use std::time::Duration;

use domain::{Code, Error, Retry, limits};

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The same once more, later.
    RetryAfter(Duration),
    /// Whatever has to change first asks for the job again when it does.
    Park,
    /// It stays undone; this was said to whoever asked for it.
    GiveUp,
}

impl Outcome {
    /// After try number `attempt` (0 is the first) ended in `error`.
    pub(crate) fn of(error: &Error, attempt: u32) -> Self {
        match error.code {
            Code::RateLimitQueueFull
            | Code::RateLimitQueueTimeout
            | Code::RateLimited
            | Code::Limited
            | Code::Timeout
            | Code::UpstreamUnavailable
            | Code::UpstreamFormat
            | Code::Unavailable
            | Code::Interrupted
            | Code::CredentialsUnreadable
            | Code::Internal => retry(error, attempt),

            // A person, a configuration or a connection is in the way.
            Code::PermissionDenied
            | Code::SourceDisabled
            | Code::ServerChanged
            | Code::ToolChanged
            | Code::ConnectionRequired
            | Code::ReconnectRequired
            | Code::ServerMisconfigured
            | Code::Unauthorized
            | Code::InsufficientScope
            | Code::OauthDiscoveryFailed
            | Code::Conflict
            | Code::RevisionConflict => Self::Park,

            Code::InvalidInput
            | Code::NotFound
            | Code::Gone
            | Code::ToolError
            | Code::ResponseTooLarge
            | Code::NormalizationFailed
            | Code::Cancelled
            | Code::Unauthenticated
            | Code::Denied
            | Code::PermissionAlreadyResolved
            | Code::IdempotencyKeyReused
            | Code::SessionArchived
            | Code::BuiltIn => Self::GiveUp,
        }
    }
}

fn retry(error: &Error, attempt: u32) -> Outcome {
    if u64::from(attempt) + 1 >= limits::JOB_ATTEMPTS.default {
        return Outcome::GiveUp;
    }
    let doubled = limits::JOB_BACKOFF_MS.millis().saturating_mul(1 << attempt.min(16));
    let asked = match error.retry {
        Retry::After(wait) => wait,
        Retry::Never | Retry::Later => Duration::ZERO,
    };
    Outcome::RetryAfter(doubled.max(asked).min(limits::JOB_BACKOFF_CEILING_MS.millis()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{Code, Error};

    use super::Outcome;

    #[test]
    fn pauses_double_until_the_attempts_are_used_up() {
        let error = Error::new(Code::UpstreamUnavailable, "it does not answer");
        let outcomes: Vec<Outcome> = (0..5).map(|attempt| Outcome::of(&error, attempt)).collect();
        let after = |seconds| Outcome::RetryAfter(Duration::from_secs(seconds));
        assert_eq!(outcomes, [after(2), after(4), after(8), after(16), Outcome::GiveUp]);
    }

    #[test]
    fn a_server_that_asks_for_more_time_gets_it_within_reason() {
        let asks = |seconds| {
            let wait = Duration::from_secs(seconds);
            Outcome::of(&Error::new(Code::RateLimited, "later").retry_after(wait), 0)
        };
        assert_eq!(asks(30), Outcome::RetryAfter(Duration::from_secs(30)));
        assert_eq!(asks(86_400), Outcome::RetryAfter(Duration::from_mins(5)));
    }

    #[test]
    fn what_only_a_person_can_mend_is_parked_and_nonsense_is_given_up() {
        let of = |code| Outcome::of(&Error::new(code, "no"), 0);
        assert_eq!(of(Code::SourceDisabled), Outcome::Park);
        assert_eq!(of(Code::NotFound), Outcome::GiveUp);
    }
}
