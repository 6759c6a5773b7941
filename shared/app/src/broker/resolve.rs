//! Session, source and tool of a call; and whether its input fits.

use std::{sync::Arc, time::Duration};

use coordination::Group;
use domain::{
    Caller, Code, Error,
    elicitation::Askable,
    ids::{PermissionEpochId, PermissionGrantId, SessionId, ToolId},
    invocation::{CatalogEntry, PseudoTool},
    json::{self, Sha256Digest},
    limits,
    permission::{ApprovalMode, ToolPolicy},
    schema,
    server::Governance,
};
use outbound::mcp::Target;
use serde_json::Value;
use store::calls::{Context, ContextServer, ContextTool, Wanted};

use super::{
    Asked, CallRequest, Fits,
    gates::{self, View},
    pseudo,
};
use crate::{
    Ctx,
    authority::Who,
    definitions::Validators,
    target::{self, Aim, Stored},
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
        .ok_or_else(|| Error::not_found("session"))?;
    gates::pass(gates::DOOR, &view(caller, request, &context))?;
    Ok(context)
}

fn view<'a>(caller: &'a Caller, request: &'a CallRequest, context: &'a Context) -> View<'a> {
    View {
        caller,
        session: request.session,
        asked: &request.asked,
        allowed: request.allowed_source_ids.as_deref(),
        context,
    }
}

/// Steps 2 and 3: what was asked for, within reach and switched on; the input fits it.
pub(super) async fn resolve(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    context: &Context,
) -> Result<Resolved, Error> {
    let view = view(caller, request, context);
    gates::pass(gates::WAY, &view)?;
    let server = context.server.as_ref().ok_or_else(|| view.unknown())?;
    let what = match &request.asked {
        Asked::Pseudo { tool, .. } => What::Pseudo(*tool),
        Asked::Agent(_) | Asked::Original { .. } => {
            What::Tool(context.tool.as_ref().ok_or_else(|| view.unknown())?)
        }
    };
    let definition_hash = match what {
        What::Tool(tool) => Some(gates::definition(tool, caller)?),
        What::Pseudo(_) => None,
    };
    let (mut target, governance) = aimed(ctx, caller, request.session, server)?;
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

fn stored<'a>(caller: &Caller, server: &'a ContextServer) -> Stored<'a> {
    Stored {
        tenant: caller.tenant,
        server: &server.server,
        transport: &server.transport,
        url: &server.url,
        revision: server.config_revision,
        auth_mode: &server.auth_mode,
        values: &server.values,
        api_key_header: &server.api_key_header,
        own: server.own,
    }
}

fn aim(caller: &Caller, session: SessionId) -> Aim {
    Aim { who: Some(Who::of(caller, Some(session))), even_disabled: false }
}

/// Whether the person is connected, where the server is used with their own account. [`aimed`] refuses
/// so before anything else.
pub(crate) fn connected(
    caller: &Caller,
    session: SessionId,
    server: &ContextServer,
) -> Result<(), Error> {
    target::connected(&stored(caller, server), aim(caller, session))
}

/// Where the call would go, and the server's limits. Nothing is sent.
pub(crate) fn aimed(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    server: &ContextServer,
) -> Result<(Target, Governance), Error> {
    let target = target::target(ctx, &stored(caller, server), aim(caller, session))?;
    Ok((target, governance(server)?))
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
