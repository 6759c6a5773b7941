//! The issuer at which the people of a tenant sign in (OpenID Connect Core and Discovery).
//!
//! Its metadata and keys are kept for a while. Whose ID token is good is judged by `openidconnect`; code
//! and tokens travel as with any other authorization server.

use std::{
    collections::HashMap,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::TimeDelta;
use domain::{Timestamp, limits};
use openidconnect::{
    AccessToken, AccessTokenHash, ClientId, IssuerUrl, Nonce,
    core::{CoreIdToken, CoreIdTokenVerifier, CoreJsonWebKeySet, CoreJwsSigningAlgorithm},
};
use rmcp::transport::auth::AuthorizationMetadata;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::Url;

use super::{
    AuthorizationServer, Client, OAuthClient, OAuthFailure, Tokens, authorize, grant, server, step,
    wire::{Wire, accept_json, unavailable},
};
use crate::egress::Destination;

/// What may sign an ID token; `none` and secrets that both sides know never do.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// An issuer as it describes itself, with its keys.
#[derive(Debug)]
pub struct Provider {
    pub server: AuthorizationServer,
    /// The JSON Web Key Set (RFC 7517), as the issuer publishes it.
    pub keys: Value,
    parsed_keys: CoreJsonWebKeySet,
    fetched_at: Instant,
}

/// Where to send a person, and what must be kept until they come back.
#[derive(Debug)]
pub struct SignIn {
    pub url: Url,
    /// 256 random bits, as base64url; only its digest need be stored.
    pub state: SecretString,
    pub verifier: SecretString,
    pub nonce: SecretString,
}

/// Who signed in.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Unique at the issuer, and never given to another person.
    pub subject: String,
    /// All that the ID token says.
    pub claims: Map<String, Value>,
}

