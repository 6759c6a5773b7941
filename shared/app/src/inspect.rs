//! The Inspector: a person tries one tool by hand, with the right to approve.

use std::time::Duration;

use domain::{
    Caller, Code, Error, Scope,
    ids::{InvocationId, ServerId, SessionId},
    invocation::Origin,
    limits,
};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    Ctx,
    broker::{self, Asked, Asking, CallRequest, CallResult, Outcome},
    idempotency, servers,
    through::Upstream,
};

/// What is tried.
#[derive(Debug)]
pub struct Trial {
    pub session: SessionId,
    /// As the server calls it.
    pub tool_name: String,
    /// The JSON object of its arguments, which goes to the server as it was written.
    pub input: Box<RawValue>,
}

/// How it went.
#[derive(Debug)]
pub struct Inspection {
    pub duration: Duration,
    pub invocation: InvocationId,
    /// A tool's own `isError` is a result.
    pub outcome: Result<CallResult, Error>,
}

/// Calls a tool of a server as a governed call of one's own session; dropped before its end, it is
/// cancelled. Nobody is asked: whoever does this may approve. It changes no selection, and policy and
/// quarantine bind it.
///
/// `DENIED` without the scope `approve`; `NOT_FOUND` for servers that the caller may not try: a
/// superadmin may try any of the tenant, others those that the tenant selects; `NOT_FOUND` and
/// `SESSION_ARCHIVED` for the session. Everything after that leaves its invocation.
pub async fn inspect(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    trial: Trial,
) -> Result<Inspection, Error> {
    caller.require_scope(Scope::Approve)?;
    let server = reachable(ctx, caller, server).await?;
    check_name(&trial.tool_name)?;
    let request = CallRequest {
        session: trial.session,
        asked: Asked::Original { server: server.clone(), name: trial.tool_name },
        arguments: trial.input,
        execution: ctx.mint(),
        call_id: "1".to_owned(),
        origin: Origin::Inspector,
        allowed_source_ids: Some(vec![server]),
        asking: Asking::Hold { attach: false },
        fits: None,
        upstream: Upstream::default(),
        responses: None,
        cancel_on_hang_up: true,
    };
    idempotency::before_an_effect(ctx).await?;
    let began = Instant::now();
    let ended = broker::start(ctx, caller, request).finished().await?;
    let outcome = match ended.outcome {
        Ok(Outcome::Done(result)) => Ok(result),
        Ok(Outcome::Waiting(_) | Outcome::Inquiry(_)) => {
            Err(Error::internal("an Inspector call was asked about"))
        }
        Err(error) => Err(error),
    };
    Ok(Inspection { duration: began.elapsed(), invocation: ended.invocation, outcome })
}

async fn reachable(ctx: &Ctx, caller: &Caller, server: &str) -> Result<ServerId, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = servers::find(&mut tx, caller, server).await?;
    let selected = store::tenants::get(&mut tx).await?;
    tx.commit().await?;
    let selected = selected.is_some_and(|tenant| tenant.enabled_source_ids.contains(&server.id));
    if selected || servers::configures(caller) {
        return Ok(server.id);
    }
    Err(Error::not_found("server"))
}

/// No tool has another name, and no record could hold it.
fn check_name(name: &str) -> Result<(), Error> {
    let most = limits::TOOL_NAME_CHARS.size();
    if name.is_empty() || name.chars().count() > most || name.chars().any(char::is_control) {
        let words = format!(
            "toolName must have from 1 to {most} characters, none of them a control character"
        );
        return Err(Error::new(Code::InvalidInput, words));
    }
    Ok(())
}
