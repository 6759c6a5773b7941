//! The one error of the service, free of any transport.
//!
//! `Display` is what the caller may read; the source chain is for the log, once, at the edge.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[error("{public}")]
pub struct Error {
    pub code: Code,
    pub retry: Retry,
    /// Words for the caller: lower case, no full stop; never a table, a host or a secret.
    pub public: String,
    /// Machine-readable particulars, public too (`problem.details`).
    pub details: Option<Value>,
    /// A peer's own words; shown as untrusted, never as ours.
    pub untrusted: Option<String>,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Whether doing the same thing again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Never,
    Later,
    After(Duration),
}

impl Error {
    /// An error that carries the retry class that belongs to its code.
    pub fn new(code: Code, public: impl Into<String>) -> Self {
        let retry = if code.retryable() { Retry::Later } else { Retry::Never };
        Self { code, retry, public: public.into(), details: None, untrusted: None, source: None }
    }

    /// Something that should not happen; the caller learns no more than that.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(Code::Internal, "something went wrong on our side").because(source)
    }

    /// The thing does not exist for this caller.
    #[must_use]
    pub fn not_found(thing: impl fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("no such {thing}"))
    }

    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    #[must_use]
    pub fn with_untrusted(mut self, words: impl Into<String>) -> Self {
        self.untrusted = Some(words.into());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry = Retry::After(wait);
        self
    }

    #[must_use]
    pub fn retryable(&self) -> bool {
        self.retry != Retry::Never
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, retryable: $retryable:literal;)*) => {
        /// What went wrong, as callers and the audit name it. Each has a page in `docs/errors`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $text)] $variant,)*
        }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$variant),*];

            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }

            /// The class of the code; an [`Error`] may know better (an idempotent tool, a cool-down).
            #[must_use]
            pub fn retryable(self) -> bool {
                match self { $(Code::$variant => $retryable,)* }
            }
        }
    };
}

codes! {
    /// The input does not fit the tool's schema, or a body does not fit its route.
    InvalidInput = "INVALID_INPUT", retryable: false;
    /// Denied by a person or by policy.
    PermissionDenied = "PERMISSION_DENIED", retryable: false;
    /// Server, tool or source is switched off.
    SourceDisabled = "SOURCE_DISABLED", retryable: false;
    /// Revision or mode differs from the catalog entry's.
    ServerChanged = "SERVER_CHANGED", retryable: false;
    /// The definition differs from the approved one: quarantine.
    ToolChanged = "TOOL_CHANGED", retryable: false;
    /// Unknown, foreign or invisible.
    NotFound = "NOT_FOUND", retryable: false;
    /// No usable connection of one's own.
    ConnectionRequired = "CONNECTION_REQUIRED", retryable: false;
    ReconnectRequired = "RECONNECT_REQUIRED", retryable: false;
    /// The sealing key is missing or wrong.
    CredentialsUnreadable = "CREDENTIALS_UNREADABLE", retryable: false;
    /// A variable is missing, or a manifest does not fit.
    ServerMisconfigured = "SERVER_MISCONFIGURED", retryable: false;
    /// The upstream refused the credential.
    Unauthorized = "UNAUTHORIZED", retryable: false;
    InsufficientScope = "INSUFFICIENT_SCOPE", retryable: false;
    /// One more call than may wait.
    RateLimitQueueFull = "RATE_LIMIT_QUEUE_FULL", retryable: true;
    /// Taken out of the queue, never sent.
    RateLimitQueueTimeout = "RATE_LIMIT_QUEUE_TIMEOUT", retryable: true;
    /// The upstream answered 429 to the last attempt.
    RateLimited = "RATE_LIMITED", retryable: true;
    /// The tool's deadline passed.
    Timeout = "TIMEOUT", retryable: true;
    /// Transport failure or 5xx after the last attempt.
    UpstreamUnavailable = "UPSTREAM_UNAVAILABLE", retryable: true;
    /// The upstream answered something else than it should.
    UpstreamFormat = "UPSTREAM_FORMAT", retryable: true;
    /// The tool answered `isError`.
    ToolError = "TOOL_ERROR", retryable: false;
    ResponseTooLarge = "RESPONSE_TOO_LARGE", retryable: false;
    NormalizationFailed = "NORMALIZATION_FAILED", retryable: false;
    /// The sign-in of a server cannot be found or used; `details.step` says where it failed.
    OauthDiscoveryFailed = "OAUTH_DISCOVERY_FAILED", retryable: false;
    /// The caller cancelled.
    Cancelled = "CANCELLED", retryable: false;
    /// The node died during the call.
    Interrupted = "INTERRUPTED", retryable: false;
    /// No or bad credentials of the caller.
    Unauthenticated = "UNAUTHENTICATED", retryable: false;
    /// The caller's role or scope may never do this.
    Denied = "DENIED", retryable: false;
    Conflict = "CONFLICT", retryable: false;
    /// The form's revision is no longer the current one.
    RevisionConflict = "REVISION_CONFLICT", retryable: false;
    PermissionAlreadyResolved = "PERMISSION_ALREADY_RESOLVED", retryable: false;
    /// The key of another request.
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED", retryable: false;
    SessionArchived = "SESSION_ARCHIVED", retryable: false;
    /// A built-in server's fields cannot be written.
    BuiltIn = "BUILT_IN", retryable: false;
    /// An event id that is no longer kept.
    Gone = "GONE", retryable: false;
    /// Too many requests to us.
    Limited = "LIMITED", retryable: true;
    Unavailable = "UNAVAILABLE", retryable: true;
    Internal = "INTERNAL", retryable: false;
}

impl Code {
    /// The code that [`as_str`](Self::as_str) names, if any.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
