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
    Error,
    ids::ToolId,
    json::Sha256Digest,
    permission::ToolPolicy,
    tool::{
        Change, Diff, KnownTool, Pin, Pinned, diff, display_name, reveal_definition, visible_text,
    },
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
        terms,
    },
    paths,
    problem::{BadBody, BadQuery, Conflicting, Missing, Problem, Refused, Upstream},
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(refresh))
        .routes(routes!(update))
        .routes(routes!(approve))
}

/// A tool of a server.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    #[schema(value_type = String)]
    pub id: ToolId,
    /// As the server calls it.
    pub name: String,
    /// For a screen: a name that hides characters or imitates another one is escaped.
    pub display_name: String,
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
    #[schema(value_type = terms::Policy)]
    pub policy: ToolPolicy,
    /// `approved`, `quarantined` or `invalid`; agents see approved ones only.
    #[schema(value_type = terms::PinState)]
    pub pin: Pin,
    /// Why it is not approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<ToolDiff>,
}

/// What was approved, what the server lists now, and where they differ. What hides in a text is escaped.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDiff {
    /// Null: no definition of this tool ever was.
    pub approved: Option<ToolDefinition>,
    pub pending: Option<ToolDefinition>,
    /// At most 100.
    pub changes: Vec<ToolDifference>,
    /// How many more there are.
    pub more_changes: usize,
}

/// One place where two definitions differ.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ToolDifference {
    /// JSON pointer into the definition.
    #[schema(example = "/inputSchema/properties/path/description")]
    pub path: String,
    /// A text as it is, anything else as JSON, at most 2,000 characters; null: there was nothing.
    pub before: Option<String>,
    /// Null: there is nothing any more.
    pub after: Option<String>,
}

/// A definition as the server wrote it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    #[schema(value_type = String)]
    pub definition_hash: Sha256Digest,
    /// Null: it is larger than 64 kB.
    #[schema(value_type = Option<Object>)]
    pub definition: Option<Box<RawValue>>,
}

/// Which definition somebody saw and releases.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolApproval {
    #[schema(value_type = String)]
    pub definition_hash: Sha256Digest,
}

/// What is to change; what is left out stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolPatch {
    pub enabled: Option<bool>,
    #[schema(value_type = Option<terms::Policy>)]
    pub policy: Option<ToolPolicy>,
}

/// That a refresh goes on.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RefreshRunning {
    /// Always `running`.
    pub state: &'static str,
    /// What to expect, in words.
    pub detail: &'static str,
}

const RUNNING: RefreshRunning = RefreshRunning {
    state: "running",
    detail: "the server has not listed its tools yet; the discovery goes on, and its outcome will be the \
             status of the server. A program may still be downloading what it runs",
};

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
    let list = move || List::of(&page, tools, |tool| tool.known.tool_id.to_string());
    off_thread(list).await.map(Json)
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
            let list = move || {
                let items = tools.into_iter().map(Tool::from).collect();
                List { items, next: None }
            };
            Json(off_thread(list).await?).into_response()
        }
        Refreshed::Running => (StatusCode::ACCEPTED, Json(RUNNING)).into_response(),
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

/// Releases a tool from quarantine, with the definition that somebody saw. For superadmins with the scope
/// `approve`; idempotent. Another definition by now is a conflict, with its hash in `details`. Grants on
/// the earlier definition end.
#[utoipa::path(post, path = paths::SERVER_TOOL_APPROVE, tag = "tools",
    params(("server" = String, Path, description = "id or slug"), ("tool" = String, Path)),
    request_body = ToolApproval,
    responses((status = 200, body = Tool), Refused, Missing, Conflicting, BadBody))]
async fn approve(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Ids(server, tool): Ids<String, String>,
    Body(approval): Body<ToolApproval>,
) -> Result<Json<Tool>, Problem> {
    let (tool, seen) = (ToolId(tool), approval.definition_hash);
    let tool = app::servers::tools::approve(&ctx, &caller, &server, &tool, seen).await?;
    off_thread(|| tool.into()).await.map(Json)
}

/// Definitions may be long, and diffs of them are work.
async fn off_thread<T: Send + 'static>(
    render: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(render).await.map_err(|error| Problem(Error::internal(error)))
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
            diff: (known.pin == Pin::Quarantined).then(|| ToolDiff::of(&known)),
            id: known.tool_id,
            display_name: display_name(&known.original_name),
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

impl ToolDiff {
    fn of(known: &KnownTool) -> Self {
        let approved = known.approved();
        let pending = known.pending.as_ref();
        let found =
            pending.map(|pending| diff(approved.map(|one| one.text.as_str()), &pending.text));
        let Diff { changes, more } = found.unwrap_or_default();
        Self {
            approved: approved.map(ToolDefinition::of),
            pending: pending.map(ToolDefinition::of),
            changes: changes.into_iter().map(ToolDifference::from).collect(),
            more_changes: more,
        }
    }
}

impl ToolDefinition {
    fn of(pinned: &Pinned) -> Self {
        let definition = reveal_definition(&pinned.text);
        let definition = definition.and_then(|text| RawValue::from_string(text).ok());
        Self { definition_hash: pinned.hash, definition }
    }
}

impl From<Change> for ToolDifference {
    fn from(change: Change) -> Self {
        Self { path: change.path, before: change.before, after: change.after }
    }
}
