//! Personal connections: each person's own account at a server. Nobody acts on another's.

mod clear;
pub(crate) mod credential;
pub(crate) mod grant;
mod list;
pub mod oauth;
mod secret;

use domain::{
    Caller, Code, Error, Role, Scope, Timestamp,
    connection::{Connection, ConnectionState, CredentialKind, ReconnectReason},
    ids::ServerId,
    jobs::DiscoverTools,
    server::AuthMode,
};
use serde_json::json;
use store::{Tx, servers::Server};

pub use clear::{Cleared, Revocation, clear};
pub(crate) use list::states;
pub use list::{list, one};
pub use secret::put_secret;

use crate::{Ctx, audit, servers};

/// What a server wants of a person, and how far they are; never a credential.
#[derive(Debug, Clone)]
pub struct Shown {
    pub server: ServerId,
    pub slug: String,
    pub name: String,
    pub auth_mode: AuthMode,
    pub enabled: bool,
    /// Of the server: forms submit what they saw.
    pub revision: i64,
    pub state: PageState,
    pub kind: Option<CredentialKind>,
    pub account: Option<String>,
    pub scopes: Vec<String>,
    pub needs_scopes: Vec<String>,
    pub expires_at: Option<Timestamp>,
    pub connected_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub reason: Option<ReconnectReason>,
    /// A try that the person began and has not ended.
    pub pending_until: Option<Timestamp>,
    /// Whether the provider can be told when the person disconnects.
    pub revocable: bool,
}

/// How far somebody is, as pages tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState {
    /// The server needs nobody's account.
    NotRequired,
    Own(ConnectionState),
}

impl PageState {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotRequired => "not_required",
            Self::Own(state) => state.as_str(),
        }
    }
}

/// Ends what the person has under way at a server; what is connected stays so. Idempotent.
pub async fn cancel(ctx: &Ctx, caller: &Caller, server: &str) -> Result<Shown, Error> {
    caller.require_scope(Scope::Approve)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = hold_own(&mut tx, caller, server).await?;
    let connection = store::connections::lock(&mut tx, &server.id, caller.user, ctx.now()).await?;
    let sealed = store::connections::credential(&mut tx, &server.id, caller.user).await?;
    let ended = store::oauth_attempts::void_own(&mut tx, &server.id, caller.user).await?;
    if ended > 0 {
        let (id, details) = (server.id.as_str(), json!({ "attempts": ended }));
        audit::record(ctx, &mut tx, caller, "connection.cancelled", id, details).await?;
    }
    let revocable = clear::can_revoke(ctx, &mut tx, caller, &server.id).await?;
    tx.commit().await?;
    Ok(Shown { revocable, ..list::shown(ctx, &server, Some(connection), None, sealed.as_ref()) })
}

/// Takes everybody's credential out. For superadmins. How many were connected.
pub async fn disconnect_everyone(ctx: &Ctx, caller: &Caller, server: &str) -> Result<u64, Error> {
    caller.require_role(Role::Superadmin)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = servers::lock(&mut tx, caller, server).await?;
    let cleared =
        clear_everybody(ctx, &mut tx, &server.id, ReconnectReason::EndedForEveryone).await?;
    let details = json!({ "connections": cleared });
    let action = "server.everyone_disconnected";
    audit::record(ctx, &mut tx, caller, action, server.id.as_str(), details).await?;
    tx.commit().await?;
    ctx.mcp.forget(caller.tenant, &server.id).await;
    Ok(cleared)
}

/// What goes with a new configuration of a locked server: nothing that was given to the old one is good
/// for the new one, not even if the old one comes back.
pub(crate) async fn clear_everybody(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &ServerId,
    reason: ReconnectReason,
) -> Result<u64, Error> {
    let cleared = store::connections::clear_all(tx, server, reason, ctx.now()).await?;
    store::oauth_attempts::void_all(tx, server).await?;
    Ok(cleared)
}

/// A server that the caller may connect to or has to do with, held against changes until commit.
pub(crate) async fn hold_own(tx: &mut Tx, caller: &Caller, server: &str) -> Result<Server, Error> {
    let unknown = || Error::not_found("server");
    let found = store::servers::hold(tx, server).await?;
    let found =
        found.filter(|server| caller.reach.covers_source(&server.id)).ok_or_else(unknown)?;
    if found.enabled {
        return Ok(found);
    }
    let own = store::connections::find(tx, &found.id, caller.user).await?;
    let own =
        own.unwrap_or_else(|| Connection::none(found.id.clone(), caller.user, found.updated_at));
    if sees(caller, &found, &own) { Ok(found) } else { Err(unknown()) }
}

/// Whether a server that the caller reaches is there for them: one that is switched off is for who
/// configures it, and for whoever left something with it and can see to that.
pub(crate) fn sees(caller: &Caller, server: &Server, own: &Connection) -> bool {
    server.enabled || servers::configures(caller) || own.state != ConnectionState::Disconnected
}

/// What the person would put into this server. `CONFLICT` where that is nothing.
pub(crate) fn personal(server: &Server) -> Result<CredentialKind, Error> {
    CredentialKind::of(server.reach.auth_mode).ok_or_else(|| {
        let words = "this server needs no account of yours";
        Error::new(Code::Conflict, words)
    })
}

/// Refuses a form that was made from another configuration, and a server that is switched off.
pub(crate) fn still_the_same(server: &Server, seen: i64) -> Result<(), Error> {
    if !server.enabled {
        return Err(Error::new(Code::SourceDisabled, "the server is switched off"));
    }
    if server.form_revision != seen {
        let words = "the server was changed since this form was loaded";
        return Err(Error::new(Code::RevisionConflict, words)
            .with_details(json!({ "revision": server.form_revision })));
    }
    Ok(())
}

/// What follows once a person is connected: a superadmin's account is what an enabled server, of which
/// nothing is known yet, is asked for its tools with.
pub(crate) async fn connected(
    tx: &mut Tx,
    caller: &Caller,
    server: &Server,
    connection: &Connection,
) -> Result<(), Error> {
    if caller.role < Role::Superadmin || !server.enabled || server.pinned_at.is_some() {
        return Ok(());
    }
    let job = DiscoverTools {
        tenant_id: tx.tenant(),
        server_id: server.id.clone(),
        user_id: Some(connection.user),
        attempt: 0,
    };
    Ok(store::jobs::push(tx, &job).await?)
}
