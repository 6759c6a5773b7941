//! A call that waits for a person, or for its client to answer the server, without a caller: it is left
//! with a sealed state, and taken up again by whoever holds that. What the state says is bound to tenant, person and token by its seal, and to
//! the exact call by its content; that it is used up is what the rows say.

use domain::{
    Caller, Code, Error, Retry,
    ids::{ExecutionId, PermissionRequestId, SessionId, TokenId},
    invocation::CatalogEntry,
    json::{self, Sha256Digest},
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{
    calls::{CallName, Held},
    vault::{Purpose, RowName, Sealed},
};

use super::{CallRequest, Inquiry, Resume, Waiting, record::Record, resolve::Resolved};
use crate::{Ctx, permissions, through::InputRequired};

/// What a state holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    execution: ExecutionId,
    call_id: String,
    session: SessionId,
    asked_name: String,
    /// As the call was resolved; compared whenever it goes on.
    entry: CatalogEntry,
    input_digest: Sha256Digest,
    /// How often it was sent so far.
    rounds: usize,
    waits: Waits,
}

/// What a call waits for that was left.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Waits {
    /// For a person: may it happen?
    Person(PermissionRequestId),
    /// For its client to answer the server, whose own `requestState` this is.
    Client(Option<String>),
}

/// Leaves a call that waits for a person: its caller is told how to come back.
pub(super) async fn park(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &Resolved,
    record: &mut Record,
    question: PermissionRequestId,
) -> Result<Waiting, Error> {
    let waits = Waits::Person(question);
    Ok(Waiting {
        question,
        state: leave(ctx, caller, request, resolved, record, waits).await?,
        tool: resolved.entry.tool.clone(),
        server_name: resolved.server_name.clone(),
    })
}

/// Leaves a call whose server asks its client something.
pub(super) async fn ask_back(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &Resolved,
    record: &mut Record,
    input: InputRequired,
) -> Result<Inquiry, Error> {
    let waits = Waits::Client(input.state.clone());
    let state = leave(ctx, caller, request, resolved, record, waits).await?;
    Ok(Inquiry { input, state })
}

async fn leave(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resolved: &Resolved,
    record: &mut Record,
    waits: Waits,
) -> Result<String, Error> {
    let question = waits.question();
    let state = State {
        execution: record.execution(),
        call_id: record.name().call_id.clone(),
        session: request.session,
        asked_name: request.asked.name().to_owned(),
        entry: resolved.entry.clone(),
        input_digest: resolved.input_digest,
        rounds: record.attempts.len(),
        waits,
    };
    let text = SecretString::from(serde_json::to_string(&state).map_err(Error::internal)?);
    let sealed = with_row(caller, |row| ctx.vault.seal(Purpose::RequestState, row, &text))?;
    let attempts = Value::Array(record.attempts.clone());
    let mut tx = ctx.begin(caller.tenant).await?;
    let until = permissions::keep(ctx, &mut tx, question).await?;
    if !store::calls::park(&mut tx, record.name(), ctx.node, until, &attempts).await? {
        // Whoever has the call has its question.
        record.question = None;
        return Err(super::admit::taken_away());
    }
    tx.commit().await?;
    Ok(sealed.token)
}

impl Waits {
    pub(super) fn question(&self) -> Option<PermissionRequestId> {
        match self {
            Self::Person(question) => Some(*question),
            Self::Client(_) => None,
        }
    }
}

/// The caller is back: this node has the call from here on, and nobody else.
///
/// `INVALID_INPUT`, in the same words, for a state that was changed, is another caller's or another
/// call's, expired, or led to an end already; `CONFLICT` while another request of the caller with it
/// is answered.
pub(super) async fn take_up(
    ctx: &Ctx,
    caller: &Caller,
    request: &CallRequest,
    resume: &Resume,
) -> Result<Record, Error> {
    let sealed = Sealed { token: resume.state.clone(), key_id: String::new() };
    let text = with_row(caller, |row| ctx.vault.open(Purpose::RequestState, row, &sealed))
        .map_err(|_| not_good())?;
    let state: State = serde_json::from_str(text.expose_secret()).map_err(|_| not_good())?;
    let input = json::canonical(request.arguments.get())?;
    let same = state.session == request.session
        && state.asked_name == request.asked.name()
        && state.input_digest == Sha256Digest::of(&input);
    if !same {
        return Err(not_good());
    }
    let name =
        CallName { tenant: caller.tenant, execution: state.execution, call_id: state.call_id };
    let mut tx = ctx.begin(caller.tenant).await?;
    let until = permissions::keep(ctx, &mut tx, state.waits.question()).await?;
    let (rounds, now) = (i32::try_from(state.rounds).map_err(|_| not_good())?, ctx.now());
    let held = store::calls::resume(&mut tx, &name, rounds, ctx.node, now, until).await?;
    let parked = match held {
        Held::Now(parked) => parked,
        Held::Never => return Err(not_good()),
        Held::ByAnother => {
            let mut error = Error::new(
                Code::Conflict,
                "another request with this requestState is being answered: wait for its answer",
            );
            error.retry = Retry::Later;
            return Err(error);
        }
    };
    tx.commit().await?;
    Ok(Record::resumed(ctx, caller, request, name, parked, state.entry, state.waits))
}

fn not_good() -> Error {
    Error::new(
        Code::InvalidInput,
        "this requestState is not good for this call: it was changed, or is another caller's or \
         call's, or is used up; make the call without it",
    )
}

fn with_row<T>(
    caller: &Caller,
    vault: impl FnOnce(RowName<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let token = caller.token().map(|TokenId(id)| id.to_string()).unwrap_or_default();
    let user = caller.user.to_string();
    vault(RowName { tenant: caller.tenant, server: &token, name: &user })
}
