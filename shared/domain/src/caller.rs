//! Who is asking, and what they may ever do.

use serde::{Deserialize, Serialize};

use crate::{
    Code, Error, Timestamp,
    ids::{ServerId, SessionId, TenantId, TokenId, UserId, WebSessionId},
};

/// What a person may do in their tenant; later ones include earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Member,
    Admin,
    Superadmin,
}

/// What a token may do, whatever its owner's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Call tools at the gateway.
    #[serde(rename = "mcp:call")]
    McpCall,
    #[serde(rename = "api:read")]
    ApiRead,
    #[serde(rename = "api:write")]
    ApiWrite,
    /// Decide questions, switch modes, grant, set policies. Never together with `mcp:call`.
    #[serde(rename = "approve")]
    Approve,
    /// The admin and superadmin routes, as far as the role goes.
    #[serde(rename = "admin")]
    Admin,
}

macro_rules! names {
    ($type:ident, $what:literal, $($variant:ident => $text:literal),*) => {
        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $text),* }
            }
        }

        impl std::str::FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                match text {
                    $($text => Ok($type::$variant),)*
                    // Not repeated: it may be anything, also a secret in the wrong place.
                    _ => Err(Error::new(Code::InvalidInput, format!(
                        concat!("unknown ", $what, ": it must be one of {}"), [$($text),*].join(", ")))),
                }
            }
        }
    };
}
pub(crate) use names;

names!(Role, "role", Member => "member", Admin => "admin", Superadmin => "superadmin");
names!(Scope, "scope", McpCall => "mcp:call", ApiRead => "api:read", ApiWrite => "api:write", Approve => "approve", Admin => "admin");

/// A set of scopes that may stand on one token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Sorted, without repetitions.
    ///
    /// Refused with [`Code::InvalidInput`]: none at all, and `approve` beside `mcp:call` — whoever
    /// calls must never be able to permit.
    pub fn new(scopes: impl IntoIterator<Item = Scope>) -> Result<Self, Error> {
        let mut scopes: Vec<Scope> = scopes.into_iter().collect();
        scopes.sort_unstable();
        scopes.dedup();
        let refused = |words: &str| Err(Error::new(Code::InvalidInput, words));
        if scopes.is_empty() {
            return refused("a token needs at least one scope");
        }
        if scopes.contains(&Scope::McpCall) && scopes.contains(&Scope::Approve) {
            return refused("approve cannot be combined with mcp:call: who calls may not permit");
        }
        Ok(Self(scopes))
    }

    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    pub fn iter(&self) -> impl Iterator<Item = Scope> + '_ {
        self.0.iter().copied()
    }

    /// Whether every one of these is in `other`.
    #[must_use]
    pub fn within(&self, other: &Scopes) -> bool {
        self.iter().all(|scope| other.has(scope))
    }
}

/// What a token is limited to beyond its scopes; `None` = not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    pub sources: Option<Vec<ServerId>>,
    /// Agent names (`mcp__<source>__<tool>`).
    pub tools: Option<Vec<String>>,
    pub sessions: Option<Vec<SessionId>>,
}

impl Reach {
    #[must_use]
    pub fn covers_source(&self, source: &ServerId) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.contains(source))
    }

    #[must_use]
    pub fn covers_tool(&self, agent_name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| tool == agent_name))
    }

    #[must_use]
    pub fn covers_session(&self, session: SessionId) -> bool {
        self.sessions.as_ref().is_none_or(|sessions| sessions.contains(&session))
    }

    /// Whether nothing is reachable here that is not reachable by `other`.
    #[must_use]
    pub fn within(&self, other: &Reach) -> bool {
        fn subset<T: PartialEq>(inner: Option<&Vec<T>>, outer: Option<&Vec<T>>) -> bool {
            match (inner, outer) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(inner), Some(outer)) => inner.iter().all(|one| outer.contains(one)),
            }
        }
        subset(self.sources.as_ref(), other.sources.as_ref())
            && subset(self.tools.as_ref(), other.tools.as_ref())
            && subset(self.sessions.as_ref(), other.sessions.as_ref())
    }
}

/// The way by which somebody reached us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The operator on the machine itself (commands, first start).
    Operator,
    /// A page, or a REST request, of this browser session.
    Console(WebSessionId),
    /// A REST request with this token.
    Token(TokenId),
    /// An MCP request with this token.
    Gateway(TokenId),
    /// An MCP request with a token of the company's issuer, which is good until then.
    Company(Timestamp),
}

/// An authenticated person, as far as this request reaches. Made only by `app::identity`.
#[derive(Debug, Clone)]
pub struct Caller {
    pub tenant: TenantId,
    pub user: UserId,
    pub role: Role,
    pub scopes: Scopes,
    pub reach: Reach,
    pub via: Via,
}

impl Caller {
    /// Refuses with [`Code::Denied`] unless the token carries `scope`.
    pub fn require_scope(&self, scope: Scope) -> Result<(), Error> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        Err(Error::new(Code::Denied, format!("this needs the scope {}", scope.as_str())))
    }

    /// Refuses with [`Code::Denied`] unless the person is at least `role` and the token has `admin`.
    pub fn require_role(&self, role: Role) -> Result<(), Error> {
        if self.role < role {
            return Err(Error::new(Code::Denied, format!("this needs the role {}", role.as_str())));
        }
        self.require_scope(Scope::Admin)
    }

    #[must_use]
    pub fn token(&self) -> Option<TokenId> {
        match self.via {
            Via::Token(id) | Via::Gateway(id) => Some(id),
            Via::Operator | Via::Console(_) | Via::Company(_) => None,
        }
    }
}
