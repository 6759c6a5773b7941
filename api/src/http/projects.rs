//! Projects: folders of one's own sessions.

use app::{
    Ctx,
    projects::{self, ProjectChange},
};
use axum::{Json, extract::State, http::StatusCode};
use domain::{
    Timestamp,
    ids::{ProjectId, ServerId},
};
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{
    body::{Body, given},
    id::Id,
    page::{List, Page, PageQuery},
};
use crate::{
    Api,
    caller::Authenticated,
    paths,
    problem::{BadBody, BadQuery, Conflicting, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, update, archive))
}

/// A folder of sessions.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    pub id: Uuid,
    pub title: String,
    pub owner_user_id: Uuid,
    /// Null inherits the tenant's selection.
    pub enabled_source_ids: Option<Vec<String>>,
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub archived_at: Option<Timestamp>,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
}

impl From<projects::Project> for Project {
    fn from(project: projects::Project) -> Self {
        let sources = project.enabled_source_ids;
        Self {
            id: project.id.0,
            title: project.title,
            owner_user_id: project.owner.0,
            enabled_source_ids: sources.map(|ids| ids.into_iter().map(|id| id.0).collect()),
            archived_at: project.archived_at,
            created_at: project.created_at,
        }
    }
}

/// A project to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectForm {
    /// 1 to 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    pub title: String,
    /// Left out or null inherits. Servers beyond the tenant's selection need the scope `approve`.
    #[schema(value_type = Option<Vec<String>>)]
    pub enabled_source_ids: Option<Vec<ServerId>>,
}

/// What is to change; what is left out stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectPatch {
    #[schema(min_length = 1, max_length = 200)]
    pub title: Option<String>,
    /// Null inherits. Whatever widens the selection needs the scope `approve`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Vec<String>>)]
    pub enabled_source_ids: Option<Option<Vec<ServerId>>>,
}

/// One's own projects, newest first.
#[utoipa::path(get, path = paths::PROJECTS, tag = "sessions", params(PageQuery),
    responses((status = 200, body = List<Project>), Refused, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    page: Page,
) -> Result<Json<List<Project>>, Problem> {
    let found = projects::list(&ctx, &caller, page.after()?, page.rows()).await?;
    Ok(Json(List::of(&page, found, |project| project.id.to_string())))
}

/// Makes a project.
#[utoipa::path(post, path = paths::PROJECTS, tag = "sessions", request_body = ProjectForm,
    responses((status = 201, body = Project), Refused, BadBody))]
async fn create(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Body(form): Body<ProjectForm>,
) -> Result<(StatusCode, Json<Project>), Problem> {
    let project = projects::create(&ctx, &caller, &form.title, form.enabled_source_ids).await?;
    Ok((StatusCode::CREATED, Json(project.into())))
}

/// One of one's own projects.
#[utoipa::path(get, path = paths::PROJECT, tag = "sessions", params(("project" = Uuid, Path)),
    responses((status = 200, body = Project), Refused, Missing))]
async fn get(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(id): Id<ProjectId>,
) -> Result<Json<Project>, Problem> {
    Ok(Json(projects::get(&ctx, &caller, id).await?.into()))
}

/// Changes a project: 409 once it is archived.
#[utoipa::path(patch, path = paths::PROJECT, tag = "sessions", params(("project" = Uuid, Path)),
    request_body = ProjectPatch,
    responses((status = 200, body = Project), Refused, Missing, Conflicting, BadBody))]
async fn update(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(id): Id<ProjectId>,
    Body(patch): Body<ProjectPatch>,
) -> Result<Json<Project>, Problem> {
    let change = ProjectChange { title: patch.title, enabled_source_ids: patch.enabled_source_ids };
    Ok(Json(projects::update(&ctx, &caller, id, change).await?.into()))
}

/// Archives a project, idempotently; its sessions stay as they are.
#[utoipa::path(delete, path = paths::PROJECT, tag = "sessions", params(("project" = Uuid, Path)),
    responses((status = 200, body = Project), Refused, Missing))]
async fn archive(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(id): Id<ProjectId>,
) -> Result<Json<Project>, Problem> {
    Ok(Json(projects::archive(&ctx, &caller, id).await?.into()))
}
