//! Errors as pages. Handlers answer problems, as those of the API do; what a person sees is made of
//! them here.

use askama::Template;
use axum::{
    extract::Request,
    http::{StatusCode, header},
    middleware::Next,
    response::Response,
};
use domain::Code;

use super::{Shell, html, text::shown, words::ENGLISH};
use crate::problem::ProblemBody;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    detail: String,
    what_to_do: &'static str,
    code: String,
    request_id: String,
}

/// For routes that answer in pages.
pub(super) async fn always_in_words(response: Response) -> Response {
    match response.extensions().get::<ProblemBody>() {
        Some(problem) => page(problem, &response),
        None => response,
    }
}

/// For all others: where a browser shows the answer to a person, and it is none of the API's.
pub(crate) async fn in_words(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let machines = ["/api/", "/mcp", "/.well-known/"].iter().any(|part| path.starts_with(part));
    let accept = request.headers().get_all(header::ACCEPT).iter();
    let browser =
        accept.filter_map(|value| value.to_str().ok()).any(|one| one.contains("text/html"));
    let response = next.run(request).await;
    if machines || !browser { response } else { always_in_words(response).await }
}

fn page(problem: &ProblemBody, before: &Response) -> Response {
    let words = &ENGLISH;
    let code = Code::parse(&problem.code).unwrap_or(Code::Internal);
    let (title, what_to_do) = match code {
        Code::NotFound => (words.not_found, words.not_found_help),
        Code::Denied => (words.refused, words.refused_help),
        Code::Limited => (words.too_many, words.later_help),
        Code::Unavailable => (words.unavailable, words.later_help),
        Code::Internal => (words.went_wrong, words.went_wrong_help),
        _ => (words.cannot, words.back_help),
    };
    let page = ErrorPage {
        shell: Shell::outside(title),
        detail: shown(&problem.detail),
        what_to_do,
        code: problem.code.clone(),
        request_id: problem.request_id.clone(),
    };
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = html(status, &page);
    for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE, header::SET_COOKIE, header::ALLOW] {
        if let Some(value) = before.headers().get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}
