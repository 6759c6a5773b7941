//! Why a call would fail.

use app::{
    Ctx,
    access::{self, Question},
};
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use domain::{
    Code, Error,
    ids::{ServerId, SessionId, TokenId, UserId},
};
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    http::terms,
    paths,
    problem::{BadQuery, Missing, Problem, Refused},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(explain))
}

#[derive(Debug, Deserialize)]
struct Asked {
    user: Option<String>,
    tool: String,
    session: Option<SessionId>,
    token: Option<TokenId>,
}

/// Every gate that a call would pass, in the order of the broker.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    #[schema(value_type = uuid::Uuid)]
    pub user_id: UserId,
    pub tool: String,
    /// Left out: as a new session would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub server_id: Option<ServerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// What comes first. `passed`: the call would be sent, as far as can be told. `asks`: the person is asked.
    #[schema(value_type = terms::Standing)]
    pub outcome: &'static str,
    /// The first gate that refuses; with `asks`, when the person allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Gate>)]
    pub stopped_by: Option<&'static str>,
    /// What the call would answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code: Option<Code>,
    pub checks: Vec<Check>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AccessCheck)]
pub struct Check {
    #[schema(value_type = terms::Gate)]
    pub gate: &'static str,
    #[schema(value_type = terms::Standing)]
    pub result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code: Option<Code>,
    pub reason: String,
    /// The setting that decides.
    pub setting: &'static str,
    /// Who may change it.
    pub changed_by: &'static str,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<&'static str>,
}

impl From<access::Explanation> for Explanation {
    fn from(told: access::Explanation) -> Self {
        let check = |check: access::Check| Check {
            gate: check.gate.as_str(),
            result: check.standing.as_str(),
            code: check.code,
            reason: check.reason,
            setting: check.setting,
            changed_by: check.changed_by,
            mend: check.mend,
        };
        Self {
            user_id: told.user,
            tool: told.tool,
            session_id: told.session,
            server_id: told.server,
            server_name: told.server_name,
            outcome: told.outcome.as_str(),
            stopped_by: told.stopped_by.map(app::broker::Gate::as_str),
            code: told.code,
            checks: told.checks.into_iter().map(check).collect(),
        }
    }
}

/// Why a call of a tool would be refused, asked about, or sent: judged as the broker does, without calling.
/// For oneself; about others for admins. What one does not see is told as an unknown tool.
#[utoipa::path(get, path = paths::ACCESS_EXPLAIN, tag = "people",
    params(
        ("user" = Option<String>, Query, description = "Id or e-mail address; left out: the caller"),
        ("tool" = String, Query, description = "Name as agents call it", example = "mcp__tickets__search"),
        ("session" = Option<uuid::Uuid>, Query, description = "One of the person's; left out: a new one"),
        ("token" = Option<uuid::Uuid>, Query, description = "One of the person's; left out: no limits of a token"),
    ),
    responses((status = 200, body = Explanation), Refused, Missing, BadQuery))]
async fn explain(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Explanation>, Problem> {
    let Query(asked) = asked.map_err(|_| {
        let words = "the query takes tool, and user, session (an id), token (an id)";
        Error::new(Code::InvalidInput, words)
    })?;
    let Asked { user, tool, session, token } = asked;
    let question = Question { user, tool, session, token };
    Ok(Json(access::explain(&ctx, &caller, &question).await?.into()))
}
