//! The pages: signing in, the own password, servers with their state, the own connections, questions
//! and their decisions.
//!
//! Rendered here, without scripts but for the one that takes a sign-in's result out of an address: each
//! page is a document with an address, each change a form. What
//! people or peers wrote goes through [`text::shown`] and the templates' escaping. A person comes
//! by their browser session alone; a bearer token opens no page.

mod callback;
mod company;
mod confirm;
mod connections;
pub(crate) mod cookie;
mod errors;
mod form;
mod next;
mod password;
mod questions;
mod servers;
mod sign_in;
mod text;
mod visitor;
mod words;

use askama::Template;
use axum::{
    Router,
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use domain::Error;

pub(crate) use errors::in_words;
pub(crate) use visitor::signed_in;
use words::{ENGLISH, Words};

use crate::{Api, guard, paths, problem::Problem};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(paths::HOME, get(sign_in::home))
        .route(paths::SIGN_IN, get(sign_in::which_tenant))
        .route(paths::TENANT_SIGN_IN, get(sign_in::page).post(sign_in::submit))
        .route(paths::COMPANY_START, get(company::start))
        .route(paths::COMPANY_CALLBACK, get(company::receive))
        .route(paths::COMPANY_ACCOUNT_PAGE, post(company::submit))
        .route(paths::SIGN_OUT, post(sign_in::sign_out))
        .route(paths::OAUTH_CALLBACK, get(callback::receive))
        .route(paths::PASSWORD_PAGE, get(password::page).post(password::submit))
        .route(paths::SERVERS_PAGE, get(servers::page))
        .route(paths::CONNECTIONS_PAGE, get(connections::page).post(connections::submit))
        .route(paths::CONFIRM_PAGE, get(confirm::page).post(confirm::submit))
        .route(paths::QUESTIONS, get(questions::list))
        .route(paths::QUESTION_PAGE, get(questions::page).post(questions::decide))
        .route_layer(middleware::from_fn(guard::forms_from_our_pages))
        .route_layer(middleware::map_response(errors::always_in_words))
        .route(paths::STYLESHEET, get(stylesheet))
        .route(paths::CONFIRM_SCRIPT, get(confirm::script))
        .route(paths::ICON, get(icon))
}

/// What surrounds every page.
#[derive(Debug, Clone)]
pub(crate) struct Shell {
    words: &'static Words,
    title: String,
    /// Who is signed in.
    person: Option<Person>,
    current: Current,
}

#[derive(Debug, Clone)]
struct Person {
    email: String,
    tenant: String,
}

/// Which entry of the navigation the page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    Servers,
    Connections,
    Questions,
    Password,
    Neither,
}

impl Shell {
    /// For somebody who is not signed in.
    fn outside(title: impl Into<String>) -> Self {
        Self { words: &ENGLISH, title: title.into(), person: None, current: Current::Neither }
    }

    fn at_servers(&self) -> bool {
        self.current == Current::Servers
    }

    fn at_connections(&self) -> bool {
        self.current == Current::Connections
    }

    fn at_questions(&self) -> bool {
        self.current == Current::Questions
    }

    fn at_password(&self) -> bool {
        self.current == Current::Password
    }
}

/// Nothing is loaded but our own style sheet and icon, nothing runs, nobody frames us, and forms go to
/// us alone.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    // With `no-referrer` browsers send `Origin: null` with our own forms (Fetch, "append a request
    // Origin header"). Other sites are told nothing by this one either.
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

fn html(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, HEADERS, text).into_response(),
        Err(error) => Problem(Error::internal(error)).into_response(),
    }
}

/// 303: whatever was asked, look there now (RFC 9110, section 15.4.4).
fn see(place: &str) -> Response {
    let Ok(location) = HeaderValue::from_str(place) else {
        return Problem(Error::internal("a place that is no header value")).into_response();
    };
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

async fn stylesheet() -> impl IntoResponse {
    let text = include_str!("../assets/console.css");
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], text)
}

async fn icon() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/svg+xml")], include_str!("../assets/icon.svg"))
}
