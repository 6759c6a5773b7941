//! Ids in paths. A malformed one names nothing: 404, as a foreign one.

use std::str::FromStr;

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};
use domain::Error;

use crate::problem::Problem;

/// The one parameter of a path.
#[derive(Debug, Clone, Copy)]
pub struct Id<T>(pub T);

/// The two parameters of a path, in their order.
#[derive(Debug, Clone, Copy)]
pub struct Ids<A, B>(pub A, pub B);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = params(parts, state).await?;
        parse(&params, 0).map(Self)
    }
}

impl<S: Send + Sync, A: FromStr, B: FromStr> FromRequestParts<S> for Ids<A, B> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = params(parts, state).await?;
        Ok(Self(parse(&params, 0)?, parse(&params, 1)?))
    }
}

async fn params<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<RawPathParams, Problem> {
    // Bytes that are no UTF-8 name nothing either.
    RawPathParams::from_request_parts(parts, state).await.map_err(|_| unknown())
}

fn parse<T: FromStr>(params: &RawPathParams, at: usize) -> Result<T, Problem> {
    let (_, text) = params.iter().nth(at).ok_or_else(unknown)?;
    // Text ids take any text; the database takes none with NUL.
    if text.chars().any(char::is_control) {
        return Err(unknown());
    }
    text.parse().map_err(|_| unknown())
}

fn unknown() -> Problem {
    Problem(Error::not_found("thing"))
}
