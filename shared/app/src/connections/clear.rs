//! A person takes their own credential out.

use domain::{Caller, Error, Scope, ids::ServerId, server::AuthMode};
use secrecy::SecretString;
use serde_json::json;
use store::{
    Tx,
    connections::{CredentialName, Stored},
    vault::Sealed,
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
    let grant = if revoke {
        Grants::of(ctx, &mut tx, caller).await?.revocable(&server.id).cloned()
    } else {
        None
    };
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

/// Whether the provider can be told when the caller disconnects from this server.
pub(super) async fn can_revoke(
    ctx: &Ctx,
    tx: &mut Tx,
    caller: &Caller,
    server: &ServerId,
) -> Result<bool, Error> {
    Ok(Grants::of(ctx, tx, caller).await?.revocable(server).is_some())
}

/// All grants of one person that can be opened.
pub(super) struct Grants(Vec<(ServerId, OauthGrant)>);

impl Grants {
    pub(super) async fn of(ctx: &Ctx, tx: &mut Tx, caller: &Caller) -> Result<Self, Error> {
        let sealed = store::connections::credentials_of(tx, caller.user).await?;
        Ok(Self::open(ctx, caller, sealed.iter().map(|(server, sealed)| (server, sealed))))
    }

    pub(super) fn open<'a>(
        ctx: &Ctx,
        caller: &Caller,
        sealed: impl Iterator<Item = (&'a ServerId, &'a Sealed)>,
    ) -> Self {
        let opened = sealed.filter_map(|(server, sealed)| {
            let name = CredentialName {
                tenant: caller.tenant,
                server: server.clone(),
                user: caller.user,
                generation: 0,
                version: 0,
            };
            // Of another mode, it is no grant.
            match Credential::open(&ctx.vault, &name, AuthMode::Oauth, sealed) {
                Ok(Credential::Oauth(grant)) => Some((server.clone(), *grant)),
                _ => None,
            }
        });
        Self(opened.collect())
    }

    /// The grant at a server, if its provider takes revocations and nothing else of the person's stands
    /// on it.
    pub(super) fn revocable(&self, at: &ServerId) -> Option<&OauthGrant> {
        let (_, grant) = self.0.iter().find(|(server, _)| server == at)?;
        let shared = self.0.iter().any(|(server, other)| {
            server != at
                && other.server.issuer == grant.server.issuer
                && other.client.client_id == grant.client.client_id
        });
        let offered = grant.server.revocation_endpoint.is_some();
        Some(grant).filter(|_| offered && !shared)
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
