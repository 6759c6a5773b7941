//! What was allowed and denied in a session.

use app::{
    Ctx,
    authorizations::{self, AuthorizationRecord, Outcome},
};
use axum::{Json, extract::State};
use domain::{
    Timestamp,
    ids::{ExecutionId, SessionId},
    permission::{ApprovalMode, AuthorizationSource},
};
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{
    id::Id,
    page::{Filters, List, Page, PageQuery},
    terms,
};
use crate::{
    Api,
    caller::Authenticated,
    paths,
    problem::{BadQuery, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list))
}

/// One allow or one deny, never changed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionAuthorization {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub session_id: Uuid,
    pub user_id: Uuid,
    pub action: String,
    pub resource: String,
    /// The session's mode at that moment.
    #[schema(value_type = terms::ApprovalMode)]
    pub approval_mode: ApprovalMode,
    /// `allowed` or `denied`.
    #[schema(value_type = String, example = "allowed")]
    pub outcome: Outcome,
    /// `always_allow`, `policy_allow`, `existing_grant`, `user_once`, `user_grant`, `user_deny`,
    /// `policy_deny` or `inspector`.
    #[schema(value_type = terms::Source)]
    pub source: AuthorizationSource,
    pub permission_epoch_id: Uuid,
    pub permission_grant_id: Option<Uuid>,
    pub permission_request_id: Option<Uuid>,
    pub execution_id: Option<Uuid>,
    pub tool_call_id: Option<String>,
    /// 64 hex digits.
    pub definition_hash: Option<String>,
    /// SHA-256 of the canonical input, 64 hex digits.
    pub input_digest: Option<String>,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
}

impl From<AuthorizationRecord> for PermissionAuthorization {
    fn from(record: AuthorizationRecord) -> Self {
        Self {
            id: record.authorization.0,
            tenant_id: record.tenant.0,
            session_id: record.session.0,
            user_id: record.user.0,
            action: record.action,
            resource: record.resource,
            approval_mode: record.mode,
            outcome: record.outcome,
            source: record.source,
            permission_epoch_id: record.epoch.0,
            permission_grant_id: record.grant.map(|id| id.0),
            permission_request_id: record.request.map(|id| id.0),
            execution_id: record.execution.map(|id| id.0),
            tool_call_id: record.tool_call_id,
            definition_hash: record.definition_hash.map(|hash| hash.to_string()),
            input_digest: record.input_digest.map(|digest| digest.to_string()),
            created_at: record.created_at,
        }
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct AuthorizationQuery {
    #[param(value_type = Option<Uuid>)]
    execution_id: Option<ExecutionId>,
}

/// Every allow and every deny of one's own session, newest first.
#[utoipa::path(get, path = paths::AUTHORIZATIONS, tag = "permissions",
    params(("session" = Uuid, Path), PageQuery, AuthorizationQuery),
    responses((status = 200, body = List<PermissionAuthorization>), Refused, Missing, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(session): Id<SessionId>,
    page: Page,
    Filters(query): Filters<AuthorizationQuery>,
) -> Result<Json<List<PermissionAuthorization>>, Problem> {
    let (after, rows) = (page.after()?, page.rows());
    let found =
        authorizations::list(&ctx, &caller, session, query.execution_id, after, rows).await?;
    Ok(Json(List::of(&page, found, |record| record.authorization.to_string())))
}
