//! What a person is connected to.

use std::collections::HashMap;

use domain::{
    Caller, Error, Scope, Timestamp,
    connection::{Connection, ConnectionState, CredentialKind, ReconnectReason},
    ids::{ServerId, UserId},
};
use store::{Tx, servers::Server, vault::Sealed};

use super::{
    PageState, Shown,
    clear::{Grants, can_revoke},
    hold_own,
};
use crate::Ctx;

/// The servers that the caller may use, or left something with, and how far they are with each; by
/// name.
pub async fn list(ctx: &Ctx, caller: &Caller) -> Result<Vec<Shown>, Error> {
    caller.require_scope(Scope::ApiRead)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let own = store::connections::of_person(&mut tx, caller.user).await?;
    let sealed = store::connections::credentials_of(&mut tx, caller.user).await?;
    let pending = store::oauth_attempts::pending_of(&mut tx, caller.user, ctx.now()).await?;
    let servers = store::servers::all(&mut tx).await?;
    tx.commit().await?;
    let mut own: HashMap<ServerId, Connection> =
        own.into_iter().map(|one| (one.server.clone(), one)).collect();
    let sealed: HashMap<ServerId, Sealed> = sealed.into_iter().collect();
    let pending: HashMap<ServerId, Timestamp> = pending.into_iter().collect();
    let grants = Grants::open(ctx, caller, sealed.iter());
    let visible = servers.iter().filter(|server| caller.reach.covers_source(&server.id));
    let listed = visible.filter_map(|server| {
        let own = own.remove(&server.id);
        let left = own.as_ref().is_some_and(|own| own.state != ConnectionState::Disconnected);
        (server.enabled || left).then(|| {
            let (until, sealed) = (pending.get(&server.id).copied(), sealed.get(&server.id));
            let revocable = grants.revocable(&server.id).is_some();
            Shown { revocable, ..shown(ctx, server, own, until, sealed) }
        })
    });
    Ok(listed.collect())
}

/// How far a person is with each server that they had to do with.
pub(crate) async fn states(
    ctx: &Ctx,
    tx: &mut Tx,
    user: UserId,
) -> Result<HashMap<ServerId, ConnectionState>, Error> {
    let own = store::connections::of_person(tx, user).await?;
    let sealed: HashMap<ServerId, Sealed> =
        store::connections::credentials_of(tx, user).await?.into_iter().collect();
    let states = own.into_iter().map(|own| {
        let unreadable = sealed.get(&own.server).is_some_and(|one| !ctx.vault.can_open(one));
        let state = if unreadable { ConnectionState::ReconnectRequired } else { own.state };
        (own.server, state)
    });
    Ok(states.collect())
}

/// How far the caller is with one server.
pub async fn one(ctx: &Ctx, caller: &Caller, server: &str) -> Result<Shown, Error> {
    caller.require_scope(Scope::ApiRead)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = hold_own(&mut tx, caller, server).await?;
    let own = store::connections::find(&mut tx, &server.id, caller.user).await?;
    let sealed = store::connections::credential(&mut tx, &server.id, caller.user).await?;
    let pending = store::oauth_attempts::pending_of(&mut tx, caller.user, ctx.now()).await?;
    let revocable = can_revoke(ctx, &mut tx, caller, &server.id).await?;
    tx.commit().await?;
    let until = pending.into_iter().find(|(id, _)| *id == server.id).map(|(_, until)| until);
    Ok(Shown { revocable, ..shown(ctx, &server, own, until, sealed.as_ref()) })
}

/// A connected one whose credential no key opens is to be made anew, as long as that lasts. Whether it
/// can be revoked is for the caller to say.
pub(super) fn shown(
    ctx: &Ctx,
    server: &Server,
    own: Option<Connection>,
    pending_until: Option<Timestamp>,
    sealed: Option<&Sealed>,
) -> Shown {
    let base = Shown {
        server: server.id.clone(),
        slug: server.slug.clone(),
        name: server.name.clone(),
        auth_mode: server.reach.auth_mode,
        enabled: server.enabled,
        revision: server.form_revision,
        state: PageState::NotRequired,
        kind: None,
        account: None,
        scopes: Vec::new(),
        needs_scopes: Vec::new(),
        expires_at: None,
        connected_at: None,
        last_used_at: None,
        reason: None,
        pending_until,
        revocable: false,
    };
    let Some(kind) = CredentialKind::of(server.reach.auth_mode) else { return base };
    let Some(own) = own else {
        let state = PageState::Own(ConnectionState::Disconnected);
        return Shown { state, kind: Some(kind), ..base };
    };
    let unreadable = own.state == ConnectionState::Connected
        && sealed.is_some_and(|sealed| !ctx.vault.can_open(sealed));
    let (state, reason) = if unreadable {
        (ConnectionState::ReconnectRequired, Some(ReconnectReason::Unreadable))
    } else {
        (own.state, own.reason)
    };
    Shown {
        state: PageState::Own(state),
        kind: Some(kind),
        account: own.account,
        scopes: own.scopes,
        needs_scopes: own.needs_scopes,
        expires_at: own.expires_at,
        connected_at: own.connected_at.filter(|_| own.state == ConnectionState::Connected),
        last_used_at: own.last_used_at,
        reason,
        ..base
    }
}
