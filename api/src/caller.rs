//! Who is asking: an extractor that authenticates the bearer token.

use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
use domain::{Caller, Code, Error, Scope, Via};

use crate::{Api, problem::Problem};

/// An authenticated caller of the REST API.
#[derive(Debug, Clone)]
pub struct Authenticated(pub Caller);

impl FromRequestParts<Api> for Authenticated {
    type Rejection = Problem;

    /// Refuses with 401 without a usable token, and with 403 a token that lacks `api:read` (safe
    /// methods) or `api:write` (unsafe ones).
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let token = bearer(parts)?;
        let caller = app::identity::authenticate(&api.ctx, token, Via::Token).await?;
        let needed = if parts.method.is_safe() { Scope::ApiRead } else { Scope::ApiWrite };
        caller.require_scope(needed)?;
        Ok(Self(caller))
    }
}

/// A caller who may decide: the scope `approve` stands for itself, without `api:write`.
#[derive(Debug, Clone)]
pub struct Approving(pub Caller);

impl FromRequestParts<Api> for Approving {
    type Rejection = Problem;

    /// Refuses with 401 without a usable token, and with 403 a token without `approve`.
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = app::identity::authenticate(&api.ctx, bearer(parts)?, Via::Token).await?;
        caller.require_scope(Scope::Approve)?;
        Ok(Self(caller))
    }
}

/// A caller of a route where the body says which of `api:write` and `approve` is needed.
#[derive(Debug, Clone)]
pub struct WritingOrApproving(pub Caller);

impl FromRequestParts<Api> for WritingOrApproving {
    type Rejection = Problem;

    /// Refuses with 401 without a usable token, and with 403 a token that has neither.
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = app::identity::authenticate(&api.ctx, bearer(parts)?, Via::Token).await?;
        if !caller.scopes.has(Scope::Approve) {
            caller.require_scope(Scope::ApiWrite)?;
        }
        Ok(Self(caller))
    }
}

/// The token of `Authorization: Bearer …` (RFC 6750, section 2.1; the scheme in any case).
pub(crate) fn bearer(parts: &Parts) -> Result<&str, Error> {
    let missing = || Error::new(Code::Unauthenticated, "a bearer token is needed");
    let value = parts.headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
    let value = value.to_str().map_err(|_| missing())?;
    let (scheme, token) = value.split_once(' ').ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
        return Err(missing());
    }
    Ok(token.trim())
}
