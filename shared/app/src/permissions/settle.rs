//! Ending a question: each ending has its event, each answer its authorization and leaf.

use domain::{
    Error,
    audit::AuthorizationRecord,
    ids::{PermissionGrantId, PermissionRequestId, SessionId},
    permission::{AuthorizationSource, RequestState, Settled},
};
use serde_json::json;
use store::{Tx, requests::Question};

use crate::{Ctx, events, sessions::Session, signals::Hint};

/// What an answer rests on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground {
    pub(crate) source: AuthorizationSource,
    pub(crate) grant: Option<PermissionGrantId>,
}

/// Answers a pending question that the caller has locked (or has just inserted), in the session's
/// present epoch and mode. [`announce`] after the commit.
pub(crate) async fn settle(
    ctx: &Ctx,
    tx: &mut Tx,
    session: &Session,
    question: &Question,
    ground: Ground,
) -> Result<AuthorizationRecord, Error> {
    let record = AuthorizationRecord {
        tenant: tx.tenant(),
        authorization: ctx.mint(),
        session: session.id,
        user: session.owner,
        action: question.matches.action.clone(),
        resource: question.resource.clone(),
        mode: session.mode,
        outcome: ground.source.into(),
        source: ground.source,
        epoch: session.epoch,
        grant: ground.grant,
        request: Some(question.id),
        execution: Some(question.execution),
        tool_call_id: Some(question.tool_call_id.clone()),
        definition_hash: question.matches.definition_hash,
        input_digest: Some(question.input_digest),
        created_at: ctx.now(),
    };
    store::authorizations::insert(tx, &record).await?;
    let state = if ground.source.allows() { RequestState::Allowed } else { RequestState::Denied };
    let settled = Settled { authorization: record.authorization, source: record.source };
    end(ctx, tx, question, state, Some(settled)).await?;
    Ok(record)
}

/// Cancels a pending question that the caller has locked. [`announce`] after the commit.
pub(crate) async fn cancel_locked(
    ctx: &Ctx,
    tx: &mut Tx,
    question: &Question,
) -> Result<(), Error> {
    end(ctx, tx, question, RequestState::Cancelled, None).await
}

async fn end(
    ctx: &Ctx,
    tx: &mut Tx,
    question: &Question,
    state: RequestState,
    settled: Option<Settled>,
) -> Result<(), Error> {
    if !store::requests::resolve(tx, question.id, state, settled, ctx.now()).await? {
        return Err(Error::internal("a question that was locked as pending was not"));
    }
    let mut data = json!({ "permissionRequestId": question.id, "state": state });
    if let Some(settled) = settled {
        data["permissionAuthorizationId"] = json!(settled.authorization);
        data["source"] = json!(settled.source);
    }
    events::append(ctx, tx, question.session, "permission.resolved", data).await
}

/// Wakes whoever waits for these questions, and the readers of the session's events.
pub(crate) fn announce(
    ctx: &Ctx,
    session: SessionId,
    questions: impl IntoIterator<Item = PermissionRequestId>,
) {
    for id in questions {
        ctx.signals.hint(Hint::Question(id));
    }
    events::hint(ctx, session);
}
