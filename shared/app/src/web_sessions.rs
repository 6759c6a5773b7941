//! Browser sessions: their cookies' values, and how they end.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use domain::{Caller, Error, Via, ids::UserId, json::Sha256Digest, limits};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::{Tx, web_sessions::NewWebSession};

use crate::{Ctx, audit};

/// A new session, with what the browser is to send: 256 random bits, of which we keep the digest.
pub(crate) async fn begin(
    ctx: &Ctx,
    tx: &mut Tx,
    user: UserId,
) -> Result<(NewWebSession, SecretString), Error> {
    let mut random = [0_u8; 32];
    getrandom::fill(&mut random).map_err(|error| Error::internal(error.to_string()))?;
    let cookie = SecretString::from(BASE64_URL_SAFE_NO_PAD.encode(random));
    let now = ctx.now();
    let new = NewWebSession {
        id: ctx.mint(),
        user,
        digest: Sha256Digest::of(cookie.expose_secret().as_bytes()),
        created_at: now,
        expires_at: now + limits::WEB_SESSION_SECONDS.seconds(),
    };
    store::web_sessions::insert(tx, &new).await?;
    Ok((new, cookie))
}

/// Signs out: ends the session by which the caller came. Idempotent; nothing for other callers.
pub async fn end(ctx: &Ctx, caller: &Caller) -> Result<(), Error> {
    let Via::Console(session) = caller.via else { return Ok(()) };
    let mut tx = ctx.begin(caller.tenant).await?;
    if store::web_sessions::revoke(&mut tx, session, ctx.now()).await? {
        let subject = session.to_string();
        audit::record(ctx, &mut tx, caller, "web_session.revoked", &subject, json!({})).await?;
    }
    Ok(tx.commit().await?)
}
