//! MCP servers of the tenant.

mod exchange;
mod json;

use app::{
    Ctx,
    servers::{Asks, Cursor, Shown},
};
use axum::{Json, extract::State, http::StatusCode};
use domain::{Code, Error, Timestamp, ids::ServerId, server::ServerForm};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::json::{ServerAnswer, ServerBody};
use crate::{
    Api,
    caller::Authenticated,
    http::{
        body::{Body, Maybe},
        id::Id,
        page::{List, Page, PageQuery},
    },
    paths,
    problem::{BadBody, BadQuery, Conflicting, Missing, Problem, Refused, TooMany},
};
pub(crate) use json::CheckAnswer;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, replace, delete))
        .routes(routes!(switch))
        .routes(routes!(test))
        .merge(exchange::routes())
}

/// Whether a server is on.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerSwitch {
    pub enabled: bool,
}

/// That a server is gone.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ServerDeleted {
    pub deleted: bool,
}

/// The servers that the caller may see, newest first: superadmins see all of them with their
/// configuration, others those that are switched on, in a few fields.
#[utoipa::path(get, path = paths::SERVERS, tag = "servers",
    params(PageQuery), responses((status = 200, body = List<ServerAnswer>), Refused, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    page: Page,
) -> Result<Json<List<ServerAnswer>>, Problem> {
    let after = page.after_by(read_cursor)?;
    let servers = app::servers::list(&ctx, &caller, after.as_ref(), page.rows()).await?;
    Ok(Json(List::of(&page, servers, |server| write_cursor(&server.cursor))))
}

/// Adds a server. For superadmins. Tools are asked for once it is switched on.
#[utoipa::path(post, path = paths::SERVERS, tag = "servers", request_body = ServerBody,
    responses((status = 201, body = json::ConfiguredServer), Refused, Conflicting, BadBody))]
async fn create(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Body(form): Body<ServerForm>,
) -> Result<(StatusCode, Json<ServerAnswer>), Problem> {
    let server = app::servers::create(&ctx, &caller, form).await?;
    Ok((StatusCode::CREATED, Json(Shown::Configured(Box::new(server)).into())))
}

/// One server, by id or slug; as in the list.
#[utoipa::path(get, path = paths::SERVER, tag = "servers",
    params(("server" = String, Path, description = "id or slug")),
    responses((status = 200, body = ServerAnswer), Refused, Missing))]
async fn get(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
) -> Result<Json<ServerAnswer>, Problem> {
    Ok(Json(app::servers::get(&ctx, &caller, &server).await?.into()))
}

/// Replaces the whole configuration of a server. For superadmins.
///
/// `revision` is the one that the form was made from; another one by now is a conflict. Of `env`,
/// `headers` and the client secret `null` keeps the stored value, a string replaces it, and what is
/// left out is deleted. Where scheme, host or port of the address change, or the command, no value is
/// kept: each must be given anew.
#[utoipa::path(put, path = paths::SERVER, tag = "servers",
    params(("server" = String, Path, description = "id or slug")), request_body = ServerBody,
    responses(
        (status = 200, body = json::ConfiguredServer),
        Refused, Missing, Conflicting, BadBody))]
async fn replace(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Body(form): Body<ServerForm>,
) -> Result<Json<ServerAnswer>, Problem> {
    let server = app::servers::update(&ctx, &caller, &server, form).await?;
    Ok(Json(Shown::Configured(Box::new(server)).into()))
}

/// Deletes a server, with its secrets, its tools and every permission that names them. For
/// superadmins. Its calls stay in the audit.
#[utoipa::path(delete, path = paths::SERVER, tag = "servers",
    params(("server" = String, Path, description = "id or slug")),
    responses((status = 200, body = ServerDeleted), Refused, Missing))]
async fn delete(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
) -> Result<Json<ServerDeleted>, Problem> {
    app::servers::delete(&ctx, &caller, &server).await?;
    Ok(Json(ServerDeleted { deleted: true }))
}

/// Switches a server on or off. For superadmins; idempotent. It grants nothing.
#[utoipa::path(put, path = paths::SERVER_STATUS, tag = "servers",
    params(("server" = String, Path, description = "id or slug")), request_body = ServerSwitch,
    responses((status = 200, body = json::ConfiguredServer), Refused, Missing, BadBody))]
async fn switch(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Body(switch): Body<ServerSwitch>,
) -> Result<Json<ServerAnswer>, Problem> {
    let server = app::servers::switch(&ctx, &caller, &server, switch.enabled).await?;
    Ok(Json(Shown::Configured(Box::new(server)).into()))
}

/// What a test may be told.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TestForm {
    /// That somebody looked at what an imported server makes us contact, and agrees. Needs the scope
    /// `approve`, and `configRevision`.
    #[serde(default)]
    pub confirm: bool,
    /// The one of `details.confirm` that was looked at.
    pub config_revision: Option<i64>,
}

/// Connects to a server and lists its tools, with a client of its own, also while it is switched
/// off. Nothing is called. Only a superadmin's test is written down, as the server's status.
///
/// The first test of an imported server asks: 409 with `details.confirm`, which says whom it would
/// contact and with what (`commandLine` and `cwd`, or `url`; names of headers, environment and
/// variables), and the `configRevision` of that. The same with `{"confirm": true, "configRevision": …}`
/// does it. It is not asked again until something of this changes; a change that came in between is
/// 409 `REVISION_CONFLICT` with the new `details.confirm`. Nobody is asked about a server that is
/// switched on.
#[utoipa::path(post, path = paths::SERVER_TEST, tag = "servers",
    params(("server" = String, Path, description = "id or slug")),
    request_body = Option<TestForm>,
    responses(
        (status = 200, body = CheckAnswer, description = "also where the server failed"),
        Refused, Missing, Conflicting, BadBody, TooMany))]
async fn test(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    Maybe(form): Maybe<TestForm>,
) -> Result<Json<CheckAnswer>, Problem> {
    Ok(Json(app::servers::check(&ctx, &caller, &server, form.asks()?).await?.into()))
}

impl TestForm {
    fn asks(&self) -> Result<Asks, Error> {
        match (self.confirm, self.config_revision) {
            (false, _) => Ok(Asks::Ask),
            (true, Some(config_revision)) => Ok(Asks::Confirmed { config_revision }),
            (true, None) => {
                let words = "must be the one of details.confirm that was looked at";
                let errors = json!([{ "path": "/configRevision", "message": words }]);
                Err(Error::new(Code::InvalidInput, "who confirms says what they looked at")
                    .with_details(json!({ "errors": errors })))
            }
        }
    }
}

/// Microseconds of the creation, and the id: what the list is ordered by.
fn write_cursor(cursor: &Cursor) -> String {
    format!("{}.{}", cursor.created_at.timestamp_micros(), cursor.id)
}

fn read_cursor(text: &str) -> Option<Cursor> {
    let (micros, id) = text.split_once('.')?;
    let created_at = Timestamp::from_timestamp_micros(micros.parse().ok()?)?;
    let legal = !id.chars().any(char::is_control);
    legal.then(|| Cursor { created_at, id: ServerId::from(id) })
}
