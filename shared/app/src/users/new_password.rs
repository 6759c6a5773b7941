//! Another password in place of the one that a person had.

use domain::{Caller, Code, Error, Scope, Via, ids::WebSessionId, user, web_session::Network};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::{Tx, users::User};

use super::{me, password, password::Place};
use crate::{Ctx, audit, sign_in::Tried, tenants};

/// What became of a person whose password was set.
#[derive(Debug, Clone)]
pub struct PasswordSet {
    pub user: User,
    /// Browser sessions that ended.
    pub web_sessions: u64,
    /// Tokens that were revoked.
    pub tokens: usize,
}

/// The operator gives a person another password. Whoever had the old one is out: every browser session
/// of the person ends, and every token with `approve` or `admin`, which is as good as signing in. Tokens
/// that only call or read stay: agents go on.
///
/// `NOT_FOUND` without such a tenant or person, `INVALID_INPUT` for a password that cannot be one.
pub async fn set_password(
    ctx: &Ctx,
    tenant_slug: &str,
    email: &str,
    password: SecretString,
) -> Result<PasswordSet, Error> {
    let tenant = tenants::find(ctx, tenant_slug).await?;
    let hash = password::hash(password).await?;
    let mut tx = ctx.begin(tenant.id).await?;
    let user = store::users::find(&mut tx, email).await?;
    let user = user.ok_or_else(|| Error::not_found("person"))?;
    store::sign_in::save_password(&mut tx, user.id, &hash).await?;
    let web_sessions = store::web_sessions::revoke_all(&mut tx, user.id, ctx.now()).await?;
    let tokens = revoke_tokens(ctx, &mut tx, &user).await?;
    let details = json!({ "webSessions": web_sessions, "tokens": tokens });
    let subject = user.id.to_string();
    audit::record_operator(ctx, &mut tx, "user.password_set", &subject, details).await?;
    tx.commit().await?;
    Ok(PasswordSet { user, web_sessions, tokens })
}

/// Those that can permit or configure; after the sessions, which make tokens.
async fn revoke_tokens(ctx: &Ctx, tx: &mut Tx, user: &User) -> Result<usize, Error> {
    let scopes = [Scope::Approve, Scope::Admin];
    let mut revoked = 0;
    loop {
        // What was being made by one of them meanwhile is seen by the next look: a maker is locked until
        // its new token is there, and a spent one makes none.
        let ended = store::tokens::revoke_with(tx, user.id, &scopes, ctx.now()).await?;
        if ended.is_empty() {
            return Ok(revoked);
        }
        revoked += ended.len();
        for token in ended {
            let details = json!({ "userId": user.id });
            let subject = token.to_string();
            audit::record_operator(ctx, tx, "token.revoked", &subject, details).await?;
        }
    }
}

/// What somebody typed to change their own password, and where from.
#[derive(Debug)]
pub struct Change {
    pub current: SecretString,
    pub new: SecretString,
    pub network: Network,
}

/// The caller's own password, by a browser session alone: a token must not become one. Every other
/// browser session of theirs ends; tokens stay. Answers how many ended.
///
/// `DENIED` to tokens; `INVALID_INPUT` at `/new` for what cannot be a password and at `/current` for what
/// is not theirs; `LIMITED` as signing in, with which attempts are counted together.
pub async fn change_password(ctx: &Ctx, caller: &Caller, change: Change) -> Result<u64, Error> {
    let Via::Console(session) = caller.via else {
        let words = "a password is changed by whoever is signed in, not by a token";
        return Err(Error::new(Code::Denied, words));
    };
    user::check_password(change.new.expose_secret()).map_err(|error| at("/new", &error.public))?;
    let place = Place::take()?;
    let me = me(ctx, caller).await?;
    let (tenant, email, network) = (&me.tenant.slug, &me.user.email, change.network);
    let tried = Tried { tenant, email, network };
    let account = tried.account(ctx, &place, change.current).await?;
    let account = account.filter(|account| account.user == caller.user);
    let known = account.and_then(|account| account.password_hash).ok_or_else(not_theirs)?;
    let hash = place.hash(change.new).await?;
    let ended = replace(ctx, caller, session, &known, &hash).await?;
    // It is changed: an outage now makes the person wait a little at their next sign-in, and no more.
    if let Err(error) = tried.settle(ctx).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "a sign-in is still counted");
    }
    Ok(ended)
}

async fn replace(
    ctx: &Ctx,
    caller: &Caller,
    session: WebSessionId,
    known: &str,
    hash: &str,
) -> Result<u64, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    // Replaced, or the session ended, while it was tried: then this is not theirs to change any more.
    let present = store::sign_in::lock_password(&mut tx, caller.user).await?;
    if present.as_deref() != Some(known) {
        return Err(not_theirs());
    }
    if !store::web_sessions::hold(&mut tx, session).await? {
        return Err(Error::new(Code::Unauthenticated, "this sign-in is over"));
    }
    store::sign_in::save_password(&mut tx, caller.user, hash).await?;
    let ended =
        store::web_sessions::revoke_others(&mut tx, caller.user, session, ctx.now()).await?;
    let details = json!({ "webSessions": ended });
    let subject = caller.user.to_string();
    audit::record(ctx, &mut tx, caller, "user.password_changed", &subject, details).await?;
    tx.commit().await?;
    Ok(ended)
}

fn not_theirs() -> Error {
    at("/current", "is not your password")
}

fn at(path: &str, words: &str) -> Error {
    let errors = json!([{ "path": path, "message": words }]);
    Error::new(Code::InvalidInput, format!("the password was not changed: {words}"))
        .with_details(json!({ "errors": errors }))
}
