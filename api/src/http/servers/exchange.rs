//! Servers in and out by the dozen, and the programs that one may name.

use std::collections::BTreeMap;

use app::{
    Ctx,
    servers::{Configured, Entry, Shown},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use domain::server::{GovernanceForm, stdio::AllowedProgram};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::json::{ConfiguredServer, ContactAnswer, Nulls, OAuth, ServerAnswer, limits};
use crate::{
    Api,
    caller::Authenticated,
    http::{
        body::Body,
        page::{Filters, List},
    },
    paths,
    problem::{BadBody, Problem, Refused},
};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(import)).routes(routes!(export)).routes(routes!(programs))
}

/// What POST takes: as clients write it. Documentation of the form, which is read elsewhere.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the form, which is read elsewhere")]
#[schema(as = ServerImport, rename_all = "camelCase")]
struct ImportBody {
    /// By name; `servers` (VS Code) is the same. Each entry has `command`, `args`, `env`, `cwd`, or
    /// `url` (`serverUrl`, `httpUrl`) and `headers`; `type` or `transport` where these leave a doubt;
    /// `timeoutSeconds` or `tool_call_timeout`; and what an export has besides.
    #[schema(value_type = BTreeMap<String, Object>)]
    mcp_servers: BTreeMap<String, Value>,
}

/// The query of an import.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ImportQuery {
    /// `true`: check everything, save nothing.
    #[serde(default)]
    preview: bool,
}

/// What each entry would become.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct ImportPreview {
    entries: Vec<PreviewedEntry>,
}

/// One entry of an import.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct PreviewedEntry {
    name: String,
    /// JSON pointer to it in the body.
    path: String,
    #[serde(flatten)]
    contact: ContactAnswer,
    /// Limits that it would have instead of the usual ones.
    #[schema(value_type = Option<Object>)]
    governance: Option<Value>,
    /// Members that only a client can mean: they take no part.
    ignored: Vec<String>,
    /// Why it could not be imported; with one of these nothing is.
    #[schema(value_type = Vec<PreviewedError>)]
    errors: Vec<Value>,
}

/// One mistake of an entry.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes what the use case answers")]
struct PreviewedError {
    /// JSON pointer into the body.
    path: String,
    message: String,
}

/// All servers of a tenant, without a secret. It can be imported once each `null` has its value.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServerExport {
    mcp_servers: BTreeMap<String, ExportedServer>,
}

/// A server as clients write it, with what we know besides.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct ExportedServer {
    r#type: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    command: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    cwd: String,
    #[serde(skip_serializing_if = "Nulls::is_empty")]
    #[schema(value_type = BTreeMap<String, Option<String>>)]
    env: Nulls,
    #[serde(skip_serializing_if = "Nulls::is_empty")]
    #[schema(value_type = BTreeMap<String, Option<String>>)]
    headers: Nulls,
    auth_mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key_header: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oauth: Option<OAuth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slug: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    timeout_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    governance: Option<Value>,
}

/// Programs that a server of transport `stdio` can name.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct StdioPrograms {
    /// `off`: none; `allowlist`: those below; `any`: whatever a superadmin writes.
    #[schema(example = "allowlist")]
    mode: &'static str,
    programs: Vec<StdioProgram>,
}

/// A program that the operator lists.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct StdioProgram {
    name: String,
    command: String,
    /// Each as the operator wrote it: a text that must stand there, `{"matches": pattern}` for one
    /// argument, `{"rest": pattern}` for any number of further ones.
    #[schema(value_type = Vec<Value>)]
    args: Value,
    cwd: Option<String>,
    /// Names of variables that a server may give it.
    env: Vec<String>,
}

