//! Company sign-in: the issuer at which people of a tenant sign in, and what its word counts for.

use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use crate::{
    Error, Role, limits,
    server::{
        Mistakes, SecretEdit, SubmittedSecret, UrlRules, check_field, is_web_url, null_keeps,
        secret,
    },
};

/// The issuer of a tenant as it is set up. Its client secret is kept apart.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a form that mean nothing together")]
pub struct CompanyIssuer {
    pub enabled: bool,
    /// On the button.
    pub name: String,
    /// Exactly as the issuer writes it.
    pub issuer: String,
    pub client_id: String,
    /// `openid` is among them.
    pub scopes: Vec<String>,
    /// Where one issuer serves many companies: what tells this one's people.
    pub tenant_claim: Option<TenantClaim>,
    /// Whoever signs in for the first time becomes a person of the tenant.
    pub adds_people: bool,
    pub roles: Option<RoleClaim>,
    /// Passwords are taken, too.
    pub local_sign_in: bool,
    /// The gateway takes the issuer's access tokens.
    pub gateway_tokens: bool,
    /// That tokens may be for, besides the address of the endpoint.
    pub gateway_audiences: Vec<String>,
}

/// A claim that has to have this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantClaim {
    pub name: String,
    pub value: String,
}

/// A claim whose values give roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleClaim {
    pub name: String,
    pub roles: Vec<(String, Role)>,
}

impl RoleClaim {
    /// The highest of the roles that the claim's values give; `member` where none does.
    #[must_use]
    pub fn role_of(&self, claims: &Map<String, Value>) -> Role {
        let given = self.roles.iter().filter(|(value, _)| holds(claims, &self.name, value));
        given.map(|(_, role)| *role).max().unwrap_or(Role::Member)
    }
}

impl TenantClaim {
    #[must_use]
    pub fn fits(&self, claims: &Map<String, Value>) -> bool {
        claims.get(&self.name).and_then(Value::as_str) == Some(&self.value)
    }
}

/// Whether a claim is this text, or a list that holds it.
fn holds(claims: &Map<String, Value>, name: &str, value: &str) -> bool {
    match claims.get(name) {
        Some(Value::String(text)) => text == value,
        Some(Value::Array(list)) => list.iter().any(|one| one.as_str() == Some(value)),
        _ => false,
    }
}

/// The body of a PUT: a full replacement.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "as `CompanyIssuer`")]
pub struct CompanyIssuerForm {
    #[serde(default)]
    pub enabled: bool,
    pub name: String,
    pub issuer: String,
    pub client_id: String,
    /// Left out: none; `null`: kept; a string: replaced.
    #[serde(default, deserialize_with = "null_keeps")]
    pub client_secret: Option<SubmittedSecret>,
    #[serde(default)]
    pub scopes: Vec<String>,
    pub tenant_claim: Option<TenantClaimForm>,
    #[serde(default)]
    pub adds_people: bool,
    pub role_claim: Option<RoleClaimForm>,
    #[serde(default = "yes")]
    pub local_sign_in: bool,
    #[serde(default)]
    pub gateway_tokens: bool,
    #[serde(default)]
    pub gateway_audiences: Vec<String>,
    /// Of the settings that the form saw; left out: there were none.
    pub revision: Option<i64>,
}

/// See [`TenantClaim`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantClaimForm {
    pub name: String,
    pub value: String,
}

/// See [`RoleClaim`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleClaimForm {
    pub name: String,
    /// By value.
    pub roles: std::collections::BTreeMap<String, Role>,
}

fn yes() -> bool {
    true
}