/// Why nobody was signed in. `Display` never holds a word of the issuer.
#[derive(Debug, thiserror::Error)]
pub enum SignInFailure {
    #[error(transparent)]
    Provider(#[from] OAuthFailure),
    #[error("its ID token is refused: {0}")]
    IdToken(&'static str),
}

/// Issuers that were asked lately, by their URL.
#[derive(Debug, Clone, Default)]
pub(super) struct Providers(Arc<Mutex<HashMap<String, Entry>>>);

type Entry = Arc<tokio::sync::Mutex<Kept>>;

#[derive(Debug, Default)]
struct Kept {
    provider: Option<Arc<Provider>>,
    /// When it could not be asked.
    failed_at: Option<Instant>,
    /// When somebody brought a token of a key that was not known.
    renewed_at: Option<Instant>,
}

impl Providers {
    fn entry(&self, issuer: &str) -> Entry {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= limits::OAUTH_ORIGINS.size() && !entries.contains_key(issuer) {
            entries.clear();
        }
        entries.entry(issuer.to_owned()).or_default().clone()
    }
}

impl OAuthClient {
    /// What an issuer says of itself, at most [`limits::COMPANY_KEYS_SECONDS`] old; older by
    /// [`limits::COMPANY_KEYS_STALE_SECONDS`] while it cannot be asked.
    pub async fn provider(&self, issuer: &str) -> Result<Arc<Provider>, OAuthFailure> {
        let entry = self.providers.entry(issuer);
        let mut kept = entry.lock().await;
        let (fresh, stale) = (
            limits::COMPANY_KEYS_SECONDS.seconds(),
            limits::COMPANY_KEYS_SECONDS.seconds() + limits::COMPANY_KEYS_STALE_SECONDS.seconds(),
        );
        let within = |most: Duration| {
            kept.provider.clone().filter(|provider| provider.fetched_at.elapsed() < most)
        };
        if let Some(provider) = within(fresh) {
            return Ok(provider);
        }
        let known = within(stale);
        let pause = limits::COMPANY_KEYS_RENEWAL_SECONDS.seconds();
        if let Some(known) = &known
            && kept.failed_at.is_some_and(|before| before.elapsed() < pause)
        {
            return Ok(Arc::clone(known));
        }
        // Whoever has something to fall back on does not let everybody wait.
        let patience = match known {
            Some(_) => limits::COMPANY_KEYS_PATIENCE_MS.millis(),
            None => limits::OAUTH_DISCOVERY_MS.millis(),
        };
        let asked = tokio::time::timeout(patience, fetch(&self.wire, issuer)).await;
        match asked.unwrap_or_else(|_| Err(OAuthFailure::late())) {
            Ok(provider) => {
                kept.failed_at = None;
                Ok(kept.provider.insert(Arc::new(provider)).clone())
            }
            Err(failure) => {
                kept.failed_at = Some(Instant::now());
                if failure.retryable() { known.ok_or(failure) } else { Err(failure) }
            }
        }
    }

    /// The same, asked anew because a token names a key that `known` does not have: at most once in
    /// [`limits::COMPANY_KEYS_RENEWAL_SECONDS`], so that nobody can make us ask by inventing keys.
    /// `None`: nothing newer.
    pub async fn renewed_provider(
        &self,
        issuer: &str,
        known: &Arc<Provider>,
    ) -> Option<Arc<Provider>> {
        let entry = self.providers.entry(issuer);
        let mut kept = entry.lock().await;
        if let Some(provider) = &kept.provider
            && provider.fetched_at > known.fetched_at
        {
            return Some(Arc::clone(provider));
        }
        let pause = limits::COMPANY_KEYS_RENEWAL_SECONDS.seconds();
        if kept.renewed_at.is_some_and(|before| before.elapsed() < pause) {
            return None;
        }
        kept.renewed_at = Some(Instant::now());
        let provider = Arc::new(fetch(&self.wire, issuer).await.ok()?);
        kept.provider = Some(Arc::clone(&provider));
        Some(provider)
    }

    /// The issuer asked now, whatever is known of it: for whoever sets it up.
    pub async fn examined_provider(&self, issuer: &str) -> Result<Arc<Provider>, OAuthFailure> {
        let provider = Arc::new(fetch(&self.wire, issuer).await?);
        self.providers.entry(issuer).lock().await.provider = Some(Arc::clone(&provider));
        Ok(provider)
    }

    /// Where a person signs in: code flow, PKCE S256, a new state and nonce. No network.
    #[must_use]
    pub fn sign_in_url(
        &self,
        provider: &Provider,
        client: &Client,
        redirect_uri: &Url,
        scopes: &[String],
    ) -> SignIn {
        let authorization =
            authorize::authorize(&provider.server, client, redirect_uri, None, scopes);
        let nonce = Nonce::new_random_len(32);
        let mut url = authorization.url;
        url.query_pairs_mut().append_pair("nonce", nonce.secret());
        SignIn {
            url,
            state: authorization.state,
            verifier: authorization.verifier,
            nonce: SecretString::from(nonce.secret().to_owned()),
        }
    }

    /// Changes the code of a callback into the person who signed in. Once, whatever comes of it.
    pub async fn sign_in(
        &self,
        issuer: &str,
        client: &Client,
        redirect_uri: &Url,
        code: &SecretString,
        (verifier, nonce): (&SecretString, &SecretString),
        now: Timestamp,
    ) -> Result<Identity, SignInFailure> {
        let provider = self.provider(issuer).await?;
        let grant = grant::Grant { wire: &self.wire, server: &provider.server, client };
        let tokens = grant.exchange(redirect_uri, None, code, verifier).await?;
        match identity(&provider, client, &tokens, nonce, now) {
            Err(Unknown::Key) => {
                let provider = self.renewed_provider(issuer, &provider).await;
                let provider =
                    provider.ok_or(SignInFailure::IdToken("no key of the issuer signed it"))?;
                identity(&provider, client, &tokens, nonce, now).map_err(SignInFailure::from)
            }
            judged => judged.map_err(SignInFailure::from),
        }
    }
}

async fn fetch(wire: &Wire, issuer: &str) -> Result<Provider, OAuthFailure> {
    let url = Url::parse(issuer).map_err(|_| OAuthFailure::at(step::INSECURE_URL))?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let place = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let place = Url::parse(&place).map_err(|_| OAuthFailure::at(step::INSECURE_URL))?;
    let asking = async {
        let described = document(wire, &place, &Destination::Configured).await?;
        let described = described.ok_or(OAuthFailure::at(step::AUTHORIZATION_SERVER_METADATA))?;
        let jwks_uri = described.get("jwks_uri").and_then(Value::as_str);
        let jwks_uri = jwks_uri.and_then(|uri| Url::parse(uri).ok());
        let jwks_uri = jwks_uri.ok_or(OAuthFailure::at(step::KEYS))?;
        let metadata: AuthorizationMetadata = serde_json::from_value(described)
            .map_err(|_| OAuthFailure::at(step::AUTHORIZATION_SERVER_METADATA))?;
        // OpenID Connect Discovery, section 4.3: exactly the one that was asked.
        if metadata.issuer.as_deref() != Some(issuer) {
            return Err(OAuthFailure::at(step::ISSUER_MISMATCH));
        }
        let server = AuthorizationServer::described(metadata, host, wire.http.rules())?;
        let keys = document(wire, &jwks_uri, &server.destination()).await?;
        let keys = keys.ok_or(OAuthFailure::at(step::KEYS))?;
        let parsed_keys: CoreJsonWebKeySet =
            serde_json::from_value(keys.clone()).map_err(|_| OAuthFailure::at(step::KEYS))?;
        if parsed_keys.keys().is_empty() {
            return Err(OAuthFailure::at(step::KEYS));
        }
        Ok(Provider { server, keys, parsed_keys, fetched_at: Instant::now() })
    };
    let within = limits::OAUTH_DISCOVERY_MS.millis();
    tokio::time::timeout(within, asking).await.unwrap_or_else(|_| Err(OAuthFailure::late()))
}

/// `None` for what is no JSON document.
async fn document(
    wire: &Wire,
    url: &Url,
    destination: &Destination,
) -> Result<Option<Value>, OAuthFailure> {
    server::judge(url, destination, wire.http.rules())?;
    let answered = wire.get(url, destination, &accept_json()).await?;
    if let Some(failure) = unavailable(&answered) {
        return Err(OAuthFailure::unavailable(failure));
    }
    if !answered.status.is_success() {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&answered.body).ok().filter(Value::is_object))
}

/// Why an ID token is refused.
enum Unknown {
    /// Signed by a key that we do not know: there may be a new one.
    Key,
    Refused(&'static str),
}

impl From<Unknown> for SignInFailure {
    fn from(unknown: Unknown) -> Self {
        Self::IdToken(match unknown {
            Unknown::Key => "no key of the issuer signed it",
            Unknown::Refused(why) => why,
        })
    }
}

fn identity(
    provider: &Provider,
    client: &Client,
    tokens: &Tokens,
    nonce: &SecretString,
    now: Timestamp,
) -> Result<Identity, Unknown> {
    use openidconnect::{
        ClaimsVerificationError as Wrong, SignatureVerificationError as Signature,
    };

    let refused = |why| Err(Unknown::Refused(why));
    let Some(text) = &tokens.id_token else { return refused("there is none") };
    let text = text.expose_secret();
    let Ok(token) = CoreIdToken::from_str(text) else { return refused("it is no JWT") };
    let Ok(issuer) = IssuerUrl::new(provider.server.issuer.clone()) else {
        return refused("the issuer is no URL");
    };
    let leeway = i64::try_from(limits::COMPANY_TOKEN_LEEWAY_SECONDS.default).unwrap_or(0);
    let leeway = TimeDelta::seconds(leeway);
    let verifier =
        CoreIdTokenVerifier::new_public_client(
            ClientId::new(client.client_id.clone()),
            issuer,
            provider.parsed_keys.clone(),
        )
        .set_allowed_algs(ALGORITHMS)
        .set_time_fn(|| now - leeway)
        .set_issue_time_verifier_fn(|made| {
            if made <= now + leeway { Ok(()) } else { Err(String::new()) }
        });
    let nonce = Nonce::new(nonce.expose_secret().to_owned());
    let claims = match token.claims(&verifier, &nonce) {
        Ok(claims) => claims,
        Err(Wrong::SignatureVerification(Signature::NoMatchingKey)) => return Err(Unknown::Key),
        Err(wrong) => {
            return refused(match wrong {
                Wrong::Expired(_) => {
                    "it has expired, or was made in the future: compare the clocks"
                }
                Wrong::InvalidAudience(_) => "it is for another client",
                Wrong::InvalidIssuer(_) => "it is of another issuer",
                Wrong::InvalidNonce(_) => "its nonce is not that of this sign-in",
                Wrong::SignatureVerification(_) => "its signature or algorithm is not acceptable",
                _ => "a claim is missing or wrong",
            });
        }
    };
    if claims.authorized_party().is_some_and(|party| party.as_str() != client.client_id) {
        return refused("it was made for another party");
    }
    if let Some(expected) = claims.access_token_hash() {
        let access = AccessToken::new(tokens.access_token.expose_secret().to_owned());
        let hash = token.signing_alg().ok().zip(token.signing_key(&verifier).ok());
        let hash = hash.and_then(|(alg, key)| AccessTokenHash::from_token(&access, alg, key).ok());
        if hash.as_ref() != Some(expected) {
            return refused("its access token is another one");
        }
    }
    let subject = claims.subject().as_str();
    if subject.is_empty() || subject.chars().count() > limits::SUBJECT_CHARS.size() {
        return refused("it names nobody");
    }
    // The payload that was just verified, whole.
    let payload = text.split('.').nth(1).unwrap_or_default();
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap_or_default();
    match serde_json::from_slice(&payload) {
        Ok(claims) => Ok(Identity { subject: subject.to_owned(), claims }),
        Err(_) => refused("it is no JWT"),
    }
}
