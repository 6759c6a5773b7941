//! The last step of a sign-in at a provider: the person says that it was they.

use app::connections::{self, oauth};
use askama::Template;
use axum::{
    extract::{Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::Code;
use serde::Deserialize;

use super::{
    Current, Shell,
    connections::{Asked, Done, done, show},
    form::Form,
    html,
    text::shown,
    visitor::Visitor,
    words::ENGLISH,
};
use crate::{Api, paths, problem::Problem};

/// The policy of all pages, and our own script: only a script sees a fragment.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    shell: Shell,
    script: &'static str,
    path: &'static str,
    connections: &'static str,
    server: String,
    name: String,
    person: String,
    tenant: String,
}

/// What the callback leads to; the result stands in the fragment, which never comes here.
#[derive(Debug, Deserialize)]
pub(super) struct Of {
    #[serde(default)]
    server: String,
}

/// Says what would be connected to whom, and asks.
pub(super) async fn page(
    State(api): State<Api>,
    visitor: Visitor,
    Query(of): Query<Of>,
) -> Result<Response, Problem> {
    let words = &ENGLISH;
    let server = connections::one(&api.ctx, &visitor.caller, &of.server).await?;
    let page = ConfirmPage {
        shell: visitor.shell(words.confirm_title, Current::Connections),
        script: paths::CONFIRM_SCRIPT,
        path: paths::CONFIRM_PAGE,
        connections: paths::CONNECTIONS_PAGE,
        server: server.server.to_string(),
        name: shown(&server.name),
        person: visitor.email().to_owned(),
        tenant: visitor.tenant().to_owned(),
    };
    let mut response = html(StatusCode::OK, &page);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

/// Publishes the result, for whoever began. One answer for a late, a used and another person's one.
pub(super) async fn submit(
    State(api): State<Api>,
    visitor: Visitor,
    form: Form,
) -> Result<Response, Problem> {
    let (server, result) = (form.field("server"), form.field("result").into());
    match oauth::confirm(&api.ctx, &visitor.caller, server, &result).await {
        Ok(_) => Ok(done(server, Done::Connected)),
        Err(error) if error.code == Code::Conflict => {
            let problem = Some(ENGLISH.confirm_refused.to_owned());
            Ok(show(&api, &visitor, &Asked::of(server), StatusCode::CONFLICT, problem).await?)
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn script() -> impl IntoResponse {
    let text = include_str!("../../assets/confirm.js");
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], text)
}
