//! Every change of configuration, people, tokens, policy, mode and grants leaves a record and its
//! leaf, in the transaction of the change.

use domain::{
    Caller, Error, Via,
    audit::{EventRecord, event_leaf},
    ids::UserId,
};
use serde_json::Value;
use store::Tx;

use crate::Ctx;

/// Records that `caller` did `action` (`<noun>.<past participle>`) to the thing with the id `subject`.
///
/// `details` are ids, codes and numbers: the record outlives every person, so no words of theirs.
pub async fn record(
    ctx: &Ctx,
    tx: &mut Tx,
    caller: &Caller,
    action: &str,
    subject: &str,
    details: Value,
) -> Result<(), Error> {
    let (actor, via) = match caller.via {
        Via::Operator => (None, "operator".to_owned()),
        Via::Console(id) => (Some(caller.user), format!("console:{id}")),
        Via::Token(id) => (Some(caller.user), format!("token:{id}")),
        Via::Gateway(id) => (Some(caller.user), format!("gateway:{id}")),
        Via::Company(_) => (Some(caller.user), "gateway:company".to_owned()),
    };
    append(ctx, tx, (actor, &via), action, subject, &details).await
}

/// The same for the operator on the machine, who is no person of the tenant.
pub async fn record_operator(
    ctx: &Ctx,
    tx: &mut Tx,
    action: &str,
    subject: &str,
    details: Value,
) -> Result<(), Error> {
    append(ctx, tx, (None, "operator"), action, subject, &details).await
}

/// The same for what the service does by itself: a discovery, a timer.
pub async fn record_service(
    ctx: &Ctx,
    tx: &mut Tx,
    action: &str,
    subject: &str,
    details: Value,
) -> Result<(), Error> {
    append(ctx, tx, (None, "service"), action, subject, &details).await
}

async fn append(
    ctx: &Ctx,
    tx: &mut Tx,
    (actor, via): (Option<UserId>, &str),
    action: &str,
    subject: &str,
    details: &Value,
) -> Result<(), Error> {
    let record = EventRecord {
        tenant: tx.tenant(),
        event: ctx.mint(),
        actor,
        via,
        action,
        subject,
        details,
        created_at: ctx.now(),
    };
    let leaf = event_leaf(&record)?;
    Ok(store::audit::insert(tx, &record, leaf).await?)
}
