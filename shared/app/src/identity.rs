//! Who is asking. A [`Caller`] is made here and nowhere else.

use domain::{
    Caller, Code, Error, Reach, Role, Timestamp, Via,
    ids::{TenantId, TokenId, UserId},
    json::Sha256Digest,
    limits, token, web_session,
};
use store::{Db, tokens::Holder, web_sessions::SignedIn};

use crate::{Ctx, company};

/// The person who holds `token`; `via` is the door that they came through.
///
/// `UNAUTHENTICATED`, always in the same words: unknown, expired, revoked, or a disabled person's.
pub async fn authenticate(
    ctx: &Ctx,
    token: &str,
    via: fn(TokenId) -> Via,
) -> Result<Caller, Error> {
    holder_of(&ctx.db, token, ctx.now(), via).await
}

/// The person who holds `token` at the gateway's endpoint whose address is `audience`: one of ours, or one
/// that the issuer of their company made.
///
/// As [`authenticate`]; besides `DENIED` for a company's token without the scope `mcp:call`.
pub async fn authenticate_at_gateway(
    ctx: &Ctx,
    token: &str,
    audience: String,
) -> Result<Caller, Error> {
    if token.starts_with(token::PREFIX) {
        return authenticate(ctx, token, Via::Gateway).await;
    }
    company::access::authenticate(ctx, token, audience).await
}

/// The same before there is a whole [`Ctx`].
pub(crate) async fn holder_of(
    db: &Db,
    token: &str,
    now: Timestamp,
    via: fn(TokenId) -> Via,
) -> Result<Caller, Error> {
    if !token.starts_with(token::PREFIX) {
        return Err(unusable());
    }
    // Looked up by its digest: how long that takes says nothing about the token.
    let digest = Sha256Digest::of(token.as_bytes());
    let holder = store::tokens::holder(db, digest, now).await?;
    Ok(caller(holder.ok_or_else(unusable)?, via))
}

/// The person whose browser sent this cookie; counts as a use of their session.
///
/// `UNAUTHENTICATED`, always in the same words: unknown, revoked, over, idle for too long, or a
/// disabled person's.
pub async fn authenticate_browser(ctx: &Ctx, cookie: &str) -> Result<Caller, Error> {
    let digest = Sha256Digest::of(cookie.as_bytes());
    let idle = limits::WEB_SESSION_IDLE_SECONDS.seconds();
    let touch = limits::WEB_SESSION_TOUCH_MS.millis();
    let holder = store::web_sessions::holder(&ctx.db, digest, ctx.now(), idle, touch).await?;
    Ok(signed_in(holder.ok_or_else(session_over)?))
}

/// The caller as they stand now, for whatever lasts longer than a request; `UNAUTHENTICATED` when
/// the token, the session or the person may no longer ask.
pub async fn recheck(ctx: &Ctx, before: &Caller) -> Result<Caller, Error> {
    let (token, via): (_, fn(TokenId) -> Via) = match before.via {
        Via::Operator => return Ok(before.clone()),
        Via::Company(_) => return company::access::recheck(ctx, before).await,
        Via::Console(id) => {
            let idle = limits::WEB_SESSION_IDLE_SECONDS.seconds();
            let mut tx = ctx.begin(before.tenant).await?;
            let holder = store::web_sessions::still_held(&mut tx, id, ctx.now(), idle).await?;
            tx.commit().await?;
            return Ok(signed_in(holder.ok_or_else(session_over)?));
        }
        Via::Token(id) => (id, Via::Token),
        Via::Gateway(id) => (id, Via::Gateway),
    };
    let mut tx = ctx.begin(before.tenant).await?;
    let holder = store::tokens::still_held(&mut tx, token, ctx.now()).await?;
    tx.commit().await?;
    Ok(caller(holder.ok_or_else(unusable)?, via))
}

/// What a person's call would be judged by, for whoever explains it: with a token of theirs, or in a
/// browser. Nothing may be done with it.
pub(crate) fn imagined(
    tenant: TenantId,
    (user, role): (UserId, Role),
    holder: Option<Holder>,
) -> Caller {
    match holder {
        Some(holder) => caller(holder, Via::Gateway),
        None => Caller {
            tenant,
            user,
            role,
            scopes: web_session::scopes(role),
            reach: Reach::default(),
            via: Via::Operator,
        },
    }
}

fn caller(holder: Holder, via: fn(TokenId) -> Via) -> Caller {
    Caller {
        tenant: holder.tenant,
        user: holder.user,
        role: holder.role,
        scopes: holder.scopes,
        reach: holder.reach,
        via: via(holder.token),
    }
}

pub(crate) fn signed_in(holder: SignedIn) -> Caller {
    Caller {
        tenant: holder.tenant,
        user: holder.user,
        role: holder.role,
        scopes: web_session::scopes(holder.role),
        reach: Reach::default(),
        via: Via::Console(holder.session),
    }
}

fn session_over() -> Error {
    Error::new(Code::Unauthenticated, "this sign-in is over")
}

fn unusable() -> Error {
    Error::new(Code::Unauthenticated, "this token is not usable")
}