impl CompanyIssuerForm {
    /// Checks the form; `INVALID_INPUT` with every mistake. `known` is what stands, and whether it has a
    /// client secret.
    pub fn validate(
        self,
        urls: &UrlRules,
        known: Option<(&CompanyIssuer, bool)>,
    ) -> Result<(CompanyIssuer, SecretEdit), Error> {
        let mut mistakes = Mistakes::default();
        let name = self.name.trim();
        if name.is_empty() || name.chars().any(char::is_control) {
            mistakes.add("/name", "must have words, and no control characters");
        }
        mistakes.at_most("/name", name, limits::COMPANY_NAME_CHARS);
        check_field("/issuer", &self.issuer, &mut mistakes);
        let is_url = is_web_url(&self.issuer) && !self.issuer.contains('?');
        if !is_url {
            mistakes.add("/issuer", "must be an https URL without query");
        } else if !is_guarded(&self.issuer, urls) {
            mistakes
                .add("/issuer", "must begin with https://, but on hosts that the operator listed");
        }
        check_field("/clientId", &self.client_id, &mut mistakes);
        if self.client_id.is_empty() {
            mistakes.add("/clientId", "must not be empty");
        }
        let has_secret = known.is_some_and(|(_, has_secret)| has_secret);
        let moved = known.is_some_and(|(before, _)| before.issuer != self.issuer);
        if moved && self.client_secret == Some(SubmittedSecret::Keep) {
            mistakes.add("/clientSecret", "must be given anew for another issuer");
        }
        let secret = secret("/clientSecret", self.client_secret, has_secret, &mut mistakes);
        let scopes = scopes(self.scopes, &mut mistakes);
        let tenant_claim = self.tenant_claim.map(|claim| {
            word("/tenantClaim/name", &claim.name, &mut mistakes);
            word("/tenantClaim/value", &claim.value, &mut mistakes);
            TenantClaim { name: claim.name, value: claim.value }
        });
        let roles = self.role_claim.map(|claim| {
            word("/roleClaim/name", &claim.name, &mut mistakes);
            if claim.roles.len() > limits::COMPANY_ROLES.size() {
                let words = format!("at most {} are allowed", limits::COMPANY_ROLES.default);
                mistakes.add("/roleClaim/roles", words);
            }
            for value in claim.roles.keys() {
                word("/roleClaim/roles", value, &mut mistakes);
            }
            RoleClaim { name: claim.name, roles: claim.roles.into_iter().collect() }
        });
        if self.gateway_audiences.len() > limits::COMPANY_AUDIENCES.size() {
            let words = format!("at most {} are allowed", limits::COMPANY_AUDIENCES.default);
            mistakes.add("/gatewayAudiences", words);
        }
        for (index, audience) in self.gateway_audiences.iter().enumerate() {
            word(&format!("/gatewayAudiences/{index}"), audience, &mut mistakes);
            if *audience == self.client_id {
                let words = "is the client's own: that is the audience of ID tokens";
                mistakes.add(&format!("/gatewayAudiences/{index}"), words);
            }
        }
        if !self.enabled && !self.local_sign_in {
            mistakes.add("/localSignIn", "can be off only while company sign-in is on");
        }
        mistakes.refuse("company sign-in")?;
        let issuer = CompanyIssuer {
            enabled: self.enabled,
            name: name.to_owned(),
            issuer: self.issuer,
            client_id: self.client_id,
            scopes,
            tenant_claim,
            adds_people: self.adds_people,
            roles,
            local_sign_in: self.local_sign_in,
            gateway_tokens: self.gateway_tokens,
            gateway_audiences: self.gateway_audiences,
        };
        Ok((issuer, secret))
    }
}

/// Https; plain http where the operator listed the host.
fn is_guarded(issuer: &str, urls: &UrlRules) -> bool {
    Url::parse(issuer).is_ok_and(|url| {
        url.scheme() == "https" || url.host().is_some_and(|host| urls.lists(&host))
    })
}

