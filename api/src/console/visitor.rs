//! Who looks at a page.

use axum::{
    extract::FromRequestParts,
    http::request::Parts,
    response::{IntoResponse, Response},
};
use domain::{Caller, Code, Error};

use super::{Current, Person, Shell, cookie, next, see, text::shown, words::ENGLISH};
use crate::{Api, paths, problem::Problem};

/// A person who is signed in; whoever is not goes to sign in, and comes back.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) caller: Caller,
    person: Person,
}

impl Visitor {
    /// Slug of the person's tenant.
    pub(super) fn tenant(&self) -> &str {
        &self.person.tenant
    }

    pub(super) fn email(&self) -> &str {
        &self.person.email
    }

    pub(super) fn shell(&self, title: impl Into<String>, current: Current) -> Shell {
        let person = Some(self.person.clone());
        Shell { words: &ENGLISH, title: title.into(), person, current }
    }
}

impl FromRequestParts<Api> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Response> {
        match visitor(parts, api).await {
            Ok(Some(visitor)) => Ok(visitor),
            Ok(None) => Err(to_sign_in(parts, api).await),
            Err(error) => Err(Problem(error).into_response()),
        }
    }
}

/// For pages that somebody may see who is not signed in.
#[derive(Debug)]
pub(super) struct MaybeVisitor(pub(super) Option<Visitor>);

impl FromRequestParts<Api> for MaybeVisitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        Ok(Self(visitor(parts, api).await?))
    }
}

async fn visitor(parts: &Parts, api: &Api) -> Result<Option<Visitor>, Error> {
    let Some(caller) = signed_in(parts, api).await? else { return Ok(None) };
    let me = app::users::me(&api.ctx, &caller).await?;
    let person = Person { email: shown(&me.user.email), tenant: me.tenant.slug };
    Ok(Some(Visitor { caller, person }))
}

/// The person of the request's browser session, where there is one that is not over.
pub(crate) async fn signed_in(parts: &Parts, api: &Api) -> Result<Option<Caller>, Error> {
    let Some(secret) = cookie::sent(&parts.headers, &api.node) else { return Ok(None) };
    match app::identity::authenticate_browser(&api.ctx, secret).await {
        Ok(caller) => Ok(Some(caller)),
        Err(error) if error.code == Code::Unauthenticated => Ok(None),
        Err(error) => Err(error),
    }
}

async fn to_sign_in(parts: &Parts, api: &Api) -> Response {
    let here = parts.uri.path_and_query().map_or(paths::HOME, http::uri::PathAndQuery::as_str);
    match sign_in_place(api).await {
        Ok(place) => see(&next::with_next(&place, here)),
        Err(error) => Problem(error).into_response(),
    }
}

/// The page to sign in on: that of the only tenant, else the one that asks which tenant.
pub(super) async fn sign_in_place(api: &Api) -> Result<String, Error> {
    let only = app::tenants::only_slug(&api.ctx).await?;
    Ok(only.map_or(paths::SIGN_IN.to_owned(), |slug| sign_in_of(&slug)))
}

/// The page to sign in on of that tenant.
pub(super) fn sign_in_of(slug: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(slug.as_bytes()).collect();
    // In a path a `+` is itself.
    paths::TENANT_SIGN_IN.replace("{tenant}", &encoded.replace('+', "%20"))
}
