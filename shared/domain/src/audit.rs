//! What the audit's leaves are computed over: ids, codes, times and digests, never a person's words,
//! so that erasing a person leaves every leaf verifiable.
//!
//! A leaf is the SHA-256 of the canonical JSON (see [`crate::json`]) of one record. Its shape is part
//! of what is sealed: a field that is added later must be left out where it is `None`.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    Code, Error, Timestamp,
    ids::{
        AuditEventId, AuthorizationId, ExecutionId, InvocationId, PermissionEpochId,
        PermissionGrantId, PermissionRequestId, ServerId, SessionId, TenantId, TokenId, ToolId,
        UserId,
    },
    invocation::{Origin, Status},
    json::{Sha256Digest, canonical},
    permission::{ApprovalMode, AuthorizationSource},
};

/// A recorded change of configuration, people, tokens or policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord<'a> {
    pub tenant: TenantId,
    pub event: AuditEventId,
    /// `None`: the operator on the machine, or the service by itself.
    pub actor: Option<UserId>,
    /// `operator`, `service`, `token:<id>` or `gateway:<id>`.
    pub via: &'a str,
    /// `<noun>.<past participle>`: `server.created`.
    pub action: &'a str,
    /// Id of the thing that changed.
    pub subject: &'a str,
    /// Ids, codes and numbers only.
    pub details: &'a Value,
    #[serde(serialize_with = "micros")]
    pub created_at: Timestamp,
}

/// An allow or a deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationRecord {
    pub tenant: TenantId,
    pub authorization: AuthorizationId,
    pub session: SessionId,
    pub user: UserId,
    pub action: String,
    pub resource: String,
    pub mode: ApprovalMode,
    pub outcome: Outcome,
    pub source: AuthorizationSource,
    pub epoch: PermissionEpochId,
    pub grant: Option<PermissionGrantId>,
    pub request: Option<PermissionRequestId>,
    pub execution: Option<ExecutionId>,
    pub tool_call_id: Option<String>,
    pub definition_hash: Option<Sha256Digest>,
    pub input_digest: Option<Sha256Digest>,
    #[serde(serialize_with = "micros")]
    pub created_at: Timestamp,
}

/// What an authorization says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Allowed,
    Denied,
}

impl Outcome {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }
}

impl From<AuthorizationSource> for Outcome {
    fn from(source: AuthorizationSource) -> Self {
        if source.allows() { Self::Allowed } else { Self::Denied }
    }
}

/// A closed call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InvocationRecord {
    pub tenant: TenantId,
    pub invocation: InvocationId,
    pub session: SessionId,
    pub user: UserId,
    pub execution: ExecutionId,
    pub token: Option<TokenId>,
    pub origin: Origin,
    pub source_id: Option<ServerId>,
    pub tool_id: Option<ToolId>,
    pub request_sha256: Sha256Digest,
    #[serde(serialize_with = "micros")]
    pub created_at: Timestamp,
    pub status: Status,
    pub error_code: Option<Code>,
    pub authorization_id: Option<AuthorizationId>,
    pub raw_sha256: Option<Sha256Digest>,
    pub result_sha256: Option<Sha256Digest>,
    #[serde(serialize_with = "micros")]
    pub finished_at: Timestamp,
}

/// The leaf of a change.
///
/// `INVALID_INPUT` where `details` nest deeper than any JSON that we take.
pub fn event_leaf(record: &EventRecord<'_>) -> Result<Sha256Digest, Error> {
    leaf("event", record)
}

/// The leaf of an allow or a deny.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "it cannot: see the words of expect")]
pub fn authorization_leaf(record: &AuthorizationRecord) -> Sha256Digest {
    leaf("authorization", record).expect("a flat object of strings is canonical JSON")
}

/// The leaf of a closed call.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "it cannot: see the words of expect")]
pub fn invocation_leaf(record: &InvocationRecord) -> Sha256Digest {
    leaf("invocation", record).expect("a flat object of strings is canonical JSON")
}

#[derive(Serialize)]
struct Leaf<'a, T> {
    kind: &'a str,
    record: &'a T,
}

fn leaf<T: Serialize>(kind: &str, record: &T) -> Result<Sha256Digest, Error> {
    let text = serde_json::to_string(&Leaf { kind, record }).map_err(Error::internal)?;
    Ok(Sha256Digest::of(&canonical(&text)?))
}

/// RFC 3339 in UTC with six digits of the second, as the database keeps it.
fn micros<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true))
}

#[cfg(test)]
mod tests {
    use chrono::{TimeZone, Utc};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn event(details: &Value) -> EventRecord<'_> {
        EventRecord {
            tenant: TenantId(Uuid::from_u128(1)),
            event: AuditEventId(Uuid::from_u128(2)),
            actor: None,
            via: "operator",
            action: "tenant.created",
            subject: "1",
            details,
            created_at: Utc.timestamp_opt(1_796_000_000, 5_000).unwrap(),
        }
    }

    #[test]
    fn a_leaf_is_the_digest_of_this_text() {
        let details = json!({ "b": 1, "a": ["x"] });
        let text = concat!(
            r#"{"kind":"event","record":{"action":"tenant.created","actor":null,"#,
            r#""createdAt":"2026-11-30T00:53:20.000005Z","details":{"a":["x"],"b":1},"#,
            r#""event":"00000000-0000-0000-0000-000000000002","subject":"1","#,
            r#""tenant":"00000000-0000-0000-0000-000000000001","via":"operator"}}"#,
        );
        assert_eq!(event_leaf(&event(&details)).unwrap(), Sha256Digest::of(text.as_bytes()));
    }

    #[test]
    fn the_order_of_details_does_not_matter_and_their_content_does() {
        let leaf = |details: &Value| event_leaf(&event(details)).unwrap();
        assert_eq!(leaf(&json!({ "a": 1, "b": 2 })), leaf(&json!({ "b": 2, "a": 1 })));
        assert_ne!(leaf(&json!({ "a": 1 })), leaf(&json!({ "a": 2 })));
    }

    #[test]
    fn a_deny_is_recorded_as_denied() {
        assert_eq!(Outcome::from(AuthorizationSource::PolicyDeny), Outcome::Denied);
        assert_eq!(Outcome::from(AuthorizationSource::UserOnce), Outcome::Allowed);
    }
}
