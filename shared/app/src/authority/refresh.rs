//! Refreshing a person's tokens: exactly one request for each state of a credential, on whatever node;
//! everybody else waits for its outcome.

use std::time::Duration;

use domain::{
    Code, Error,
    connection::{ConnectionState, ReconnectReason},
    limits,
    server::AuthMode,
};
use outbound::oauth::{Denial, OAuthFailure, Tokens};
use store::connections::{CredentialName, Failed, Own, Refreshed};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
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
    let over = own.is_over(ctx.now());
    // What is still good is not worth waiting long for.
    let wait = if over { limits::REFRESH_WAIT_MS } else { limits::REFRESH_PATIENCE_MS };
    match settle(ctx, right, &name, wait.millis()).await {
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
    settle(ctx, right, name, limits::REFRESH_WAIT_MS.millis()).await
}

/// Returns when the named state of the credential is not the present one any more. Whoever waits for
/// somebody else's refresh shares its outcome: one that brought nothing leaves a pause, in which
/// nothing is asked for anybody.
async fn settle(
    ctx: &Ctx,
    right: &Right,
    name: &CredentialName,
    wait: Duration,
) -> Result<(), Error> {
    // Before the first look, so that no hint falls between.
    let mut listener = ctx.signals.listen();
    let began = Instant::now();
    // Where the last refresh failed, the next may hang as well: that costs nobody the whole wait.
    let patience = |failures: u32| match failures {
        0 => began + wait,
        _ => began + wait.min(limits::REFRESH_PATIENCE_MS.millis()),
    };
    loop {
        let holder = Uuid::new_v4();
        let deadline = match take(ctx, name, holder).await? {
            Taken::Moved => return Ok(()),
            Taken::Paused(left) => return Err(unavailable(left)),
            Taken::Ours { credential, failures } => {
                // In a task of its own: whoever waits may hang up between the answer and its saving,
                // and the old tokens are worth nothing by then.
                let (ctx, right, name) = (ctx.clone(), right.clone(), name.clone());
                let tasks = ctx.tasks.clone();
                let lease = Lease { name, holder, failures };
                let work = tasks.spawn(async move {
                    let outcome = refresh(&ctx, &right, &lease, *credential).await;
                    ctx.signals.hint(Hint::Credential(lease.name.user));
                    outcome
                });
                return match timeout_at(patience(failures), work).await {
                    Ok(ended) => ended.map_err(Error::internal)?,
                    Err(_) => Err(too_long()),
                };
            }
            Taken::Others { failures } => patience(failures),
        };
        if Instant::now() >= deadline {
            return Err(too_long());
        }
        tokio::select! {
            () = listener.wait(|hint| hint == Hint::Credential(name.user)) => {}
            () = sleep(limits::REFRESH_POLL_MS.millis()) => {}
            () = sleep_until(deadline) => {}
        }
    }
}

/// The right to refresh one state of a credential.
struct Lease {
    name: CredentialName,
    holder: Uuid,
    /// Refreshes in a row that brought nothing before.
    failures: u32,
}

enum Taken {
    /// It is ours to refresh.
    Ours { credential: Box<Credential>, failures: u32 },
    /// Somebody refreshes it.
    Others { failures: u32 },
    /// A refresh brought nothing a moment ago.
    Paused(Duration),
    /// It is another one by now.
    Moved,
}

async fn take(ctx: &Ctx, name: &CredentialName, holder: Uuid) -> Result<Taken, Error> {
    let mut tx = ctx.db.begin(name.tenant).await?;
    let lease = limits::REFRESH_LEASE_MS.millis();
    Ok(match store::connections::lease(&mut tx, name, holder, lease).await? {
        store::connections::Lease::Ours { failures } => {
            let sealed = store::connections::credential(&mut tx, &name.server, name.user).await?;
            let sealed = sealed.ok_or_else(|| Error::internal("a connected one holds nothing"))?;
            // What cannot be opened is not leased.
            let credential = Credential::open(&ctx.vault, name, AuthMode::Oauth, &sealed)?;
            tx.commit().await?;
            Taken::Ours { credential: Box::new(credential), failures }
        }
        store::connections::Lease::Others { failures } => Taken::Others { failures },
        store::connections::Lease::Paused(left) => Taken::Paused(left),
        store::connections::Lease::Moved => Taken::Moved,
    })
}

async fn refresh(
    ctx: &Ctx,
    right: &Right,
    lease: &Lease,
    credential: Credential,
) -> Result<(), Error> {
    let name = &lease.name;
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
        release(ctx, lease).await?;
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
            tracing::info!(server = %right.server, %failure, "a credential was not refreshed");
            Err(pause(ctx, lease, failure.may_have_spent(), failure.wait()).await?)
        }
        Err(_) => Err(pause(ctx, lease, true, None).await?),
    }
}

/// The refresh brought nothing: the next one waits, longer each time. What may have spent the refresh
/// token is repeated as late as can be: a provider that rotates takes the repetition for theft, and
/// ends with it what is still good.
async fn pause(
    ctx: &Ctx,
    lease: &Lease,
    spent: bool,
    asked: Option<Duration>,
) -> Result<Error, Error> {
    let doubled = limits::REFRESH_PAUSE_MS.millis().saturating_mul(1 << lease.failures.min(16));
    let pause = doubled.min(limits::REFRESH_PAUSE_CAP_MS.millis()).max(asked.unwrap_or_default());
    let failed = Failed { pause, spent, at: ctx.now() };
    let mut tx = ctx.db.begin(lease.name.tenant).await?;
    store::connections::failed(&mut tx, &lease.name, lease.holder, &failed).await?;
    tx.commit().await?;
    Ok(unavailable(pause))
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

async fn release(ctx: &Ctx, lease: &Lease) -> Result<(), Error> {
    let mut tx = ctx.db.begin(lease.name.tenant).await?;
    store::connections::release(&mut tx, &lease.name, lease.holder).await?;
    Ok(tx.commit().await?)
}

/// The next start registers us anew.
async fn forget_client(ctx: &Ctx, name: &CredentialName, grant: &OauthGrant) -> Result<(), Error> {
    let mut tx = ctx.db.begin(name.tenant).await?;
    store::oauth_clients::delete(&mut tx, &grant.server.issuer, &grant.callback).await?;
    Ok(tx.commit().await?)
}

/// The same for whoever asked the provider, whoever waited for that and whoever comes in the pause.
fn unavailable(wait: Duration) -> Error {
    let words = "your connection to the server cannot be refreshed: its provider is not available";
    Error::new(Code::UpstreamUnavailable, words).retry_after(wait)
}

fn too_long() -> Error {
    let words = "your connection to the server is being refreshed, and that takes too long";
    Error::new(Code::UpstreamUnavailable, words)
}
