//! What an authorization server granted to a person, as it is sealed.

use domain::{Error, Timestamp, connection, connection::CredentialKind, limits};
use outbound::oauth::{AuthorizationServer, Client, ExposedClient, Tokens};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::Ctx;

/// Tokens, and where and as what they are refreshed: there and nowhere else.
#[derive(Debug, Clone)]
pub(crate) struct OauthGrant {
    pub server: AuthorizationServer,
    pub client: Client,
    /// `resource` of every request (RFC 8707).
    pub resource: String,
    /// The exact redirect URI: with the issuer it names our registration.
    pub callback: String,
    pub access_token: SecretString,
    pub refresh_token: Option<SecretString>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    server: AuthorizationServer,
    client: ExposedClient,
    resource: String,
    callback: String,
    access_token: String,
    refresh_token: Option<String>,
}

impl From<Written> for OauthGrant {
    fn from(written: Written) -> Self {
        Self {
            server: written.server,
            client: written.client.into(),
            resource: written.resource,
            callback: written.callback,
            access_token: written.access_token.into(),
            refresh_token: written.refresh_token.map(SecretString::from),
        }
    }
}

impl OauthGrant {
    fn form(&self) -> Written {
        let text = |secret: &SecretString| secret.expose_secret().to_owned();
        Written {
            server: self.server.clone(),
            client: self.client.expose(),
            resource: self.resource.clone(),
            callback: self.callback.clone(),
            access_token: text(&self.access_token),
            refresh_token: self.refresh_token.as_ref().map(text),
        }
    }

    /// To be sealed at once.
    pub(super) fn written(&self) -> Result<SecretString, Error> {
        Ok(SecretString::from(serde_json::to_string(&self.form()).map_err(Error::internal)?))
    }

    pub(super) fn read(text: &str) -> Result<Self, Error> {
        // What serde says of it could repeat a piece.
        let written: Written = serde_json::from_str(text)
            .map_err(|_| Error::internal("a sealed grant cannot be read"))?;
        Ok(written.into())
    }

    /// With refreshed tokens. Where no new refresh token came, the old one stays good (RFC 6749, section 6).
    pub(crate) fn renewed(self, tokens: &Tokens) -> Self {
        Self {
            access_token: tokens.access_token.clone(),
            refresh_token: tokens.refresh_token.clone().or(self.refresh_token),
            ..self
        }
    }
}

/// When tokens that were received now end, and when they are to be refreshed.
pub(crate) fn times(
    ctx: &Ctx,
    tokens: &Tokens,
    renewable: bool,
) -> (Option<Timestamp>, Option<Timestamp>) {
    let Some(life) = tokens.expires_in else { return (None, None) };
    let now = ctx.now();
    let ends = now + chrono::TimeDelta::from_std(life).unwrap_or(chrono::TimeDelta::MAX);
    let due = if renewable { connection::refresh_at(now, life, jitter()) } else { ends };
    (Some(ends), Some(due))
}

/// 0 to 1; nothing depends on its quality.
fn jitter() -> f64 {
    let mut byte = [0];
    if getrandom::fill(&mut byte).is_err() {
        return 0.0;
    }
    f64::from(byte[0]) / 255.0
}

/// What a callback brought, kept until the person confirms it.
#[derive(Debug)]
pub(crate) struct Brought {
    pub oauth: OauthGrant,
    pub grant: connection::Grant,
}

#[derive(Serialize, Deserialize)]
struct WrittenBrought {
    oauth: Written,
    grant: connection::Grant,
}

impl Brought {
    /// Of tokens that were received now, where `asked` was asked for.
    pub(super) fn of(ctx: &Ctx, oauth: OauthGrant, tokens: &Tokens, asked: &[String]) -> Self {
        let (expires_at, refresh_at) = times(ctx, tokens, oauth.refresh_token.is_some());
        let grant = connection::Grant {
            kind: CredentialKind::Oauth,
            account: None,
            issuer: Some(oauth.server.issuer.clone()),
            // Left out, it is what was asked for (RFC 6749, section 5.1).
            scopes: bounded(tokens.scopes.clone().unwrap_or_else(|| asked.to_vec())),
            expires_at,
            refresh_at,
        };
        Self { oauth, grant }
    }

    /// To be sealed at once.
    pub(super) fn written(&self) -> Result<SecretString, Error> {
        let written = WrittenBrought { oauth: self.oauth.form(), grant: self.grant.clone() };
        Ok(SecretString::from(serde_json::to_string(&written).map_err(Error::internal)?))
    }

    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let written: WrittenBrought = serde_json::from_str(text)
            .map_err(|_| Error::internal("a sealed result cannot be read"))?;
        Ok(Self { oauth: written.oauth.into(), grant: written.grant })
    }
}

/// A provider's list, as long as we keep one.
pub(crate) fn bounded(mut scopes: Vec<String>) -> Vec<String> {
    scopes.truncate(limits::OAUTH_SCOPES.size());
    scopes
}
