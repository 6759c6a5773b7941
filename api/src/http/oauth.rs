//! Connecting by OAuth: start, cancel, confirm, clear; and the document that says who we are as a
//! client. The callback, which a browser comes to, is a page.

use app::{Ctx, connections};
use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use domain::{Error, Timestamp};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api, NodeSettings,
    caller::Authenticated,
    console::cookie,
    http::{
        body::{Body, Maybe},
        connections::Connection,
        id::Id,
        page::Filters,
    },
    paths,
    problem::{BadBody, Conflicting, Missing, Problem, Refused, Upstream},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(start))
        .routes(routes!(cancel))
        .routes(routes!(confirm))
        .routes(routes!(clear))
}

/// How the form was loaded.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartForm {
    /// Of the server.
    pub revision: i64,
}

/// Where the person goes now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartedSignIn {
    #[schema(value_type = String)]
    pub authorization_url: Url,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub expires_at: Timestamp,
}

/// What the callback handed over.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmForm {
    /// The fragment `result` of the page that the callback led to.
    #[schema(value_type = String)]
    pub result: SecretString,
}

/// Begins to connect the caller's own account. The answer holds a cookie for the browser that goes to
/// the provider: only it can come back. Needs a browser session or the scope `approve`.
///
/// What is connected stays so until the new credential is confirmed.
#[utoipa::path(post, path = paths::OAUTH_START, tag = "connections",
    params(("server" = String, Path, description = "id or slug")), request_body = StartForm,
    responses((status = 200, body = StartedSignIn), Refused, Missing, Conflicting, BadBody, Upstream))]
async fn start(
    State(api): State<Api>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Body(form): Body<StartForm>,
) -> Result<Response, Problem> {
    let begun = begin(&api, &caller, &server, form.revision).await?;
    let started =
        StartedSignIn { authorization_url: begun.authorization_url, expires_at: begun.expires_at };
    let cookie = cookie::set_attempt(&api.node, &begun.cookie_suffix, &begun.browser);
    Ok(([(header::SET_COOKIE, cookie)], Json(started)).into_response())
}

/// As a page and as a route begin it.
pub(crate) async fn begin(
    api: &Api,
    caller: &domain::Caller,
    server: &str,
    revision: i64,
) -> Result<connections::oauth::Started, Error> {
    let callback = |server: &str| callback_url(&api.node, server);
    connections::oauth::start(&api.ctx, caller, server, revision, callback).await
}

/// Where providers send browsers back to: built from the public URL, never from Host.
fn callback_url(node: &NodeSettings, server: &str) -> Result<Url, Error> {
    let path = paths::OAUTH_CALLBACK.replace("{server}", server);
    node.public_url.join(&path).map_err(Error::internal)
}

/// Ends what the caller has under way at this server. What is connected stays so. Idempotent.
#[utoipa::path(post, path = paths::OAUTH_CANCEL, tag = "connections",
    params(("server" = String, Path, description = "id or slug")),
    responses((status = 200, body = Connection), Refused, Missing, Conflicting))]
async fn cancel(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
) -> Result<Json<Connection>, Problem> {
    Ok(Json(connections::cancel(&ctx, &caller, &server).await?.into()))
}

/// Publishes what the callback brought, for the person who began, within a minute. A result is used up
/// by the first who brings it.
#[utoipa::path(post, path = paths::OAUTH_CONFIRM, tag = "connections",
    params(("server" = String, Path, description = "id or slug")), request_body = ConfirmForm,
    responses((status = 200, body = Connection), Refused, Missing, Conflicting, BadBody))]
async fn confirm(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Body(form): Body<ConfirmForm>,
) -> Result<Json<Connection>, Problem> {
    let shown = connections::oauth::confirm(&ctx, &caller, &server, &form.result).await?;
    Ok(Json(shown.into()))
}

/// Whether the provider is to be told.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClearForm {
    #[serde(default)]
    pub revoke: bool,
}

/// The same as `DELETE` of the connection.
#[utoipa::path(post, path = paths::OAUTH_CLEAR, tag = "connections",
    params(("server" = String, Path, description = "id or slug")),
    request_body = Option<ClearForm>,
    responses((status = 200, body = Connection), Refused, Missing, Conflicting, BadBody))]
async fn clear(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Maybe(form): Maybe<ClearForm>,
) -> Result<Json<Connection>, Problem> {
    let cleared = connections::clear(&ctx, &caller, &server, form.revoke).await?;
    Ok(Json(cleared.into()))
}

/// Whose document it is.
#[derive(Debug, Deserialize)]
pub(crate) struct DocumentOf {
    server: Option<String>,
}

/// Our Client ID Metadata Document: the id of the client is this very URL. With `server` it is that
/// server's, with its callback.
pub(crate) async fn document(
    State(api): State<Api>,
    Filters(of): Filters<DocumentOf>,
) -> Result<Json<Value>, Problem> {
    let id = |text: &&String| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=100).contains(&text.len()) && text.bytes().all(legal)
    };
    let mut client_id =
        api.node.public_url.join(paths::CLIENT_DOCUMENT).map_err(Error::internal)?;
    let mut redirects = Vec::new();
    if let Some(server) = &of.server {
        let server = Some(server).filter(id).ok_or_else(|| Error::not_found("document"))?;
        client_id.query_pairs_mut().append_pair("server", server);
        redirects.push(callback_url(&api.node, server)?);
    }
    Ok(Json(json!({
        "client_id": client_id,
        "client_name": "Bailiwick",
        "client_uri": api.node.public_url,
        "redirect_uris": redirects,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    })))
}
