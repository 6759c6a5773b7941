//! Step 5: may this call happen? By rule, or by asking the person.

use std::time::Duration;

use domain::{
    Caller, Code, Error,
    ids::PermissionRequestId,
    invocation::{PseudoTool, Status},
    limits,
    permission::{AuthorizationSource, Verdict},
};
use tokio::time::Instant;

use super::{
    Asking, CallRequest, Ends, Waiting, gates,
    record::{Record, Settled},
    resolve::Resolved,
    resume::{self, Waits},
};
use crate::{
    Ctx,
    permissions::{self, Attached, NewQuestion, Resolution, Subject},
};

/// Why a call may happen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Permit {
    /// By rule; the authorization is written when the call is opened.
    Settled(Settled),
    /// A person decided, or it is not the first round; the call is open and its authorization stands.
    Decided,
}

/// Whether to go on.
#[derive(Debug)]
pub(super) enum Permitted {
    Now(Permit),
    Parked(Waiting),
}

pub(super) async fn permit(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &Resolved,
    record: &mut Record,
    ends: &Ends,
) -> Result<Permitted, Error> {
    match record.waits() {
        None => {}
        // It was asked about before, and the answer is the question's.
        Some(Waits::Person(question)) => {
            let question = *question;
            return answered(ctx, caller, request, resolved, record, ends, question).await;
        }
        Some(Waits::Client(_)) if request.asking.resume().is_some_and(|resume| resume.declined) => {
            return Err(Error::new(
                Code::Cancelled,
                "the client gave no answer to what the server asked",
            ));
        }
        // It was allowed before its first round, and its authorization stands.
        Some(Waits::Client(_)) => return Ok(Permitted::Now(Permit::Decided)),
    }
    let granted = resolved.grant.is_some();
    let verdict = gates::permission(resolved.policy, resolved.mode, request.origin, granted);
    match verdict {
        Verdict::Settled(source) => {
            let grant = resolved.grant.filter(|_| source == AuthorizationSource::ExistingGrant);
            let settled = Settled { source, grant };
            if source.allows() {
                return Ok(Permitted::Now(Permit::Settled(settled)));
            }
            record.open(ctx, Status::Running, Some((settled, resolved)), false).await?;
            Err(gates::denied_by_policy())
        }
        Verdict::Harmless | Verdict::Ask if resolved.pseudo == Some(PseudoTool::Completion) => {
            Err(Error::new(
                Code::PermissionDenied,
                "completion is never asked about: allow matching prompts or resources of the \
                 server first",
            )
            .with_details(serde_json::json!({ "reason": "not_granted" })))
        }
        Verdict::Harmless | Verdict::Ask => {
            record.open(ctx, Status::Waiting, None, false).await?;
            ask(ctx, caller, request, resolved, record, ends).await
        }
    }
}

/// Asks, or takes over the same question that an earlier call left behind, and waits for the answer.
async fn ask(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &Resolved,
    record: &mut Record,
    ends: &Ends,
) -> Result<Permitted, Error> {
    let question = NewQuestion {
        session: request.session,
        user: caller.user,
        token: caller.token(),
        execution: record.execution(),
        call_id: request.call_id.clone(),
        server: resolved.entry.server.clone(),
        server_name: resolved.server_name.clone(),
        tool: resolved.entry.tool.clone(),
        subject: match resolved.pseudo {
            None => Subject::Tool(resolved.entry.original_name.clone()),
            Some(pseudo) => Subject::Pseudo(pseudo),
        },
        resource: resolved.resource(),
        definition_hash: resolved.entry.definition_hash,
        input_digest: resolved.input_digest,
        input: String::from_utf8_lossy(&resolved.input).into_owned(),
    };
    let attached = if matches!(request.asking, Asking::Hold { attach: true }) {
        permissions::attach(ctx, caller.tenant, &question).await?
    } else {
        None
    };
    let id = match attached {
        Some(Attached::Pending(id)) => id,
        Some(Attached::Decided(resolution)) => {
            return follow(ctx, record, resolution).map(Permitted::Now);
        }
        None => permissions::ask(ctx, caller.tenant, &question).await?,
    };
    answered(ctx, caller, request, resolved, record, ends, id).await
}

