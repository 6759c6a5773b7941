//! One newtype per identifier, so that two of them cannot be swapped.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }
    )*};
}

uuid_ids! {
    /// A company; every tenant row begins its key with it.
    TenantId;
    /// A person of one tenant.
    UserId;
    /// An API token; its secret is stored as a digest only.
    TokenId;
    /// A person's sign-in with one browser; its cookie is stored as a digest only.
    WebSessionId;
    /// A folder of sessions.
    ProjectId;
    /// A conversation of one person: the scope of grants, mode and selection.
    SessionId;
    /// One governed call, for ever in the audit.
    InvocationId;
    /// What asked for a call: a gateway request, an Inspector call, a run.
    ExecutionId;
    /// A question to the person whether a call may happen.
    PermissionRequestId;
    /// A standing permission of a session.
    PermissionGrantId;
    /// Proof that one call was allowed or denied; used once.
    AuthorizationId;
    /// The state of a session's permissions at one moment; each change makes a new one.
    PermissionEpochId;
    /// One process of the service.
    NodeId;
    /// One try to connect by OAuth.
    OauthAttemptId;
    /// One try to sign in at the company's issuer.
    CompanySignInId;
    /// A recorded change of configuration, identity or policy.
    AuditEventId;
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.to_owned())
            }
        }
    )*};
}

text_ids! {
    /// An MCP server of a tenant: `custom-<12 hex>` or the id of a built-in one. Also the source id
    /// of its tools.
    ServerId;
    /// A tool of a server as routes, policies, grants and audit name it (`[A-Za-z0-9_]{1,36}`).
    ToolId;
}
