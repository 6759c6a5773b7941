//! A person's own connection to a server: its states, and when a credential is to be refreshed
//! (design: connections, "Revision and generation").

use std::time::Duration;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::{
    Code, Error, Timestamp,
    caller::names,
    ids::{ServerId, UserId},
    limits,
    server::AuthMode,
};

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// Never there, or cleared by its owner.
    Disconnected,
    Connected,
    /// Cleared by something else than its owner.
    ReconnectRequired,
}

names!(ConnectionState, "connection state", Disconnected => "disconnected",
    Connected => "connected", ReconnectRequired => "reconnect_required");

/// Why a connection has to be made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReconnectReason {
    /// The server was configured anew: what was given to the old one is not for the new one.
    ConfigurationChanged,
    /// The server refused the credential (401).
    Refused,
    /// The authorization server refused to refresh it (`invalid_grant`).
    RefreshRefused,
    /// The authorization server does not know us any more (`invalid_client`).
    RegistrationLost,
    /// It expired, and there is nothing to refresh it with.
    Expired,
    /// A superadmin disconnected everyone.
    EndedForEveryone,
    /// No key opens it. Never stored: it lasts as long as the key is missing.
    Unreadable,
}

names!(ReconnectReason, "reason", ConfigurationChanged => "configuration_changed",
    Refused => "refused", RefreshRefused => "refresh_refused",
    RegistrationLost => "registration_lost", Expired => "expired",
    EndedForEveryone => "ended_for_everyone", Unreadable => "unreadable");

impl ReconnectReason {
    /// For people, after "reconnect: ".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ConfigurationChanged => "the server was configured anew",
            Self::Refused => "the server refused the credential",
            Self::RefreshRefused => "the provider ended the grant",
            Self::RegistrationLost => "the provider does not know this installation any more",
            Self::Expired => "the credential expired and cannot be refreshed",
            Self::EndedForEveryone => "a superadmin disconnected everyone",
            Self::Unreadable => "the key that opens the stored credential is missing",
        }
    }
}

/// What a credential is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    Bearer,
    ApiKey,
    Oauth,
}

names!(CredentialKind, "kind of credential", Bearer => "bearer", ApiKey => "api_key",
    Oauth => "oauth");

impl CredentialKind {
    /// What a mode takes; `None`: it takes none of a person's.
    #[must_use]
    pub fn of(mode: AuthMode) -> Option<Self> {
        match mode {
            AuthMode::Bearer => Some(Self::Bearer),
            AuthMode::ApiKey => Some(Self::ApiKey),
            AuthMode::Oauth => Some(Self::Oauth),
            AuthMode::None | AuthMode::SharedHeaders | AuthMode::Delegation => None,
        }
    }
}

/// One person's connection to one server, without its credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub server: ServerId,
    pub user: UserId,
    /// Grows whenever a credential is put in or taken out.
    pub generation: i64,
    /// Grows within a generation whenever the credential is refreshed.
    pub version: i64,
    pub state: ConnectionState,
    pub reason: Option<ReconnectReason>,
    pub kind: Option<CredentialKind>,
    /// At the provider, as far as it told.
    pub account: Option<String>,
    pub issuer: Option<String>,
    pub scopes: Vec<String>,
    /// Asked for by the server besides.
    pub needs_scopes: Vec<String>,
    /// `None`: unknown.
    pub expires_at: Option<Timestamp>,
    pub refresh_at: Option<Timestamp>,
    pub connected_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub updated_at: Timestamp,
}

/// What is put into a connection, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub kind: CredentialKind,
    pub account: Option<String>,
    pub issuer: Option<String>,
    pub scopes: Vec<String>,
    pub expires_at: Option<Timestamp>,
    pub refresh_at: Option<Timestamp>,
}

impl Grant {
    /// A static secret: no expiry, no scopes.
    #[must_use]
    pub fn secret(kind: CredentialKind) -> Self {
        Self {
            kind,
            account: None,
            issuer: None,
            scopes: Vec::new(),
            expires_at: None,
            refresh_at: None,
        }
    }
}

impl Connection {
    /// That nobody made yet.
    #[must_use]
    pub fn none(server: ServerId, user: UserId, now: Timestamp) -> Self {
        Self {
            server,
            user,
            generation: 0,
            version: 0,
            state: ConnectionState::Disconnected,
            reason: None,
            kind: None,
            account: None,
            issuer: None,
            scopes: Vec::new(),
            needs_scopes: Vec::new(),
            expires_at: None,
            refresh_at: None,
            connected_at: None,
            last_used_at: None,
            updated_at: now,
        }
    }

