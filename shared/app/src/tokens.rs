//! API tokens: shown once, kept as a digest.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use domain::{
    Caller, Code, Error, Reach, Role, Scope, Scopes, Timestamp, Via,
    ids::{TokenId, UserId},
    json::Sha256Digest,
    limits, token,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use store::Tx;
pub use store::tokens::Token;

use crate::{Ctx, audit, tenants};

/// A token to be made.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub scopes: Scopes,
    /// What is `None` is as the maker's.
    pub reach: Reach,
    /// `None`: after the default, or with the maker's own token if that ends before.
    pub expires_at: Option<Timestamp>,
}

/// A token with the text that nobody sees again.
#[derive(Debug)]
pub struct Minted {
    pub token: Token,
    pub secret: SecretString,
}

/// Makes a token for the caller.
///
/// `DENIED` for scopes or reach beyond the caller's; `INVALID_INPUT` for a name that is none, an end
/// that cannot be, servers that the tenant or sessions that the person does not have.
pub async fn create(ctx: &Ctx, caller: &Caller, new: NewToken) -> Result<Minted, Error> {
    token::may_mint(caller, &new.scopes)?;
    check_name(&new.name)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    check_reach(&mut tx, caller.user, &new.reach).await?;
    let reach = token::reach_within(&caller.reach, new.reach)?;
    let maker_ends = maker_ends(&mut tx, caller).await?;
    let expires_at = token::expiry(ctx.now(), new.expires_at, maker_ends)?;
    let minted = mint(ctx, &mut tx, caller.user, (new.name, new.scopes, reach, expires_at)).await?;
    let subject = minted.token.id.to_string();
    audit::record(ctx, &mut tx, caller, "token.created", &subject, details(&minted.token)).await?;
    tx.commit().await?;
    Ok(minted)
}

/// The operator makes a token for a person, of whatever scopes may stand together.
///
/// `NOT_FOUND` without such a tenant or person; `INVALID_INPUT` for an end that cannot be.
pub async fn create_for(
    ctx: &Ctx,
    tenant_slug: &str,
    email: &str,
    scopes: Scopes,
    expires_at: Option<Timestamp>,
) -> Result<Minted, Error> {
    let tenant = tenants::find(ctx, tenant_slug).await?;
    let expires_at = token::expiry(ctx.now(), expires_at, None)?;
    let mut tx = ctx.begin(tenant.id).await?;
    let user = store::users::find(&mut tx, email).await?;
    let user = user.ok_or_else(|| Error::not_found("person"))?;
    let new = ("made by the operator".to_owned(), scopes, Reach::default(), expires_at);
    let minted = mint(ctx, &mut tx, user.id, new).await?;
    let subject = minted.token.id.to_string();
    audit::record_operator(ctx, &mut tx, "token.created", &subject, details(&minted.token)).await?;
    tx.commit().await?;
    Ok(minted)
}

/// Tokens of the caller, or of `user` for an admin who stands above them; newest first, spent ones
/// too. `NOT_FOUND` for anybody else's.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    user: Option<UserId>,
    after: Option<TokenId>,
    rows: i64,
) -> Result<Vec<Token>, Error> {
    let user = user.unwrap_or(caller.user);
    let mut tx = ctx.begin(caller.tenant).await?;
    if !reaches(&mut tx, caller, user).await? {
        return Err(Error::not_found("person"));
    }
    let tokens = store::tokens::list(&mut tx, user, after, rows).await?;
    tx.commit().await?;
    Ok(tokens)
}

/// Ends a token of the caller, or of somebody that an admin stands above. Idempotent.
pub async fn revoke(ctx: &Ctx, caller: &Caller, id: TokenId) -> Result<Token, Error> {
    let unknown = || Error::not_found("token");
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut token = store::tokens::lock(&mut tx, id).await?.ok_or_else(unknown)?;
    if !reaches(&mut tx, caller, token.user).await? {
        return Err(unknown());
    }
    if token.revoked_at.is_none() {
        let now = ctx.now();
        store::tokens::revoke(&mut tx, id, now).await?;
        let details = json!({ "userId": token.user });
        audit::record(ctx, &mut tx, caller, "token.revoked", &id.to_string(), details).await?;
        token.revoked_at = Some(now);
    }
    tx.commit().await?;
    Ok(token)
}

