//! Connecting by OAuth: from the click to the confirmation. What is known in between stands in rows, so
//! that any process can take the next step.

mod callback;
mod client;
mod confirm;
mod start;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::{
    Error,
    ids::{OauthAttemptId, ServerId, TenantId},
    json::{Sha256Digest, digest},
    limits,
};
use outbound::oauth::{AuthorizationServer, Client, ExposedClient};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use store::vault::{Purpose, RowName, Sealed};
use zeroize::Zeroizing;

pub use callback::{Callback, Received, callback};
pub use confirm::confirm;
pub use start::{Started, start};

use crate::Ctx;

/// What an attempt keeps until its callback.
#[derive(Debug)]
struct Pending {
    server: AuthorizationServer,
    client: Client,
    resource: String,
    callback: String,
    scopes: Vec<String>,
    verifier: SecretString,
}

#[derive(Serialize, Deserialize)]
struct Written {
    server: AuthorizationServer,
    client: ExposedClient,
    resource: String,
    callback: String,
    scopes: Vec<String>,
    verifier: String,
}

impl Pending {
    fn seal(&self, ctx: &Ctx, row: &AttemptRow<'_>) -> Result<Sealed, Error> {
        let written = Written {
            server: self.server.clone(),
            client: self.client.expose(),
            resource: self.resource.clone(),
            callback: self.callback.clone(),
            scopes: self.scopes.clone(),
            verifier: self.verifier.expose_secret().to_owned(),
        };
        let text = serde_json::to_string(&written).map_err(Error::internal)?;
        row.seal(ctx, &SecretString::from(text))
    }

    fn open(ctx: &Ctx, row: &AttemptRow<'_>, sealed: &Sealed) -> Result<Self, Error> {
        let opened = row.open(ctx, sealed)?;
        // What serde says of it could repeat a piece.
        let written: Written = serde_json::from_str(opened.expose_secret())
            .map_err(|_| Error::internal("a sealed attempt cannot be read"))?;
        Ok(Self {
            server: written.server,
            client: written.client.into(),
            resource: written.resource,
            callback: written.callback,
            scopes: written.scopes,
            verifier: SecretString::from(written.verifier),
        })
    }
}

/// The row that the payload of an attempt is sealed for.
struct AttemptRow<'a> {
    tenant: TenantId,
    server: &'a ServerId,
    attempt: OauthAttemptId,
}

impl AttemptRow<'_> {
    fn seal(&self, ctx: &Ctx, payload: &SecretString) -> Result<Sealed, Error> {
        let attempt = self.attempt.to_string();
        let row = RowName { tenant: self.tenant, server: self.server.as_str(), name: &attempt };
        ctx.vault.seal(Purpose::OauthAttempt, row, payload)
    }

    fn open(&self, ctx: &Ctx, sealed: &Sealed) -> Result<SecretString, Error> {
        let attempt = self.attempt.to_string();
        let row = RowName { tenant: self.tenant, server: self.server.as_str(), name: &attempt };
        ctx.vault.open(Purpose::OauthAttempt, row, sealed)
    }
}

/// Deletes the tenant's tries whose time is over, and what they may have shown to be wrong.
pub(crate) async fn sweep(ctx: &Ctx, tenant: TenantId) -> Result<(), Error> {
    let most = i64::try_from(limits::OAUTH_SWEEP.default).unwrap_or(i64::MAX);
    loop {
        let mut tx = ctx.db.begin(tenant).await?;
        let gone = store::oauth_attempts::sweep(&mut tx, ctx.now(), most).await?;
        tx.commit().await?;
        if gone < limits::OAUTH_SWEEP.default {
            return Ok(());
        }
    }
}

/// 256 random bits as base64url, and their digest, which is all that is stored.
pub(crate) fn secret() -> Result<(SecretString, Sha256Digest), Error> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(bytes.as_mut_slice()).map_err(|error| Error::internal(error.to_string()))?;
    let text = URL_SAFE_NO_PAD.encode(bytes.as_slice());
    let digest = digest_of(&text);
    Ok((SecretString::from(text), digest))
}

pub(crate) fn digest_of(text: &str) -> Sha256Digest {
    Sha256Digest(digest(text.as_bytes()))
}

/// What the cookie of the attempt with this `state` is called after: two tabs have two.
#[must_use]
pub fn cookie_suffix(state: &str) -> String {
    hex::encode(&digest_of(state).as_bytes()[..4])
}
