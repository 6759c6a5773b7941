//! Signing in at the company's issuer, and linking one's account there.

use app::company::{self, Back, Came, Refusal};
use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::{Code, Error};
use secrecy::SecretString;
use serde::Deserialize;

use super::{
    Current, Shell, cookie,
    form::Form,
    html, next, see,
    text::shown,
    visitor::{MaybeVisitor, Visitor, sign_in_of},
    words::{ENGLISH, fill},
};
use crate::{
    Api,
    guard::Client,
    http::{company::callback_url, id::Id},
    paths, problem,
    problem::Problem,
};

#[derive(Template)]
#[template(path = "company.html")]
struct NotSignedInPage {
    shell: Shell,
    what: String,
    /// What an administrator needs to know.
    subject: Option<String>,
    again: String,
}

#[derive(Template)]
#[template(path = "company_leave.html")]
struct LeavePage {
    shell: Shell,
    lead: String,
    go_on: String,
    url: String,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    next: Option<String>,
}

/// What issuers append; whatever else they do is passed over.
#[derive(Default, Deserialize)]
pub(super) struct Brought {
    #[serde(default)]
    state: String,
    code: Option<SecretString>,
    error: Option<String>,
    iss: Option<String>,
}

/// Sends the browser to the issuer.
pub(super) async fn start(
    State(api): State<Api>,
    Id(tenant): Id<String>,
    client: Client,
    query: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let asked = query.map(|Query(asked)| asked).unwrap_or_default();
    let next = asked.next.as_deref().and_then(next::own).map(str::to_owned);
    let begun = async {
        let redirect = callback_url(&api.node, &tenant)?;
        company::start(&api.ctx, &tenant, next, None, (&redirect, client.network)).await
    };
    match begun.await {
        Ok(begun) => {
            let mut response = see(begun.url.as_str());
            let cookie = cookie::set_attempt(&api.node, &begun.cookie_suffix, &begun.browser);
            response.headers_mut().append(header::SET_COOKIE, cookie);
            response
        }
        Err(error) => refused(&tenant, error),
    }
}

/// A page that leads to the issuer, to link the account of whoever is signed in: our policy lets a form
/// lead nowhere but to us.
pub(super) async fn submit(
    State(api): State<Api>,
    visitor: Visitor,
    client: Client,
    form: Form,
) -> Result<Response, Problem> {
    if form.field("do") == "unlink" {
        company::unlink_own(&api.ctx, &visitor.caller).await?;
        return Ok(see(&format!("{}?unlinked", paths::PASSWORD_PAGE)));
    }
    let tenant = visitor.tenant().to_owned();
    let redirect = callback_url(&api.node, &tenant)?;
    let next = Some(format!("{}?linked", paths::PASSWORD_PAGE));
    let from = (&redirect, client.network);
    let begun = company::start(&api.ctx, &tenant, next, Some(&visitor.caller), from).await?;
    let host = begun.url.host_str().unwrap_or_default().to_owned();
    let host = begun.url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    let page = LeavePage {
        shell: visitor.shell(ENGLISH.company_link, Current::Password),
        lead: fill(ENGLISH.company_link_lead, &shown(visitor.email())),
        go_on: fill(ENGLISH.leave_for, &host),
        url: begun.url.to_string(),
    };
    let mut response = html(StatusCode::OK, &page);
    let cookie = cookie::set_attempt(&api.node, &begun.cookie_suffix, &begun.browser);
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Nobody need be signed in. The code is used up and never shown, nor is anything that the issuer said.
pub(super) async fn receive(
    State(api): State<Api>,
    Id(tenant): Id<String>,
    MaybeVisitor(visitor): MaybeVisitor,
    headers: HeaderMap,
    query: Result<Query<Brought>, QueryRejection>,
) -> Response {
    let brought = query.map(|Query(brought)| brought).unwrap_or_default();
    let suffix = company::cookie_suffix(&brought.state);
    let back = Back {
        browser: cookie::attempt(&headers, &api.node, &suffix),
        state: brought.state,
        code: brought.code,
        error: brought.error,
        iss: brought.iss,
        caller: visitor.map(|visitor| visitor.caller),
    };
    let came = async {
        let redirect = callback_url(&api.node, &tenant)?;
        company::callback(&api.ctx, &tenant, back, &redirect).await
    };
    let mut response = match came.await {
        Ok(Came::SignedIn { cookie, next }) => {
            let mut response = see(next.as_deref().unwrap_or(paths::SERVERS_PAGE));
            response.headers_mut().append(header::SET_COOKIE, cookie::set(&api.node, &cookie));
            response
        }
        Ok(Came::Linked { next }) => see(next.as_deref().unwrap_or(paths::SERVERS_PAGE)),
        Ok(Came::Refused(refusal)) => told(&tenant, refusal),
        Err(error) => refused(&tenant, error),
    };
    let headers = response.headers_mut();
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.append(header::SET_COOKIE, cookie::clear_attempt(&api.node, &suffix));
    response
}

fn told(tenant: &str, refusal: Refusal) -> Response {
    let words = &ENGLISH;
    let (what, subject) = match refusal {
        Refusal::Unknown => (words.company_unknown, None),
        Refusal::Denied => (words.company_denied, None),
        Refusal::Failed => (words.company_failed, None),
        Refusal::NotAPerson { subject } => (words.company_not_a_person, Some(shown(&subject))),
        Refusal::OtherCompany => (words.company_other, None),
        Refusal::Disabled => (words.company_disabled, None),
        Refusal::LinkedElsewhere => (words.company_linked_elsewhere, None),
    };
    page(StatusCode::BAD_REQUEST, tenant, what.to_owned(), subject)
}

/// The issuer cannot be asked, or there is none.
fn refused(tenant: &str, error: Error) -> Response {
    let what = match error.code {
        Code::NotFound => ENGLISH.company_none,
        Code::UpstreamUnavailable | Code::Limited => ENGLISH.company_unavailable,
        Code::OauthDiscoveryFailed | Code::CredentialsUnreadable => ENGLISH.company_unusable,
        _ => return Problem(error).into_response(),
    };
    tracing::info!(error = &error as &dyn std::error::Error, "a company sign-in did not begin");
    page(problem::status(error.code), tenant, what.to_owned(), None)
}

fn page(status: StatusCode, tenant: &str, what: String, subject: Option<String>) -> Response {
    let again = sign_in_of(tenant);
    let shell = Shell::outside(ENGLISH.company_not_signed_in);
    html(status, &NotSignedInPage { shell, what, subject, again })
}
