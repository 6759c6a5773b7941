//! Tokens that tell a server of ours for whom a request is made: minted for each request right before it
//! leaves, verified and spent where it arrives (docs/decisions/0017-delegation.md).

use std::fmt;

use domain::{
    Code, Error, Role, builtin,
    delegation::{Claims, Subject, request_digest},
    ids::ServerId,
    limits,
};
use http::{HeaderName, Method, header};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use outbound::mcp::Outgoing;
use secrecy::SecretString;

use crate::{Clock, Ctx};

/// The one algorithm. What a token's own header says is compared with it, never believed.
const ALGORITHM: Algorithm = Algorithm::HS256;

/// Makes the tokens for one server.
pub struct Delegation {
    audience: String,
    key_id: String,
    key: EncodingKey,
    clock: Clock,
}

impl Delegation {
    /// `SERVER_MISCONFIGURED` for a server that is not built in; `CREDENTIALS_UNREADABLE` without
    /// encryption keys.
    pub fn new(ctx: &Ctx, server: &ServerId) -> Result<Self, Error> {
        let built_in = builtin::find(server).ok_or_else(|| {
            Error::new(Code::ServerMisconfigured, "delegation is for built-in servers alone")
        })?;
        let (key_id, key) = ctx.vault.delegation_keys().next().ok_or_else(|| {
            Error::new(Code::CredentialsUnreadable, "no encryption key is configured")
        })?;
        Ok(Self {
            audience: built_in.url(),
            key_id: key_id.to_owned(),
            key: EncodingKey::from_secret(key).map_err(Error::internal)?,
            clock: ctx.clock.clone(),
        })
    }

    /// What this one request leaves with, for whom it is made. No network, no database.
    pub fn headers_for(
        &self,
        outgoing: Outgoing<'_>,
        who: Subject,
    ) -> Result<Vec<(HeaderName, SecretString)>, Error> {
        let request = request_digest(outgoing.method.as_str(), outgoing.body);
        let now = self.clock.now();
        let claims = Claims::new(&self.audience, who, request, self.clock.mint(), now);
        let header = Header { kid: Some(self.key_id.clone()), ..Header::new(ALGORITHM) };
        let token = jsonwebtoken::encode(&header, &claims, &self.key).map_err(Error::internal)?;
        Ok(vec![(header::AUTHORIZATION, format!("Bearer {token}").into())])
    }
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation").field("audience", &self.audience).finish_non_exhaustive()
    }
}

/// Refuses what only a known person may do.
pub(crate) fn nobody() -> Error {
    let words = "this server acts as the person who asks, and there is none here";
    Error::new(Code::Denied, words)
}

/// For whom a request was made, as the verified token and our own records say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegate {
    pub subject: Subject,
    pub email: String,
    /// As it is now.
    pub role: Role,
    pub tenant_slug: String,
}

/// Verifies the token of a request to the built-in server `server`, and spends it: it is good for nothing
/// from then on, on any node.
///
/// `UNAUTHENTICATED`, always in the same words: not ours, altered, expired, for another server or
/// another request, used before, or of a person who may no longer ask.
pub async fn verify(
    ctx: &Ctx,
    server: &ServerId,
    token: &str,
    method: &Method,
    body: &[u8],
) -> Result<Delegate, Error> {
    let audience = builtin::find(server).ok_or_else(|| Error::not_found("server"))?.url();
    let claims = signed_claims(ctx, token)?;
    let request = request_digest(method.as_str(), body);
    claims.check(&audience, request, ctx.now()).map_err(|refused| {
        tracing::warn!(server = %server, jti = %claims.jti, %refused, "a delegation token was refused");
        unusable().because(refused)
    })?;
    let Some(holder) = store::delegation::spend(&ctx.db, &claims).await? else {
        let words = "a delegation token was used twice, or its person may no longer ask";
        tracing::warn!(server = %server, jti = %claims.jti, "{words}");
        return Err(unusable());
    };
    Ok(Delegate {
        subject: claims.subject,
        email: holder.email,
        role: holder.role,
        tenant_slug: holder.tenant_slug,
    })
}

/// Forgets tokens that were used and are long over.
pub async fn forget_spent(ctx: &Ctx) -> Result<(), Error> {
    let before = ctx.now() - limits::DELEGATION_KEEP_SECONDS.seconds();
    let rows = limits::REAPER_BATCH.ceiling;
    let batch = i64::try_from(rows).unwrap_or(i64::MAX);
    while store::delegation::forget(&ctx.db, before, batch).await? >= rows {}
    Ok(())
}

/// Signature and form. The library compares signatures in constant time.
fn signed_claims(ctx: &Ctx, token: &str) -> Result<Claims, Error> {
    let key_id = jsonwebtoken::decode_header(token).map_err(altered)?.kid;
    let key = ctx.vault.delegation_keys().find(|(id, _)| key_id.as_deref() == Some(id));
    let (_, key) = key.ok_or_else(unusable)?;
    let mut validation = Validation::new(ALGORITHM);
    // Ours, by our clock: `Claims::check`.
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let key = DecodingKey::from_secret(key).map_err(Error::internal)?;
    Ok(jsonwebtoken::decode::<Claims>(token, &key, &validation).map_err(altered)?.claims)
}

/// Of the library's error its kind alone is kept: its words may repeat the token.
fn altered(error: jsonwebtoken::errors::Error) -> Error {
    drop(error);
    unusable()
}

fn unusable() -> Error {
    Error::new(Code::Unauthenticated, "the delegation token is not usable")
}
