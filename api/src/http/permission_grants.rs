//! Standing permissions of one's own sessions.

use app::{Ctx, grants};
use axum::{Json, extract::State};
use domain::{
    Timestamp,
    ids::{PermissionGrantId, SessionId},
};
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{
    id::Id,
    page::{Filters, List, Page, PageQuery},
};
use crate::{
    Api,
    caller::{Approving, Authenticated},
    paths,
    problem::{BadQuery, Missing, Problem, Refused},
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
#[utoipa::path(get, path = paths::PERMISSION_GRANTS, tag = "permissions",
    params(PageQuery, GrantQuery),
    responses((status = 200, body = List<PermissionGrant>), Refused, Missing, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    page: Page,
    Filters(query): Filters<GrantQuery>,
) -> Result<Json<List<PermissionGrant>>, Problem> {
    let (after, rows) = (page.after()?, page.rows());
    let found = grants::list(&ctx, &caller, query.session_id, after, rows).await?;
    Ok(Json(List::of(&page, found, |grant| grant.id.to_string())))
}

/// Revokes a grant, idempotently. With scope `approve`.
#[utoipa::path(delete, path = paths::PERMISSION_GRANT, tag = "permissions",
    params(("grant" = Uuid, Path)),
    responses((status = 200, body = PermissionGrant), Refused, Missing))]
async fn revoke(
    State(ctx): State<Ctx>,
    Approving(caller): Approving,
    Id(grant): Id<PermissionGrantId>,
) -> Result<Json<PermissionGrant>, Problem> {
    Ok(Json(grants::revoke(&ctx, &caller, grant).await?.into()))
}
