//! A new server.

use domain::{
    Caller, Code, Error, Role, Scope,
    ids::ServerId,
    limits,
    server::{Known, ServerForm, ServerStatus, Transport, ValidServer, reach, stdio::StdioMode},
};
use serde_json::json;
use store::{StoreError, Tx, servers::Server};

use super::{Around, Configured, enqueue_discovery, one_configured, secrets};
use crate::{Ctx, audit};

/// Adds a custom server. For superadmins.
///
/// `INVALID_INPUT` with every mistake of the form, `CONFLICT` for a name or slug that is taken and
/// for one server more than a tenant may have.
pub async fn create(ctx: &Ctx, caller: &Caller, form: ServerForm) -> Result<Configured, Error> {
    adds_servers(caller)?;
    if form.revision.is_some() {
        return Err(Error::new(Code::InvalidInput, "a new server has no revision"));
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    let around = Around::load(&mut tx).await?;
    let form = form.validate(&around.rules(ctx), &Known::default())?;
    programs_need_approval(ctx, caller, &form)?;

    // Whoever adds a server holds the tenant, so that two cannot both be the last one.
    store::tenants::lock(&mut tx).await?.ok_or_else(|| Error::not_found("tenant"))?;
    if store::servers::count_custom(&mut tx).await? >= limits::SERVERS_PER_TENANT.default {
        let most = limits::SERVERS_PER_TENANT.default;
        return Err(Error::new(Code::Conflict, format!("a tenant has at most {most} servers")));
    }
    let server = new_server(ctx, &form)?;
    let configured = add(ctx, &mut tx, caller, server, &form, "server.created").await?;
    tx.commit().await?;
    Ok(configured)
}

/// Superadmins whose token is not limited to certain servers.
pub(super) fn adds_servers(caller: &Caller) -> Result<(), Error> {
    caller.require_role(Role::Superadmin)?;
    if caller.reach.sources.is_some() {
        let words = "this token is limited to certain servers and cannot add one";
        return Err(Error::new(Code::Denied, words));
    }
    Ok(())
}

/// Where any program may run, to name one is to run code on our host: that needs the scope `approve`,
/// which no token of an agent has.
pub(super) fn programs_need_approval(
    ctx: &Ctx,
    caller: &Caller,
    form: &ValidServer,
) -> Result<(), Error> {
    if form.transport == Transport::Stdio && matches!(ctx.stdio, StdioMode::Any) {
        caller.require_scope(Scope::Approve)?;
    }
    Ok(())
}

/// Writes a new server with its secrets, and its record.
pub(super) async fn add(
    ctx: &Ctx,
    tx: &mut Tx,
    caller: &Caller,
    server: Server,
    form: &ValidServer,
    action: &str,
) -> Result<Configured, Error> {
    store::servers::insert(tx, &server).await.map_err(taken)?;
    secrets::save(ctx, tx, &server.id, form).await?;
    enqueue_discovery(tx, &server).await?;
    let details = json!({ "revision": server.form_revision, "enabled": server.enabled });
    audit::record(ctx, tx, caller, action, server.id.as_str(), details).await?;
    one_configured(tx, server).await
}

/// A name or slug that another server has.
pub(super) fn taken(error: StoreError) -> Error {
    let field = match error.constraint() {
        Some("mcp_servers_name_key") => "name",
        Some("mcp_servers_slug_key") => "slug",
        _ => return error.into(),
    };
    Error::new(Code::Conflict, format!("another server has this {field}"))
        .with_details(json!({ "field": field }))
        .because(error)
}

pub(super) fn new_server(ctx: &Ctx, form: &ValidServer) -> Result<Server, Error> {
    let id = custom_id()?;
    let now = ctx.now();
    Ok(Server {
        slug: form.slug.clone().unwrap_or_else(|| id.to_string()),
        id,
        name: form.name.clone(),
        description: form.description.clone(),
        icon: form.icon.clone(),
        tags: form.tags.clone(),
        reach: reach(form),
        timeout: form.timeout,
        enabled: form.enabled,
        governance: form.governance,
        config_revision: 1,
        form_revision: 1,
        status: ServerStatus::Untested,
        status_error: None,
        checked_at: None,
        pinned_at: None,
        imported: false,
        unconfirmed: false,
        created_at: now,
        updated_at: now,
        tool_count: 0,
    })
}

fn custom_id() -> Result<ServerId, Error> {
    let mut bytes = [0; 6];
    getrandom::fill(&mut bytes).map_err(|error| Error::internal(error.to_string()))?;
    Ok(ServerId(format!("custom-{}", hex::encode(bytes))))
}
