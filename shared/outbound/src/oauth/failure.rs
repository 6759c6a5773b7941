//! What a step of OAuth that failed means.

use std::time::Duration;

use domain::{Code, Error, Retry};

use crate::http::{Failure, Ran};

/// Why a step did not succeed. `Display` never holds a word of the provider.
#[derive(Debug, thiserror::Error)]
pub enum OAuthFailure {
    /// The server, or what it names, does not describe a usable authorization server. `step` is one of [`step`].
    #[error("the server's sign-in cannot be found: {step}")]
    Discovery { step: &'static str },
    /// The authorization server answered and says no.
    #[error("the authorization server refused: {0}")]
    Refused(Denial),
    /// No usable answer now: not reached, cut off, too slow, 5xx, 429. May be tried again.
    #[error("the authorization server is not available")]
    Unavailable {
        error: Error,
        /// [`Ran::Unknown`]: a code or a refresh token may have been spent.
        ran: Ran,
    },
    /// It answered something that is not the protocol; names what.
    #[error("the authorization server's answer cannot be used: {0}")]
    Malformed(&'static str),
    /// We may not, or cannot, ask there: the egress rules, or our own settings.
    #[error("{0}")]
    Egress(Error),
}

/// The steps of discovery that can fail, as `details.step` names them.
pub mod step {
    /// Neither the server nor its metadata names an authorization server.
    pub const DISCOVERED_NOTHING: &str = "discovered_nothing";
    /// The resource metadata describes another server (RFC 9728, section 3.3).
    pub const RESOURCE_MISMATCH: &str = "resource_mismatch";
    /// The resource metadata lists no authorization server, or an address that is none.
    pub const NO_AUTHORIZATION_SERVER: &str = "no_authorization_server";
    /// The configured issuer is not among those that the server lists.
    pub const ISSUER_NOT_LISTED: &str = "issuer_not_listed";
    /// The authorization server publishes no metadata.
    pub const AUTHORIZATION_SERVER_METADATA: &str = "authorization_server_metadata";
    /// The metadata names another issuer than was asked, or none (RFC 8414, section 3.3).
    pub const ISSUER_MISMATCH: &str = "issuer_mismatch";
    /// PKCE with S256 is not listed (MCP, authorization: security considerations).
    pub const PKCE: &str = "pkce_s256_not_listed";
    /// An address is neither https nor loopback http that the operator listed.
    pub const INSECURE_URL: &str = "insecure_url";
    /// The issuer publishes no usable signing keys (RFC 7517).
    pub const KEYS: &str = "signing_keys";
    /// The authorization server registers no clients by itself (RFC 7591).
    pub const REGISTRATION: &str = "registration_not_offered";
}

/// The error codes that make a difference to us (RFC 6749, section 5.2; RFC 8707; RFC 7591).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The code or refresh token is no longer, or was never, good.
    #[error("invalid_grant")]
    InvalidGrant,
    /// The client is unknown (a forgotten registration) or its secret is wrong.
    #[error("invalid_client")]
    InvalidClient,
    #[error("invalid_scope")]
    InvalidScope,
    /// The `resource` is not one that it knows.
    #[error("invalid_target")]
    InvalidTarget,
    #[error("access_denied")]
    AccessDenied,
    #[error("it gave a reason that we do not know")]
    Other,
}

impl Denial {
    /// By `error` of an answer or of a callback. GitHub and Slack have names of their own for some.
    #[must_use]
    pub fn named(error: &str) -> Self {
        match error {
            "invalid_grant"
            | "bad_verification_code"
            | "bad_refresh_token"
            | "invalid_code"
            | "invalid_refresh_token"
            | "interaction_required"
            | "consent_required"
            | "login_required" => Self::InvalidGrant,
            "invalid_client"
            | "incorrect_client_credentials"
            | "invalid_client_id"
            | "bad_client_secret"
            | "unauthorized_client" => Self::InvalidClient,
            "invalid_scope" => Self::InvalidScope,
            "invalid_target" => Self::InvalidTarget,
            "access_denied" => Self::AccessDenied,
            _ => Self::Other,
        }
    }
}

impl OAuthFailure {
    pub(super) const fn at(step: &'static str) -> Self {
        Self::Discovery { step }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether the code or refresh token that the request went with may be spent.
    #[must_use]
    pub fn may_have_spent(&self) -> bool {
        matches!(self, Self::Unavailable { ran: Ran::Unknown, .. } | Self::Malformed(_))
    }

    /// How long the provider asks to wait before the next request.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { error, .. } => match error.retry {
                Retry::After(wait) => Some(wait),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn unavailable(failure: Failure) -> Self {
        let Failure { error, ran } = failure;
        Self::Unavailable { error, ran }
    }

    pub(super) fn late() -> Self {
        let error = Error::new(Code::UpstreamUnavailable, "the server did not answer in time");
        Self::Unavailable { error, ran: Ran::Unknown }
    }

    /// It says itself that another time is better: `temporarily_unavailable` before it did anything,
    /// `server_error` at any moment.
    pub(super) fn busy(code: &str) -> Self {
        let error = Error::new(Code::UpstreamUnavailable, "the authorization server is busy");
        let ran = if code == "temporarily_unavailable" { Ran::No } else { Ran::Unknown };
        Self::Unavailable { error, ran }
    }
}

impl From<Failure> for OAuthFailure {
    fn from(failure: Failure) -> Self {
        match failure.error.code {
            Code::ServerMisconfigured | Code::Internal => Self::Egress(failure.error),
            Code::ResponseTooLarge => Self::Malformed("it is larger than the limit"),
            Code::UpstreamFormat => Self::Malformed("it is no HTTP that we can read"),
            _ => Self::unavailable(failure),
        }
    }
}
