//! Sessions: the scope of grants, mode and selection. Each belongs to one person; to everybody else,
//! admins too, it does not exist.

mod mode;

use domain::{
    Caller, Code, Error, Role, Scope, Via,
    ids::{ProjectId, ServerId, SessionId},
    limits,
    permission::{ApprovalMode, EpochReason},
};
pub use mode::set_mode;
use serde_json::json;
pub use store::sessions::Session;
use store::{Tx, epochs::Epoch, sessions::DefaultFor};

use crate::{
    Ctx, audit, events, permissions,
    selection::{self, Inherited},
};

/// A session to be made.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    pub title: Option<String>,
    pub project: Option<ProjectId>,
    /// `None` inherits.
    pub enabled_source_ids: Option<Vec<ServerId>>,
    /// `None`: dangerous calls are asked about.
    pub mode: Option<ApprovalMode>,
}

/// What changes; an outer `None` stays, an inner one is no project, or inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionChange {
    pub title: Option<String>,
    pub project: Option<Option<ProjectId>>,
    pub enabled_source_ids: Option<Option<Vec<ServerId>>>,
}

const UNTITLED: &str = "Untitled session";

/// Makes a session of the caller's.
///
/// `INVALID_INPUT` for a title that is none and for unknown servers; `NOT_FOUND` for a project that is
/// not the caller's; `DENIED` for servers beyond what is inherited and for `always_allow` without the
/// scope `approve`, and for a token of single sessions.
pub async fn create(ctx: &Ctx, caller: &Caller, new: NewSession) -> Result<Session, Error> {
    unlimited(caller)?;
    let mode = new.mode.unwrap_or(ApprovalMode::AskForDangerous);
    if mode == ApprovalMode::AlwaysAllow {
        caller.require_scope(Scope::Approve)?;
        all_servers(caller)?;
    }
    let title = new.title.as_deref().unwrap_or(UNTITLED);
    check_title(title)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let project = selection::project(&mut tx, caller, new.project).await?;
    let chosen = selection::checked(&mut tx, new.enabled_source_ids).await?;
    let inherited = Inherited::load(&mut tx, project.as_ref()).await?;
    selection::check(caller, (&inherited, None), (&inherited, chosen.as_deref()), true)?;
    let mut session = blank(ctx, caller, title);
    session.project = new.project;
    session.mode = mode;
    session.enabled_source_ids = chosen;
    insert(ctx, &mut tx, caller, &session).await?;
    tx.commit().await?;
    Ok(session)
}

/// The caller's sessions, newest first, archived ones too.
pub async fn list(
    ctx: &Ctx,
    caller: &Caller,
    after: Option<SessionId>,
    rows: i64,
) -> Result<Vec<Session>, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let only = caller.reach.sessions.as_deref();
    let page = store::sessions::list(&mut tx, caller.user, only, after, rows).await?;
    tx.commit().await?;
    Ok(page)
}

pub async fn get(ctx: &Ctx, caller: &Caller, id: SessionId) -> Result<Session, Error> {
    let mut tx = ctx.begin(caller.tenant).await?;
    let session = readable(&mut tx, caller, id).await?;
    tx.commit().await?;
    Ok(session)
}

/// Changes title, project and selection; refused as [`create`] is, and with `SESSION_ARCHIVED`.
pub async fn update(
    ctx: &Ctx,
    caller: &Caller,
    id: SessionId,
    change: SessionChange,
) -> Result<Session, Error> {
    if let Some(title) = &change.title {
        check_title(title)?;
    }
    let mut tx = ctx.begin(caller.tenant).await?;
    // Whose it is comes before everything that the body could be refused for; servers are locked
    // before sessions.
    readable(&mut tx, caller, id).await?;
    let chosen_now = change.enabled_source_ids.is_some();
    let chosen = selection::checked(&mut tx, change.enabled_source_ids.flatten()).await?;
    let before = lock_writable(&mut tx, caller, id).await?;
    let mut session = before.clone();
    if let Some(title) = change.title {
        session.title = title;
    }
    if chosen_now {
        session.enabled_source_ids = chosen;
    }
    if let Some(project) = change.project {
        session.project = project;
    }
    if session == before {
        return Ok(session);
    }
    check_reach(&mut tx, caller, (&before, &session), chosen_now).await?;
    store::sessions::save(&mut tx, &session).await?;
    let details = details(&session);
    let subject = session.id.to_string();
    audit::record(ctx, &mut tx, caller, "session.updated", &subject, details.clone()).await?;
    events::append(ctx, &mut tx, id, "session.updated", details).await?;
    tx.commit().await?;
    events::hint(ctx, id);
    Ok(session)
}