/// Adds servers as clients write them down, all of them or none. For superadmins.
///
/// They are switched off; nothing is contacted, started, queued or granted. Every mistake of every
/// entry is answered at once, by its JSON pointer. With `?preview=true` nothing is saved, and the answer
/// says for each entry whom it would make us contact, its limits, and its mistakes.
///
/// An import cannot switch on what spends the caller's model: `governance.relaySampling: true` is a
/// mistake of its entry, also in an export of ours.
#[utoipa::path(post, path = paths::SERVERS_IMPORT, tag = "servers",
    params(ImportQuery), request_body = ImportBody,
    responses(
        (status = 200, body = ImportPreview, description = "a preview"),
        (status = 201, body = List<ConfiguredServer>, description = "all of them were added"),
        Refused, BadBody))]
async fn import(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
    Filters(query): Filters<ImportQuery>,
    Body(body): Body<Box<RawValue>>,
) -> Result<Response, Problem> {
    if query.preview {
        let entries = app::servers::preview(&ctx, &caller, body.get()).await?;
        let entries = entries.into_iter().map(PreviewedEntry::from).collect();
        return Ok(Json(ImportPreview { entries }).into_response());
    }
    let servers = app::servers::import(&ctx, &caller, body.get()).await?;
    let items = servers.into_iter().map(|one| Shown::Configured(Box::new(one)).into()).collect();
    let list: List<ServerAnswer> = List { items, next: None };
    Ok((StatusCode::CREATED, Json(list)).into_response())
}

/// All custom servers in the shape of an import, oldest first in time of creation, without a secret: the
/// names of headers and variables have `null`. For superadmins.
#[utoipa::path(get, path = paths::SERVERS_EXPORT, tag = "servers",
    responses((status = 200, body = ServerExport), Refused))]
async fn export(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
) -> Result<Json<ServerExport>, Problem> {
    let servers = app::servers::export(&ctx, &caller).await?;
    let entry = |one: Configured| (one.server.name.clone(), ExportedServer::from(one));
    Ok(Json(ServerExport { mcp_servers: servers.into_iter().map(entry).collect() }))
}

/// The programs that a server can name here. For superadmins.
#[utoipa::path(get, path = paths::STDIO_PROGRAMS, tag = "servers",
    responses((status = 200, body = StdioPrograms), Refused))]
async fn programs(
    State(ctx): State<Ctx>,
    Authenticated(caller): Authenticated,
) -> Result<Json<StdioPrograms>, Problem> {
    let (mode, programs) = app::servers::programs(&ctx, &caller).await?;
    let programs = programs.into_iter().map(StdioProgram::from).collect();
    Ok(Json(StdioPrograms { mode, programs }))
}

impl From<Entry> for PreviewedEntry {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name,
            path: entry.pointer,
            contact: entry.contact.into(),
            governance: entry.governance.as_ref().map(limits),
            ignored: entry.ignored,
            errors: entry.mistakes,
        }
    }
}

impl From<Configured> for ExportedServer {
    fn from(configured: Configured) -> Self {
        let Configured { server, env, headers, client_secret, variables: _ } = configured;
        // The id as slug is what one without a slug gets by itself.
        let slug = (server.slug != server.id.as_str()).then_some(server.slug);
        Self {
            r#type: server.reach.transport.as_str(),
            url: server.reach.url,
            command: server.reach.command,
            args: server.reach.args,
            cwd: server.reach.cwd,
            env: Nulls(env),
            headers: Nulls(headers),
            auth_mode: server.reach.auth_mode.as_str(),
            api_key_header: server.reach.api_key_header,
            oauth: server.reach.oauth.map(|oauth| OAuth::of(oauth, client_secret)),
            slug,
            description: server.description,
            icon: server.icon,
            tags: server.tags,
            timeout_seconds: server.timeout.as_secs(),
            governance: server.governance.as_ref().map(|form: &GovernanceForm| limits(form)),
        }
    }
}

impl From<AllowedProgram> for StdioProgram {
    fn from(program: AllowedProgram) -> Self {
        Self {
            args: serde_json::to_value(&program.args).unwrap_or_default(),
            name: program.name,
            command: program.command,
            cwd: program.cwd,
            env: program.env,
        }
    }
}
