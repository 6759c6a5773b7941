//! What a token says that we give to a server of ours: for whom one request is made, and which (RFC 7519).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    Timestamp,
    ids::{SessionId, TenantId, UserId},
    json::Sha256Digest,
    limits,
};

const ISSUER: &str = "bailiwick";

/// For whom a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub tenant: TenantId,
    #[serde(rename = "sub")]
    pub user: UserId,
    /// `None`: no session is in play, as where a person tries a server out.
    pub session: Option<SessionId>,
}

/// The claims of a token. It is good for one request, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    iss: String,
    aud: String,
    #[serde(flatten)]
    pub subject: Subject,
    pub jti: Uuid,
    /// Seconds since 1970, like all times of a JWT.
    iat: i64,
    exp: i64,
    /// See [`request_digest`].
    request: Sha256Digest,
}

/// Why a token whose signature is right is refused all the same. For our log alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is not one of ours")]
    Issuer,
    #[error("it is for another server")]
    Audience,
    #[error("it is for another request")]
    Request,
    #[error("it has expired, or is valid for too long")]
    Time,
}

impl Claims {
    /// For one request to the server `audience`; `jti` must be new.
    #[must_use]
    pub fn new(
        audience: &str,
        subject: Subject,
        request: Sha256Digest,
        jti: Uuid,
        now: Timestamp,
    ) -> Self {
        let iat = now.timestamp();
        let life = i64::try_from(limits::DELEGATION_SECONDS.default).unwrap_or(0);
        let (iss, aud) = (ISSUER.to_owned(), audience.to_owned());
        Self { iss, aud, subject, jti, iat, exp: iat + life, request }
    }

    /// Whether the token may be used by the server `audience` for this request now. Whether it was
    /// used before is another question.
    pub fn check(
        &self,
        audience: &str,
        request: Sha256Digest,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let most = i64::try_from(limits::DELEGATION_SECONDS.ceiling).unwrap_or(0);
        let now = now.timestamp();
        if self.iss != ISSUER {
            return Err(Refused::Issuer);
        }
        if self.aud != audience {
            return Err(Refused::Audience);
        }
        if self.exp <= now || self.exp > now + most || self.exp - self.iat > most {
            return Err(Refused::Time);
        }
        if self.request != request {
            return Err(Refused::Request);
        }
        Ok(())
    }

    /// When the token is no longer valid anywhere.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        Timestamp::from_timestamp(self.exp, 0).unwrap_or(Timestamp::MAX_UTC)
    }
}

/// Digest of a request: SHA-256 of its method, a line end (which no method holds, RFC 9110, section 9.1),
/// and its body.
#[must_use]
pub fn request_digest(method: &str, body: &[u8]) -> Sha256Digest {
    let mut hash = Sha256::new();
    hash.update(method.as_bytes());
    hash.update(b"\n");
    hash.update(body);
    Sha256Digest(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUDIENCE: &str = "builtin:whoami";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn claims() -> Claims {
        let subject =
            Subject { tenant: TenantId(Uuid::max()), user: UserId(Uuid::max()), session: None };
        Claims::new(AUDIENCE, subject, request_digest("POST", b"{}"), Uuid::nil(), at(0))
    }

    #[test]
    fn a_token_is_good_for_its_own_request_to_its_own_server_alone() {
        let request = request_digest("POST", b"{}");
        assert_eq!(claims().check(AUDIENCE, request, at(0)), Ok(()));
        assert_eq!(claims().check("builtin:library", request, at(0)), Err(Refused::Audience));
        for (method, body) in [("POST", b"{ }".as_slice()), ("GET", b"{}"), ("POST", b"")] {
            let other = request_digest(method, body);
            assert_eq!(claims().check(AUDIENCE, other, at(0)), Err(Refused::Request), "{method}");
        }
        let foreign = Claims { iss: "someone".to_owned(), ..claims() };
        assert_eq!(foreign.check(AUDIENCE, request, at(0)), Err(Refused::Issuer));
    }

    #[test]
    fn a_token_ends_and_none_is_valid_for_more_than_a_minute() {
        let request = request_digest("POST", b"{}");
        let life = i64::try_from(limits::DELEGATION_SECONDS.default).unwrap();
        assert_eq!(claims().check(AUDIENCE, request, at(life - 1)), Ok(()));
        assert_eq!(claims().check(AUDIENCE, request, at(life)), Err(Refused::Time));
        assert_eq!(claims().check(AUDIENCE, request, at(-60)), Err(Refused::Time));
        let long = Claims { exp: claims().iat + 61, ..claims() };
        assert_eq!(long.check(AUDIENCE, request, at(30)), Err(Refused::Time));
    }
}