/// Archives a session of the caller's, once: its pending questions are cancelled with it.
pub async fn archive(ctx: &Ctx, caller: &Caller, id: SessionId) -> Result<Session, Error> {
    let unknown = || Error::not_found("session");
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut session = lock_own(&mut tx, caller, id).await?.ok_or_else(unknown)?;
    if session.archived_at.is_some() {
        return Ok(session);
    }
    session.archived_at = Some(ctx.now());
    store::sessions::save(&mut tx, &session).await?;
    let mut cancelled = Vec::new();
    for question in store::requests::lock_pending(&mut tx, id).await? {
        permissions::cancel_locked(ctx, &mut tx, &question).await?;
        cancelled.push(question.id);
    }
    audit::record(ctx, &mut tx, caller, "session.archived", &id.to_string(), json!({})).await?;
    events::append(ctx, &mut tx, id, "session.archived", json!({})).await?;
    tx.commit().await?;
    permissions::announce(ctx, id, cancelled);
    Ok(session)
}

/// The session of a gateway request that names none: one per person and token, or per person who calls
/// with tokens of their company; made when first needed; an archived one is followed by another.
///
/// `DENIED` for a token of single sessions: it names one in the path.
pub async fn default_for(ctx: &Ctx, caller: &Caller) -> Result<SessionId, Error> {
    let calls = match caller.via {
        Via::Token(token) | Via::Gateway(token) => DefaultFor::Token(token),
        Via::Company(_) => DefaultFor::Company,
        Via::Operator | Via::Console(_) => {
            return Err(Error::new(Code::Denied, "this needs a token"));
        }
    };
    let mut tx = ctx.begin(caller.tenant).await?;
    let mut id = store::sessions::default_of(&mut tx, caller.user, calls).await?;
    if id.is_none() {
        unlimited(caller)?;
        id = make_default(ctx, &mut tx, caller, calls).await?;
        tx.commit().await?;
    }
    match id {
        Some(id) if caller.reach.covers_session(id) => Ok(id),
        Some(_) => Err(limited()),
        // Made and archived by others between our two looks.
        None => Err(Error::new(Code::Conflict, "the default session changed at this moment")),
    }
}

async fn make_default(
    ctx: &Ctx,
    tx: &mut Tx,
    caller: &Caller,
    calls: DefaultFor,
) -> Result<Option<SessionId>, Error> {
    let name = match calls {
        DefaultFor::Token(token) => store::tokens::name(tx, caller.user, token).await?,
        DefaultFor::Company => Some("company account".to_owned()),
    };
    let title = format!("Gateway: {}", name.unwrap_or_default());
    let title: String = title.chars().take(limits::TITLE_CHARS.size()).collect();
    let mut session = blank(ctx, caller, &title);
    session.default_for = Some(calls);
    if insert(ctx, tx, caller, &session).await? {
        return Ok(Some(session.id));
    }
    // Another request was faster; it has committed, or we would still wait for it.
    Ok(store::sessions::default_of(tx, caller.user, calls).await?)
}

/// A session of the caller's own, for reading.
///
/// `NOT_FOUND` for everybody else's, and for one that the token does not reach.
pub async fn readable(tx: &mut Tx, caller: &Caller, id: SessionId) -> Result<Session, Error> {
    let session = store::sessions::find(tx, id).await?;
    session.filter(|session| is_own(caller, session)).ok_or_else(|| Error::not_found("session"))
}

/// A session whose audit the caller may read: their own, or any of the tenant for its admins.
///
/// `NOT_FOUND` for everybody else's, and for one that the token does not reach.
pub(crate) async fn auditable(
    tx: &mut Tx,
    caller: &Caller,
    id: SessionId,
) -> Result<Session, Error> {
    let audits = caller.require_role(Role::Admin).is_ok() && caller.reach.covers_session(id);
    let session = store::sessions::find(tx, id).await?;
    session
        .filter(|session| audits || is_own(caller, session))
        .ok_or_else(|| Error::not_found("session"))
}

/// A session of the caller's own, until commit nobody else's to change.
pub(crate) async fn lock_own(
    tx: &mut Tx,
    caller: &Caller,
    id: SessionId,
) -> Result<Option<Session>, Error> {
    let session = store::sessions::lock(tx, id).await?;
    Ok(session.filter(|session| is_own(caller, session)))
}

