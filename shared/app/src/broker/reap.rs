//! Closes the calls that nobody will end. Of a dead node, one whose result was stored succeeded; every
//! other one was interrupted, and is not sent again. One that its client left and did not come back to
//! in time was cancelled.

use domain::{
    Code, Error,
    audit::{self, InvocationRecord},
    invocation::Status,
};
use serde_json::{Value, json};
use store::calls::{CallName, Closing};

use crate::{Ctx, permissions, signals::Hint};

/// Closes up to `most` such calls; answers how many.
pub async fn reap(ctx: &Ctx, most: i32) -> Result<usize, Error> {
    let names = store::calls::orphan_names(&ctx.db, ctx.now(), most).await?;
    let mut reaped = 0;
    for name in names {
        match reap_one(ctx, &name).await {
            Ok(closed) => reaped += usize::from(closed),
            Err(error) if error.code == Code::Unavailable => return Err(error),
            // One row that cannot be closed must not keep all the others open.
            Err(error) => tracing::error!(
                tenant = %name.tenant,
                execution = %name.execution,
                error = &error as &dyn std::error::Error,
                "a call that nobody will end could not be closed"
            ),
        }
    }
    Ok(reaped)
}

async fn reap_one(ctx: &Ctx, name: &CallName) -> Result<bool, Error> {
    let mut tx = ctx.begin(name.tenant).await?;
    let Some(orphan) = store::calls::orphan(&mut tx, name, ctx.now()).await? else {
        return Ok(false);
    };
    let Some(invocation) =
        store::invocations::find(&mut tx, orphan.session, orphan.invocation).await?
    else {
        return Ok(false);
    };
    let stored = orphan.raw.zip(orphan.result);
    let (status, code) = match stored {
        Some(_) => (Status::Succeeded, None),
        None if orphan.left => (Status::Cancelled, Some(Code::Cancelled)),
        None => (Status::Failed, Some(Code::Interrupted)),
    };
    let message = match (code, orphan.sent_at) {
        (None, _) => None,
        (Some(Code::Cancelled), _) => Some("the caller did not come back in time"),
        (Some(_), Some(_)) => Some("the node died during the call; whether it ran is unknown"),
        (Some(_), None) => Some("the node died before the call was sent"),
    };
    let at = ctx.now();
    let leaf = audit::invocation_leaf(&InvocationRecord {
        tenant: name.tenant,
        invocation: orphan.invocation,
        session: orphan.session,
        user: invocation.user,
        execution: name.execution,
        token: invocation.token,
        origin: invocation.origin,
        source_id: invocation.source.clone(),
        tool_id: invocation.tool.clone(),
        request_sha256: invocation.request,
        created_at: invocation.created_at,
        status,
        error_code: code,
        authorization_id: orphan.authorization,
        raw_sha256: orphan.raw,
        result_sha256: orphan.result,
        finished_at: at,
    });
    let nothing = Value::Array(Vec::new());
    let attempts = orphan.attempts.as_ref().unwrap_or(&nothing);
    // What a held caller was asked about lives on without the call; what a client did not come back to
    // is nobody's any more.
    let question = if orphan.left {
        store::requests::of_call(&mut tx, orphan.session, name).await?
    } else {
        None
    };
    let was_pending = match question {
        Some(question) => permissions::end_with_call(ctx, &mut tx, question).await?,
        None => false,
    };
    let closed = store::calls::close_within(
        &mut tx,
        &Closing {
            name,
            invocation: orphan.invocation,
            session: orphan.session,
            status,
            error_code: code.map(Code::as_str),
            error_message: message,
            retryable: code.map(|_| false),
            queue_wait_ms: 0,
            duration_ms: (at - orphan.created_at).num_milliseconds().max(0),
            cache_hit: false,
            attempts,
            warnings: &nothing,
            authorization: orphan.authorization,
            raw: orphan.raw,
            raw_body: None,
            result: orphan.result,
            result_body: None,
            at,
            leaf,
            event: &json!({
                "invocationId": orphan.invocation,
                "sourceId": invocation.source,
                "toolId": invocation.tool,
                "status": status,
                "errorCode": code,
            }),
            node: orphan.node,
            parked: Some(orphan.parked),
        },
    )
    .await?;
    if !closed {
        return Ok(false);
    }
    tx.commit().await?;
    if let Some(question) = question.filter(|_| was_pending) {
        permissions::announce(ctx, orphan.session, [question]);
    } else {
        ctx.signals.hint(Hint::Events(orphan.session));
    }
    Ok(true)
}
