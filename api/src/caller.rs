//! Who is asking: extractors that authenticate the bearer token, else the browser session.
//!
//! That an unsafe request with the cookie comes from a page of ours was seen to before routing
//! ([`crate::guard`]).

use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
use domain::{Caller, Code, Error, Scope, Via};

use crate::{Api, console::cookie, problem::Problem};

/// An authenticated caller of the REST API.
#[derive(Debug, Clone)]
pub struct Authenticated(pub Caller);

impl FromRequestParts<Api> for Authenticated {
    type Rejection = Problem;

    /// Refuses with 401 without a usable token or session, and with 403 a token that lacks `api:read`
    /// (safe methods) or `api:write` (unsafe ones).
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = identify(parts, api).await?;
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

    /// Refuses with 401 without a usable token or session, and with 403 a token without `approve`.
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = identify(parts, api).await?;
        caller.require_scope(Scope::Approve)?;
        Ok(Self(caller))
    }
}

/// A caller of a route where the body says which of `api:write` and `approve` is needed.
#[derive(Debug, Clone)]
pub struct WritingOrApproving(pub Caller);

impl FromRequestParts<Api> for WritingOrApproving {
    type Rejection = Problem;

    /// Refuses with 401 without a usable token or session, and with 403 a token that has neither.
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = identify(parts, api).await?;
        if !caller.scopes.has(Scope::Approve) {
            caller.require_scope(Scope::ApiWrite)?;
        }
        Ok(Self(caller))
    }
}

/// In the extensions of a request whose sender is known already.
#[derive(Debug, Clone)]
pub(crate) struct Identified(pub(crate) Caller);

/// Whoever sent the request: the person of its bearer token; without one, of its browser session.
///
/// `UNAUTHENTICATED` where neither is there or usable. What they may do is not looked at.
pub(crate) async fn identify(parts: &Parts, api: &Api) -> Result<Caller, Error> {
    if let Some(Identified(caller)) = parts.extensions.get() {
        return Ok(caller.clone());
    }
    match cookie::sent(&parts.headers, &api.node) {
        Some(secret) => app::identity::authenticate_browser(&api.ctx, secret).await,
        None => app::identity::authenticate(&api.ctx, bearer(parts)?, Via::Token).await,
    }
}

/// The token of `Authorization: Bearer …` (RFC 6750, section 2.1; the scheme in any case).
pub(crate) fn bearer(parts: &Parts) -> Result<&str, Error> {
    let missing = || Error::new(Code::Unauthenticated, "a bearer token is needed");
    let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
    // Of two nobody knows which one whoever stands before us went by.
    let (Some(value), None) = (values.next(), values.next()) else { return Err(missing()) };
    let value = value.to_str().map_err(|_| missing())?;
    let (scheme, token) = value.split_once(' ').ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
        return Err(missing());
    }
    Ok(token.trim())
}