    /// Publishes a credential: generation + 1.
    pub fn connect(&mut self, grant: Grant, now: Timestamp) {
        self.generation += 1;
        self.version = 1;
        self.state = ConnectionState::Connected;
        self.reason = None;
        self.kind = Some(grant.kind);
        self.account = grant.account;
        self.issuer = grant.issuer;
        self.needs_scopes.retain(|scope| !grant.scopes.contains(scope));
        self.scopes = grant.scopes;
        self.expires_at = grant.expires_at;
        self.refresh_at = grant.refresh_at;
        self.connected_at = Some(now);
        self.last_used_at = None;
        self.updated_at = now;
    }

    /// Takes the credential out: generation + 1. `None`: its owner wants it so.
    pub fn clear(&mut self, reason: Option<ReconnectReason>, now: Timestamp) {
        self.generation += 1;
        self.state = match reason {
            None => ConnectionState::Disconnected,
            Some(_) => ConnectionState::ReconnectRequired,
        };
        self.reason = reason;
        self.expires_at = None;
        self.refresh_at = None;
        self.updated_at = now;
        if reason.is_none() {
            // The next connection may be another account's, with other rights.
            self.scopes.clear();
            self.needs_scopes.clear();
            self.account = None;
        }
    }
}

/// What a call says that finds no credential.
#[must_use]
pub fn not_connected(state: ConnectionState, reason: Option<ReconnectReason>) -> Error {
    match (state, reason) {
        (ConnectionState::ReconnectRequired, reason) => {
            let why = reason.map_or("the connection was cleared", ReconnectReason::words);
            let words = format!("connect your account to this server again: {why}");
            Error::new(Code::ReconnectRequired, words)
        }
        _ => Error::new(
            Code::ConnectionRequired,
            "this server is used with your own account: connect it first",
        ),
    }
}

/// When a credential that lives for `life` from `received` on is to be refreshed before its use: a
/// tenth of its life before the end, at most [`limits::REFRESH_MARGIN_SECONDS`]; and up to half as
/// much earlier (`jitter`, 0 to 1), so that credentials given at the same moment are not all refreshed
/// at the same moment.
#[must_use]
pub fn refresh_at(received: Timestamp, life: Duration, jitter: f64) -> Timestamp {
    let margin = (life / 10).min(limits::REFRESH_MARGIN_SECONDS.seconds());
    let early = margin.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 2.0);
    received + TimeDelta::from_std(life.saturating_sub(early)).unwrap_or(TimeDelta::MAX)
}

/// The union of scopes, in the order in which they came.
#[must_use]
pub fn union(of: &[String], with: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut union = of.to_vec();
    for scope in with {
        if !union.contains(&scope) {
            union.push(scope);
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn connection() -> Connection {
        Connection::none(ServerId::from("s"), UserId(uuid::Uuid::nil()), at(0))
    }

    #[test]
    fn a_generation_only_grows_whatever_happens() {
        let mut connection = connection();
        connection.connect(Grant::secret(CredentialKind::Bearer), at(1));
        connection.clear(Some(ReconnectReason::Refused), at(2));
        connection.connect(Grant::secret(CredentialKind::ApiKey), at(3));
        connection.clear(None, at(4));
        connection.clear(None, at(5));
        assert_eq!((connection.generation, connection.state), (5, ConnectionState::Disconnected));
    }

    #[test]
    fn what_the_owner_did_not_clear_is_to_be_connected_again() {
        let mut connection = connection();
        connection.clear(Some(ReconnectReason::ConfigurationChanged), at(1));
        assert_eq!(connection.state, ConnectionState::ReconnectRequired);
        let error = not_connected(connection.state, connection.reason);
        assert_eq!(error.code, Code::ReconnectRequired);
        connection.clear(None, at(2));
        assert_eq!(not_connected(connection.state, None).code, Code::ConnectionRequired);
    }

    #[test]
    fn scopes_that_were_granted_are_needed_no_more() {
        let mut connection = connection();
        connection.needs_scopes = vec!["a".into(), "b".into()];
        let grant = Grant { scopes: vec!["a".into()], ..Grant::secret(CredentialKind::Oauth) };
        connection.connect(grant, at(1));
        assert_eq!(connection.needs_scopes, ["b"]);
    }

    #[test]
    fn a_credential_is_refreshed_before_its_end_and_never_before_its_beginning() {
        let hour = Duration::from_hours(1);
        assert_eq!(refresh_at(at(0), hour, 0.0), at(3_540));
        assert_eq!(refresh_at(at(0), hour, 1.0), at(3_510));
        let short = refresh_at(at(0), Duration::from_secs(2), 1.0);
        assert!(short > at(0) && short < at(2), "{short}");
        assert_eq!(refresh_at(at(0), Duration::ZERO, 1.0), at(0));
    }

    #[test]
    fn a_union_keeps_the_order() {
        let both = union(&["a".into(), "b".into()], ["b".into(), "c".into()]);
        assert_eq!(both, ["a", "b", "c"]);
    }
}
