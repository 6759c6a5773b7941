//! Built-in servers, kept in every tenant as code has them.

use domain::{
    Error,
    builtin::{self, BuiltIn},
    ids::TenantId,
    server::ServerStatus,
    tool::{Definition, Pin, ToolChange, reconcile},
};
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use store::{StoreError, Tx, servers::Server, tools::Tool};

use crate::{Ctx, audit, discovery};

/// Tenants that are looked at side by side at a start.
const AT_ONCE: usize = 4;

/// Sees to it that every tenant has every built-in server as code has it: new ones switched off, changed
/// ones restored. At the start of a process; any number of them may do so at the same moment.
pub async fn sync(ctx: &Ctx) -> Result<(), Error> {
    let tenants = store::tenants::ids(&ctx.db).await?;
    let each = tenants.into_iter().map(|tenant| sync_tenant(ctx, tenant));
    futures::stream::iter(each).buffer_unordered(AT_ONCE).try_collect().await
}

async fn sync_tenant(ctx: &Ctx, tenant: TenantId) -> Result<(), Error> {
    for built_in in builtin::ALL {
        sync_one(ctx, tenant, built_in).await?;
    }
    Ok(())
}

/// One server of one tenant. A name that another server took before there was this one is no reason not
/// to start: it is said in the log.
pub(crate) async fn sync_one(ctx: &Ctx, tenant: TenantId, built_in: &BuiltIn) -> Result<(), Error> {
    let mut tx = ctx.begin(tenant).await?;
    let restored = match settle(ctx, &mut tx, built_in).await {
        Ok(restored) => restored,
        Err(Unsettled::Taken) => {
            let words = "a server of the tenant has the name of a built-in one, which is left out";
            tracing::error!(%tenant, server = built_in.id, "{words}: rename it");
            return Ok(());
        }
        Err(Unsettled::Failed(error)) => return Err(error),
    };
    tx.commit().await?;
    if restored {
        ctx.mcp.forget(tenant, &built_in.server_id()).await;
    }
    Ok(())
}

/// All of them, in the transaction that makes a tenant.
pub(crate) async fn add_all(ctx: &Ctx, tx: &mut Tx) -> Result<(), Error> {
    for built_in in builtin::ALL {
        match settle(ctx, tx, built_in).await {
            Ok(_) => {}
            Err(Unsettled::Taken) => return Err(Error::internal("a new tenant has a server")),
            Err(Unsettled::Failed(error)) => return Err(error),
        }
    }
    Ok(())
}

enum Unsettled {
    /// Name or slug is another server's.
    Taken,
    Failed(Error),
}

