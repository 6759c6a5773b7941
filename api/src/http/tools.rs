//! Tools of a server.

use app::{
    Ctx,
    servers::tools::{Refreshed, ToolChange},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use domain::{
    ids::ToolId,
    json::Sha256Digest,
    permission::ToolPolicy,
    tool::{Pin, Pinned, visible_text},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api,
    caller::Authenticated,
    http::{
        body::Body,
        id::{Id, Ids},
        page::{List, Page, PageQuery},
    },
    paths,
    problem::{BadBody, BadQuery, Conflicting, Missing, Problem, Refused, Upstream},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(refresh)).routes(routes!(update))
}

/// A tool of a server.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    #[schema(value_type = String)]
    pub id: ToolId,
    /// As the server calls it.
    pub name: String,
    /// As agents call it.
    #[schema(example = "mcp__demo__echo")]
    pub agent_name: String,
    /// Of the approved definition; where none ever was, of the one that waits for approval.
    pub description: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub output_schema: Option<Box<RawValue>>,
    #[schema(value_type = Option<String>)]
    pub definition_hash: Option<Sha256Digest>,
    pub enabled: bool,
    /// `ask`, `allow` or `deny`.
    #[schema(value_type = String, example = "ask")]
    pub policy: ToolPolicy,
    /// `approved`, `quarantined` or `invalid`; agents see approved ones only.
    #[schema(value_type = String, example = "approved")]
    pub pin: Pin,
    /// Why it is not approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<ToolDiff>,
}

/// What was approved, and what the server lists now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ToolDiff {
    /// Null: no definition of this tool ever was.
    pub approved: Option<ToolDefinition>,
    pub pending: Option<ToolDefinition>,
}

/// A definition as the server wrote it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    #[schema(value_type = String)]
    pub definition_hash: Sha256Digest,
    #[schema(value_type = Object)]
    pub definition: Box<RawValue>,
}

/// What is to change; what is left out stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolPatch {
    pub enabled: Option<bool>,
    #[schema(value_type = Option<String>, example = "allow")]
    pub policy: Option<ToolPolicy>,
}

/// That a refresh goes on.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RefreshRunning {
    /// Always `running`.
    pub state: &'static str,
}

/// The tools that a server lists, by id: superadmins see all of them, with pins and problems; others
/// see what agents may see, of a server that is switched on.
#[utoipa::path(get, path = paths::SERVER_TOOLS, tag = "tools",
    params(("server" = String, Path, description = "id or slug"), PageQuery),
    responses((status = 200, body = List<Tool>), Refused, Missing, BadQuery))]
async fn list(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
    page: Page,
) -> Result<Json<List<Tool>>, Problem> {
    let after = page.after_by(read_cursor)?;
    let rows = page.rows();
    let tools = app::servers::tools::list(&ctx, &caller, &server, after.as_ref(), rows).await?;
    Ok(Json(List::of(&page, tools, |tool| tool.known.tool_id.to_string())))
}

/// Asks a server for its tools now. For superadmins. Answers with all of them when that ended within
/// 30 s; else it goes on by itself.
#[utoipa::path(post, path = paths::SERVER_TOOLS_REFRESH, tag = "tools",
    params(("server" = String, Path, description = "id or slug")),
    responses(
        (status = 200, body = List<Tool>),
        (status = 202, body = RefreshRunning),
        Refused, Missing, Conflicting, Upstream))]
async fn refresh(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Id(server): Id<String>,
) -> Result<Response, Problem> {
    Ok(match app::servers::tools::refresh(&ctx, &caller, &server).await? {
        Refreshed::Ended(tools) => {
            let items = tools.into_iter().map(Tool::from).collect();
            Json(List { items, next: None }).into_response()
        }
        Refreshed::Running => {
            (StatusCode::ACCEPTED, Json(RefreshRunning { state: "running" })).into_response()
        }
    })
}

/// Switches a tool, or sets its policy. For superadmins; idempotent. A policy, and switching a tool
/// on, need the scope `approve`.
#[utoipa::path(put, path = paths::SERVER_TOOL, tag = "tools",
    params(("server" = String, Path, description = "id or slug"), ("tool" = String, Path)),
    request_body = ToolPatch, responses((status = 200, body = Tool), Refused, Missing, BadBody))]
async fn update(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Ids(server, tool): Ids<String, String>,
    Body(patch): Body<ToolPatch>,
) -> Result<Json<Tool>, Problem> {
    let change = ToolChange { enabled: patch.enabled, policy: patch.policy };
    let tool = ToolId(tool);
    let tool = app::servers::tools::change(&ctx, &caller, &server, &tool, change).await?;
    Ok(Json(tool.into()))
}

fn read_cursor(text: &str) -> Option<ToolId> {
    let legal = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    legal.then(|| ToolId::from(text))
}

/// The members of a definition that an answer shows by themselves; any of them may be of a wrong type.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    description: Option<Box<RawValue>>,
    input_schema: Option<Box<RawValue>>,
    output_schema: Option<Box<RawValue>>,
}

impl From<app::servers::tools::Tool> for Tool {
    fn from(tool: app::servers::tools::Tool) -> Self {
        let known = tool.known;
        let shown: Shown = known
            .definition
            .as_ref()
            .and_then(|pinned| serde_json::from_str(&pinned.text).ok())
            .unwrap_or_default();
        let description = shown.description.and_then(|text| serde_json::from_str(text.get()).ok());
        Self {
            description: description.map(|text: String| visible_text(&text)),
            input_schema: shown.input_schema,
            output_schema: shown.output_schema,
            definition_hash: known.definition.as_ref().map(|pinned| pinned.hash),
            diff: (known.pin == Pin::Quarantined).then(|| ToolDiff {
                approved: known.approved().and_then(definition),
                pending: known.pending.as_ref().and_then(definition),
            }),
            id: known.tool_id,
            name: known.original_name,
            agent_name: tool.agent_name,
            enabled: tool.enabled,
            policy: tool.policy,
            pin: known.pin,
            problem: known.problem,
            warnings: known.warnings,
        }
    }
}

fn definition(pinned: &Pinned) -> Option<ToolDefinition> {
    let definition = RawValue::from_string(pinned.text.clone()).ok()?;
    Some(ToolDefinition { definition_hash: pinned.hash, definition })
}
