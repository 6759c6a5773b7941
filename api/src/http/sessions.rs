//! Sessions: whose they are, what they may use, how they treat dangerous calls.

use app::{
    Ctx,
    sessions::{self, NewSession, SessionChange},
};
use axum::{Json, extract::State, http::StatusCode};
use domain::{
    Caller, Code, Error, Scope, Timestamp,
    ids::{ProjectId, ServerId, SessionId},
    permission::ApprovalMode,
};
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{
    body::{Body, given},
    id::Id,
    page::{List, Page, PageQuery},
    terms,
};
use crate::{
    Api,
    caller::{Authenticated, WritingOrApproving},
    paths,
    problem::{BadBody, BadQuery, Conflicting, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, update, archive))
}

/// A conversation of one person: the scope of grants, mode and selection.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub id: Uuid,
    pub title: String,
    pub project_id: Option<Uuid>,
    pub owner_user_id: Uuid,
    /// `ask_for_dangerous` or `always_allow`.
    #[schema(value_type = terms::ApprovalMode)]
    pub approval_mode: ApprovalMode,
    /// Null inherits the project's selection, else the tenant's.
    pub enabled_source_ids: Option<Vec<String>>,
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub archived_at: Option<Timestamp>,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
}

impl From<sessions::Session> for Session {
    fn from(session: sessions::Session) -> Self {
        let sources = session.enabled_source_ids;
        Self {
            id: session.id.0,
            title: session.title,
            project_id: session.project.map(|id| id.0),
            owner_user_id: session.owner.0,
            approval_mode: session.mode,
            enabled_source_ids: sources.map(|ids| ids.into_iter().map(|id| id.0).collect()),
            archived_at: session.archived_at,
            created_at: session.created_at,
        }
    }
}

/// A session to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionForm {
    /// 1 to 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    pub title: Option<String>,
    #[schema(value_type = Option<Uuid>)]
    pub project_id: Option<ProjectId>,
    /// Left out or null inherits. Servers beyond what is inherited need the scope `approve`.
    #[schema(value_type = Option<Vec<String>>)]
    pub enabled_source_ids: Option<Vec<ServerId>>,
    /// `always_allow` needs the scope `approve`.
    #[schema(value_type = Option<terms::ApprovalMode>)]
    pub approval_mode: Option<ApprovalMode>,
}

/// What is to change; what is left out stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionPatch {
    #[schema(min_length = 1, max_length = 200)]
    pub title: Option<String>,
    /// Null takes it out of its project.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Uuid>)]
    pub project_id: Option<Option<ProjectId>>,
    /// Null inherits. Whatever widens the selection needs the scope `approve`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Vec<String>>)]
    pub enabled_source_ids: Option<Option<Vec<ServerId>>>,
    /// Stands alone, and needs the scope `approve`.
    #[schema(value_type = Option<terms::ApprovalMode>)]
    pub approval_mode: Option<ApprovalMode>,
}

/// One's own sessions, newest first.
#[utoipa::path(get, path = paths::SESSIONS, tag = "sessions", params(PageQuery),
    responses((status = 200, body = List<Session>), Refused, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    page: Page,
) -> Result<Json<List<Session>>, Problem> {
    let found = sessions::list(&ctx, &caller, page.after()?, page.rows()).await?;
    Ok(Json(List::of(&page, found, |session| session.id.to_string())))
}

/// Makes a session.
#[utoipa::path(post, path = paths::SESSIONS, tag = "sessions", request_body = SessionForm,
    responses((status = 201, body = Session), Refused, Missing, Conflicting, BadBody))]
async fn create(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Body(form): Body<SessionForm>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    let new = NewSession {
        title: form.title,
        project: form.project_id,
        enabled_source_ids: form.enabled_source_ids,
        mode: form.approval_mode,
    };
    Ok((StatusCode::CREATED, Json(sessions::create(&ctx, &caller, new).await?.into())))
}

/// One of one's own sessions.
#[utoipa::path(get, path = paths::SESSION, tag = "sessions", params(("session" = Uuid, Path)),
    responses((status = 200, body = Session), Refused, Missing))]
async fn get(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SessionId>,
) -> Result<Json<Session>, Problem> {
    Ok(Json(sessions::get(&ctx, &caller, id).await?.into()))
}

/// Changes a session: 409 once it is archived. `approvalMode` stands alone; switching to
/// `always_allow` answers every pending question of the session.
#[utoipa::path(patch, path = paths::SESSION, tag = "sessions", params(("session" = Uuid, Path)),
    request_body = SessionPatch,
    responses((status = 200, body = Session), Refused, Missing, Conflicting, BadBody))]
async fn update(
    State(ctx): State<Ctx>,
    WritingOrApproving(caller): WritingOrApproving,
    Id(id): Id<SessionId>,
    Body(patch): Body<SessionPatch>,
) -> Result<Json<Session>, Problem> {
    let session = if let Some(mode) = patch.approval_mode {
        switch(&ctx, &caller, id, mode, &patch).await?
    } else {
        caller.require_scope(Scope::ApiWrite)?;
        let change = SessionChange {
            title: patch.title,
            project: patch.project_id,
            enabled_source_ids: patch.enabled_source_ids,
        };
        sessions::update(&ctx, &caller, id, change).await?
    };
    Ok(Json(session.into()))
}

async fn switch(
    ctx: &Ctx,
    caller: &Caller,
    id: SessionId,
    mode: ApprovalMode,
    patch: &SessionPatch,
) -> Result<sessions::Session, Error> {
    caller.require_scope(Scope::Approve)?;
    let alone =
        patch.title.is_none() && patch.project_id.is_none() && patch.enabled_source_ids.is_none();
    if alone {
        return sessions::set_mode(ctx, caller, id, mode).await;
    }
    // Whose it is comes before what the body could be refused for.
    sessions::get(ctx, caller, id).await?;
    let words = "approvalMode must stand alone";
    let details = serde_json::json!({ "errors": [{ "path": "/approvalMode", "message": words }] });
    Err(Error::new(Code::InvalidInput, words).with_details(details))
}

/// Archives a session, idempotently: its pending questions are cancelled, and nothing is called in
/// it any more.
#[utoipa::path(delete, path = paths::SESSION, tag = "sessions", params(("session" = Uuid, Path)),
    responses((status = 200, body = Session), Refused, Missing))]
async fn archive(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SessionId>,
) -> Result<Json<Session>, Problem> {
    Ok(Json(sessions::archive(&ctx, &caller, id).await?.into()))
}