/// The same, refused with `SESSION_ARCHIVED` when it is.
pub(crate) async fn lock_writable(
    tx: &mut Tx,
    caller: &Caller,
    id: SessionId,
) -> Result<Session, Error> {
    let session = lock_own(tx, caller, id).await?;
    let session = session.ok_or_else(|| Error::not_found("session"))?;
    match session.archived_at {
        None => Ok(session),
        Some(_) => Err(archived()),
    }
}

/// Which sessions a list is over: the one that the caller named (and must own), else those that the
/// token is for; `None`: all of the caller's.
pub(crate) async fn narrowed(
    tx: &mut Tx,
    caller: &Caller,
    session: Option<SessionId>,
) -> Result<Option<Vec<SessionId>>, Error> {
    match session {
        Some(id) => Ok(Some(vec![readable(tx, caller, id).await?.id])),
        None => Ok(caller.reach.sessions.clone()),
    }
}

pub(crate) fn archived() -> Error {
    Error::new(Code::SessionArchived, "the session is archived")
}

fn is_own(caller: &Caller, session: &Session) -> bool {
    session.owner == caller.user && caller.reach.covers_session(session.id)
}

/// Refuses a token of single sessions what concerns others too.
pub(crate) fn unlimited(caller: &Caller) -> Result<(), Error> {
    if caller.reach.sessions.is_none() { Ok(()) } else { Err(limited()) }
}

fn limited() -> Error {
    Error::new(Code::Denied, "this token is for single sessions only")
}

/// Refuses a token of single servers or tools what concerns others too.
fn all_servers(caller: &Caller) -> Result<(), Error> {
    if caller.reach.sources.is_none() && caller.reach.tools.is_none() {
        return Ok(());
    }
    Err(Error::new(Code::Denied, "this token is for single servers or tools only"))
}

pub(crate) fn check_title(title: &str) -> Result<(), Error> {
    let most = limits::TITLE_CHARS.size();
    let fits = title.chars().count() <= most && !title.chars().any(char::is_control);
    if fits && !title.trim().is_empty() {
        return Ok(());
    }
    let words =
        format!("title must have from 1 to {most} characters, none of them a control character");
    let details = json!({ "errors": [{ "path": "/title", "message": words }] });
    Err(Error::new(Code::InvalidInput, words).with_details(details))
}

async fn check_reach(
    tx: &mut Tx,
    caller: &Caller,
    (before, after): (&Session, &Session),
    chosen_now: bool,
) -> Result<(), Error> {
    // The project that it leaves may be archived, the one that it enters may not.
    let left = match before.project {
        Some(id) => store::projects::find(tx, id).await?,
        None => None,
    };
    let entered = if after.project == before.project {
        left.clone()
    } else {
        selection::project(tx, caller, after.project).await?
    };
    let was = Inherited::load(tx, left.as_ref()).await?;
    let becomes = Inherited::load(tx, entered.as_ref()).await?;
    selection::check(
        caller,
        (&was, before.enabled_source_ids.as_deref()),
        (&becomes, after.enabled_source_ids.as_deref()),
        chosen_now,
    )
}

fn blank(ctx: &Ctx, caller: &Caller, title: &str) -> Session {
    Session {
        id: ctx.mint(),
        owner: caller.user,
        project: None,
        title: title.to_owned(),
        mode: ApprovalMode::AskForDangerous,
        enabled_source_ids: None,
        epoch: ctx.mint(),
        default_for: None,
        created_at: ctx.now(),
        archived_at: None,
    }
}

/// With its first epoch. False: see [`store::sessions::insert`].
async fn insert(ctx: &Ctx, tx: &mut Tx, caller: &Caller, session: &Session) -> Result<bool, Error> {
    if !store::sessions::insert(tx, session).await? {
        return Ok(false);
    }
    let epoch = Epoch {
        id: session.epoch,
        session: session.id,
        reason: EpochReason::SessionCreated,
        created_at: session.created_at,
    };
    store::epochs::insert(tx, &epoch).await?;
    let subject = session.id.to_string();
    audit::record(ctx, tx, caller, "session.created", &subject, details(session)).await?;
    Ok(true)
}

fn details(session: &Session) -> serde_json::Value {
    json!({
        "approvalMode": session.mode,
        "projectId": session.project,
        "enabledSourceIds": session.enabled_source_ids,
    })
}
