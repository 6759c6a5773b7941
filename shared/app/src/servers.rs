//! MCP servers: what superadmins configure, and what everybody may see of it.

mod check;
mod create;
mod delete;
mod export;
mod grants;
mod import;
mod programs;
mod quarantined;
mod secrets;
mod switch;
pub mod tools;
mod update;

use std::collections::{BTreeSet, HashMap};

use domain::{
    Caller, Error, Role,
    connection::{ConnectionState, CredentialKind},
    ids::{ServerId, TenantId},
    jobs::DiscoverTools,
    server::{AuthMode, FormRules, Variables},
};
pub use store::servers::{Cursor, Server};
use store::{
    StoreError, Tx,
    servers::{SecretKind, SecretName, Wanted},
};

pub use check::{Asks, Checked, CheckedTool, check, check_own};
pub(crate) use check::{is_about_person, is_ours, load_target, words};
pub use create::create;
pub use delete::delete;
pub use export::{Exported, export};
pub use import::{Entry, import, preview};
pub use programs::{check_programs, programs};
pub use quarantined::quarantined;
pub use switch::switch;
pub use update::update;

use crate::{
    Ctx,
    connections::{self, PageState},
};

/// A server as its superadmins see it: everything but the values of its secrets.
#[derive(Debug, Clone)]
pub struct Configured {
    pub server: Server,
    /// Names of environment variables.
    pub env: Vec<String>,
    /// Names of headers.
    pub headers: Vec<String>,
    /// Variables that env and headers refer to.
    pub variables: Vec<String>,
    pub client_secret: bool,
}

/// What a form is measured against besides itself, held until the transaction ends.
struct Around {
    only_tenant: bool,
    variables: Variables,
}

impl Around {
    /// Takes the variables' lock, which comes before any row.
    async fn load(tx: &mut Tx) -> Result<Self, StoreError> {
        store::variables::lock(tx).await?;
        Ok(Self {
            only_tenant: store::tenants::is_only(tx).await?,
            variables: store::variables::known(tx).await?,
        })
    }

    fn rules<'a>(&'a self, ctx: &'a Ctx) -> FormRules<'a> {
        FormRules {
            urls: &ctx.url_rules,
            stdio: &ctx.stdio,
            only_tenant: self.only_tenant,
            variables: &self.variables,
        }
    }
}

/// What everybody may know of a server that is switched on.
#[derive(Debug, Clone)]
pub struct Visible {
    pub id: ServerId,
    pub slug: String,
    pub name: String,
    pub description: String,
    pub icon: Option<String>,
    pub tags: Vec<String>,
    pub auth_mode: AuthMode,
    pub enabled: bool,
    pub revision: i64,
    /// How far the person is.
    pub state: PageState,
}

/// A server, as far as the caller may see it.
#[derive(Debug, Clone)]
pub enum Shown {
    Configured(Box<Configured>),
    Visible(Visible),
}

/// One of a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Where the list goes on after it.
    pub cursor: Cursor,
    pub shown: Shown,
}

/// The servers that the caller may see, newest first: all of them for superadmins, for others those
/// that are switched on.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    after: Option<&Cursor>,
    rows: i64,
) -> Result<Vec<Listed>, Error> {
    let configures = configures(caller);
    let wanted = Wanted {
        usable_by: (!configures).then_some(caller.user),
        only: caller.reach.sources.as_deref(),
        after,
        rows,
    };
    let mut tx = ctx.begin(caller.tenant).await?;
    let servers = store::servers::page(&mut tx, wanted).await?;
    let cursors: Vec<Cursor> = servers.iter().map(cursor).collect();
    let shown: Vec<Shown> = if configures {
        let full = with_secret_names(&mut tx, servers).await?;
        full.into_iter().map(|one| Shown::Configured(Box::new(one))).collect()
    } else {
        let own = connections::states(ctx, &mut tx, caller.user).await?;
        servers.into_iter().map(|server| Shown::Visible(visible(server, &own))).collect()
    };
    tx.commit().await?;
    let listed = cursors.into_iter().zip(shown);
    Ok(listed.map(|(cursor, shown)| Listed { cursor, shown }).collect())
}

fn cursor(server: &Server) -> Cursor {
    Cursor { created_at: server.created_at, id: server.id.clone() }
}

