//! The protocol steps of an OAuth client (MCP 2026-07-28, authorization): discovery, registration, authorization URL,
//! code exchange, refresh, revocation. No store, no clock, no state: who may do what and when is decided above.
//!
//! Every address that a peer named is judged as learned, each time that it is used: at refresh as at discovery. A request
//! that carries a secret follows no redirect. No word of a provider leaves this module.

use std::time::Duration;

use domain::limits;
use secrecy::SecretString;
use url::Url;

use crate::http::GuardedHttp;

mod answer;
mod authorize;
mod challenge;
mod client;
mod company;
mod discovery;
mod failure;
mod grant;
mod probe;
mod registration;
mod server;
mod wire;

pub use challenge::Challenge;
pub(crate) use challenge::asks_for_scope;
pub use client::{AuthMethod, Client, ExposedClient};
pub use company::{Identity, Provider, SignIn, SignInFailure};
pub use failure::{Denial, OAuthFailure, step};
pub use server::{AuthorizationServer, Discovered, same_issuer};

use wire::Wire;

/// Speaks OAuth over guarded HTTP. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct OAuthClient {
    wire: Wire,
    providers: company::Providers,
}

/// What is known before discovery.
#[derive(Debug, Clone)]
pub struct DiscoverOptions {
    /// The issuer that a superadmin configured. It must be one that the server lists; its host then counts as configured.
    pub issuer: Option<String>,
    /// A `WWW-Authenticate` value that the server gave before. Without one the server is asked.
    pub challenge: Option<String>,
    /// For all of it, at most [`limits::OAUTH_DISCOVERY_MS`].
    pub timeout: Duration,
}

impl Default for DiscoverOptions {
    fn default() -> Self {
        Self { issuer: None, challenge: None, timeout: limits::OAUTH_DISCOVERY_MS.millis() }
    }
}

/// Where to send the person, and what must be kept until they come back.
#[derive(Debug)]
pub struct Authorization {
    pub url: Url,
    /// 256 random bits, as base64url; only its digest need be stored.
    pub state: SecretString,
    /// PKCE verifier, 256 random bits (RFC 7636).
    pub verifier: SecretString,
}

/// What the token endpoint gave.
#[derive(Debug, Clone)]
pub struct Tokens {
    pub access_token: SecretString,
    /// `None` at a refresh: the old one stays good (RFC 6749, section 6).
    pub refresh_token: Option<SecretString>,
    /// Who signed in, where the scope `openid` was asked for. Not verified.
    pub id_token: Option<SecretString>,
    /// `None`: unknown (missing, zero, negative, no number). At most ten years.
    pub expires_in: Option<Duration>,
    /// `None`: as was asked.
    pub scopes: Option<Vec<String>>,
}

impl OAuthClient {
    #[must_use]
    pub fn new(http: GuardedHttp) -> Self {
        Self { wire: Wire::new(http), providers: company::Providers::default() }
    }

    /// Finds the authorization server of the MCP server at `server` (RFC 9728, RFC 8414, OpenID Connect Discovery).
    ///
    /// [`OAuthFailure::Discovery`] names the step that failed; 5xx and time-outs are [`OAuthFailure::Unavailable`].
    pub async fn discover(
        &self,
        server: &Url,
        options: &DiscoverOptions,
    ) -> Result<Discovered, OAuthFailure> {
        let within = options.timeout.min(limits::OAUTH_DISCOVERY_MS.millis());
        let found = tokio::time::timeout(within, discovery::discover(&self.wire, server, options));
        found.await.unwrap_or_else(|_| Err(OAuthFailure::late()))
    }

    /// Registers us (RFC 7591) for one callback: as a `web` application, or `native` where the callback is on loopback.
    ///
    /// Not repeatable without leaving another registration behind; callers keep the client.
    pub async fn register(
        &self,
        server: &AuthorizationServer,
        redirect_uri: &Url,
        client_name: &str,
        scopes: &[String],
    ) -> Result<Client, OAuthFailure> {
        registration::register(&self.wire, server, redirect_uri, client_name, scopes).await
    }

    /// Where the person consents: code flow, PKCE S256, a new state, `resource` and `scopes`. No network.
    #[must_use]
    pub fn authorize(
        &self,
        server: &AuthorizationServer,
        client: &Client,
        redirect_uri: &Url,
        resource: &str,
        scopes: &[String],
    ) -> Authorization {
        authorize::authorize(server, client, redirect_uri, Some(resource), scopes)
    }

    /// Changes the code of a callback into tokens. Once, whatever the answer: a code is good for one exchange.
    pub async fn exchange(
        &self,
        server: &AuthorizationServer,
        client: &Client,
        redirect_uri: &Url,
        resource: &str,
        code: &SecretString,
        verifier: &SecretString,
    ) -> Result<Tokens, OAuthFailure> {
        let grant = grant::Grant { wire: &self.wire, server, client };
        grant.exchange(redirect_uri, Some(resource), code, verifier).await
    }

    /// New tokens for a refresh token. The scopes stay: none are asked for.
    ///
    /// [`Denial::InvalidGrant`]: consent is needed anew. [`Denial::InvalidClient`]: our registration was forgotten.
    /// [`OAuthFailure::Unavailable`] with [`Ran::Unknown`](crate::http::Ran::Unknown): the refresh token may be spent.
    pub async fn refresh(
        &self,
        server: &AuthorizationServer,
        client: &Client,
        resource: &str,
        refresh_token: &SecretString,
    ) -> Result<Tokens, OAuthFailure> {
        let grant = grant::Grant { wire: &self.wire, server, client };
        grant.refresh(resource, refresh_token).await
    }

    /// Revokes a token, refresh or access (RFC 7009); an unknown one is no error there.
    ///
    /// [`OAuthFailure::Malformed`] where the server offers no revocation.
    pub async fn revoke(
        &self,
        server: &AuthorizationServer,
        client: &Client,
        token: &SecretString,
    ) -> Result<(), OAuthFailure> {
        let grant = grant::Grant { wire: &self.wire, server, client };
        grant.revoke(token).await
    }
}

impl std::fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OAuthClient").finish_non_exhaustive()
    }
}
