//! Personal connections of the caller. No route takes a person: nobody acts on another's.

use app::{Ctx, connections};
use axum::{Json, extract::State};
use domain::{Timestamp, connection::ReconnectReason, ids::ServerId};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    http::{
        body::Body,
        id::Id,
        page::{Filters, List},
        servers::CheckAnswer,
    },
    paths,
    problem::{BadBody, BadQuery, Conflicting, Missing, Problem, Refused, TooMany},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get, put, delete))
        .routes(routes!(put_system))
        .routes(routes!(test))
        .routes(routes!(disconnect_everyone))
}

/// A static secret of the caller.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretBody {
    /// A bearer token or an API key: 1 to 16,384 visible ASCII characters. It never comes back.
    #[schema(value_type = String, format = Password)]
    pub secret: SecretString,
    /// Of the server, as the form saw it.
    pub revision: i64,
}

/// How far the caller is connected to a server.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    #[schema(value_type = String, example = "custom-0123456789ab")]
    pub server_id: ServerId,
    pub slug: String,
    pub name: String,
    #[schema(example = "oauth")]
    pub auth_mode: &'static str,
    pub enabled: bool,
    /// Of the server: forms submit the one that they saw.
    pub revision: i64,
    /// `not_required`, `disconnected`, `connected` or `reconnect_required`.
    #[schema(example = "connected")]
    pub state: &'static str,
    /// `bearer`, `api_key` or `oauth`; absent where none is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// At the provider, where that told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    pub scopes: Vec<String>,
    /// Asked for by the server beyond what was granted.
    pub needs_scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub connected_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub last_used_at: Option<Timestamp>,
    /// Why it has to be made anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "refused")]
    pub reason: Option<ReconnectReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_attempt: Option<PendingAttempt>,
    /// Whether `?revoke=true` would tell the provider: it takes revocations, and no other connection of
    /// the caller's stands on the same grant.
    pub revocable: bool,
    /// Where the provider was to be told: `revoked`, `failed` or `not_offered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "revoked")]
    pub revocation: Option<&'static str>,
}

/// A sign-in at a provider that was begun.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingAttempt {
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub expires_at: Timestamp,
}

/// Whose connections ended.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct EveryoneDisconnected {
    /// How many people were connected.
    pub disconnected: u64,
}

/// Whether the provider is to be told.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Disconnecting {
    /// Ask the provider to revoke the grant (RFC 7009), after it was forgotten here.
    #[serde(default)]
    pub revoke: bool,
}

impl From<connections::Shown> for Connection {
    fn from(shown: connections::Shown) -> Self {
        Self {
            server_id: shown.server,
            slug: shown.slug,
            name: shown.name,
            auth_mode: shown.auth_mode.as_str(),
            enabled: shown.enabled,
            revision: shown.revision,
            state: shown.state.as_str(),
            kind: shown.kind.map(domain::connection::CredentialKind::as_str),
            account: shown.account,
            scopes: shown.scopes,
            needs_scopes: shown.needs_scopes,
            expires_at: shown.expires_at,
            connected_at: shown.connected_at,
            last_used_at: shown.last_used_at,
            reason: shown.reason,
            pending_attempt: shown.pending_until.map(|expires_at| PendingAttempt { expires_at }),
            revocable: shown.revocable,
            revocation: None,
        }
    }
}

impl From<connections::Cleared> for Connection {
    fn from(cleared: connections::Cleared) -> Self {
        let revocation = cleared.revocation.map(connections::Revocation::as_str);
        Self { revocation, ..cleared.shown.into() }
    }
}

/// The servers that the caller may use, or left an account with, by name; all of them on one page.
#[utoipa::path(get, path = paths::CONNECTIONS, tag = "connections",
    responses((status = 200, body = List<Connection>), Refused))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
) -> Result<Json<List<Connection>>, Problem> {
    let shown = connections::list(&ctx, &caller).await?;
    Ok(Json(List { items: shown.into_iter().map(Connection::from).collect(), next: None }))
}

/// How far the caller is connected to one server.
#[utoipa::path(get, path = paths::CONNECTION, tag = "connections",
    params(("server" = String, Path, description = "id or slug")),
    responses((status = 200, body = Connection), Refused, Missing))]
async fn get(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
) -> Result<Json<Connection>, Problem> {
    Ok(Json(connections::one(&ctx, &caller, &server).await?.into()))
}

/// Puts the caller's own secret in, in the place of the one before. Needs a browser session or the
/// scope `approve`. It is not tried out: the server says at the first call what it thinks of it.
#[utoipa::path(put, path = paths::CONNECTION, tag = "connections",
    params(("server" = String, Path, description = "id or slug")), request_body = SecretBody,
    responses((status = 200, body = Connection), Refused, Missing, Conflicting, BadBody))]
async fn put(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Body(form): Body<SecretBody>,
) -> Result<Json<Connection>, Problem> {
    let SecretBody { secret, revision } = form;
    Ok(Json(connections::put_secret(&ctx, &caller, &server, secret, revision).await?.into()))
}

/// The same for a server that a system names by its slug.
#[utoipa::path(put, path = paths::SYSTEM_CONNECTION, tag = "connections",
    params(("server" = String, Path, description = "slug")), request_body = SecretBody,
    responses((status = 200, body = Connection), Refused, Missing, Conflicting, BadBody))]
async fn put_system(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Body(form): Body<SecretBody>,
) -> Result<Json<Connection>, Problem> {
    let SecretBody { secret, revision } = form;
    Ok(Json(connections::put_secret(&ctx, &caller, &server, secret, revision).await?.into()))
}

/// Tries the caller's own connection: a client of its own connects with it and lists the tools. Nothing
/// is called, and nothing is written but what the server's refusal means for the connection. Needs a browser
/// session or the scope `approve`. 409 `CONFLICT` where the server needs no account of the caller's.
#[utoipa::path(post, path = paths::CONNECTION_TEST, tag = "connections",
    params(("server" = String, Path, description = "id or slug")),
    responses(
        (status = 200, body = CheckAnswer, description = "also where the server failed"),
        Refused, Missing, Conflicting, TooMany))]
async fn test(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
) -> Result<Json<CheckAnswer>, Problem> {
    Ok(Json(app::servers::check_own(&ctx, &caller, &server).await?.into()))
}

/// Takes the caller's own credential out, and ends what is under way; also of a server that is switched
/// off. Idempotent. Needs a browser session or the scope `approve`.
#[utoipa::path(delete, path = paths::CONNECTION, tag = "connections",
    params(("server" = String, Path, description = "id or slug"), Disconnecting),
    responses((status = 200, body = Connection), Refused, Missing, Conflicting, BadQuery))]
async fn delete(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Filters(disconnecting): Filters<Disconnecting>,
) -> Result<Json<Connection>, Problem> {
    let cleared = connections::clear(&ctx, &caller, &server, disconnecting.revoke).await?;
    Ok(Json(cleared.into()))
}

/// Takes everybody's credential out. For superadmins, who see no credential.
#[utoipa::path(post, path = paths::DISCONNECT_EVERYONE, tag = "connections",
    params(("server" = String, Path, description = "id or slug")),
    responses((status = 200, body = EveryoneDisconnected), Refused, Missing))]
async fn disconnect_everyone(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
) -> Result<Json<EveryoneDisconnected>, Problem> {
    let disconnected = connections::disconnect_everyone(&ctx, &caller, &server).await?;
    Ok(Json(EveryoneDisconnected { disconnected }))
}
