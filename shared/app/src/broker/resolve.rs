//! Session, source and tool of a call; and whether its input fits.

use std::{sync::Arc, time::Duration};

use coordination::Group;
use domain::{
    Caller, Code, Error, Role,
    elicitation::Askable,
    ids::{PermissionEpochId, PermissionGrantId, ToolId},
    invocation::{CatalogEntry, PseudoTool},
    json::{self, Sha256Digest},
    limits,
    permission::{ApprovalMode, ToolPolicy},
    schema,
    server::Governance,
    session::effective_selection,
};
use outbound::mcp::Target;
use serde_json::Value;
use store::calls::{Context, ContextServer, ContextTool, Wanted};

use super::{Asked, CallRequest, Fits, pseudo};
use crate::{
    Ctx,
    authority::Who,
    definitions::Validators,
    target::{Aim, Stored, target},
};

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
    /// What the server may ask of the client.
    pub askable: Askable,
    pub response_limit: u64,
    /// `None`: what is called is a tool.
    pub pseudo: Option<PseudoTool>,
    /// Of a tool.
    pub validators: Option<Arc<Validators>>,
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
    let classes = match &request.asked {
        Asked::Pseudo { server, tool } => pseudo::classes(server, *tool, request.arguments.get()),
        Asked::Agent(_) | Asked::Original { .. } => Vec::new(),
    };
    let wanted = match &request.asked {
        Asked::Agent(name) => Wanted::Agent(name),
        Asked::Original { server, name } => Wanted::Original { server, name },
        Asked::Pseudo { server, .. } => Wanted::Server { server, classes: &classes },
    };
    let (tenant, user) = (caller.tenant, caller.user);
    let context = store::calls::context(&ctx.db, tenant, user, request.session, wanted)
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

/// Steps 2 and 3: what was asked for, within reach and switched on; the input fits it.
pub(super) async fn resolve(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    context: &Context,
) -> Result<Resolved, Error> {
    let (server, what) = within_reach(caller, request, context)?;
    if !server.enabled {
        return Err(Error::new(Code::SourceDisabled, "the server is switched off"));
    }
    let definition_hash = match what {
        What::Tool(tool) => Some(usable(tool, caller)?),
        What::Pseudo(_) => None,
    };
    let governance = governance(server)?;
    let stored = Stored {
        tenant: caller.tenant,
        server: &server.server,
        transport: &server.transport,
        url: &server.url,
        revision: server.config_revision,
        auth_mode: &server.auth_mode,
        values: &server.values,
        api_key_header: &server.api_key_header,
        own: server.own,
    };
    let aim = Aim { who: Some(Who::of(caller, Some(request.session))), even_disabled: false };
    let mut target = target(ctx, &stored, aim)?;
    if let Some(own) = &request.upstream.own {
        if own.server != server.server || own.revision != server.config_revision {
            let words = "the server's configuration changed since this session with it began";
            return Err(Error::new(Code::ServerChanged, words));
        }
        target = own.aim(target);
    }
    let (tool, original_name, policy, pseudo) = match what {
        What::Tool(tool) => (tool.tool.clone(), tool.original_name.clone(), tool.policy, None),
        What::Pseudo(pseudo) => {
            let name = pseudo.as_str();
            (ToolId::from(name), name.to_owned(), ToolPolicy::Ask, Some(pseudo))
        }
    };
    let validators = match definition_hash {
        Some(hash) => {
            let definitions = &ctx.definitions;
            Some(definitions.validators(ctx, caller.tenant, &server.server, &tool, hash).await?)
        }
        None => None,
    };
    if let (Some(Fits(fits)), Some(validators)) = (&request.fits, &validators) {
        fits(&validators.input_schema)?;
    }
    let input = checked_input(request, pseudo, validators.as_ref()).await?;
    let timeout =
        u64::try_from(server.timeout_seconds).unwrap_or(limits::TOOL_TIMEOUT_SECONDS.default);
    let askable = request.upstream.askable.with_sampling(governance.relay_sampling);
    Ok(Resolved {
        group: Group {
            key: format!("{}/{}", caller.tenant, server.server),
            max_concurrent: governance.max_concurrent,
            max_queue_depth: governance.max_queue_depth,
            queue_timeout: governance.queue_timeout,
            min_interval: governance.min_interval,
        },
        entry: CatalogEntry {
            server: server.server.clone(),
            tool,
            original_name,
            user: caller.user,
            config_revision: server.config_revision,
            auth_mode: server.auth_mode.clone(),
            definition_hash,
        },
        target,
        server_name: server.name.clone(),
        mode: context.mode,
        epoch: context.epoch,
        policy,
        grant: context.grant,
        timeout: Duration::from_secs(timeout),
        askable,
        response_limit: governance.max_response_bytes,
        pseudo,
        validators,
        input_digest: Sha256Digest::of(&input),
        input,
    })
}

