//! The one server of a pass-through endpoint, as its caller may use it at this moment.

use std::time::Duration;

use coordination::Group;
use domain::{
    Caller, Code, Error,
    delegation::Subject,
    ids::{ServerId, SessionId},
    server::Governance,
    session::effective_selection,
};
use outbound::mcp::Target;

use super::OwnSession;
use crate::{Ctx, identity, servers::load_target, sessions};

/// A server that was in reach, selected and switched on when it was looked at.
#[derive(Debug, Clone)]
pub struct Source {
    pub server: ServerId,
    pub name: String,
    pub revision: i64,
    /// Whether the server may ask clients to use their model.
    pub relays_sampling: bool,
    pub(super) session: SessionId,
    pub(super) target: Target,
    pub(super) group: Group,
    pub(super) timeout: Duration,
    pub(super) response_limit: u64,
}

/// Looks at the server that an endpoint names by id or slug, as a call of the session would.
///
/// `NOT_FOUND` for a session that is not the caller's, and for a server outside of reach or selection;
/// `SESSION_ARCHIVED`; `SOURCE_DISABLED`; and whatever keeps its address from being known.
pub async fn enter(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    server: &str,
) -> Result<Source, Error> {
    let unknown = || Error::not_found("server");
    if caller.reach.tools.is_some() {
        // What a server has besides tools is in no list of tools.
        let words = "a token that is limited to single tools has no pass-through form";
        return Err(Error::new(Code::Denied, words));
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    let own = sessions::readable(&mut tx, caller, session).await?;
    if own.archived_at.is_some() {
        return Err(Error::new(Code::SessionArchived, "the session is archived"));
    }
    let lists = store::sessions::selection(&mut tx, session, caller.user).await?;
    let lists = lists.ok_or_else(|| Error::not_found("session"))?;
    let selection =
        effective_selection(&lists.tenant, lists.project.as_deref(), lists.session.as_deref());
    let found = store::servers::find(&mut tx, server).await?;
    let found = found
        .filter(|found| selection.contains(&found.id) && caller.reach.covers_source(&found.id))
        .ok_or_else(unknown)?;
    if !found.enabled {
        return Err(Error::new(Code::SourceDisabled, "the server is switched off"));
    }
    let who = Subject { tenant: caller.tenant, user: caller.user, session: Some(session) };
    let target = load_target(ctx, &mut tx, &found, Some(who)).await?;
    tx.commit().await?;
    let governance = Governance::resolve(found.governance);
    Ok(Source {
        revision: found.config_revision,
        relays_sampling: governance.relay_sampling,
        session,
        target,
        group: Group {
            key: format!("{}/{}", caller.tenant, found.id),
            max_concurrent: governance.max_concurrent,
            max_queue_depth: governance.max_queue_depth,
            queue_timeout: governance.queue_timeout,
            min_interval: governance.min_interval,
        },
        timeout: found.timeout,
        response_limit: governance.max_response_bytes,
        server: found.id,
        name: found.name,
    })
}

impl Source {
    /// Whether it is still as it was looked at, for the same caller: for what lasts or has waited.
    ///
    /// `SERVER_CHANGED` for another revision; otherwise as [`enter`].
    pub async fn recheck(&self, ctx: &Ctx, caller: &Caller) -> Result<(), Error> {
        let caller = identity::recheck(ctx, caller).await?;
        let now = enter(ctx, &caller, self.session, self.server.as_str()).await?;
        if now.revision != self.revision {
            return Err(changed());
        }
        Ok(())
    }

    /// Refuses an upstream session of another server, or of what this one was before it was configured
    /// anew.
    pub fn check_own(&self, own: &OwnSession) -> Result<(), Error> {
        if own.server != self.server || own.revision != self.revision {
            return Err(changed());
        }
        Ok(())
    }

    pub(super) fn target(&self, own: Option<&OwnSession>) -> Target {
        let target = self.target.clone();
        match own {
            Some(own) => own.aim(target),
            None => target,
        }
    }
}

fn changed() -> Error {
    Error::new(Code::ServerChanged, "the server's configuration changed since this session began")
}
