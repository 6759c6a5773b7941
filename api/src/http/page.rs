//! Lists page by cursor: `?limit=1..200&after=` → `{items, next}`.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use domain::{Code, Error, limits};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::problem::Problem;

/// Which part of a list is wanted.
#[derive(Debug, Clone)]
pub struct Page {
    pub limit: u32,
    /// The `next` of the page before; opaque to clients.
    pub after: Option<String>,
}

/// A part of a list; `next` is null on the last page.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct List<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

impl<T> List<T> {
    /// From up to `limit + 1` items: the surplus one says that there is a next page.
    pub fn of<U: Into<T>>(page: &Page, mut items: Vec<U>, cursor: impl Fn(&U) -> String) -> Self {
        let more = items.len() > page.limit as usize;
        items.truncate(page.limit as usize);
        let next = if more { items.last().map(cursor) } else { None };
        Self { items: items.into_iter().map(Into::into).collect(), next }
    }
}

/// The query of every list.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Items of a page, 1 to 200; 50 unless said.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// What a route takes in its query, a list besides [`PageQuery`]; 422 where it does not fit.
#[derive(Debug)]
pub(crate) struct Filters<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Filters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Query(filters) = Query::<T>::try_from_uri(&parts.uri).map_err(|rejection| {
            Error::new(Code::InvalidInput, "the query string does not fit this route")
                .because(rejection)
        })?;
        Ok(Self(filters))
    }
}

impl<S: Sync> FromRequestParts<S> for Page {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = Query::<PageQuery>::try_from_uri(&parts.uri)
            .map_err(|_| Error::new(Code::InvalidInput, "the query string is not readable"))?;
        let ceiling = limits::PAGE_ITEMS.ceiling;
        let limit = match query.0.limit {
            None => limits::PAGE_ITEMS.default,
            Some(text) => {
                text.parse().ok().filter(|limit| (1..=ceiling).contains(limit)).ok_or_else(
                    || Error::new(Code::InvalidInput, format!("limit must be from 1 to {ceiling}")),
                )?
            }
        };
        let limit = u32::try_from(limit).unwrap_or(1);
        Ok(Self { limit, after: query.0.after })
    }
}

impl Page {
    /// How many rows to ask the store for: one more than shown.
    #[must_use]
    pub fn rows(&self) -> i64 {
        i64::from(self.limit) + 1
    }

    /// The cursor as the id that it is for this list.
    pub fn after<Id: std::str::FromStr>(&self) -> Result<Option<Id>, Error> {
        self.after_by(|after| after.parse().ok())
    }

    /// The cursor as `read` understands it; 422 where it does not.
    pub(crate) fn after_by<T>(&self, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Error> {
        let Some(after) = &self.after else { return Ok(None) };
        read(after)
            .ok_or_else(|| Error::new(Code::InvalidInput, "after is not a cursor of this list"))
            .map(Some)
    }
}