/// Whether the tool, if it is one, is listed without an output schema.
pub(super) async fn is_plain(ctx: &Ctx, caller: &Caller, context: &Context) -> bool {
    let (Some(server), Some(tool)) = (&context.server, &context.tool) else { return true };
    let Some(hash) = tool.definition_hash else { return true };
    let definitions = &ctx.definitions;
    let found = definitions.validators(ctx, caller.tenant, &server.server, &tool.tool, hash).await;
    found.is_ok_and(|validators| !validators.promises_output)
}

/// What is called.
#[derive(Clone, Copy)]
enum What<'a> {
    Tool(&'a ContextTool),
    Pseudo(PseudoTool),
}

/// What this person does not see does not exist for them: one error for all of it.
fn within_reach<'a>(
    caller: &Caller,
    request: &CallRequest,
    context: &'a Context,
) -> Result<(&'a ContextServer, What<'a>), Error> {
    let pseudo = match &request.asked {
        Asked::Pseudo { tool, .. } => Some(*tool),
        Asked::Agent(_) | Asked::Original { .. } => None,
    };
    let unknown = || Error::not_found(if pseudo.is_some() { "server" } else { "tool" });
    let server = context.server.as_ref().ok_or_else(unknown)?;
    let allowed = match &request.allowed_source_ids {
        Some(allowed) => allowed.as_slice(),
        None => effective_selection(
            &context.tenant_sources,
            context.project_sources.as_deref(),
            context.session_sources.as_deref(),
        ),
    };
    if !allowed.contains(&server.server) || !caller.reach.covers_source(&server.server) {
        return Err(unknown());
    }
    if let Some(pseudo) = pseudo {
        // A token of single tools reaches nothing else.
        let reached = caller.reach.tools.is_none();
        return if reached { Ok((server, What::Pseudo(pseudo))) } else { Err(unknown()) };
    }
    let tool = context.tool.as_ref().ok_or_else(unknown)?;
    if !caller.reach.covers_tool(&tool.agent_name) || tool.removed {
        return Err(unknown());
    }
    Ok((server, What::Tool(tool)))
}

/// Switch and pin, in the order in which they are explained to people; the approved definition.
fn usable(tool: &ContextTool, caller: &Caller) -> Result<Sha256Digest, Error> {
    if !tool.enabled {
        return Err(Error::new(Code::SourceDisabled, "the tool is switched off"));
    }
    tool.definition_hash.filter(|_| tool.approved).ok_or_else(|| {
        let hint = if caller.role == Role::Superadmin {
            "the tool's definition differs from the approved one: look at it in the server's tools"
        } else {
            "the tool's definition differs from the approved one: a superadmin must look at it"
        };
        Error::new(Code::ToolChanged, hint)
    })
}

fn governance(server: &ContextServer) -> Result<Governance, Error> {
    let form = match &server.governance {
        None => None,
        Some(value) => Some(serde_json::from_value(value.clone()).map_err(|error| {
            Error::new(Code::ServerMisconfigured, "the server's limits are not readable")
                .because(error)
        })?),
    };
    Ok(Governance::resolve(form))
}

/// The canonical input, if it fits the tool's schema, or what MCP says of the pseudo-tool's params.
async fn checked_input(
    request: &CallRequest,
    pseudo: Option<PseudoTool>,
    validators: Option<&Arc<Validators>>,
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
    if let Some(pseudo) = pseudo {
        pseudo::check(pseudo, &value)?;
    }
    let Some(validators) = validators else { return Ok(input) };
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