/// Whether the tokens of `user` are the caller's to see: their own, or with role and scope those of
/// people below them.
async fn reaches(tx: &mut Tx, caller: &Caller, user: UserId) -> Result<bool, Error> {
    if caller.user == user {
        return Ok(true);
    }
    if caller.role < Role::Admin || !caller.scopes.has(Scope::Admin) {
        return Ok(false);
    }
    let user = store::users::get(tx, user).await?;
    Ok(user.is_some_and(|user| user.role < caller.role))
}

/// When the token in the caller's hand ends. Held until commit: a token or session that is being
/// revoked makes no successor.
async fn maker_ends(tx: &mut Tx, caller: &Caller) -> Result<Option<Timestamp>, Error> {
    if let Via::Console(session) = caller.via {
        if store::web_sessions::hold(tx, session).await? {
            return Ok(None);
        }
        return Err(Error::new(Code::Unauthenticated, "this sign-in is over"));
    }
    let Some(id) = caller.token() else { return Ok(None) };
    match store::tokens::lock(tx, id).await? {
        Some(maker) if maker.revoked_at.is_none() => Ok(Some(maker.expires_at)),
        _ => Err(Error::new(Code::Unauthenticated, "this token is not usable")),
    }
}

async fn mint(
    ctx: &Ctx,
    tx: &mut Tx,
    user: UserId,
    (name, scopes, reach, expires_at): (String, Scopes, Reach, Timestamp),
) -> Result<Minted, Error> {
    let secret = new_secret()?;
    let digest = Sha256Digest::of(secret.expose_secret().as_bytes());
    let token = Token {
        id: ctx.mint(),
        user,
        name,
        scopes,
        reach,
        created_at: ctx.now(),
        expires_at,
        revoked_at: None,
    };
    store::tokens::insert(tx, &token, digest).await?;
    Ok(Minted { token, secret })
}

fn new_secret() -> Result<SecretString, Error> {
    let mut random = [0_u8; 32];
    getrandom::fill(&mut random).map_err(|error| Error::internal(error.to_string()))?;
    Ok(token::text(&BASE64_URL_SAFE_NO_PAD.encode(random)).into())
}

fn check_name(name: &str) -> Result<(), Error> {
    let most = limits::TITLE_CHARS.size();
    let length = name.chars().count();
    if name.trim().is_empty() || length > most || name.chars().any(char::is_control) {
        let words =
            format!("name must have from 1 to {most} characters, none of them a control character");
        return Err(Error::new(Code::InvalidInput, words));
    }
    Ok(())
}

async fn check_reach(tx: &mut Tx, user: UserId, reach: &Reach) -> Result<(), Error> {
    if let Some(sources) = &reach.sources {
        tenants::checked_selection(tx, sources.clone()).await?;
    }
    if let Some(tools) = &reach.tools
        && tools.iter().any(|tool| tool.chars().any(char::is_control))
    {
        return Err(Error::new(Code::InvalidInput, "tools must be names of tools"));
    }
    if let Some(sessions) = &reach.sessions {
        let own = store::sessions::owned(tx, user, sessions).await?;
        if sessions.iter().any(|session| !own.contains(session)) {
            return Err(Error::new(Code::InvalidInput, "sessions must be sessions of yours"));
        }
    }
    Ok(())
}

fn details(token: &Token) -> Value {
    json!({
        "userId": token.user,
        "scopes": token.scopes,
        "sources": token.reach.sources,
        "tools": token.reach.tools,
        "sessions": token.reach.sessions,
        "expiresAt": token.expires_at,
    })
}
