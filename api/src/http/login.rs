//! Browser sessions: how they begin and end.

use app::sign_in::{self, Attempt};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    console::{cookie, signed_in},
    guard::Client,
    http::{body::Body, id::Id, me::Me},
    paths,
    problem::{BadBody, Missing, Problem, Refused, TooMany},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(login)).routes(routes!(logout))
}

/// Who signs in.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginForm {
    #[schema(example = "ann@example.org")]
    pub email: String,
    #[schema(format = Password)]
    pub password: String,
}

/// Begins a browser session; the cookie is in the answer. A session that the browser had ends.
///
/// Whatever does not fit, the answer is the same 401. After too many attempts in vain it is 429, with
/// the time to wait.
#[utoipa::path(post, path = paths::LOGIN, tag = "people", security(()),
    params(("tenant" = String, Path)), request_body = LoginForm,
    responses((status = 200, body = Me), Refused, Missing, BadBody, TooMany))]
async fn login(
    State(api): State<Api>,
    Id(tenant): Id<String>,
    client: Client,
    parts: Parts,
    Body(form): Body<LoginForm>,
) -> Result<Response, Problem> {
    let attempt = Attempt {
        tenant: &tenant,
        email: form.email.trim(),
        password: form.password.into(),
        network: client.network,
        replaces: signed_in(&parts, &api).await?,
    };
    let begun = sign_in::with_password(&api.ctx, attempt).await?;
    let cookie = [(header::SET_COOKIE, cookie::set(&api.node, &begun.cookie))];
    Ok((cookie, Json(Me::of(&begun.caller, begun.me))).into_response())
}

/// Ends the browser session of the request. Idempotent; a bearer token has none.
#[utoipa::path(post, path = paths::LOGOUT, tag = "people", security((), ("session" = [])),
    responses((status = 204, description = "There is no session any more."), Refused))]
async fn logout(State(api): State<Api>, parts: Parts) -> Result<Response, Problem> {
    if cookie::sent(&parts.headers, &api.node).is_none() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    if let Some(caller) = signed_in(&parts, &api).await? {
        app::web_sessions::end(&api.ctx, &caller).await?;
    }
    let cookie = [(header::SET_COOKIE, cookie::clear(&api.node))];
    Ok((StatusCode::NO_CONTENT, cookie).into_response())
}
