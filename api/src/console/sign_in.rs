//! Signing in and out.

use app::{
    company::{self, Offered},
    sign_in::{self, Attempt},
};
use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::{Code, Error, Retry, user};
use serde::Deserialize;

use super::{
    Shell, cookie,
    form::Form,
    html, next, see,
    text::shown,
    visitor::{MaybeVisitor, sign_in_of, sign_in_place},
    words::{ENGLISH, fill},
};
use crate::{Api, guard::Client, http::id::Id, paths, problem::Problem};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    shell: Shell,
    email: String,
    next: Option<String>,
    problem: Option<String>,
    /// Words and address of the company's button.
    company: Option<(String, String)>,
    passwords: bool,
}

#[derive(Template)]
#[template(path = "which_tenant.html")]
struct WhichTenantPage {
    shell: Shell,
    next: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    next: Option<String>,
    tenant: Option<String>,
}

impl Asked {
    /// A query that cannot be read asks for nothing.
    fn of(query: Result<Query<Self>, QueryRejection>) -> Self {
        query.map(|Query(asked)| asked).unwrap_or_default()
    }

    fn next(&self) -> Option<&str> {
        self.next.as_deref().and_then(next::own)
    }

    /// Where they wanted to go, else where everybody begins.
    fn place(&self) -> &str {
        self.next().unwrap_or(paths::SERVERS_PAGE)
    }
}

/// The start: servers for whoever is signed in.
pub(super) async fn home(
    State(api): State<Api>,
    MaybeVisitor(visitor): MaybeVisitor,
) -> Result<Response, Problem> {
    match visitor {
        Some(_) => Ok(see(paths::SERVERS_PAGE)),
        None => Ok(see(&sign_in_place(&api).await?)),
    }
}

/// Asks for the tenant, where there is more than one.
pub(super) async fn which_tenant(
    State(api): State<Api>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Problem> {
    let asked = Asked::of(query);
    let next = asked.next();
    let chosen = asked.tenant.as_deref().map(str::trim).filter(|slug| !slug.is_empty());
    let place = match chosen {
        Some(slug) => sign_in_of(slug),
        None => sign_in_place(&api).await?,
    };
    if place != paths::SIGN_IN {
        return Ok(see(&next::with_next(&place, next.unwrap_or(paths::HOME))));
    }
    let shell = Shell::outside(ENGLISH.sign_in);
    Ok(html(StatusCode::OK, &WhichTenantPage { shell, next: next.map(str::to_owned) }))
}

/// The same for each tenant, also for one that is none.
pub(super) async fn page(
    State(api): State<Api>,
    MaybeVisitor(visitor): MaybeVisitor,
    Id(tenant): Id<String>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Problem> {
    let asked = Asked::of(query);
    if visitor.is_some_and(|visitor| visitor.tenant() == tenant) {
        return Ok(see(asked.place()));
    }
    let offered = company::offered(&api.ctx, &tenant).await?;
    Ok(html(StatusCode::OK, &form(&tenant, offered, asked.next(), "", None)))
}

pub(super) async fn submit(
    State(api): State<Api>,
    MaybeVisitor(visitor): MaybeVisitor,
    Id(tenant): Id<String>,
    client: Client,
    form_sent: Form,
) -> Response {
    let email = form_sent.field("email").trim();
    let asked = Asked { next: Some(form_sent.field("next").to_owned()), tenant: None };
    let attempt = Attempt {
        tenant: &tenant,
        email,
        password: form_sent.field("password").into(),
        network: client.network,
        replaces: visitor.map(|visitor| visitor.caller),
    };
    match sign_in::with_password(&api.ctx, attempt).await {
        Ok(begun) => {
            let mut response = see(asked.place());
            let cookie = cookie::set(&api.node, &begun.cookie);
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        Err(error) => match company::offered(&api.ctx, &tenant).await {
            Ok(offered) => refused(&tenant, offered, asked.next(), email, error),
            Err(error) => Problem(error).into_response(),
        },
    }
}

fn refused(
    tenant: &str,
    offered: Offered,
    next: Option<&str>,
    email: &str,
    error: Error,
) -> Response {
    let words = &ENGLISH;
    let (status, problem, header) = match (error.code, error.retry) {
        (Code::Unauthenticated, _) => {
            let words = words.sign_in_failed.to_owned();
            let challenge = (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            (StatusCode::UNAUTHORIZED, words, challenge)
        }
        (Code::Limited, Retry::After(wait)) => {
            let seconds = wait.as_secs().max(1);
            let words = fill(words.sign_in_wait, &seconds.to_string());
            let wait = (header::RETRY_AFTER, HeaderValue::from(seconds));
            (StatusCode::TOO_MANY_REQUESTS, words, wait)
        }
        _ => return Problem(error).into_response(),
    };
    let mut response = html(status, &form(tenant, offered, next, email, Some(problem)));
    response.headers_mut().insert(header.0, header.1);
    response
}

fn form(
    tenant: &str,
    offered: Offered,
    next: Option<&str>,
    email: &str,
    problem: Option<String>,
) -> SignInPage {
    // Only what a tenant may be called: a link must not put other words on this page.
    let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let named = (1..=63).contains(&tenant.len()) && tenant.bytes().all(label);
    let title = if named { fill(ENGLISH.sign_in_to, tenant) } else { ENGLISH.sign_in.to_owned() };
    // A password in the wrong field is not sent back.
    let email = Some(email).filter(|email| user::check_email(email).is_ok());
    SignInPage {
        shell: Shell::outside(title),
        email: email.unwrap_or_default().to_owned(),
        next: next.map(str::to_owned),
        problem,
        company: offered.company.map(|name| {
            let place = paths::COMPANY_START.replace("{tenant}", tenant);
            let place = next::with_next(&place, next.unwrap_or(paths::HOME));
            (fill(ENGLISH.company_sign_in, &shown(&name)), place)
        }),
        passwords: offered.passwords,
    }
}

/// Ends the session, if there is one, and takes the cookie away.
pub(super) async fn sign_out(
    State(api): State<Api>,
    MaybeVisitor(visitor): MaybeVisitor,
) -> Result<Response, Problem> {
    let place = match &visitor {
        Some(visitor) => {
            app::web_sessions::end(&api.ctx, &visitor.caller).await?;
            sign_in_of(visitor.tenant())
        }
        None => sign_in_place(&api).await?,
    };
    let mut response = see(&place);
    response.headers_mut().insert(header::SET_COOKIE, cookie::clear(&api.node));
    Ok(response)
}