/// How the wait for a person came to its end.
enum Waited {
    Resolved(Resolution),
    Cancelled,
    HungUp,
    Draining,
}

/// Waits for the answer, as long as the caller is held.
async fn answered(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &Resolved,
    record: &mut Record,
    ends: &Ends,
    id: PermissionRequestId,
) -> Result<Permitted, Error> {
    // Whatever ends the call while it waits ends the question with it, unless the call lets go of it.
    record.question = Some(id);
    if request.asking.resume().is_some_and(|resume| resume.declined) {
        return Err(Error::new(Code::Cancelled, "the caller does not want a person to be asked"));
    }
    let (hold, can_return) = match request.asking {
        Asking::Hold { .. } => (ctx.permission_wait, false),
        Asking::Return { hold, .. } => (hold, true),
    };
    let deadline = Instant::now() + hold;
    let left = async {
        tokio::select! {
            () = ends.cancel.cancelled() => Waited::Cancelled,
            () = ends.hung_up.cancelled() => Waited::HungUp,
            () = ctx.draining.cancelled() => Waited::Draining,
        }
    };
    let waited = permissions::wait(ctx, record.name(), id, deadline, left).await?;
    let waited = waited.map_or_else(|left| left, Waited::Resolved);
    match waited {
        Waited::Cancelled => Err(cancelled()),
        Waited::Resolved(Resolution::TimedOut) | Waited::HungUp | Waited::Draining
            if can_return =>
        {
            let waiting = resume::park(ctx, caller, request, resolved, record, id).await?;
            Ok(Permitted::Parked(waiting))
        }
        Waited::HungUp => {
            record.question = None;
            permissions::detach(ctx, caller.tenant, id).await?;
            Err(Error::new(
                Code::Cancelled,
                "the caller hung up while the question was open; the same call takes it over",
            ))
        }
        Waited::Draining => {
            record.question = None;
            permissions::detach(ctx, caller.tenant, id).await?;
            Err(interrupted())
        }
        Waited::Resolved(resolution) => {
            record.question = None;
            if let Resolution::TimedOut = resolution {
                permissions::detach(ctx, caller.tenant, id).await?;
            }
            follow(ctx, record, resolution).map(Permitted::Now)
        }
    }
}

/// What a resolution means for a call that goes on by it.
fn follow(ctx: &Ctx, record: &mut Record, resolution: Resolution) -> Result<Permit, Error> {
    match resolution {
        Resolution::Allowed { authorization, .. } => {
            record.authorization = Some(authorization);
            Ok(Permit::Decided)
        }
        Resolution::Taken => Err(super::admit::taken_away()),
        Resolution::Denied { authorization, .. } => {
            record.authorization = Some(authorization);
            Err(Error::new(Code::PermissionDenied, "denied by the person this acts for")
                .with_details(serde_json::json!({ "reason": "denied" })))
        }
        Resolution::Cancelled => Err(Error::new(
            Code::PermissionDenied,
            "the question was withdrawn before anybody decided it",
        )
        .with_details(serde_json::json!({ "reason": "cancelled" }))),
        Resolution::TimedOut => Err(Error::new(
            Code::PermissionDenied,
            format!("nobody decided within {} s", ctx.permission_wait.as_secs()),
        )
        .with_details(serde_json::json!({ "reason": "no_decision" }))),
    }
}

pub(super) fn cancelled() -> Error {
    Error::new(Code::Cancelled, "the caller cancelled")
}

pub(super) fn interrupted() -> Error {
    Error::new(Code::Interrupted, "the node shut down during the call")
}

impl Ends {
    /// Ends when the call shall end early; answers how. Not for a call that waits for a person.
    pub(super) async fn ended(&self, ctx: &Ctx) -> Error {
        let hung_up = async {
            self.hung_up.cancelled().await;
            if !self.cancel_on_hang_up {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.cancel.cancelled() => cancelled(),
            () = hung_up => cancelled(),
            () = ctx.stopping.cancelled() => interrupted(),
        }
    }
}

/// A held caller is let go before its question is forgotten.
const _: () = assert!(
    Duration::from_secs(limits::PERMISSION_WAIT_SECONDS.ceiling).as_millis()
        <= limits::QUESTION_EXPIRES_MS.ceiling as u128
);
