//! The own password.

use app::{
    company,
    users::{self, Change},
};
use askama::Template;
use axum::{
    extract::{RawQuery, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::{Code, Error, Retry, limits};

use super::{
    Current, Shell,
    form::Form,
    html, see,
    text::shown,
    visitor::Visitor,
    words::{ENGLISH, fill},
};
use crate::{Api, guard::Client, paths, problem::Problem};

/// In the query of the page that says that it is done.
const CHANGED: &str = "changed";

#[derive(Template)]
#[template(path = "password.html")]
struct PasswordPage {
    shell: Shell,
    changed: bool,
    problem: Option<String>,
    help: String,
    least: u64,
    company: Option<Company>,
}

/// The person's account at their company's issuer.
struct Company {
    what: String,
    linked: bool,
    /// What was done about it just now.
    done: Option<&'static str>,
}

impl PasswordPage {
    fn of(
        visitor: &Visitor,
        company: Option<Company>,
        changed: bool,
        problem: Option<String>,
    ) -> Self {
        let shell = visitor.shell(ENGLISH.change_password, Current::Password);
        let least = limits::PASSWORD_CHARS_MIN.default;
        let help = fill(ENGLISH.new_password_help, &least.to_string());
        Self { shell, changed, problem, help, least, company }
    }
}

pub(super) async fn page(
    State(api): State<Api>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = query.as_deref();
    let done = match query {
        Some("linked") => Some(ENGLISH.company_now_linked),
        Some("unlinked") => Some(ENGLISH.company_now_unlinked),
        _ => None,
    };
    let company = company(&api, &visitor, done).await?;
    Ok(html(StatusCode::OK, &PasswordPage::of(&visitor, company, query == Some(CHANGED), None)))
}

/// `None` where the tenant has no company sign-in.
async fn company(
    api: &Api,
    visitor: &Visitor,
    done: Option<&'static str>,
) -> Result<Option<Company>, Error> {
    let offered = company::offered(&api.ctx, visitor.tenant()).await?;
    let Some(name) = offered.company else { return Ok(None) };
    let caller = &visitor.caller;
    let linked = !company::accounts_of(&api.ctx, caller, caller.user).await?.is_empty();
    let words = if linked { ENGLISH.company_account_linked } else { ENGLISH.company_account_help };
    Ok(Some(Company { what: fill(words, &shown(&name)), linked, done }))
}

pub(super) async fn submit(
    State(api): State<Api>,
    visitor: Visitor,
    client: Client,
    form: Form,
) -> Result<Response, Problem> {
    if form.field("new") != form.field("again") {
        let problem = Some(ENGLISH.password_differs.to_owned());
        let company = company(&api, &visitor, None).await?;
        let page = PasswordPage::of(&visitor, company, false, problem);
        return Ok(html(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    let change = Change {
        current: form.field("current").into(),
        new: form.field("new").into(),
        network: client.network,
    };
    match users::change_password(&api.ctx, &visitor.caller, change).await {
        Ok(_) => Ok(see(&format!("{}?{CHANGED}", paths::PASSWORD_PAGE))),
        Err(error) => Ok(refused(&visitor, company(&api, &visitor, None).await?, error)),
    }
}

fn refused(visitor: &Visitor, company: Option<Company>, error: Error) -> Response {
    let words = &ENGLISH;
    let (status, problem, wait) = match (error.code, error.retry) {
        (Code::InvalidInput, _) => {
            let least = limits::PASSWORD_CHARS_MIN.default.to_string();
            let problem = if is_about_the_new_one(&error) {
                fill(words.password_length, &least)
            } else {
                words.password_not_yours.to_owned()
            };
            (StatusCode::UNPROCESSABLE_ENTITY, problem, None)
        }
        (Code::Limited, Retry::After(wait)) => {
            let seconds = wait.as_secs().max(1);
            let problem = fill(words.sign_in_wait, &seconds.to_string());
            (StatusCode::TOO_MANY_REQUESTS, problem, Some(HeaderValue::from(seconds)))
        }
        _ => return Problem(error).into_response(),
    };
    let mut response = html(status, &PasswordPage::of(visitor, company, false, Some(problem)));
    if let Some(wait) = wait {
        response.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    response
}

fn is_about_the_new_one(error: &Error) -> bool {
    let details = error.details.as_ref();
    details.is_some_and(|details| details["errors"][0]["path"] == "/new")
}
