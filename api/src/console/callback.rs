//! Where a provider sends the browser back to, and what the person is told there.

use app::connections::oauth::{self, Callback, Received};
use askama::Template;
use axum::{
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{Shell, cookie, html, see, words::ENGLISH};
use crate::{Api, http::id::Id, paths, problem::Problem};

/// What providers append; whatever else they do is passed over.
#[derive(Deserialize)]
pub(super) struct Brought {
    #[serde(default)]
    state: String,
    code: Option<SecretString>,
    error: Option<String>,
    iss: Option<String>,
}

#[derive(Template)]
#[template(path = "callback.html")]
struct CallbackPage {
    shell: Shell,
    what: &'static str,
}

/// Nobody need be signed in. The code is used up and never shown, nor is anything that the provider
/// said.
pub(super) async fn receive(
    State(api): State<Api>,
    Id(server): Id<String>,
    headers: HeaderMap,
    Query(brought): Query<Brought>,
) -> Response {
    let suffix = oauth::cookie_suffix(&brought.state);
    let callback = Callback {
        server,
        browser: cookie::attempt(&headers, &api.node, &suffix),
        state: brought.state,
        code: brought.code,
        error: brought.error,
        iss: brought.iss,
    };
    let mut response = match oauth::callback(&api.ctx, callback).await {
        Ok(Received::Confirm { server, result }) => {
            let page = paths::CONFIRM_PAGE;
            // In the fragment: no log and no Referer ever holds it.
            see(&format!("{page}?server={server}#result={}", result.expose_secret()))
        }
        Ok(Received::Denied) => told(ENGLISH.callback_denied),
        Ok(Received::Failed) => told(ENGLISH.callback_failed),
        Ok(Received::Unknown) => told(ENGLISH.callback_unknown),
        Err(error) => Problem(error).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.append(header::SET_COOKIE, cookie::clear_attempt(&api.node, &suffix));
    response
}

/// Nothing is loaded, nothing runs.
fn told(what: &'static str) -> Response {
    let page = CallbackPage { shell: Shell::outside(ENGLISH.not_connected), what };
    html(StatusCode::BAD_REQUEST, &page)
}
