//! Refreshing a person's tokens: exactly one request for each state of a credential, on whatever node;
//! everybody else waits for its outcome.

use domain::{
    Code, Error,
    connection::{ConnectionState, ReconnectReason},
    limits,
    server::AuthMode,
};
use outbound::oauth::{Denial, OAuthFailure, Tokens};
use store::connections::{CredentialName, Own, Refreshed};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::Right;
use crate::{
    Ctx,
    connections::{
        credential::Credential,
        grant::{OauthGrant, bounded, times},
    },
    signals::Hint,
};

/// Before its use, near its end. False: it could not be refreshed now, and is good until its end.
pub(super) async fn in_time(ctx: &Ctx, right: &Right, own: &Own) -> Result<bool, Error> {
    let name = right
        .credential(outbound::mcp::Mark { generation: own.generation, version: own.version })?;
    match settle(ctx, right, &name).await {
        Ok(()) => Ok(true),
        Err(error) if error.retryable() && !own.is_over(ctx.now()) => {
            tracing::warn!(
                server = %right.server,
                code = %error.code,
                "a credential could not be refreshed in time; it is used as it is"
            );
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// After the server refused it.
pub(super) async fn after_refusal(
    ctx: &Ctx,
    right: &Right,
    name: &CredentialName,
) -> Result<(), Error> {
    settle(ctx, right, name).await
}

/// Returns when the named state of the credential is not the present one any more.
async fn settle(ctx: &Ctx, right: &Right, name: &CredentialName) -> Result<(), Error> {
    // Before the first look, so that no hint falls between.
    let mut listener = ctx.signals.listen();
    let deadline = Instant::now() + limits::REFRESH_WAIT_MS.millis();
    loop {
        let holder = Uuid::new_v4();
        match take(ctx, name, holder).await? {
            Taken::Moved => return Ok(()),
            Taken::Ours(credential) => {
                // In a task of its own: whoever waits may hang up between the answer and its saving,
                // and the old tokens are worth nothing by then.
                let (ctx, right, name) = (ctx.clone(), right.clone(), name.clone());
                let tasks = ctx.tasks.clone();
                let work = tasks.spawn(async move {
                    let outcome = refresh(&ctx, &right, &name, holder, *credential).await;
                    ctx.signals.hint(Hint::Credential(name.user));
                    outcome
                });
                return work.await.map_err(Error::internal)?;
            }
            Taken::Others => {}
        }
        if Instant::now() >= deadline {
            let words = "your connection to the server is being refreshed, and that takes too long";
            return Err(Error::new(Code::UpstreamUnavailable, words));
        }
        tokio::select! {
            () = listener.wait(|hint| hint == Hint::Credential(name.user)) => {}
            () = sleep(limits::REFRESH_POLL_MS.millis()) => {}
            () = sleep_until(deadline) => {}
        }
    }
}

enum Taken {
    /// It is ours to refresh.
    Ours(Box<Credential>),
    /// Somebody refreshes it.
    Others,
    /// It is another one by now.
    Moved,
}

async fn take(ctx: &Ctx, name: &CredentialName, holder: Uuid) -> Result<Taken, Error> {
    let mut tx = ctx.db.begin(name.tenant).await?;
    let lease = limits::REFRESH_LEASE_MS.millis();
    if store::connections::lease(&mut tx, name, holder, lease).await? {
        let sealed = store::connections::credential(&mut tx, &name.server, name.user).await?;
        let sealed = sealed.ok_or_else(|| Error::internal("a connected one holds nothing"))?;
        // What cannot be opened is not leased.
        let credential = Credential::open(&ctx.vault, name, AuthMode::Oauth, &sealed)?;
        tx.commit().await?;
        return Ok(Taken::Ours(Box::new(credential)));
    }
    let now = store::connections::find(&mut tx, &name.server, name.user).await?;
    let same = now.is_some_and(|now| {
        now.state == ConnectionState::Connected
            && (now.generation, now.version) == (name.generation, name.version)
    });
    Ok(if same { Taken::Others } else { Taken::Moved })
}

async fn refresh(
    ctx: &Ctx,
    right: &Right,
    name: &CredentialName,
    holder: Uuid,
    credential: Credential,
) -> Result<(), Error> {
    let Credential::Oauth(grant) = credential else {
        return Err(Error::internal("a secret that is refreshed"));
    };
    let Some(refresh_token) = grant.refresh_token.clone() else {
        return clear(ctx, right, name, ReconnectReason::Expired).await;
    };
    // Again: between the request that found it due and this lease anything may have happened.
    let permitted = async {
        let now = right.read_back(ctx, outbound::mcp::Behalf::Client).await?;
        right.permits(&now, outbound::mcp::Behalf::Client)
    };
    if let Err(refused) = permitted.await {
        release(ctx, name, holder).await?;
        return Err(refused);
    }
    let asking = ctx.oauth.refresh(&grant.server, &grant.client, &grant.resource, &refresh_token);
    let answered = timeout(limits::REFRESH_TIMEOUT_MS.millis(), asking).await;
    match answered {
        Ok(Ok(tokens)) => save(ctx, name, *grant, &tokens).await,
        // Asked again it would say the same: only the person can change that.
        Ok(Err(OAuthFailure::Refused(
            Denial::InvalidGrant
            | Denial::AccessDenied
            | Denial::InvalidScope
            | Denial::InvalidTarget,
        ))) => clear(ctx, right, name, ReconnectReason::RefreshRefused).await,
        Ok(Err(OAuthFailure::Refused(Denial::InvalidClient))) => {
            forget_client(ctx, name, &grant).await?;
            clear(ctx, right, name, ReconnectReason::RegistrationLost).await
        }
        Ok(Err(failure)) => {
            release(ctx, name, holder).await?;
            Err(unavailable(failure.to_string()))
        }
        Err(_) => {
            release(ctx, name, holder).await?;
            Err(unavailable("the authorization server did not answer in time"))
        }
    }
}

/// First of all: what it answered is the only thing that is worth anything now.
async fn save(
    ctx: &Ctx,
    name: &CredentialName,
    grant: OauthGrant,
    tokens: &Tokens,
) -> Result<(), Error> {
    let grant = grant.renewed(tokens);
    let (expires_at, refresh_at) = times(ctx, tokens, grant.refresh_token.is_some());
    let sealed = Credential::Oauth(Box::new(grant)).seal(&ctx.vault, name)?;
    let end = Instant::now() + limits::CLOSE_RETRY_SECONDS.seconds();
    loop {
        let saved = async {
            let mut tx = ctx.db.begin(name.tenant).await?;
            let scopes = tokens.scopes.clone().map(bounded);
            let new = Refreshed {
                sealed: &sealed,
                scopes: scopes.as_deref(),
                expires_at,
                refresh_at,
                at: ctx.now(),
            };
            store::connections::save_refreshed(&mut tx, name, &new).await?;
            tx.commit().await
        };
        match saved.await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_outage() && Instant::now() < end => {
                sleep(limits::DATABASE_RETRY_MS.millis()).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn clear(
    ctx: &Ctx,
    right: &Right,
    name: &CredentialName,
    reason: ReconnectReason,
) -> Result<(), Error> {
    let mut tx = ctx.db.begin(name.tenant).await?;
    let cleared = store::connections::clear_exactly(&mut tx, name, reason, ctx.now()).await?;
    tx.commit().await?;
    if cleared {
        return Err(right.not_connected(ConnectionState::ReconnectRequired, Some(reason)));
    }
    Ok(())
}

async fn release(ctx: &Ctx, name: &CredentialName, holder: Uuid) -> Result<(), Error> {
    let mut tx = ctx.db.begin(name.tenant).await?;
    store::connections::release(&mut tx, name, holder).await?;
    Ok(tx.commit().await?)
}

/// The next start registers us anew.
async fn forget_client(ctx: &Ctx, name: &CredentialName, grant: &OauthGrant) -> Result<(), Error> {
    let mut tx = ctx.db.begin(name.tenant).await?;
    store::oauth_clients::delete(&mut tx, &grant.server.issuer, &grant.callback).await?;
    Ok(tx.commit().await?)
}

fn unavailable(words: impl Into<String>) -> Error {
    Error::new(Code::UpstreamUnavailable, words.into())
}
