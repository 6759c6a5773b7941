//! The Inspector: one tool, tried by hand.

use app::{
    Ctx,
    broker::CallResult,
    inspect::{self, Inspection, Trial},
};
use axum::{Json, extract::State};
use domain::{
    Code, Error, Retry,
    ids::{InvocationId, SessionId},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{body::Body, id::Id};
use crate::{
    Api,
    caller::Approving,
    paths,
    problem::{BadBody, Busy, Conflicting, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(inspect))
}

/// What is to be tried.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InspectForm {
    /// One of the caller's own; the call is recorded there.
    #[schema(value_type = uuid::Uuid)]
    pub session_id: SessionId,
    /// As the server calls it.
    pub tool_name: String,
    /// Goes to the server as it is written.
    #[schema(value_type = Object)]
    pub input: Box<RawValue>,
}

/// How it went.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InspectAnswer {
    /// The tool answered, and says of no failure.
    pub ok: bool,
    pub duration_ms: u64,
    #[schema(value_type = uuid::Uuid)]
    pub invocation_id: InvocationId,
    /// The server's result as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub raw: Option<Box<RawValue>>,
    /// The normalised result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<InspectError>,
}

/// Why a call gave no result, or no good one.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InspectError {
    #[schema(value_type = String, example = "TOOL_ERROR")]
    pub code: Code,
    pub message: String,
    pub retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<Value>,
    /// The server's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untrusted: Option<String>,
}

/// Calls a tool as the caller, without asking anybody: it needs the scope `approve`. The answer is 200
/// also when the call failed, and the call is recorded in either case. Closing the request cancels it.
///
/// Superadmins may try every server; others those that the tenant selects. Policy and quarantine hold.
#[utoipa::path(post, path = paths::SERVER_INSPECT, tag = "servers",
    params(("server" = String, Path, description = "id or slug")),
    request_body = InspectForm,
    responses((status = 200, body = InspectAnswer), Refused, Missing, Conflicting, BadBody, Busy))]
async fn inspect(
    State(ctx): State<Ctx>,
    Approving(caller): Approving,
    Id(server): Id<String>,
    Body(form): Body<InspectForm>,
) -> Result<Json<InspectAnswer>, Problem> {
    let trial = Trial { session: form.session_id, tool_name: form.tool_name, input: form.input };
    let inspection = inspect::inspect(&ctx, &caller, &server, trial).await?;
    Ok(Json(answer(inspection)?))
}

fn answer(inspection: Inspection) -> Result<InspectAnswer, Error> {
    let Inspection { duration, invocation, outcome } = inspection;
    let mut answer = InspectAnswer {
        ok: false,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        invocation_id: invocation,
        raw: None,
        result: None,
        error: None,
    };
    match outcome {
        Ok(CallResult { raw, normalised, is_error }) => {
            answer.ok = !is_error;
            answer.raw = Some(json(&raw)?);
            answer.result = Some(json(&normalised)?);
            answer.error = is_error.then(|| {
                InspectError::from(Error::new(Code::ToolError, "the tool answered with an error"))
            });
        }
        Err(error) => {
            if error.code == Code::Internal {
                tracing::error!(
                    %invocation,
                    error = &error as &dyn std::error::Error,
                    "call failed",
                );
            }
            answer.error = Some(error.into());
        }
    }
    Ok(answer)
}

fn json(bytes: &[u8]) -> Result<Box<RawValue>, Error> {
    serde_json::from_slice(bytes).map_err(Error::internal)
}

impl From<Error> for InspectError {
    fn from(error: Error) -> Self {
        let retry_after_ms = match error.retry {
            Retry::After(wait) => Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            Retry::Never | Retry::Later => None,
        };
        Self {
            code: error.code,
            retryable: error.retryable(),
            retry_after_ms,
            message: error.public,
            details: error.details,
            untrusted: error.untrusted,
        }
    }
}
