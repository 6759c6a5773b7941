//! People of the tenant, for its admins.

use app::{Ctx, users::NewUser};
use axum::{Json, extract::State, http::StatusCode};
use domain::{
    Role, Timestamp,
    ids::UserId,
    user::{UserChange, UserStatus},
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    http::{
        body::Body,
        id::Id,
        page::{List, Page, PageQuery},
        terms,
    },
    paths,
    problem::{BadBody, BadQuery, Conflicting, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(update))
}

/// A person.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct User {
    #[schema(value_type = uuid::Uuid)]
    pub id: UserId,
    pub email: String,
    /// `member`, `admin` or `superadmin`.
    #[schema(value_type = terms::Role)]
    pub role: Role,
    /// `active` or `disabled`.
    #[schema(value_type = terms::UserState)]
    pub status: UserStatus,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
}

impl From<app::users::User> for User {
    fn from(user: app::users::User) -> Self {
        Self {
            id: user.id,
            email: user.email,
            role: user.role,
            status: user.status,
            created_at: user.created_at,
        }
    }
}

/// A person to be added.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserForm {
    pub email: String,
    #[schema(value_type = terms::Role)]
    pub role: Role,
    /// 8 to 1024 characters; left out: no local sign-in.
    #[schema(value_type = Option<String>, min_length = 8, max_length = 1024)]
    pub password: Option<SecretString>,
}

/// What is to change; what is left out stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserPatch {
    #[schema(value_type = Option<terms::Role>)]
    pub role: Option<Role>,
    #[schema(value_type = Option<terms::UserState>)]
    pub status: Option<UserStatus>,
}

/// People of the tenant, newest first. For admins.
#[utoipa::path(get, path = paths::USERS, tag = "people",
    params(PageQuery), responses((status = 200, body = List<User>), Refused, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    page: Page,
) -> Result<Json<List<User>>, Problem> {
    let users = app::users::list(&ctx, &caller, page.after()?, page.rows()).await?;
    Ok(Json(List::of(&page, users, |user| user.id.to_string())))
}

/// Adds a person, with at most the caller's own role. For admins.
#[utoipa::path(post, path = paths::USERS, tag = "people", request_body = UserForm,
    responses((status = 201, body = User), Refused, Conflicting, BadBody))]
async fn create(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Body(form): Body<UserForm>,
) -> Result<(StatusCode, Json<User>), Problem> {
    let new = NewUser { email: form.email, role: form.role, password: form.password };
    let user = app::users::add(&ctx, &caller, new).await?;
    Ok((StatusCode::CREATED, Json(user.into())))
}

/// Changes role or status of somebody else, who does not stand above the caller. For admins.
/// Disabling a person ends all of their tokens for as long as it lasts.
#[utoipa::path(patch, path = paths::USER, tag = "people",
    params(("user" = uuid::Uuid, Path)), request_body = UserPatch,
    responses((status = 200, body = User), Refused, Missing, Conflicting, BadBody))]
async fn update(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(user): Id<UserId>,
    Body(patch): Body<UserPatch>,
) -> Result<Json<User>, Problem> {
    let change = UserChange { role: patch.role, status: patch.status };
    Ok(Json(app::users::update(&ctx, &caller, user, change).await?.into()))
}
