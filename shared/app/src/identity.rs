//! Who is asking. A [`Caller`] is made here and nowhere else.

use domain::{Caller, Code, Error, Via, ids::TokenId, json::Sha256Digest, token};
use store::tokens::Holder;

use crate::Ctx;

/// The person who holds `token`; `via` is the door that they came through.
///
/// `UNAUTHENTICATED`, always in the same words: unknown, expired, revoked, or a disabled person's.
pub async fn authenticate(
    ctx: &Ctx,
    token: &str,
    via: fn(TokenId) -> Via,
) -> Result<Caller, Error> {
    if !token.starts_with(token::PREFIX) {
        return Err(unusable());
    }
    // Looked up by its digest: how long that takes says nothing about the token.
    let digest = Sha256Digest::of(token.as_bytes());
    let holder = store::tokens::holder(&ctx.db, digest, ctx.now()).await?;
    Ok(caller(holder.ok_or_else(unusable)?, via))
}

/// The caller as they stand now, for whatever lasts longer than a request; `UNAUTHENTICATED` when
/// the token or the person may no longer ask.
pub async fn recheck(ctx: &Ctx, before: &Caller) -> Result<Caller, Error> {
    let (token, via): (_, fn(TokenId) -> Via) = match before.via {
        Via::Operator => return Ok(before.clone()),
        Via::Token(id) => (id, Via::Token),
        Via::Gateway(id) => (id, Via::Gateway),
    };
    let mut tx = ctx.begin(before.tenant).await?;
    let holder = store::tokens::still_held(&mut tx, token, ctx.now()).await?;
    tx.commit().await?;
    Ok(caller(holder.ok_or_else(unusable)?, via))
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

fn unusable() -> Error {
    Error::new(Code::Unauthenticated, "this token is not usable")
}
