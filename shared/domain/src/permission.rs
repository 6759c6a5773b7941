//! Whether a call may happen, and who says so.
//!
//! ```text
//! pending ──decide──▶ allowed (yields an Authorization)
//!    │  └─decide────▶ denied  (yields an Authorization with outcome denied)
//!    └────cancel────▶ cancelled (its owner ended, or it expired)
//! ```

use serde::{Deserialize, Serialize};

use crate::{
    Code, Error, Timestamp,
    caller::names,
    ids::{AuthorizationId, PermissionRequestId, SessionId},
    json::Sha256Digest,
};

/// How a session treats dangerous calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalMode {
    AskForDangerous,
    AlwaysAllow,
}

impl ApprovalMode {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AskForDangerous => "ask_for_dangerous",
            Self::AlwaysAllow => "always_allow",
        }
    }

    /// A stored `never_ask` of earlier systems reads as `always_allow`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "ask_for_dangerous" => Some(Self::AskForDangerous),
            "always_allow" | "never_ask" => Some(Self::AlwaysAllow),
            _ => None,
        }
    }
}

/// The superadmin's word on one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolPolicy {
    Ask,
    Allow,
    Deny,
}

names!(ToolPolicy, "policy", Ask => "ask", Allow => "allow", Deny => "deny");

/// A person's answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This action only; no grant.
    AllowOnce,
    /// This action, and a grant for its class in this session.
    AllowMatching,
    Deny,
}

names!(Decision, "decision", AllowOnce => "allow_once", AllowMatching => "allow_matching", Deny => "deny");

/// What a [`PermissionAuthorization`](crate::ids::AuthorizationId) rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorizationSource {
    AlwaysAllow,
    PolicyAllow,
    ExistingGrant,
    UserOnce,
    UserGrant,
    UserDeny,
    PolicyDeny,
    Inspector,
}

names!(AuthorizationSource, "authorization source",
    AlwaysAllow => "always_allow", PolicyAllow => "policy_allow", ExistingGrant => "existing_grant",
    UserOnce => "user_once", UserGrant => "user_grant", UserDeny => "user_deny",
    PolicyDeny => "policy_deny", Inspector => "inspector");

impl AuthorizationSource {
    /// Whether the call may happen.
    #[must_use]
    pub fn allows(self) -> bool {
        !matches!(self, Self::UserDeny | Self::PolicyDeny)
    }
}

/// All that the order of checks looks at.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    pub policy: ToolPolicy,
    pub mode: ApprovalMode,
    /// A person tries the tool by hand, with the right to approve.
    pub inspector: bool,
    /// Custom tools always are, whatever their annotations say.
    pub dangerous: bool,
    /// A standing grant of the session covers the action, resource class and definition.
    pub granted: bool,
}

/// What follows from a [`Situation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed or denied without asking; the source goes on the authorization.
    Settled(AuthorizationSource),
    /// Harmless by its manifest: no authorization is needed.
    Harmless,
    Ask,
}

/// Policy deny → Inspector → always allow → policy allow → not dangerous → grant → ask.
#[must_use]
pub fn decide(situation: Situation) -> Verdict {
    use AuthorizationSource as Source;
    if situation.policy == ToolPolicy::Deny {
        return Verdict::Settled(Source::PolicyDeny);
    }
    if situation.inspector {
        return Verdict::Settled(Source::Inspector);
    }
    if situation.mode == ApprovalMode::AlwaysAllow {
        return Verdict::Settled(Source::AlwaysAllow);
    }
    if situation.policy == ToolPolicy::Allow {
        return Verdict::Settled(Source::PolicyAllow);
    }
    if !situation.dangerous {
        return Verdict::Harmless;
    }
    if situation.granted {
        return Verdict::Settled(Source::ExistingGrant);
    }
    Verdict::Ask
}

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestState {
    Pending,
    Allowed,
    Denied,
    Cancelled,
}

names!(RequestState, "request state", Pending => "pending", Allowed => "allowed", Denied => "denied", Cancelled => "cancelled");

/// Who waits for the answer; its end cancels the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnerKind {
    Run,
    Inspector,
    Gateway,
    Plan,
    /// An agent host's own execution.
    Host,
}

names!(OwnerKind, "owner kind", Run => "run", Inspector => "inspector", Gateway => "gateway", Plan => "plan", Host => "host");

/// Why a session's permissions entered a new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpochReason {
    SessionCreated,
    Decision,
    ModeChanged,
    GrantRevoked,
    /// Somebody asked for it.
    Rotated,
}

names!(EpochReason, "epoch reason",
    SessionCreated => "session_created", Decision => "decision", ModeChanged => "mode_changed",
    GrantRevoked => "grant_revoked", Rotated => "rotated");

