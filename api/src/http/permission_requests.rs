//! Questions whether a call may happen, and their answers.

use app::{
    Ctx,
    permissions::{self, Decided, Question},
};
use axum::{Json, extract::State};
use domain::{
    Caller, Code, Error, Timestamp,
    ids::{PermissionRequestId, SessionId},
    permission::{Decision, OwnerKind, RequestState},
};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{
    authorizations::PermissionAuthorization,
    body::Body,
    epochs::PermissionEpoch,
    id::Id,
    page::{Filters, List, Page, PageQuery},
    permission_grants::PermissionGrant,
    terms,
};
use crate::{
    Api,
    caller::{Approving, Authenticated},
    paths,
    problem::{BadBody, BadQuery, Conflicting, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get)).routes(routes!(decide))
}

/// A question to the session's owner.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequest {
    pub id: Uuid,
    pub session_id: Uuid,
    /// `pending`, `allowed`, `denied` or `cancelled`.
    #[schema(value_type = terms::QuestionState)]
    pub state: RequestState,
    pub action: String,
    pub resource: String,
    pub resource_class: String,
    /// What is asked, and what `allow_matching` would cover.
    pub words: String,
    /// What else `allow_matching` would allow.
    pub example: String,
    /// Who waits for the answer: `run`, `inspector`, `gateway`, `plan` or `host`.
    #[schema(value_type = terms::Owner)]
    pub owner_kind: OwnerKind,
    pub execution_id: Uuid,
    pub tool_call_id: String,
    /// The input itself, or a text: the beginning of its JSON.
    #[schema(value_type = Object)]
    pub input: ShownInput,
    /// Whether `input` is the beginning only.
    pub input_truncated: bool,
    /// 64 hex digits.
    pub definition_hash: Option<String>,
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub expires_at: Option<Timestamp>,
    #[schema(value_type = chrono::DateTime<chrono::Utc>)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    pub resolved_at: Option<Timestamp>,
}

/// As much of an input as a question shows.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum ShownInput {
    Whole(Box<RawValue>),
    Beginning(String),
}

impl From<Question> for PermissionRequest {
    fn from(question: Question) -> Self {
        let input = match serde_json::from_str(&question.input_shown) {
            Ok(whole) => ShownInput::Whole(whole),
            // What was cut is no JSON any more: an input is an object, and ends with its brace.
            Err(_) => ShownInput::Beginning(question.input_shown),
        };
        Self {
            id: question.id.0,
            session_id: question.session.0,
            state: question.state,
            action: question.matches.action,
            resource: question.resource,
            resource_class: question.matches.resource_class,
            words: question.words,
            example: question.example,
            owner_kind: question.owner,
            execution_id: question.execution.0,
            tool_call_id: question.tool_call_id,
            input_truncated: matches!(input, ShownInput::Beginning(_)),
            input,
            definition_hash: question.matches.definition_hash.map(|hash| hash.to_string()),
            expires_at: question.expires_at,
            created_at: question.created_at,
            resolved_at: question.resolved_at,
        }
    }
}

/// An answer.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionForm {
    /// `allow_once`, `allow_matching` or `deny`.
    #[schema(value_type = terms::Decision)]
    pub decision: Decision,
}

/// What an answer brought about.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionAnswer {
    pub request: PermissionRequest,
    /// Of the question that was decided.
    pub authorization: PermissionAuthorization,
    /// Of all questions that the decision answered, that one first.
    pub authorizations: Vec<PermissionAuthorization>,
    /// Made by `allow_matching`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<PermissionGrant>,
    /// The epoch that the decision began.
    pub permission_epoch: PermissionEpoch,
    /// All questions that the decision answered, the one that was decided first.
    pub resolved_requests: Vec<PermissionRequest>,
}

impl From<Decided> for DecisionAnswer {
    fn from(decided: Decided) -> Self {
        Self {
            request: decided.request.into(),
            authorization: decided.authorization.into(),
            authorizations: decided.authorizations.into_iter().map(Into::into).collect(),
            grant: decided.grant.map(Into::into),
            permission_epoch: decided.epoch.into(),
            resolved_requests: decided.resolved.into_iter().map(Into::into).collect(),
        }
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct RequestQuery {
    /// Left out: of all one's own sessions.
    #[param(value_type = Option<Uuid>)]
    session_id: Option<SessionId>,
    /// `pending`, `allowed`, `denied` or `cancelled`.
    #[param(value_type = Option<terms::QuestionState>)]
    state: Option<RequestState>,
}

/// The questions of one's own sessions, newest first.
#[utoipa::path(get, path = paths::PERMISSION_REQUESTS, tag = "permissions",
    params(PageQuery, RequestQuery),
    responses((status = 200, body = List<PermissionRequest>), Refused, Missing, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    page: Page,
    Filters(query): Filters<RequestQuery>,
) -> Result<Json<List<PermissionRequest>>, Problem> {
    let (after, rows) = (page.after()?, page.rows());
    let found =
        permissions::list(&ctx, &caller, query.session_id, query.state, after, rows).await?;
    Ok(Json(List::of(&page, found, |question| question.id.to_string())))
}

/// One question.
#[utoipa::path(get, path = paths::PERMISSION_REQUEST, tag = "permissions",
    params(("request" = Uuid, Path)),
    responses((status = 200, body = PermissionRequest), Refused, Missing))]
async fn get(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(id): Id<PermissionRequestId>,
) -> Result<Json<PermissionRequest>, Problem> {
    Ok(Json(permissions::get(&ctx, &caller, id).await?.into()))
}

/// Decides a pending question. With scope `approve`.
///
/// 409 `PERMISSION_ALREADY_RESOLVED` holds the question in `details.request`.
#[utoipa::path(post, path = paths::PERMISSION_DECISION, tag = "permissions",
    params(("request" = Uuid, Path)), request_body = DecisionForm,
    responses((status = 200, body = DecisionAnswer), Refused, Missing, Conflicting, BadBody))]
async fn decide(
    State(ctx): State<Ctx>,
    Approving(caller): Approving,
    Id(id): Id<PermissionRequestId>,
    Body(form): Body<DecisionForm>,
) -> Result<Json<DecisionAnswer>, Problem> {
    match permissions::decide(&ctx, &caller, id, form.decision).await {
        Ok(decided) => Ok(Json(decided.into())),
        Err(error) if error.code == Code::PermissionAlreadyResolved => {
            Err(Problem(with_request(&ctx, &caller, id, error).await?))
        }
        Err(error) => Err(error.into()),
    }
}

async fn with_request(
    ctx: &Ctx,
    caller: &Caller,
    id: PermissionRequestId,
    error: Error,
) -> Result<Error, Error> {
    let request = PermissionRequest::from(permissions::get(ctx, caller, id).await?);
    Ok(error.with_details(json!({ "request": request })))
}
