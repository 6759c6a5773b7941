//! The `Mcp-Session-Id` of the older MCP versions: everything that such a session is stands in the id
//! itself, sealed. No node and no table remembers it, so an abandoned one costs nothing, and every
//! node can open it.

use chrono::TimeDelta;
use domain::{
    Caller, Code, Error, Timestamp,
    ids::{SessionId, TokenId},
    limits,
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use store::vault::{Purpose, RowName, Sealed};
use uuid::Uuid;

use crate::{Ctx, sessions, through::OwnSession};

/// What an `Mcp-Session-Id` holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GatewaySession {
    /// Tells apart two sessions of one token; the ids of requests are unique within it.
    pub nonce: Uuid,
    pub session: SessionId,
    /// The protocol version that `initialize` agreed on.
    pub version: String,
    /// The pass-through form: the upstream session that the client holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnSession>,
    issued_at: Timestamp,
}

/// A new id, good for this tenant, person and token alone: visible ASCII, as the header needs.
///
/// `UNAVAILABLE` on a node without an encryption key.
pub fn seal(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    version: &str,
    own: Option<&OwnSession>,
) -> Result<String, Error> {
    let content = GatewaySession {
        nonce: own.map_or_else(Uuid::new_v4, |own| own.id),
        session,
        version: version.to_owned(),
        own: own.cloned(),
        issued_at: ctx.now(),
    };
    let text = SecretString::from(serde_json::to_string(&content).map_err(Error::internal)?);
    let sealed = with_row(caller, |row| ctx.vault.seal(Purpose::GatewaySession, row, &text))?;
    Ok(sealed.token)
}

/// What the id holds. `NOT_FOUND` for one that was made up, is another caller's, or is too old: the
/// client then initializes again.
pub fn open(ctx: &Ctx, caller: &Caller, id: &str) -> Result<GatewaySession, Error> {
    if ctx.vault.key_ids().is_empty() {
        return Err(without_keys());
    }
    let unknown = || Error::not_found("MCP session");
    // Which key made it is found by trying: the keyring is short.
    let sealed = Sealed { token: id.to_owned(), key_id: String::new() };
    let text = with_row(caller, |row| ctx.vault.open(Purpose::GatewaySession, row, &sealed))
        .map_err(|_| unknown())?;
    let session: GatewaySession =
        serde_json::from_str(text.expose_secret()).map_err(|_| unknown())?;
    let life = TimeDelta::seconds(limits::GATEWAY_SESSION_SECONDS.default.cast_signed());
    if ctx.now() - session.issued_at > life {
        return Err(unknown());
    }
    Ok(session)
}

/// Whether a session that a path names is the caller's own and within the token's reach; else
/// `NOT_FOUND`.
pub async fn check(ctx: &Ctx, caller: &Caller, session: SessionId) -> Result<(), Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    sessions::readable(&mut tx, caller, session).await?;
    Ok(())
}

fn with_row<T>(
    caller: &Caller,
    vault: impl FnOnce(RowName<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let token = caller.token().map(|TokenId(id)| id.to_string()).unwrap_or_default();
    let user = caller.user.to_string();
    let row = RowName { tenant: caller.tenant, server: &token, name: &user };
    vault(row).map_err(|error| {
        if error.code == Code::CredentialsUnreadable {
            without_keys().because(error)
        } else {
            error
        }
    })
}

fn without_keys() -> Error {
    Error::new(
        Code::Unavailable,
        "this node has no encryption key, so it can begin no MCP session; the protocol version 2026-07-28 needs none",
    )
}
