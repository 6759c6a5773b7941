//! Questions to a person: may this call happen?
//!
//! A waiting call asks, or takes over the same question that an earlier call left behind
//! ([`attach`]), and waits ([`wait`]). A person decides ([`decide`]). Lock order: session, then its
//! questions. Whoever asks holds the session shared, so that a decision for many (a grant, a mode)
//! and a new question never miss each other.

mod card;
mod decide;
mod read;
mod reap;
mod settle;
mod wait;

pub use card::{Card, card, cards};
pub use decide::{Decided, decide};
use domain::{
    Code, Error, Timestamp,
    ids::{
        ExecutionId, PermissionRequestId, ServerId, SessionId, TenantId, TokenId, ToolId, UserId,
    },
    invocation::PseudoTool,
    json::Sha256Digest,
    limits,
    permission::{
        ApprovalMode, AuthorizationSource, Matching, OwnerKind, RequestState, TOOL_CALL,
        resource_class,
    },
};
pub use read::{get, list};
pub use reap::expire_due;
use serde_json::json;
pub(crate) use settle::{Ground, announce, cancel_locked, settle};
pub use store::requests::Question;
use store::{
    Tx,
    calls::CallName,
    requests::{Holder, Sameness},
};
pub use wait::{Resolution, wait};

use crate::{Ctx, events, sessions};

/// A call at the gateway that a person is asked about.
#[derive(Debug, Clone)]
pub struct NewQuestion {
    pub session: SessionId,
    pub user: UserId,
    /// Only the same token's identical call may take the question over.
    pub token: Option<TokenId>,
    pub execution: ExecutionId,
    pub call_id: String,
    pub server: ServerId,
    pub server_name: String,
    pub tool: ToolId,
    pub subject: Subject,
    /// `<serverId>/<toolId>`.
    pub resource: String,
    /// `None`: what is called is no tool, and has no definition.
    pub definition_hash: Option<Sha256Digest>,
    pub input_digest: Sha256Digest,
    /// Canonical JSON; its beginning is shown.
    pub input: String,
}

/// What a question is about, in the words of its card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The tool that its server calls so.
    Tool(String),
    Pseudo(PseudoTool),
}

/// What an identical call found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// The question is this call's now: wait for it.
    Pending(PermissionRequestId),
    /// It was answered meanwhile; the answer is spent with this.
    Decided(Resolution),
}

/// Asks. The call's row must stand before: a question belongs to it.
///
/// What the session came to allow since the caller looked is applied at once: the question is then
/// answered before anybody sees it.
///
/// `LIMITED` when so many questions of the session are open already (calls that ask at the very same
/// moment may overshoot a little), `SESSION_ARCHIVED`.
pub async fn ask(
    ctx: &Ctx,
    tenant: TenantId,
    new: &NewQuestion,
) -> Result<PermissionRequestId, Error> {
    let mut tx = ctx.begin(tenant).await?;
    let session = store::sessions::hold(&mut tx, new.session).await?;
    let session = session.filter(|session| session.owner == new.user);
    let session = session.ok_or_else(|| Error::not_found("session"))?;
    if session.archived_at.is_some() {
        return Err(sessions::archived());
    }
    let open = store::requests::count_pending(&mut tx, session.id).await?;
    if open >= limits::QUESTIONS_PENDING.size() {
        return Err(Error::new(
            Code::Limited,
            format!("{open} questions of this session wait for an answer already"),
        ));
    }
    let question = question(ctx, new);
    store::requests::insert(&mut tx, &question).await?;
    requested(ctx, &mut tx, &question).await?;
    if let Some(ground) = ground(&mut tx, session.mode, &question).await? {
        settle(ctx, &mut tx, &session, &question, ground).await?;
    }
    tx.commit().await?;
    events::hint(ctx, session.id);
    Ok(question.id)
}

/// Takes over the oldest question of an identical call of the same token that nobody holds and that
/// is neither spent nor expired; `None`: there is none, ask.
pub async fn attach(
    ctx: &Ctx,
    tenant: TenantId,
    call: &NewQuestion,
) -> Result<Option<Attached>, Error> {
    let Some(token) = call.token else { return Ok(None) };
    let same = Sameness {
        session: call.session,
        token,
        server: &call.server,
        tool: &call.tool,
        definition_hash: call.definition_hash,
        input_digest: call.input_digest,
    };
    let now = ctx.now();
    let mut tx = ctx.begin(tenant).await?;
    let found = store::requests::lock_unheld(&mut tx, same, ctx.node, now).await?;
    let Some(question) = found else { return Ok(None) };
    let holder = Holder { execution: call.execution, tool_call_id: &call.call_id, node: ctx.node };
    let used_at = question.settled.map(|_| now);
    let expires_at = expiry(now);
    store::requests::hand_over(&mut tx, question.id, holder, expires_at, used_at).await?;
    if let Some(settled) = question.settled {
        let (execution, call_id) = (call.execution, call.call_id.clone());
        let name = CallName { tenant, execution, call_id };
        if !wait::goes_on(ctx, &mut tx, &name, settled).await? {
            // Not committed: the answer stays for whoever has the call.
            return Ok(Some(Attached::Decided(Resolution::Taken)));
        }
    }
    tx.commit().await?;
    Ok(Some(match question.settled {
        None => Attached::Pending(question.id),
        Some(settled) => Attached::Decided(settled.into()),
    }))
}

