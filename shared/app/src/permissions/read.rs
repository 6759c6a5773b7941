//! Reading the questions of one's own sessions.

use domain::{
    Caller, Error,
    ids::{PermissionRequestId, SessionId},
    permission::RequestState,
};
use store::{
    Tx,
    requests::{Filter, Question},
};

use crate::{Ctx, sessions};

/// The caller's questions, or those of one session of theirs; newest first. An expired question counts
/// as cancelled.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    session: Option<SessionId>,
    state: Option<RequestState>,
    after: Option<PermissionRequestId>,
    rows: i64,
) -> Result<Vec<Question>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let only = sessions::narrowed(&mut tx, caller, session).await?;
    let filter = Filter { user: caller.user, sessions: only.as_deref(), state };
    let page = store::requests::list(&mut tx, &filter, ctx.now(), after, rows).await?;
    tx.commit().await?;
    Ok(page.into_iter().map(|question| shown(ctx, question)).collect())
}

pub async fn get(ctx: &Ctx, caller: &Caller, id: PermissionRequestId) -> Result<Question, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let question = own(&mut tx, caller, id).await?;
    tx.commit().await?;
    Ok(shown(ctx, question))
}

pub(super) async fn own(
    tx: &mut Tx,
    caller: &Caller,
    id: PermissionRequestId,
) -> Result<Question, Error> {
    let question = store::requests::find(tx, id).await?;
    question
        .filter(|question| {
            question.user == caller.user && caller.reach.covers_session(question.session)
        })
        .ok_or_else(unknown)
}

pub(super) fn unknown() -> Error {
    Error::not_found("permission request")
}

/// An expired question is cancelled, whether or not the reaper has come by.
fn shown(ctx: &Ctx, mut question: Question) -> Question {
    let state = question.request().shown_state(ctx.now());
    if state != question.state {
        question.state = state;
        question.resolved_at = question.expires_at;
    }
    question
}