/// `openid`, `email` and `profile` unless said; `openid` always.
fn scopes(mut scopes: Vec<String>, mistakes: &mut Mistakes) -> Vec<String> {
    // RFC 6749, section 3.3.
    let legal = |scope: &String| {
        !scope.is_empty()
            && scope.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
    };
    if scopes.len() > limits::OAUTH_SCOPES.size() || !scopes.iter().all(legal) {
        mistakes.add("/scopes", "must be scopes of OAuth 2.0, and not too many");
    }
    if scopes.is_empty() {
        scopes = ["openid", "email", "profile"].map(str::to_owned).to_vec();
    }
    if !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".to_owned());
    }
    scopes
}

fn word(path: &str, text: &str, mistakes: &mut Mistakes) {
    if text.is_empty() || text.chars().any(char::is_control) {
        mistakes.add(path, "must not be empty, and hold no control characters");
    }
    mistakes.at_most(path, text, limits::COMPANY_CLAIM_CHARS);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form(changes: &Value) -> CompanyIssuerForm {
        let mut form = json!({ "enabled": true, "name": "Acme", "issuer": "https://id.acme.test",
                               "clientId": "bailiwick" });
        for (name, value) in changes.as_object().unwrap() {
            form[name] = value.clone();
        }
        serde_json::from_value(form).unwrap()
    }

    fn mistakes(changes: &Value, known: Option<(&CompanyIssuer, bool)>) -> Vec<String> {
        let error = form(changes).validate(&UrlRules::default(), known).unwrap_err();
        let errors = error.details.unwrap()["errors"].as_array().unwrap().clone();
        errors.iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_plain_form_is_good_and_safe() {
        let (issuer, secret) = form(&json!({})).validate(&UrlRules::default(), None).unwrap();
        assert_eq!(issuer.scopes, ["openid", "email", "profile"]);
        assert!(issuer.local_sign_in && !issuer.adds_people && !issuer.gateway_tokens);
        assert_eq!(secret, SecretEdit::Absent);
        let (issuer, _) =
            form(&json!({ "scopes": ["groups"] })).validate(&UrlRules::default(), None).unwrap();
        assert_eq!(issuer.scopes, ["openid", "groups"]);
    }

    #[test]
    fn every_mistake_is_named() {
        let (before, _) = form(&json!({})).validate(&UrlRules::default(), None).unwrap();
        for (changes, paths) in [
            (json!({ "name": " ", "clientId": "" }), vec!["/name", "/clientId"]),
            (json!({ "issuer": "acme" }), vec!["/issuer"]),
            (json!({ "issuer": "http://id.acme.test" }), vec!["/issuer"]),
            (json!({ "issuer": "https://a.test/?x" }), vec!["/issuer"]),
            (json!({ "scopes": ["a b"] }), vec!["/scopes"]),
            (json!({ "enabled": false, "localSignIn": false }), vec!["/localSignIn"]),
            (json!({ "tenantClaim": { "name": "", "value": "x" } }), vec!["/tenantClaim/name"]),
            (json!({ "gatewayAudiences": ["bailiwick"] }), vec!["/gatewayAudiences/0"]),
            (json!({ "clientSecret": null }), vec!["/clientSecret"]),
        ] {
            assert_eq!(mistakes(&changes, None), paths);
        }
        let elsewhere = json!({ "issuer": "https://evil.test", "clientSecret": null });
        assert_eq!(mistakes(&elsewhere, Some((&before, true))), ["/clientSecret"]);
    }

    #[test]
    fn the_highest_role_that_a_claim_gives_counts() {
        let roles = RoleClaim {
            name: "groups".to_owned(),
            roles: vec![("it".to_owned(), Role::Superadmin), ("leads".to_owned(), Role::Admin)],
        };
        let of = |claims: &Value| roles.role_of(claims.as_object().unwrap());
        assert_eq!(of(&json!({ "groups": ["leads", "it"] })), Role::Superadmin);
        assert_eq!(of(&json!({ "groups": "leads" })), Role::Admin);
        assert_eq!(of(&json!({ "groups": ["LEADS", 7] })), Role::Member);
        assert_eq!(of(&json!({})), Role::Member);
    }
}