/// The held caller hung up, or waited its time: an identical call may take the question over until
/// it expires. Nothing happens to one that is cancelled or spent.
pub async fn detach(ctx: &Ctx, tenant: TenantId, id: PermissionRequestId) -> Result<(), Error> {
    let now = ctx.now();
    let mut tx = ctx.begin(tenant).await?;
    store::requests::detach(&mut tx, id, expiry(now), now).await?;
    Ok(tx.commit().await?)
}

/// Its client was answered that it has to wait, and will come back until the moment that this answers:
/// a question needs nobody who holds the line. In the transaction that parks or takes up the call.
pub(crate) async fn keep(
    ctx: &Ctx,
    tx: &mut Tx,
    question: Option<PermissionRequestId>,
) -> Result<Timestamp, Error> {
    let now = ctx.now();
    let until = expiry(now);
    if let Some(id) = question {
        store::requests::keep(tx, id, until, now).await?;
    }
    Ok(until)
}

/// The call of a question ends: whoever waits for a person is asked no longer. In the transaction that
/// closes the call. True: it was pending, and is to be [announced](announce) after the commit.
pub(crate) async fn end_with_call(
    ctx: &Ctx,
    tx: &mut Tx,
    id: PermissionRequestId,
) -> Result<bool, Error> {
    let Some(question) = store::requests::lock(tx, id).await? else { return Ok(false) };
    if question.state != RequestState::Pending {
        // Answered meanwhile, and not picked up: the answer was for this call alone.
        store::requests::spend(tx, id, ctx.now()).await?;
        return Ok(false);
    }
    cancel_locked(ctx, tx, &question).await?;
    Ok(true)
}

/// A question lives this long after the last contact with its caller.
fn expiry(now: Timestamp) -> Timestamp {
    now + limits::QUESTION_EXPIRES_MS.millis()
}

fn question(ctx: &Ctx, new: &NewQuestion) -> Question {
    let now = ctx.now();
    let (words, example) = new.subject.words(&new.server_name);
    Question {
        id: ctx.mint(),
        session: new.session,
        user: new.user,
        owner: OwnerKind::Gateway,
        execution: new.execution,
        tool_call_id: new.call_id.clone(),
        token: new.token,
        node: Some(ctx.node),
        matches: Matching {
            action: TOOL_CALL.to_owned(),
            resource_class: resource_class(TOOL_CALL, &new.resource),
            definition_hash: new.definition_hash,
        },
        resource: new.resource.clone(),
        words,
        example,
        server: Some(new.server.clone()),
        tool: Some(new.tool.clone()),
        input_digest: new.input_digest,
        input_shown: beginning(&new.input, limits::QUESTION_INPUT_BYTES.size()).to_owned(),
        state: RequestState::Pending,
        settled: None,
        detached_at: None,
        used_at: None,
        expires_at: Some(expiry(now)),
        created_at: now,
        resolved_at: None,
    }
}

impl Subject {
    /// What is asked and what a grant would cover; an example of what else it would allow.
    fn words(&self, server: &str) -> (String, String) {
        match self {
            Self::Tool(tool) => (
                format!(
                    "Call {tool} of {server}. Allowing matching calls covers every call of this tool \
                     in this session, as it is defined now."
                ),
                format!("{tool} of {server} with any other input"),
            ),
            Self::Pseudo(PseudoTool::ResourceRead) => (
                format!(
                    "Read a resource of {server}. Allowing matching calls covers every resource of \
                     this server in this session."
                ),
                format!("any other resource of {server}"),
            ),
            Self::Pseudo(PseudoTool::PromptGet) => (
                format!(
                    "Get a prompt of {server}. Allowing matching calls covers every prompt of this \
                     server in this session."
                ),
                format!("any other prompt of {server}"),
            ),
            Self::Pseudo(PseudoTool::Completion) => (
                format!("Complete an argument at {server}."),
                format!("any other argument of {server}"),
            ),
        }
    }
}

/// At most `most` bytes, whole characters.
fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

async fn requested(ctx: &Ctx, tx: &mut Tx, question: &Question) -> Result<(), Error> {
    let data = json!({
        "permissionRequestId": question.id,
        "action": question.matches.action,
        "resource": question.resource,
        "words": question.words,
        "executionId": question.execution,
        "toolCallId": question.tool_call_id,
        "expiresAt": question.expires_at,
    });
    events::append(ctx, tx, question.session, "permission.requested", data).await
}

/// What the session allows at this moment without asking.
async fn ground(
    tx: &mut Tx,
    mode: ApprovalMode,
    question: &Question,
) -> Result<Option<Ground>, Error> {
    if mode == ApprovalMode::AlwaysAllow {
        return Ok(Some(Ground { source: AuthorizationSource::AlwaysAllow, grant: None }));
    }
    let grant = store::grants::covering(tx, question.session, &question.matches).await?;
    Ok(grant.map(|id| Ground { source: AuthorizationSource::ExistingGrant, grant: Some(id) }))
}
