//! Questions with the names of what they are about, for a person's screen.

use domain::{Caller, Error, ids::PermissionRequestId, permission::RequestState};
use store::requests::{Names, Question, names};

use super::read;
use crate::Ctx;

/// A question as a person reads it.
#[derive(Debug, Clone)]
pub struct Card {
    pub question: Question,
    pub names: Names,
}

/// One question of the caller's own. `NOT_FOUND` for everybody else's.
pub async fn card(ctx: &Ctx, caller: &Caller, id: PermissionRequestId) -> Result<Card, Error> {
    let question = read::get(ctx, caller, id).await?;
    named(ctx, caller, vec![question]).await?.pop().ok_or_else(read::unknown)
}

/// The caller's pending questions, newest first.
pub async fn cards(
    ctx: &Ctx,
    caller: &Caller,
    after: Option<PermissionRequestId>,
    rows: i64,
) -> Result<Vec<Card>, Error> {
    let pending = Some(RequestState::Pending);
    let questions = read::list(ctx, caller, None, pending, after, rows).await?;
    named(ctx, caller, questions).await
}

async fn named(ctx: &Ctx, caller: &Caller, questions: Vec<Question>) -> Result<Vec<Card>, Error> {
    let ids: Vec<PermissionRequestId> = questions.iter().map(|question| question.id).collect();
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut names = names(&mut tx, &ids).await?;
    tx.commit().await?;
    let cards = questions.into_iter().filter_map(|question| {
        let names = names.remove(&question.id)?;
        Some(Card { question, names })
    });
    Ok(cards.collect())
}
