//! A person takes their own credential out.

use domain::{Caller, Error, Scope, server::AuthMode};
use secrecy::SecretString;
use serde_json::json;
use store::{
    Tx,
    connections::{CredentialName, Stored},
};
use tokio::time::timeout;

use super::{Shown, credential::Credential, grant::OauthGrant, hold_own, list};
use crate::{Ctx, audit, idempotency};

/// A connection that was cleared.
#[derive(Debug)]
pub struct Cleared {
    pub shown: Shown,
    /// `None`: it was not asked for.
    pub revocation: Option<Revocation>,
}

/// What the provider made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    Revoked,
    /// It was asked and did not do it.
    Failed,
    /// It was not asked: it takes no revocations, there was no grant, or another connection of the
    /// person's stands on the same one.
    NotOffered,
}

impl Revocation {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Failed => "failed",
            Self::NotOffered => "not_offered",
        }
    }
}

/// Takes the person's own credential out, whatever it is, and ends every try that is under way. Also of
/// a server that is switched off. Idempotent.
///
/// The provider is told where `revoke` says so, afterwards: what is stored here is gone either way.
pub async fn clear(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    revoke: bool,
) -> Result<Cleared, Error> {
    caller.require_scope(Scope::Approve)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    // Also of a server that needs nobody's account any more: what was left is the person's to clear.
    let server = hold_own(&mut tx, caller, server).await?;
    let now = ctx.now();
    let mut connection = store::connections::lock(&mut tx, &server.id, caller.user, now).await?;
    let name = CredentialName {
        tenant: caller.tenant,
        server: server.id.clone(),
        user: caller.user,
        generation: connection.generation,
        version: connection.version,
    };
    let grant = if revoke { revocable(ctx, &mut tx, &name).await? } else { None };
    let was = connection.state;
    connection.clear(None, now);
    store::connections::save(&mut tx, &connection, Stored::Clear).await?;
    store::oauth_attempts::void_own(&mut tx, &server.id, caller.user).await?;
    let details = json!({ "was": was, "generation": connection.generation, "revoke": revoke });
    audit::record(ctx, &mut tx, caller, "connection.cleared", server.id.as_str(), details).await?;
    tx.commit().await?;
    if grant.is_some() {
        // What is stored here is gone before the provider hears of it.
        idempotency::before_an_effect(ctx).await?;
    }
    let revocation = match (revoke, grant) {
        (false, _) => None,
        (true, None) => Some(Revocation::NotOffered),
        (true, Some(grant)) => Some(tell(ctx, &grant).await),
    };
    Ok(Cleared { shown: list::shown(ctx, &server, Some(connection), None, None), revocation })
}

/// The grant, if nothing else of the person's stands on it.
async fn revocable(
    ctx: &Ctx,
    tx: &mut Tx,
    name: &CredentialName,
) -> Result<Option<OauthGrant>, Error> {
    let sealed = store::connections::credential(tx, &name.server, name.user).await?;
    let Some(grant) = sealed.and_then(|sealed| open(ctx, name, &sealed)) else { return Ok(None) };
    if grant.server.revocation_endpoint.is_none() {
        return Ok(None);
    }
    for (server, sealed) in store::connections::credentials_of(tx, name.user).await? {
        if server == name.server {
            continue;
        }
        let other = open(ctx, &CredentialName { server, ..name.clone() }, &sealed);
        let shared = other.is_some_and(|other| {
            other.server.issuer == grant.server.issuer
                && other.client.client_id == grant.client.client_id
        });
        if shared {
            return Ok(None);
        }
    }
    Ok(Some(grant))
}

/// `None`: it is no grant, or cannot be opened.
fn open(ctx: &Ctx, name: &CredentialName, sealed: &store::vault::Sealed) -> Option<OauthGrant> {
    match Credential::open(&ctx.vault, name, AuthMode::Oauth, sealed) {
        Ok(Credential::Oauth(grant)) => Some(*grant),
        _ => None,
    }
}

async fn tell(ctx: &Ctx, grant: &OauthGrant) -> Revocation {
    let token: &SecretString = grant.refresh_token.as_ref().unwrap_or(&grant.access_token);
    let telling = ctx.oauth.revoke(&grant.server, &grant.client, token);
    match timeout(domain::limits::REFRESH_TIMEOUT_MS.millis(), telling).await {
        Ok(Ok(())) => Revocation::Revoked,
        Ok(Err(failure)) => {
            tracing::info!(%failure, "a grant was not revoked at its provider");
            Revocation::Failed
        }
        Err(_) => Revocation::Failed,
    }
}
