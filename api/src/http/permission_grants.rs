//! Standing permissions of one's own sessions.

use app::{Ctx, grants};
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use domain::{
    Timestamp,
    ids::{PermissionGrantId, SessionId},
};
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{
    id::Id,
    page::{List, Page, PageQuery, read_query},
};
use crate::{
    Api,
    caller::{Approving, Authenticated},
    paths,
    problem::{Problem, ProblemBody},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(revoke))
}

/// A standing permission of a session.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionGrant {
    pub id: Uuid,
    pub session_id: Uuid,
    pub action: String,
    pub resource_class: String,
    /// The definition of the tool that it is for: void for any other. 64 hex digits.
    pub definition_hash: Option<String>,
    /// `active` or `revoked`.
    #[schema(value_type = String, example = "active")]
    pub state: &'static str,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub revoked_at: Option<Timestamp>,
}

impl From<grants::Grant> for PermissionGrant {
    fn from(grant: grants::Grant) -> Self {
        Self {
            id: grant.id.0,
            session_id: grant.session.0,
            action: grant.matches.action,
            resource_class: grant.matches.resource_class,
            definition_hash: grant.matches.definition_hash.map(|hash| hash.to_string()),
            state: if grant.revoked_at.is_some() { "revoked" } else { "active" },
            created_at: grant.created_at,
            revoked_at: grant.revoked_at,
        }
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct GrantQuery {
    /// Left out: of all one's own sessions.
    #[param(value_type = Option<Uuid>)]
    session_id: Option<SessionId>,
}

/// The grants in one's own sessions, newest first, revoked ones too.
#[utoipa::path(get, path = paths::PERMISSION_GRANTS, tag = "permissions", params(PageQuery, GrantQuery), responses(
    (status = 200, body = List<PermissionGrant>),
    (status = 401, body = ProblemBody, content_type = "application/problem+json"),
    (status = 403, body = ProblemBody, content_type = "application/problem+json"),
    (status = 404, body = ProblemBody, content_type = "application/problem+json"),
    (status = 422, body = ProblemBody, content_type = "application/problem+json"),
))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    page: Page,
    query: Result<Query<GrantQuery>, QueryRejection>,
) -> Result<Json<List<PermissionGrant>>, Problem> {
    let session = read_query(query)?.session_id;
    let found = grants::list(&ctx, &caller, session, page.after()?, page.rows()).await?;
    Ok(Json(List::of(&page, found, |grant| grant.id.to_string())))
}

/// Revokes a grant, idempotently. With scope `approve`.
#[utoipa::path(delete, path = paths::PERMISSION_GRANT, tag = "permissions", params(("grant" = Uuid, Path)), responses(
    (status = 200, body = PermissionGrant),
    (status = 401, body = ProblemBody, content_type = "application/problem+json"),
    (status = 403, body = ProblemBody, content_type = "application/problem+json"),
    (status = 404, body = ProblemBody, content_type = "application/problem+json"),
))]
async fn revoke(
    State(ctx): State<Ctx>,
    Approving(caller): Approving,
    Id(grant): Id<PermissionGrantId>,
) -> Result<Json<PermissionGrant>, Problem> {
    Ok(Json(grants::revoke(&ctx, &caller, grant).await?.into()))
}
