//! The record of a session's calls.

use app::{
    Ctx,
    invocations::{self, Filter, Invocation},
};
use axum::{Json, extract::State};
use domain::{
    Error, Timestamp,
    ids::{InvocationId, SessionId},
    invocation::{Origin, Status},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{
    id::{Id, Ids},
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
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// One governed call.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Invocation)]
pub struct InvocationView {
    pub id: Uuid,
    pub session_id: Uuid,
    pub user_id: Uuid,
    /// Null where the asked name led to no tool.
    pub source_id: Option<String>,
    pub tool_id: Option<String>,
    pub asked_name: String,
    /// `run`, `gateway` or `inspector`.
    #[schema(value_type = terms::CallOrigin)]
    pub origin: &'static str,
    pub run_id: Option<Uuid>,
    pub execution_id: Uuid,
    pub tool_call_id: String,
    /// `waiting`, `queued`, `running`, `succeeded`, `failed` or `cancelled`.
    #[schema(value_type = terms::CallStatus)]
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<InvocationError>,
    pub queue_wait_ms: i64,
    pub duration_ms: i64,
    pub cache: Cache,
    #[schema(value_type = Vec<Object>)]
    pub attempts: Value,
    #[schema(value_type = Vec<Object>)]
    pub warnings: Value,
    pub permission_authorization_id: Option<Uuid>,
    /// SHA-256 of the stored request `{input, sourceId, toolId}`, 64 hex digits.
    pub request_digest: String,
    /// SHA-256 of the server's result as it came.
    pub raw_digest: Option<String>,
    /// SHA-256 of the normalised result.
    pub result_digest: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

/// Why a call did not succeed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct InvocationError {
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

/// Whether the result came from the cache.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Cache {
    pub hit: bool,
}

impl From<Invocation> for InvocationView {
    fn from(call: Invocation) -> Self {
        Self {
            id: call.id.0,
            session_id: call.session.0,
            user_id: call.user.0,
            source_id: call.source.map(|id| id.0),
            tool_id: call.tool.map(|id| id.0),
            asked_name: call.asked_name,
            origin: call.origin.as_str(),
            run_id: None,
            execution_id: call.execution_id,
            tool_call_id: call.call_id,
            status: call.status.as_str(),
            error: call.error_code.map(|code| InvocationError {
                code,
                message: call.error_message.unwrap_or_default(),
                retryable: call.retryable.unwrap_or(false),
            }),
            queue_wait_ms: call.queue_wait_ms,
            duration_ms: call.duration_ms,
            cache: Cache { hit: call.cache_hit },
            attempts: call.attempts,
            warnings: call.warnings,
            permission_authorization_id: call.authorization.map(|id| id.0),
            request_digest: call.request.to_string(),
            raw_digest: call.raw.map(|digest| digest.to_string()),
            result_digest: call.result.map(|digest| digest.to_string()),
            created_at: call.created_at,
            finished_at: call.finished_at,
        }
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct FilterQuery {
    source_id: Option<String>,
    tool_id: Option<String>,
    /// `waiting`, `queued`, `running`, `succeeded`, `failed` or `cancelled`.
    #[param(value_type = Option<terms::CallStatus>)]
    status: Option<String>,
    /// `run`, `gateway` or `inspector`.
    #[param(value_type = Option<terms::CallOrigin>)]
    origin: Option<String>,
}

/// The calls of a session, newest first. Its owner sees them, and the tenant's admins.
#[utoipa::path(get, path = paths::INVOCATIONS, tag = "audit",
    params(("session" = Uuid, Path), PageQuery, FilterQuery),
    responses((status = 200, body = List<InvocationView>), Refused, Missing, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(session): Id<SessionId>,
    page: Page,
    Filters(query): Filters<FilterQuery>,
) -> Result<Json<List<InvocationView>>, Problem> {
    let filter = read_filter(query)?;
    let calls =
        invocations::list(&ctx, &caller, session, &filter, page.after()?, page.rows()).await?;
    Ok(Json(List::of(&page, calls, |call| call.id.to_string())))
}

fn read_filter(query: FilterQuery) -> Result<Filter, Error> {
    if let Some(status) = &query.status {
        status.parse::<Status>()?;
    }
    if let Some(origin) = &query.origin {
        origin.parse::<Origin>()?;
    }
    Ok(Filter {
        source: query.source_id,
        tool: query.tool_id,
        status: query.status,
        origin: query.origin,
    })
}

/// One call with its attempts, digests and authorization.
#[utoipa::path(get, path = paths::INVOCATION, tag = "audit",
    params(("session" = Uuid, Path), ("invocation" = Uuid, Path)),
    responses((status = 200, body = InvocationView), Refused, Missing))]
async fn get(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Ids(session, invocation): Ids<SessionId, InvocationId>,
) -> Result<Json<InvocationView>, Problem> {
    let call = invocations::get(&ctx, &caller, session, invocation).await?;
    Ok(Json(call.into()))
}