impl From<StoreError> for Unsettled {
    fn from(error: StoreError) -> Self {
        match error.constraint() {
            Some("mcp_servers_name_key" | "mcp_servers_slug_key") => Self::Taken,
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<Error> for Unsettled {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Whether a row that stood there was restored. Usually there is nothing to do, and nothing is locked.
async fn settle(ctx: &Ctx, tx: &mut Tx, built_in: &BuiltIn) -> Result<bool, Unsettled> {
    match stored(tx, built_in).await? {
        None => {
            add(ctx, tx, built_in).await?;
            return Ok(false);
        }
        Some(stored) if stored.is_as_code_has_it(built_in)? => return Ok(false),
        Some(_) => {}
    }
    store::servers::lock(tx, built_in.id).await?;
    // As it stands now that it is held; somebody else may have restored it.
    let Some(Stored { mut server, tools, has_values }) = stored(tx, built_in).await? else {
        return Ok(false);
    };
    let fields = differences(&server, built_in, has_values);
    if !fields.is_empty() {
        restore(ctx, &mut server, built_in);
        store::builtin::restore(tx, &server).await?;
        tracing::warn!(server = built_in.id, ?fields, "a built-in server was restored");
        let details = json!({ "fields": fields, "configRevision": server.config_revision });
        audit::record_service(ctx, tx, "server.restored", built_in.id, details).await?;
    }
    pin(ctx, tx, &mut server, &tools, built_in).await?;
    Ok(!fields.is_empty())
}

async fn add(ctx: &Ctx, tx: &mut Tx, built_in: &BuiltIn) -> Result<(), Unsettled> {
    // Whoever adds a server holds the tenant: the second of two finds what the first one added.
    store::tenants::lock(tx).await?;
    if stored(tx, built_in).await?.is_some() {
        return Ok(());
    }
    let mut server = as_code_has_it(ctx, built_in);
    store::servers::insert(tx, &server).await?;
    let details = json!({ "builtIn": true, "enabled": false });
    audit::record_service(ctx, tx, "server.created", built_in.id, details).await?;
    Ok(pin(ctx, tx, &mut server, &[], built_in).await?)
}

/// What stands in a tenant.
struct Stored {
    server: Server,
    tools: Vec<Tool>,
    /// Headers and the like.
    has_values: bool,
}

impl Stored {
    fn is_as_code_has_it(&self, built_in: &BuiltIn) -> Result<bool, Error> {
        Ok(self.server.pinned_at.is_some()
            && differences(&self.server, built_in, self.has_values).is_empty()
            && tool_changes(&self.server, &self.tools, built_in)?.is_empty())
    }
}

async fn stored(tx: &mut Tx, built_in: &BuiltIn) -> Result<Option<Stored>, StoreError> {
    let found = store::servers::find(tx, built_in.id).await?;
    // The slug of another server may be this id, where somebody wrote it past us.
    let Some(server) = found.filter(|server| server.id.as_str() == built_in.id) else {
        return Ok(None);
    };
    let tools = store::tools::of_server(tx, &server.id).await?;
    let values = store::servers::secret_names(tx, std::slice::from_ref(&server.id)).await?;
    Ok(Some(Stored { server, tools, has_values: !values.is_empty() }))
}

fn as_code_has_it(ctx: &Ctx, built_in: &BuiltIn) -> Server {
    let now = ctx.now();
    Server {
        id: built_in.server_id(),
        slug: built_in.id.to_owned(),
        name: built_in.name.to_owned(),
        description: built_in.description.to_owned(),
        icon: None,
        tags: Vec::new(),
        reach: built_in.reach(),
        timeout: built_in.timeout(),
        enabled: false,
        governance: None,
        config_revision: 1,
        form_revision: 1,
        status: ServerStatus::Untested,
        status_error: None,
        checked_at: None,
        pinned_at: None,
        unconfirmed: false,
        imported: false,
        created_at: now,
        updated_at: now,
        tool_count: 0,
    }
}

/// Which fields are not as code has them.
fn differences(server: &Server, built_in: &BuiltIn, has_values: bool) -> Vec<&'static str> {
    let reach = built_in.reach();
    let fields = [
        ("slug", server.slug != built_in.id),
        ("name", server.name != built_in.name),
        ("description", server.description != built_in.description),
        ("icon", server.icon.is_some()),
        ("tags", !server.tags.is_empty()),
        ("transport", server.reach.transport != reach.transport),
        ("url", server.reach.url != reach.url),
        ("authMode", server.reach.auth_mode != reach.auth_mode),
        ("command", server.reach.command != reach.command || server.reach.args != reach.args),
        ("cwd", server.reach.cwd != reach.cwd),
        ("apiKeyHeader", server.reach.api_key_header != reach.api_key_header),
        ("oauth", server.reach.oauth != reach.oauth),
        ("values", has_values),
        ("timeoutSeconds", server.timeout != built_in.timeout()),
        ("governance", server.governance.is_some()),
        ("unconfirmed", server.unconfirmed),
    ];
    fields.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
}

/// Everything but the switch.
fn restore(ctx: &Ctx, server: &mut Server, built_in: &BuiltIn) {
    let code = as_code_has_it(ctx, built_in);
    *server = Server {
        enabled: server.enabled,
        config_revision: server.config_revision + 1,
        form_revision: server.form_revision + 1,
        pinned_at: server.pinned_at,
        created_at: server.created_at,
        tool_count: server.tool_count,
        ..code
    };
}

/// Pins the tools as code has them: nobody need be asked, and nothing of it is to be approved.
async fn pin(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &mut Server,
    tools: &[Tool],
    built_in: &BuiltIn,
) -> Result<(), Error> {
    let changes = tool_changes(server, tools, built_in)?;
    if changes.is_empty() && server.pinned_at.is_some() {
        return Ok(());
    }
    discovery::save_changes(ctx, tx, server, &changes).await?;
    discovery::record_changes(ctx, tx, server, tools, &changes).await?;
    server.pinned_at = server.pinned_at.or(Some(ctx.now()));
    Ok(store::servers::save(tx, server).await?)
}

fn tool_changes(
    server: &Server,
    tools: &[Tool],
    built_in: &BuiltIn,
) -> Result<Vec<ToolChange>, Error> {
    let known: Vec<_> = tools.iter().map(|tool| tool.known.clone()).collect();
    let seen = built_in.tools.iter().map(|text| Definition::parse(text)).collect();
    let found = reconcile(&known, seen, true, server.pinned_at.is_none());
    let approved = |change| match change {
        ToolChange::Changed(tool) if tool.pin == Pin::Quarantined => {
            let Some(present) = tool.pending.as_ref().map(|pending| pending.hash) else {
                return Ok(ToolChange::Changed(tool));
            };
            tool.approve(present).map(ToolChange::Changed)
        }
        other => Ok(other),
    };
    found.changes.into_iter().map(approved).collect()
}