/// One server, by id or slug.
pub async fn get(ctx: &Ctx, caller: &Caller, server: &str) -> Result<Shown, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let shown = if configures(caller) {
        let server = find(&mut tx, caller, server).await?;
        Shown::Configured(Box::new(one_configured(&mut tx, server).await?))
    } else {
        let server = connections::hold_own(&mut tx, caller, server).await?;
        let own = connections::states(ctx, &mut tx, caller.user).await?;
        Shown::Visible(visible(server, &own))
    };
    tx.commit().await?;
    Ok(shown)
}

/// Whether the caller is asked as a superadmin: the role, and a token that may use it.
pub(crate) fn configures(caller: &Caller) -> bool {
    caller.require_role(Role::Superadmin).is_ok()
}

/// A server that the caller may see; whatever else is no server for them.
pub(crate) async fn find(tx: &mut Tx, caller: &Caller, server: &str) -> Result<Server, Error> {
    visible_to(caller, store::servers::find(tx, server).await?)
}

/// A server for a superadmin to change.
pub(crate) async fn lock(tx: &mut Tx, caller: &Caller, server: &str) -> Result<Server, Error> {
    let found = store::servers::lock(tx, server).await?;
    found.filter(|server| caller.reach.covers_source(&server.id)).ok_or_else(unknown)
}

/// As [`find`]; until the transaction ends nobody changes the server.
async fn hold(tx: &mut Tx, caller: &Caller, server: &str) -> Result<Server, Error> {
    visible_to(caller, store::servers::hold(tx, server).await?)
}

fn visible_to(caller: &Caller, found: Option<Server>) -> Result<Server, Error> {
    found
        .filter(|server| caller.reach.covers_source(&server.id))
        .filter(|server| server.enabled || configures(caller))
        .ok_or_else(unknown)
}

fn unknown() -> Error {
    Error::not_found("server")
}

async fn one_configured(tx: &mut Tx, server: Server) -> Result<Configured, Error> {
    let one = with_secret_names(tx, vec![server]).await?.pop();
    one.ok_or_else(|| Error::internal("one server gave none"))
}

async fn with_secret_names(
    tx: &mut Tx,
    servers: Vec<Server>,
) -> Result<Vec<Configured>, StoreError> {
    let ids: Vec<ServerId> = servers.iter().map(|server| server.id.clone()).collect();
    let mut names: HashMap<ServerId, Vec<SecretName>> = HashMap::new();
    for secret in store::servers::secret_names(tx, &ids).await? {
        names.entry(secret.server.clone()).or_default().push(secret);
    }
    let configured = servers.into_iter().map(|server| {
        let names = names.remove(&server.id).unwrap_or_default();
        let of = |wanted: SecretKind| {
            let names = names.iter().filter(move |secret| secret.kind == wanted);
            names.map(|secret| secret.name.clone()).collect::<Vec<_>>()
        };
        let variables: BTreeSet<&String> =
            names.iter().flat_map(|secret| &secret.variables).collect();
        Configured {
            env: of(SecretKind::Env),
            headers: of(SecretKind::Header),
            variables: variables.into_iter().cloned().collect(),
            client_secret: !of(SecretKind::ClientSecret).is_empty(),
            server,
        }
    });
    Ok(configured.collect())
}

fn visible(server: Server, own: &HashMap<ServerId, ConnectionState>) -> Visible {
    Visible {
        state: match CredentialKind::of(server.reach.auth_mode) {
            None => PageState::NotRequired,
            Some(_) => PageState::Own(
                own.get(&server.id).copied().unwrap_or(ConnectionState::Disconnected),
            ),
        },
        revision: server.form_revision,
        id: server.id,
        slug: server.slug,
        name: server.name,
        description: server.description,
        icon: server.icon,
        tags: server.tags,
        auth_mode: server.reach.auth_mode,
        enabled: server.enabled,
    }
}

/// Asks for the tools of an enabled server, once the transaction commits.
async fn enqueue_discovery(tx: &mut Tx, server: &Server) -> Result<(), StoreError> {
    if !server.enabled {
        return Ok(());
    }
    let job = DiscoverTools {
        tenant_id: tx.tenant(),
        server_id: server.id.clone(),
        user_id: None,
        attempt: 0,
    };
    store::jobs::push(tx, &job).await
}

/// Closes the clients that still speak to an earlier revision, or to a server that is off.
async fn forget_clients(ctx: &Ctx, tenant: TenantId, server: &ServerId) {
    ctx.mcp.forget(tenant, server).await;
}
