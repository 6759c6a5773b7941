//! The second step: the provider sends the browser back. Nobody is signed in here: the attempt says
//! whose it is.

use domain::{Error, Timestamp, ids::ServerId, limits, user::UserStatus};
use outbound::oauth::{Denial, OAuthFailure};
use secrecy::{ExposeSecret, SecretString};
use store::oauth_attempts::Attempt;

use super::{AttemptRow, Pending, digest_of, secret};
use crate::{
    Ctx,
    connections::grant::{Brought, OauthGrant},
};

/// What the browser brought.
#[derive(Debug, Default)]
pub struct Callback {
    /// Of the path.
    pub server: String,
    pub state: String,
    pub code: Option<SecretString>,
    pub error: Option<String>,
    pub iss: Option<String>,
    /// The value of the attempt's cookie.
    pub browser: Option<SecretString>,
}

/// What became of it.
#[derive(Debug)]
pub enum Received {
    /// To be confirmed by the person who began, within a minute, with this.
    Confirm { server: ServerId, result: SecretString },
    /// The provider says that it was not allowed.
    Denied,
    /// The exchange failed, or the provider answered wrongly: nothing was connected.
    Failed,
    /// Nothing that could be taken up: another browser, replayed, late, the server was changed, or the
    /// person disabled. One answer for all of it.
    Unknown,
}

/// Takes a callback up, once, before anything is asked of the provider.
pub async fn callback(ctx: &Ctx, callback: Callback) -> Result<Received, Error> {
    let Some(claimed) = claim(ctx, &callback).await? else { return Ok(Received::Unknown) };
    let Claimed { attempt, row, pending } = &claimed;
    let row = row.row();
    // RFC 9207, section 2.4: also of an error.
    let promised = pending.server.authorization_response_iss_parameter_supported;
    let right_issuer = match &callback.iss {
        Some(iss) => *iss == pending.server.issuer,
        None => !promised,
    };
    if !right_issuer {
        tracing::info!(server = %attempt.server, "a callback came from another issuer");
        return end(ctx, &claimed, Received::Unknown).await;
    }
    let code = match (&callback.code, &callback.error) {
        (Some(code), None) => code,
        (_, Some(error)) if Denial::named(error) == Denial::AccessDenied => {
            return end(ctx, &claimed, Received::Denied).await;
        }
        _ => return end(ctx, &claimed, Received::Failed).await,
    };
    let redirect = pending.callback.parse().map_err(Error::internal)?;
    let exchanging = ctx.oauth.exchange(
        &pending.server,
        &pending.client,
        &redirect,
        &pending.resource,
        code,
        &pending.verifier,
    );
    let tokens = match exchanging.await {
        Ok(tokens) => tokens,
        Err(failure) => {
            tracing::info!(server = %attempt.server, %failure, "a code was not exchanged");
            if matches!(failure, OAuthFailure::Refused(Denial::InvalidClient)) {
                forget(ctx, &claimed).await?;
            }
            return end(ctx, &claimed, Received::Failed).await;
        }
    };
    let grant = OauthGrant {
        server: pending.server.clone(),
        client: pending.client.clone(),
        resource: pending.resource.clone(),
        callback: pending.callback.clone(),
        access_token: tokens.access_token.clone(),
        refresh_token: tokens.refresh_token.clone(),
    };
    let brought = Brought::of(ctx, grant, &tokens, &pending.scopes);
    let sealed = row.seal(ctx, &brought.written()?)?;
    let (result, digest) = secret()?;
    let expires_at: Timestamp = ctx.now() + limits::OAUTH_RESULT_SECONDS.seconds();
    let mut tx = ctx.db.begin(row.tenant).await?;
    let kept =
        store::oauth_attempts::finish(&mut tx, attempt.id, &sealed, digest, expires_at).await?;
    tx.commit().await?;
    if kept {
        return Ok(Received::Confirm { server: attempt.server.clone(), result });
    }
    // It was cancelled while the provider answered.
    Ok(Received::Unknown)
}

struct Claimed {
    attempt: Attempt,
    row: OwnedRow,
    pending: Pending,
}

struct OwnedRow {
    tenant: domain::ids::TenantId,
    server: ServerId,
    attempt: domain::ids::OauthAttemptId,
}

impl OwnedRow {
    fn row(&self) -> AttemptRow<'_> {
        AttemptRow { tenant: self.tenant, server: &self.server, attempt: self.attempt }
    }
}

async fn claim(ctx: &Ctx, callback: &Callback) -> Result<Option<Claimed>, Error> {
    let Some(browser) = &callback.browser else { return Ok(None) };
    let state = digest_of(&callback.state);
    let Some((tenant, id)) = store::oauth_attempts::of_state(&ctx.db, state).await? else {
        return Ok(None);
    };
    let browser = digest_of(browser.expose_secret());
    let mut tx = ctx.db.begin(tenant).await?;
    let claimed =
        store::oauth_attempts::claim(&mut tx, id, &callback.server, browser, ctx.now()).await?;
    let Some(attempt) = claimed else { return Ok(None) };
    let server = store::servers::find(&mut tx, attempt.server.as_str()).await?;
    let connection = store::connections::find(&mut tx, &attempt.server, attempt.user).await?;
    let person = store::users::get(&mut tx, attempt.user).await?;
    let same = person.is_some_and(|person| person.status == UserStatus::Active)
        && server.is_some_and(|server| {
            server.enabled && server.config_revision == attempt.config_revision
        })
        && connection.is_some_and(|own| own.generation == attempt.generation);
    if !same {
        store::oauth_attempts::void(&mut tx, id).await?;
        tx.commit().await?;
        return Ok(None);
    }
    let row = OwnedRow { tenant, server: attempt.server.clone(), attempt: id };
    // Where the key is missing nothing was taken up: with it, the same callback is good.
    let pending = Pending::open(ctx, &row.row(), &attempt.sealed)?;
    tx.commit().await?;
    Ok(Some(Claimed { attempt, row, pending }))
}

async fn end(ctx: &Ctx, claimed: &Claimed, received: Received) -> Result<Received, Error> {
    let mut tx = ctx.db.begin(claimed.row.tenant).await?;
    store::oauth_attempts::void(&mut tx, claimed.attempt.id).await?;
    tx.commit().await?;
    Ok(received)
}

/// The provider does not know us: the next start registers anew.
async fn forget(ctx: &Ctx, claimed: &Claimed) -> Result<(), Error> {
    let mut tx = ctx.db.begin(claimed.row.tenant).await?;
    let (issuer, callback) = (&claimed.pending.server.issuer, &claimed.pending.callback);
    store::oauth_clients::delete(&mut tx, issuer, callback).await?;
    Ok(tx.commit().await?)
}
