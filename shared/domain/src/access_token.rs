//! What an access token of a company's issuer says of itself (RFC 9068; RFC 7519), and when the gateway
//! takes it. Its signature is verified elsewhere.

use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Scope, Timestamp, limits};

/// The claims that we read; the others stay in `rest`.
#[derive(Debug, Clone, Deserialize)]
pub struct Claims {
    pub iss: String,
    pub sub: String,
    #[serde(default)]
    aud: Audience,
    /// Seconds since 1970, fractions allowed (RFC 7519, `NumericDate`).
    exp: f64,
    nbf: Option<f64>,
    /// Space-separated (RFC 8693, section 4.2).
    scope: Option<String>,
    /// The same as some issuers name it: space-separated, or a list.
    scp: Option<Scp>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Scp {
    Text(String),
    List(Vec<String>),
}

/// Why a token is refused whose signature is right. For our log alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is for another audience")]
    Audience,
    #[error("it has expired, or its time is no time")]
    Expired,
    #[error("it is not valid yet")]
    Early,
    #[error("it is an ID token")]
    IdToken,
    #[error("it names nobody")]
    Subject,
}

/// Members that issuers give to ID tokens alone (OpenID Connect Core, sections 2 and 3.3.2.11).
const ID_TOKEN_CLAIMS: [&str; 4] = ["nonce", "at_hash", "c_hash", "s_hash"];

impl Claims {
    /// Until when the token is good, for an endpoint that goes by any of `audiences`.
    pub fn check(&self, audiences: &[String], now: Timestamp) -> Result<Timestamp, Refused> {
        let leeway = i64::try_from(limits::COMPANY_TOKEN_LEEWAY_SECONDS.default).unwrap_or(0);
        let leeway = TimeDelta::seconds(leeway);
        let is_id = self.rest.get("typ").and_then(Value::as_str) == Some("ID");
        if is_id || ID_TOKEN_CLAIMS.iter().any(|name| self.rest.contains_key(*name)) {
            return Err(Refused::IdToken);
        }
        if self.sub.is_empty() || self.sub.chars().count() > limits::SUBJECT_CHARS.size() {
            return Err(Refused::Subject);
        }
        let named = match &self.aud {
            Audience::One(one) => std::slice::from_ref(one),
            Audience::Many(many) => many,
        };
        if !named.iter().any(|audience| audiences.contains(audience)) {
            return Err(Refused::Audience);
        }
        let until = moment(self.exp).ok_or(Refused::Expired)?;
        if until + leeway <= now {
            return Err(Refused::Expired);
        }
        if let Some(from) = self.nbf {
            let from = moment(from).ok_or(Refused::Early)?;
            if from > now + leeway {
                return Err(Refused::Early);
            }
        }
        Ok(until + leeway)
    }

    /// Whether the token lets its holder call tools.
    #[must_use]
    pub fn may_call(&self) -> bool {
        let call = Scope::McpCall.as_str();
        let within = |text: &String| text.split(' ').any(|scope| scope == call);
        let listed = match &self.scp {
            Some(Scp::Text(text)) => within(text),
            Some(Scp::List(list)) => list.iter().any(|scope| scope == call),
            None => false,
        };
        listed || self.scope.as_ref().is_some_and(within)
    }

    /// Whether the claim `name` is exactly this text.
    #[must_use]
    pub fn says(&self, name: &str, value: &str) -> bool {
        self.rest.get(name).and_then(Value::as_str) == Some(value)
    }
}

/// `None` for what is no time that can be reckoned with: endless, before 1970, after 9999.
#[expect(clippy::cast_possible_truncation, reason = "within the bounds that were just looked at")]
fn moment(seconds: f64) -> Option<Timestamp> {
    const END: f64 = 253_402_300_799.0;
    if !(0.0..=END).contains(&seconds) {
        return None;
    }
    Timestamp::from_timestamp(seconds as i64, 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(seconds, 0).unwrap()
    }

    fn good() -> Value {
        json!({ "iss": "https://id.example", "sub": "ann", "aud": "https://blw.example/mcp",
                "exp": 2_000, "scope": "openid mcp:call" })
    }

    fn checked(changes: &Value) -> Result<Timestamp, Refused> {
        let mut claims = good();
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let claims: Claims = serde_json::from_value(claims).unwrap();
        claims.check(&["https://blw.example/mcp".to_owned()], at(1_000))
    }

    #[test]
    fn a_token_for_this_endpoint_is_good_until_its_end() {
        assert_eq!(checked(&json!({})), Ok(at(2_030)));
        let many =
            json!({ "aud": ["other", "https://blw.example/mcp"], "exp": 2_000.9, "nbf": 1_020 });
        assert_eq!(checked(&many), Ok(at(2_030)));
    }

    #[test]
    fn every_reason_to_refuse_one() {
        for (changes, refused) in [
            (json!({ "aud": "https://blw.example/mcp/" }), Refused::Audience),
            (json!({ "aud": [] }), Refused::Audience),
            (json!({ "exp": 970 }), Refused::Expired),
            (json!({ "exp": -1 }), Refused::Expired),
            (json!({ "exp": 1e300 }), Refused::Expired),
            (json!({ "nbf": 1_031 }), Refused::Early),
            (json!({ "nonce": "n" }), Refused::IdToken),
            (json!({ "at_hash": "h" }), Refused::IdToken),
            (json!({ "typ": "ID" }), Refused::IdToken),
            (json!({ "sub": "" }), Refused::Subject),
        ] {
            assert_eq!(checked(&changes), Err(refused), "{changes}");
        }
        for name in ["exp", "iss", "sub"] {
            let mut claims = good();
            claims.as_object_mut().unwrap().remove(name);
            assert!(serde_json::from_value::<Claims>(claims).is_err(), "{name}");
        }
    }

    #[test]
    fn the_scope_is_read_as_issuers_write_it() {
        let may = |scopes: &Value| {
            let mut claims = good();
            claims.as_object_mut().unwrap().remove("scope");
            for (name, value) in scopes.as_object().unwrap() {
                claims[name] = value.clone();
            }
            serde_json::from_value::<Claims>(claims).unwrap().may_call()
        };
        assert!(may(&json!({ "scope": "a mcp:call" })));
        assert!(may(&json!({ "scp": "mcp:call b" })));
        assert!(may(&json!({ "scp": ["a", "mcp:call"] })));
        assert!(!may(&json!({})));
        assert!(!may(&json!({ "scope": "mcp:calls", "scp": ["mcp:call b"] })));
    }

    #[test]
    fn a_claim_is_compared_whole() {
        let claims: Claims = serde_json::from_value(good()).unwrap();
        assert!(!claims.says("tid", "x"));
        let claims: Claims =
            serde_json::from_value(json!({ "iss": "i", "sub": "s", "exp": 1, "tid": "x" }))
                .unwrap();
        assert!(claims.says("tid", "x") && !claims.says("tid", "X"));
    }
}
