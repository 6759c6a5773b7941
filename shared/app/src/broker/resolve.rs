//! Session, source and tool of a call; and whether its input fits.

use std::{sync::Arc, time::Duration};

use coordination::Group;
use domain::{
    Caller, Code, Error, Role,
    ids::{PermissionEpochId, PermissionGrantId},
    invocation::CatalogEntry,
    json::{self, Sha256Digest},
    limits,
    permission::{ApprovalMode, ToolPolicy},
    schema,
    server::Governance,
    session::effective_selection,
};
use outbound::mcp::Target;
use serde_json::Value;
use store::calls::{Context, ContextTool};

use super::CallRequest;
use crate::{Ctx, definitions::Validators};

/// What a call was resolved to.
#[derive(Debug)]
pub(super) struct Resolved {
    pub entry: CatalogEntry,
    pub target: Target,
    pub server_name: String,
    pub mode: ApprovalMode,
    pub epoch: PermissionEpochId,
    pub policy: ToolPolicy,
    pub grant: Option<PermissionGrantId>,
    pub group: Group,
    pub timeout: Duration,
    pub response_limit: u64,
    pub validators: Arc<Validators>,
    /// The input in its one canonical form, and its digest: what an approval is bound to.
    pub input: Vec<u8>,
    pub input_digest: Sha256Digest,
}

impl Resolved {
    /// `<serverId>/<toolId>`: what a permission for this call is on.
    pub(super) fn resource(&self) -> String {
        format!("{}/{}", self.entry.server, self.entry.tool)
    }
}

/// Step 1: the session is writable and the caller's own.
pub(super) async fn context(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
) -> Result<Context, Error> {
    let unknown = || Error::not_found("session");
    if !caller.reach.covers_session(request.session) {
        return Err(unknown());
    }
    let context = store::calls::context(
        &ctx.db,
        caller.tenant,
        caller.user,
        request.session,
        &request.agent_name,
    )
    .await?
    .ok_or_else(unknown)?;
    if !context.user_active {
        return Err(Error::new(Code::Unauthenticated, "this account is disabled"));
    }
    if context.session_archived {
        return Err(Error::new(Code::SessionArchived, "the session is archived"));
    }
    Ok(context)
}

/// Steps 2 and 3: the tool behind the name, within reach and switched on; the input fits it.
pub(super) async fn resolve(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    context: &Context,
) -> Result<Resolved, Error> {
    let tool = within_reach(caller, request, context)?;
    let definition_hash = usable(tool, caller)?;
    let governance = governance(tool)?;
    let target = crate::target::target(
        &ctx.vault,
        caller.tenant,
        &tool.server,
        &tool.url,
        tool.config_revision,
        &tool.auth_mode,
        &tool.headers,
    )?;
    let validators = ctx
        .definitions
        .validators(ctx, caller.tenant, &tool.server, &tool.tool, definition_hash)
        .await?;
    let input = checked_input(request, &validators).await?;
    let timeout =
        u64::try_from(tool.timeout_seconds).unwrap_or(limits::TOOL_TIMEOUT_SECONDS.default);
    Ok(Resolved {
        group: Group {
            key: format!("{}/{}", caller.tenant, tool.server),
            max_concurrent: governance.max_concurrent,
            max_queue_depth: governance.max_queue_depth,
            queue_timeout: governance.queue_timeout,
            min_interval: governance.min_interval,
        },
        entry: CatalogEntry {
            server: tool.server.clone(),
            tool: tool.tool.clone(),
            original_name: tool.original_name.clone(),
            user: caller.user,
            config_revision: tool.config_revision,
            auth_mode: tool.auth_mode.clone(),
            definition_hash,
        },
        target,
        server_name: tool.server_name.clone(),
        mode: context.mode,
        epoch: context.epoch,
        policy: tool.policy,
        grant: tool.grant,
        timeout: Duration::from_secs(timeout),
        response_limit: governance.max_response_bytes,
        validators,
        input_digest: Sha256Digest::of(&input),
        input,
    })
}

/// What this person does not see does not exist for them: one error for all of it.
fn within_reach<'a>(
    caller: &Caller,
    request: &CallRequest,
    context: &'a Context,
) -> Result<&'a ContextTool, Error> {
    let unknown = || Error::not_found("tool");
    let tool = context.tool.as_ref().ok_or_else(unknown)?;
    let selection = effective_selection(
        &context.tenant_sources,
        context.project_sources.as_deref(),
        context.session_sources.as_deref(),
    );
    let visible = selection.contains(&tool.server)
        && caller.reach.covers_source(&tool.server)
        && caller.reach.covers_tool(&request.agent_name)
        && !tool.removed;
    if !visible {
        return Err(unknown());
    }
    Ok(tool)
}

/// Switches and pin, in the order in which they are explained to people; the approved definition.
fn usable(tool: &ContextTool, caller: &Caller) -> Result<Sha256Digest, Error> {
    if !tool.server_enabled {
        return Err(Error::new(Code::SourceDisabled, "the server is switched off"));
    }
    if !tool.tool_enabled {
        return Err(Error::new(Code::SourceDisabled, "the tool is switched off"));
    }
    let Some(definition_hash) = tool.definition_hash.filter(|_| tool.approved) else {
        let hint = if caller.role == Role::Superadmin {
            "the tool's definition differs from the approved one: look at it in the server's tools"
        } else {
            "the tool's definition differs from the approved one: a superadmin must look at it"
        };
        return Err(Error::new(Code::ToolChanged, hint));
    };
    if tool.transport != "http" {
        return Err(Error::new(
            Code::ServerMisconfigured,
            "this version reaches servers over streamable HTTP only",
        ));
    }
    Ok(definition_hash)
}

fn governance(tool: &ContextTool) -> Result<Governance, Error> {
    let form = match &tool.governance {
        None => None,
        Some(value) => Some(serde_json::from_value(value.clone()).map_err(|error| {
            Error::new(Code::ServerMisconfigured, "the server's limits are not readable")
                .because(error)
        })?),
    };
    Ok(Governance::resolve(form))
}

/// The canonical input, if it fits the tool's schema.
async fn checked_input(
    request: &CallRequest,
    validators: &Arc<Validators>,
) -> Result<Vec<u8>, Error> {
    let raw = request.arguments.get();
    if raw.len() > limits::INPUT_BYTES.size() {
        return Err(Error::new(
            Code::InvalidInput,
            format!("the input has more than {} bytes", limits::INPUT_BYTES.default),
        ));
    }
    let input = json::canonical(raw)?;
    let value: Value = serde_json::from_str(raw)
        .map_err(|error| Error::new(Code::InvalidInput, "the input is no JSON").because(error))?;
    if !value.is_object() {
        return Err(Error::new(Code::InvalidInput, "the input must be a JSON object"));
    }
    let checked = if raw.len() > limits::HEAVY_INPUT_BYTES.size() {
        let validators = Arc::clone(validators);
        tokio::task::spawn_blocking(move || validators.input.check(&value))
            .await
            .map_err(Error::internal)?
    } else {
        validators.input.check(&value)
    };
    checked.map_err(|violations| schema::invalid_input(&violations))?;
    Ok(input)
}
