//! Access tokens of the company's issuer at the gateway (RFC 9068; RFC 8707; RFC 8725).

use domain::{
    Caller, Code, Error, Reach, Scope, Scopes, Via,
    access_token::Claims,
    ids::{SessionId, TenantId},
    user::UserStatus,
};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, jwk::Jwk};
use outbound::oauth::Provider;
use serde_json::{Map, Value};
use store::company::Holder;

use super::enabled;
use crate::Ctx;

/// What may sign a token: never `none`, never a secret that both sides know (RFC 8725, section 3.1).
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The person whom a token of their company was made for, at the endpoint whose address is `audience`.
///
/// `UNAUTHENTICATED`, always in the same words, for whatever is wrong with it; `DENIED` for a token without
/// the scope `mcp:call`; `UPSTREAM_UNAVAILABLE` while the issuer's keys cannot be had.
pub(crate) async fn authenticate(
    ctx: &Ctx,
    token: &str,
    audience: String,
) -> Result<Caller, Error> {
    let read = Read::of(token).ok_or_else(unusable)?;
    let tenant = match store::company::tenants_of_token(&ctx.db, &read.issuer, &read.claims).await?
    {
        tenants if tenants.len() == 1 => tenants[0],
        tenants => {
            if !tenants.is_empty() {
                tracing::warn!(issuer = read.issuer, "a token is of an issuer of several tenants");
            }
            return Err(unusable());
        }
    };
    let provider = ctx.oauth.provider(&read.issuer).await.map_err(|failure| {
        let words = "the company's issuer cannot be asked for its keys now";
        let error = Error::new(Code::UpstreamUnavailable, words);
        if failure.retryable() { error } else { unusable() }.because(failure)
    })?;
    let claims = match read.verify(token, &provider) {
        Verified::Yes(claims) => claims,
        Verified::No => return Err(refused(tenant, "its signature is wrong")),
        Verified::UnknownKey => {
            let provider = ctx.oauth.renewed_provider(&read.issuer, &provider).await;
            let Some(Verified::Yes(claims)) =
                provider.map(|provider| read.verify(token, &provider))
            else {
                return Err(refused(tenant, "no key of the issuer signed it"));
            };
            claims
        }
    };
    let mut tx = ctx.begin(tenant).await?;
    let settings = enabled(&mut tx).await?.filter(|settings| settings.issuer.gateway_tokens);
    // As they stand now, and as the token says that is verified by now.
    let settings = settings.filter(|settings| {
        let claim = settings.issuer.tenant_claim.as_ref();
        settings.issuer.issuer == claims.iss
            && claim.is_none_or(|claim| claims.says(&claim.name, &claim.value))
    });
    let settings = settings.ok_or_else(unusable)?;
    let mut audiences = settings.issuer.gateway_audiences;
    audiences.push(audience);
    let until =
        claims.check(&audiences, ctx.now()).map_err(|why| refused(tenant, &why.to_string()))?;
    let holder = store::company::holder(&mut tx, &claims.iss, &claims.sub).await?;
    tx.commit().await?;
    let Some(Holder { user, role }) = holder else {
        return Err(refused(tenant, "it is of nobody who may use the service"));
    };
    if !claims.may_call() {
        return Err(Error::new(Code::Denied, "this needs the scope mcp:call"));
    }
    let scopes = Scopes::new([Scope::McpCall])?;
    Ok(Caller { tenant, user, role, scopes, reach: Reach::default(), via: Via::Company(until) })
}

/// The caller as they stand now, for whatever lasts longer than a request.
pub(crate) async fn recheck(ctx: &Ctx, before: &Caller) -> Result<Caller, Error> {
    let Via::Company(until) = before.via else { return Err(unusable()) };
    if until <= ctx.now() {
        return Err(unusable());
    }
    let mut tx = ctx.begin(before.tenant).await?;
    let settings = enabled(&mut tx).await?.filter(|settings| settings.issuer.gateway_tokens);
    let user = store::users::get(&mut tx, before.user).await?;
    let accounts = store::company::accounts(&mut tx, before.user).await?;
    tx.commit().await?;
    let linked = settings.is_some_and(|settings| {
        accounts.iter().any(|account| account.issuer == settings.issuer.issuer)
    });
    let user = user.filter(|user| user.status == UserStatus::Active && linked);
    let user = user.ok_or_else(unusable)?;
    Ok(Caller { role: user.role, ..before.clone() })
}

/// The issuer whose tokens an endpoint of the gateway takes, for its metadata: of the session's tenant;
/// without a session, of the only tenant.
pub async fn gateway_issuer(
    ctx: &Ctx,
    session: Option<SessionId>,
) -> Result<Option<String>, Error> {
    Ok(store::company::gateway_issuer(&ctx.db, session.map(|session| session.0)).await?)
}

/// What a token says before anybody knows whether it is true.
struct Read {
    algorithm: Algorithm,
    key: Option<String>,
    issuer: String,
    claims: Value,
}

enum Verified {
    Yes(Box<Claims>),
    No,
    UnknownKey,
}

impl Read {
    /// `None` for what is no JWT, or not of a kind that is taken. Where its header says its key can be found
    /// (`jku`, `jwk`, `x5u`, `x5c`) is not looked at.
    fn of(token: &str) -> Option<Self> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        let algorithm = ALGORITHMS.into_iter().find(|known| *known == header.alg)?;
        // RFC 9068, section 2.1; many issuers write the general word.
        let kind = header.typ.as_deref().map(str::to_ascii_lowercase);
        let is_access = matches!(
            kind.as_deref(),
            None | Some("jwt" | "application/jwt" | "at+jwt" | "application/at+jwt")
        );
        let claims = jsonwebtoken::dangerous::insecure_decode_claims::<Map<String, Value>>(token);
        let claims = claims.ok()?;
        let issuer = claims.get("iss")?.as_str()?.to_owned();
        // The database takes no NUL.
        let storable = !issuer.contains('\0');
        let key = header.kid;
        (is_access && storable).then_some(Self { algorithm, key, issuer, claims: claims.into() })
    }

    fn verify(&self, token: &str, provider: &Provider) -> Verified {
        let keys = signing_keys(provider);
        let mut named = match &self.key {
            Some(id) => keys.iter().filter(|key| key.common.key_id.as_ref() == Some(id)).collect(),
            None => keys.iter().collect::<Vec<_>>(),
        };
        // Without a name there must be no choice.
        let (Some(key), None) = (named.pop(), named.pop()) else { return Verified::UnknownKey };
        let Ok(key) = DecodingKey::from_jwk(key) else { return Verified::No };
        let mut validation = Validation::new(self.algorithm);
        // Times, audience and issuer are compared by our clock and settings.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        match jsonwebtoken::decode::<Claims>(token, &key, &validation) {
            Ok(decoded) => Verified::Yes(Box::new(decoded.claims)),
            Err(_) => Verified::No,
        }
    }
}

/// The keys of the issuer that can be used; one of a kind that we do not know takes none of the others away.
fn signing_keys(provider: &Provider) -> Vec<Jwk> {
    let keys = provider.keys.get("keys").and_then(Value::as_array);
    let known = keys.into_iter().flatten().filter(|key| key.get("use") != Some(&"enc".into()));
    known.filter_map(|key| serde_json::from_value(key.clone()).ok()).collect()
}

fn refused(tenant: TenantId, why: &str) -> Error {
    tracing::info!(%tenant, why, "a token of the company's issuer was refused");
    unusable()
}

fn unusable() -> Error {
    Error::new(Code::Unauthenticated, "this token is not usable")
}
