//! The own password.

use app::users::{self, Change};
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
}

impl PasswordPage {
    fn of(visitor: &Visitor, changed: bool, problem: Option<String>) -> Self {
        let shell = visitor.shell(ENGLISH.change_password, Current::Password);
        let least = limits::PASSWORD_CHARS_MIN.default;
        let help = fill(ENGLISH.new_password_help, &least.to_string());
        Self { shell, changed, problem, help, least }
    }
}

pub(super) async fn page(visitor: Visitor, RawQuery(query): RawQuery) -> Response {
    let changed = query.as_deref() == Some(CHANGED);
    html(StatusCode::OK, &PasswordPage::of(&visitor, changed, None))
}

pub(super) async fn submit(
    State(api): State<Api>,
    visitor: Visitor,
    client: Client,
    form: Form,
) -> Response {
    if form.field("new") != form.field("again") {
        let page = PasswordPage::of(&visitor, false, Some(ENGLISH.password_differs.to_owned()));
        return html(StatusCode::UNPROCESSABLE_ENTITY, &page);
    }
    let change = Change {
        current: form.field("current").into(),
        new: form.field("new").into(),
        network: client.network,
    };
    match users::change_password(&api.ctx, &visitor.caller, change).await {
        Ok(_) => see(&format!("{}?{CHANGED}", paths::PASSWORD_PAGE)),
        Err(error) => refused(&visitor, error),
    }
}

fn refused(visitor: &Visitor, error: Error) -> Response {
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
    let mut response = html(status, &PasswordPage::of(visitor, false, Some(problem)));
    if let Some(wait) = wait {
        response.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    response
}

fn is_about_the_new_one(error: &Error) -> bool {
    let details = error.details.as_ref();
    details.is_some_and(|details| details["errors"][0]["path"] == "/new")
}