/// What a decided question yields: the proof, and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    pub authorization: AuthorizationId,
    pub source: AuthorizationSource,
}

/// The part of a question that a decision changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRequest {
    pub id: PermissionRequestId,
    pub session: SessionId,
    pub state: RequestState,
    pub expires_at: Option<Timestamp>,
    pub matches: Matching,
}

/// What a grant is on, and what a later call must match.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Matching {
    /// `tool_call` for custom tools.
    pub action: String,
    pub resource_class: String,
    pub definition_hash: Option<Sha256Digest>,
}

impl PermissionRequest {
    /// A person decides. The loser of two gets [`Code::PermissionAlreadyResolved`].
    pub fn decide(mut self, decision: Decision, now: Timestamp) -> Result<Self, Error> {
        if self.state != RequestState::Pending || self.expires_at.is_some_and(|at| at <= now) {
            return Err(Error::new(
                Code::PermissionAlreadyResolved,
                format!("the question is already {}", self.shown_state(now).as_str()),
            ));
        }
        self.state = match decision {
            Decision::AllowOnce | Decision::AllowMatching => RequestState::Allowed,
            Decision::Deny => RequestState::Denied,
        };
        Ok(self)
    }

    /// Its owner ended. Idempotent on whatever is no longer pending.
    #[must_use]
    pub fn cancel(mut self) -> Self {
        if self.state == RequestState::Pending {
            self.state = RequestState::Cancelled;
        }
        self
    }

    /// An expired question counts as cancelled even before the reaper has said so.
    #[must_use]
    pub fn shown_state(&self, now: Timestamp) -> RequestState {
        match self.state {
            RequestState::Pending if self.expires_at.is_some_and(|at| at <= now) => {
                RequestState::Cancelled
            }
            state => state,
        }
    }
}

/// The action of every call of a custom tool.
pub const TOOL_CALL: &str = "tool_call";

/// The class of resources that a grant for this one would cover: for `connector` and
/// `artifact_download` the first two `:` segments; a custom tool is its own class.
#[must_use]
pub fn resource_class(action: &str, resource: &str) -> String {
    match action {
        "connector" | "artifact_download" => {
            resource.split(':').take(2).collect::<Vec<_>>().join(":")
        }
        _ => resource.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use chrono::{TimeZone, Utc};
    use uuid::Uuid;

    use super::*;

    fn situation() -> Situation {
        Situation {
            policy: ToolPolicy::Ask,
            mode: ApprovalMode::AskForDangerous,
            inspector: false,
            dangerous: true,
            granted: false,
        }
    }

    #[test]
    fn the_superadmins_no_outweighs_everything() {
        let all = Situation {
            policy: ToolPolicy::Deny,
            mode: ApprovalMode::AlwaysAllow,
            inspector: true,
            dangerous: false,
            granted: true,
        };
        assert_eq!(decide(all), Verdict::Settled(AuthorizationSource::PolicyDeny));
    }

    #[test]
    fn a_dangerous_call_without_a_grant_asks() {
        assert_eq!(decide(situation()), Verdict::Ask);
        let granted = Situation { granted: true, ..situation() };
        assert_eq!(decide(granted), Verdict::Settled(AuthorizationSource::ExistingGrant));
    }

    #[test]
    fn always_allow_comes_before_policy_allow() {
        let both =
            Situation { mode: ApprovalMode::AlwaysAllow, policy: ToolPolicy::Allow, ..situation() };
        assert_eq!(decide(both), Verdict::Settled(AuthorizationSource::AlwaysAllow));
    }

    #[test]
    fn a_question_is_decided_once_and_not_after_its_time() {
        let now = Utc.with_ymd_and_hms(2026, 11, 30, 12, 0, 0).unwrap();
        let question = PermissionRequest {
            id: PermissionRequestId(Uuid::nil()),
            session: SessionId(Uuid::nil()),
            state: RequestState::Pending,
            expires_at: Some(now),
            matches: Matching {
                action: TOOL_CALL.into(),
                resource_class: "custom-1/echo".into(),
                definition_hash: None,
            },
        };
        let before = now - chrono::TimeDelta::seconds(1);

        let late = question.clone().decide(Decision::AllowOnce, now).unwrap_err();
        assert_eq!(late.code, Code::PermissionAlreadyResolved);
        assert_eq!(late.public, "the question is already cancelled");

        let allowed = question.decide(Decision::AllowOnce, before).unwrap();
        assert_eq!(allowed.state, RequestState::Allowed);
        assert!(allowed.decide(Decision::Deny, before).is_err());
    }

    #[test]
    fn a_custom_tool_is_its_own_class() {
        assert_eq!(resource_class(TOOL_CALL, "custom-1/echo"), "custom-1/echo");
        assert_eq!(resource_class("connector", "uniprot:lookup:P04637"), "uniprot:lookup");
    }
}
