//! What goes along with a request to the server of a pass-through endpoint.

use std::sync::Arc;

use domain::{
    elicitation::Askable,
    ids::{ServerId, UserId},
};
use outbound::mcp::{ClientKey, Relay, Resume, SessionKey, Target};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use uuid::Uuid;

/// What a request says of its client, and where the server's words go meanwhile. The default says
/// nothing and hears nothing.
#[derive(Debug, Clone, Default)]
pub struct Upstream {
    /// What the server says during the request.
    pub relay: Option<Relay>,
    /// What the client offers to be asked.
    pub askable: Askable,
    /// The upstream session of an older client; `None`: the shared client.
    pub own: Option<OwnSession>,
    /// The client wants to hear of progress.
    pub progress: bool,
    /// The least level of log messages that the client wants, where the protocol has one per request.
    pub log_level: Option<String>,
    /// The client's `_meta` without what is the protocol's or ours: a JSON object.
    pub meta: Option<Arc<RawValue>>,
}

/// An upstream session that one older client holds. All that another process needs to go on with it:
/// it is given out sealed alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnSession {
    pub id: Uuid,
    /// Whose client holds it.
    pub person: UserId,
    pub server: ServerId,
    /// Of the server's configuration; another one is another server.
    pub revision: i64,
    /// The protocol version that is spoken with the server.
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "secret")]
    pub(super) session_id: Option<SecretString>,
    /// The session can be taken up by a process that did not begin it.
    pub(super) resumable: bool,
    /// What was declared to the server.
    pub askable: Askable,
}

impl OwnSession {
    /// Turns a target of the shared client into one of this session.
    pub(crate) fn aim(&self, target: Target) -> Target {
        let resume = self
            .resumable
            .then(|| Resume { session_id: self.session_id.clone(), version: self.version.clone() });
        let session = SessionKey { id: self.id, person: self.person };
        Target { key: ClientKey { session: Some(session), ..target.key }, resume, ..target }
    }
}

/// Only ever within something sealed.
mod secret {
    use super::{Deserialize, Deserializer, ExposeSecret, SecretString, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde gives it so")]
    pub(super) fn serialize<S: Serializer>(
        secret: &Option<SecretString>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(ExposeSecret::expose_secret).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SecretString>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
    }
}
