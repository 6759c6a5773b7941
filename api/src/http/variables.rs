//! Variables of the tenant: values that servers refer to as `$NAME`, and that never come back.

use app::{Ctx, variables::User};
use axum::{Json, extract::State};
use domain::{Timestamp, ids::ServerId, server::VariableForm};
use serde::Serialize;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    http::{body::Body, id::Id, page::List},
    paths,
    problem::{BadBody, Conflicting, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(put, delete))
}

/// What PUT takes. Documentation of [`VariableForm`], which reads it.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the form, which is read elsewhere")]
#[schema(as = VariableForm)]
struct VariableBody {
    /// 1 to 16,384 bytes that may stand in a header.
    value: String,
    /// Where it may be sent: host names and addresses without port, as URLs have them, and `stdio` for
    /// programs on our host. None: nowhere.
    #[schema(example = json!(["api.example.com"]))]
    hosts: Vec<String>,
}

/// A variable without its value.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    #[schema(example = "TICKETS_KEY")]
    pub name: String,
    pub hosts: Vec<String>,
    pub used_by: Vec<VariableUser>,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub updated_at: Timestamp,
}

/// A server that refers to the variable.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariableUser {
    #[schema(value_type = String)]
    pub server_id: ServerId,
    pub name: String,
    /// False: the variable may not be sent where the server is, so that its calls end in
    /// `SERVER_MISCONFIGURED`.
    pub allowed: bool,
}

/// That a variable is gone.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariableDeleted {
    pub deleted: bool,
    /// Servers that still refer to it: their calls end in `SERVER_MISCONFIGURED`.
    pub used_by: Vec<VariableUser>,
}

/// The tenant's variables, by name; all of them on one page. For superadmins.
#[utoipa::path(get, path = paths::VARIABLES, tag = "tenant",
    responses((status = 200, body = List<Variable>), Refused))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
) -> Result<Json<List<Variable>>, Problem> {
    let variables = app::variables::list(&ctx, &caller).await?;
    Ok(Json(List { items: variables.into_iter().map(Variable::from).collect(), next: None }))
}

/// Makes a variable, or replaces value and hosts of one. For superadmins. Each server that refers to it
/// has a new configuration from then on.
#[utoipa::path(put, path = paths::VARIABLE, tag = "tenant",
    params(("name" = String, Path, description = "letters, digits and _")),
    request_body = VariableBody,
    responses((status = 200, body = Variable), Refused, Missing, Conflicting, BadBody))]
async fn put(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(name): Id<String>,
    Body(form): Body<VariableForm>,
) -> Result<Json<Variable>, Problem> {
    Ok(Json(app::variables::put(&ctx, &caller, &name, form).await?.into()))
}

/// Deletes a variable, also one that servers refer to; the answer names them. For superadmins.
#[utoipa::path(delete, path = paths::VARIABLE, tag = "tenant",
    params(("name" = String, Path, description = "letters, digits and _")),
    responses((status = 200, body = VariableDeleted), Refused, Missing))]
async fn delete(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(name): Id<String>,
) -> Result<Json<VariableDeleted>, Problem> {
    let used_by = app::variables::delete(&ctx, &caller, &name).await?;
    let used_by = used_by.into_iter().map(VariableUser::from).collect();
    Ok(Json(VariableDeleted { deleted: true, used_by }))
}

impl From<app::variables::Variable> for Variable {
    fn from(variable: app::variables::Variable) -> Self {
        Self {
            name: variable.name,
            hosts: variable.hosts,
            used_by: variable.used_by.into_iter().map(VariableUser::from).collect(),
            updated_at: variable.updated_at,
        }
    }
}

impl From<User> for VariableUser {
    fn from(user: User) -> Self {
        Self { server_id: user.server, name: user.name, allowed: user.allowed }
    }
}
