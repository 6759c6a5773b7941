//! A person answers.

use domain::{
    Caller, Error, Scope,
    audit::AuthorizationRecord,
    ids::PermissionRequestId,
    permission::{AuthorizationSource, Decision, EpochReason, RequestState},
};
use serde_json::json;
use store::{Tx, epochs::Epoch, grants::Grant, requests::Question};

use super::{Ground, announce, read, settle};
use crate::{
    Ctx, audit, epochs, events,
    sessions::{self, Session},
};

/// What a decision brought about.
#[derive(Debug, Clone)]
pub struct Decided {
    pub request: Question,
    /// Of the question that was decided.
    pub authorization: AuthorizationRecord,
    /// Of all questions that the decision answered, that one first.
    pub authorizations: Vec<AuthorizationRecord>,
    pub grant: Option<Grant>,
    /// The epoch that the decision began, and that all of its authorizations name.
    pub epoch: Epoch,
    /// All questions that the decision answered, the one that was decided first.
    pub resolved: Vec<Question>,
}

/// Decides a pending question of the caller's own session. `allow_matching` makes a grant too, and
/// answers every pending question of the session that it matches.
///
/// `DENIED` without the scope `approve`; `NOT_FOUND` for foreign questions and such about a tool that
/// the token does not reach; `PERMISSION_ALREADY_RESOLVED` for the loser of two, and for a question
/// whose time is over; `SESSION_ARCHIVED`.
pub async fn decide(
    ctx: &Ctx,
    caller: &Caller,
    id: PermissionRequestId,
    decision: Decision,
) -> Result<Decided, Error> {
    caller.require_scope(Scope::Approve)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let seen = read::own(&mut tx, caller, id).await?;
    check_reach(&mut tx, caller, &seen).await?;
    // From here on decisions of the session come one after the other.
    let mut session = sessions::lock_writable(&mut tx, caller, seen.session).await?;
    let question = store::requests::lock(&mut tx, id).await?;
    let question = question.ok_or_else(read::unknown)?;
    question.request().decide(decision, ctx.now())?;
    let epoch = epochs::advance(ctx, &mut tx, &mut session, EpochReason::Decision).await?;
    let (source, grant) = match decision {
        Decision::AllowOnce => (AuthorizationSource::UserOnce, None),
        Decision::Deny => (AuthorizationSource::UserDeny, None),
        Decision::AllowMatching => {
            let grant = make_grant(ctx, &mut tx, caller, &session, &question).await?;
            (AuthorizationSource::UserGrant, Some(grant))
        }
    };
    let ground = Ground { source, grant: grant.as_ref().map(|grant| grant.id) };
    let authorization = settle(ctx, &mut tx, &session, &question, ground).await?;
    let mut answered = vec![(id, authorization.clone())];
    if let Some(grant) = &grant {
        answered.extend(release(ctx, &mut tx, &session, grant).await?);
    }
    let mut resolved = Vec::with_capacity(answered.len());
    for (id, _) in &answered {
        resolved.extend(store::requests::find(&mut tx, *id).await?);
    }
    tx.commit().await?;
    announce(ctx, session.id, answered.iter().map(|(id, _)| *id));
    let request = resolved.first().cloned().ok_or_else(read::unknown)?;
    let authorizations = answered.into_iter().map(|(_, record)| record).collect();
    Ok(Decided { request, authorization, authorizations, grant, epoch, resolved })
}

/// A token of single servers or tools decides about these only.
async fn check_reach(tx: &mut Tx, caller: &Caller, question: &Question) -> Result<(), Error> {
    let (Some(server), Some(tool)) = (&question.server, &question.tool) else { return Ok(()) };
    if !caller.reach.covers_source(server) {
        return Err(read::unknown());
    }
    if caller.reach.tools.is_some() {
        let name = store::requests::agent_name(tx, server, tool).await?;
        if !name.is_some_and(|name| caller.reach.covers_tool(&name)) {
            return Err(read::unknown());
        }
    }
    Ok(())
}

async fn make_grant(
    ctx: &Ctx,
    tx: &mut Tx,
    caller: &Caller,
    session: &Session,
    question: &Question,
) -> Result<Grant, Error> {
    let grant = Grant {
        id: ctx.mint(),
        session: session.id,
        matches: question.matches.clone(),
        created_at: ctx.now(),
        revoked_at: None,
    };
    store::grants::insert(tx, &grant).await?;
    let details = json!({
        "permissionGrantId": grant.id,
        "permissionEpochId": session.epoch,
        "action": grant.matches.action,
        "resourceClass": grant.matches.resource_class,
        "definitionHash": grant.matches.definition_hash,
    });
    let subject = grant.id.to_string();
    audit::record(ctx, tx, caller, "grant.created", &subject, details.clone()).await?;
    events::append(ctx, tx, session.id, "grant.created", details).await?;
    Ok(grant)
}

/// Answers every other pending question that the new grant covers.
async fn release(
    ctx: &Ctx,
    tx: &mut Tx,
    session: &Session,
    grant: &Grant,
) -> Result<Vec<(PermissionRequestId, AuthorizationRecord)>, Error> {
    let ground = Ground { source: AuthorizationSource::ExistingGrant, grant: Some(grant.id) };
    let now = ctx.now();
    let mut answered = Vec::new();
    for question in store::requests::lock_pending(tx, session.id).await? {
        let open = question.request().shown_state(now) == RequestState::Pending;
        if open && question.matches == grant.matches {
            let record = settle(ctx, tx, session, &question, ground).await?;
            answered.push((question.id, record));
        }
    }
    Ok(answered)
}
