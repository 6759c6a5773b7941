//! Why would this call fail? Every gate of the broker, judged for a person and a tool without calling it.
//!
//! The judgements are the broker's own (`broker/gates.rs`, `target`, `permission`); nothing here decides,
//! changes or sends anything, and no word of it is secret.

use domain::{
    Caller, Code, Error, Role, Scope,
    connection::ConnectionState,
    ids::{ServerId, SessionId, TokenId, UserId},
    invocation::Origin,
    permission::{ApprovalMode, AuthorizationSource, Verdict},
    server::AuthMode,
    session::effective_selection,
};
use store::{
    Tx,
    calls::{Context, ContextServer, Wanted},
    connections::CredentialName,
    sessions::Session,
    tokens::Holder,
    users::User,
    vault::Sealed,
};
use uuid::Uuid;

use crate::{
    Ctx,
    broker::{Asked, Gate, gates, gates::View, resolve},
    connections::credential::Credential,
    identity,
};

/// What somebody wants to know.
#[derive(Debug, Clone)]
pub struct Question {
    /// Id or address of the person; `None`: the caller.
    pub user: Option<String>,
    /// As agents call it.
    pub tool: String,
    /// One of the person's; `None`: as a new one would be.
    pub session: Option<SessionId>,
    /// One of the person's; `None`: as far as the person reaches.
    pub token: Option<TokenId>,
}

/// How a gate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Passed,
    /// A call ends here.
    Refused,
    /// The person is asked first.
    Asks,
    /// Only the call itself can tell.
    AtCall,
    /// What it looks at is not there.
    NotReached,
}

impl Standing {
    pub const ALL: &[Self] =
        &[Self::Passed, Self::Refused, Self::Asks, Self::AtCall, Self::NotReached];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Refused => "refused",
            Self::Asks => "asks",
            Self::AtCall => "at_call",
            Self::NotReached => "not_reached",
        }
    }
}

/// One gate.
#[derive(Debug, Clone)]
pub struct Check {
    pub gate: Gate,
    pub standing: Standing,
    /// What a call would answer.
    pub code: Option<Code>,
    pub reason: String,
    /// The setting that decides.
    pub setting: &'static str,
    pub changed_by: &'static str,
    pub mend: Option<&'static str>,
}

/// Every gate in its order.
#[derive(Debug, Clone)]
pub struct Explanation {
    pub user: UserId,
    pub tool: String,
    pub session: Option<SessionId>,
    pub server: Option<ServerId>,
    pub server_name: Option<String>,
    /// What comes first: `Refused` or `Asks`; else `Passed`.
    pub outcome: Standing,
    /// The first gate that refuses, perhaps after a question.
    pub stopped_by: Option<Gate>,
    pub code: Option<Code>,
    pub checks: Vec<Check>,
}

/// Explains a call of `question.tool`. About others `DENIED` but to admins; `NOT_FOUND` for a person, session
/// or token that is not there, or not that person's.
pub async fn explain(
    ctx: &Ctx,
    caller: &Caller,
    question: &Question,
) -> Result<Explanation, Error> {
    caller.require_scope(Scope::ApiRead)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let user = person(&mut tx, caller, question.user.as_deref()).await?;
    let holder = match question.token {
        Some(token) => Some(token_of(ctx, &mut tx, &user, token).await?),
        None => None,
    };
    let session = session(ctx, &mut tx, caller, &user, question.session).await?;
    let wanted = Wanted::Agent(&question.tool);
    let mut context = store::calls::context_within(&mut tx, user.id, session, wanted)
        .await?
        .ok_or_else(|| Error::not_found("session"))?;
    if !sees(caller, &context) {
        (context.server, context.tool) = (None, None);
    }
    let sealed = match &context.server {
        Some(server) => store::connections::credential(&mut tx, &server.server, user.id).await?,
        None => None,
    };
    // Dropped, it takes back the session that was made to look at.
    drop(tx);

    let subject = identity::imagined(caller.tenant, (user.id, user.role), holder.clone().flatten());
    let asked = Asked::Agent(question.tool.clone());
    let view = View { caller: &subject, session, asked: &asked, allowed: None, context: &context };
    let mut checks = vec![token(holder.as_ref())];
    for (gate, judge) in gates::DOOR {
        checks.push(check(*gate, judge(&view)));
    }
    for (gate, judge) in gates::WAY {
        let there = match gate {
            Gate::Tool => true,
            Gate::Selection | Gate::ServerSwitch => context.server.is_some(),
            _ => context.tool.as_ref().is_some_and(|tool| !tool.removed),
        };
        checks.push(if there { check(*gate, judge(&view)) } else { not_reached(*gate) });
    }
    match &context.server {
        Some(server) => {
            let connected = resolve::connected(&subject, session, server);
            let stands = connected.is_ok();
            checks.push(check(Gate::Connection, connected));
            checks.push(if stands {
                let aimed = resolve::aimed(ctx, &subject, session, server).map(|_| ());
                check(Gate::Configuration, aimed)
            } else {
                not_reached(Gate::Configuration)
            });
        }
        None => checks.extend([Gate::Connection, Gate::Configuration].map(not_reached)),
    }
    checks.push(at_call(Gate::Input, "the input is held against the tool's schema"));
    checks.push(permission(&context));
    checks.push(at_call(Gate::Limits, "a call may wait for a slot of the server, or find none"));
    let opens = context.server.as_ref().and_then(|server| {
        let sealed = sealed.as_ref()?;
        Some(opens(ctx, &subject, server, sealed))
    });
    checks.push(
        opens.map_or_else(
            || not_reached(Gate::Credential),
            |opened| check(Gate::Credential, opened),
        ),
    );
    let ends = |check: &&Check| matches!(check.standing, Standing::Refused | Standing::Asks);
    let outcome = checks.iter().find(ends).map_or(Standing::Passed, |check| check.standing);
    let stop = checks.iter().find(|check| check.standing == Standing::Refused);
    Ok(Explanation {
        user: user.id,
        tool: question.tool.clone(),
        session: question.session,
        server: context.server.as_ref().map(|server| server.server.clone()),
        server_name: context.server.as_ref().map(|server| server.name.clone()),
        outcome,
        stopped_by: stop.map(|check| check.gate),
        code: stop.and_then(|check| check.code),
        checks,
    })
}

async fn person(tx: &mut Tx, caller: &Caller, named: Option<&str>) -> Result<User, Error> {
    let unknown = || Error::not_found("person");
    let id = named.map(|named| named.parse::<Uuid>().map(UserId));
    let own = match &id {
        None => true,
        Some(id) => id.as_ref().is_ok_and(|id| *id == caller.user),
    };
    if own {
        return store::users::get(tx, caller.user).await?.ok_or_else(unknown);
    }
    let user = match (id, named) {
        (Some(Ok(id)), _) => {
            caller.require_role(Role::Admin)?;
            store::users::get(tx, id).await?
        }
        (_, Some(address)) => store::users::find(tx, address).await?,
        (_, None) => None,
    };
    // Who may not ask about others learns nothing of who is there.
    if user.as_ref().is_none_or(|user| user.id != caller.user) {
        caller.require_role(Role::Admin)?;
    }
    user.ok_or_else(unknown)
}

/// Whose token it is, if it can be used; `NOT_FOUND` for one of somebody else.
async fn token_of(
    ctx: &Ctx,
    tx: &mut Tx,
    user: &User,
    token: TokenId,
) -> Result<Option<Holder>, Error> {
    if store::tokens::name(tx, user.id, token).await?.is_none() {
        return Err(Error::not_found("token"));
    }
    Ok(store::tokens::still_held(tx, token, ctx.now()).await?)
}

/// The person's session, or a new one that this transaction alone sees.
async fn session(
    ctx: &Ctx,
    tx: &mut Tx,
    caller: &Caller,
    user: &User,
    asked: Option<SessionId>,
) -> Result<SessionId, Error> {
    if let Some(id) = asked {
        let session = store::sessions::find(tx, id).await?;
        let there = session.is_some_and(|session| session.owner == user.id);
        let reached = caller.reach.covers_session(id);
        return if there && reached { Ok(id) } else { Err(Error::not_found("session")) };
    }
    let new = Session {
        id: ctx.mint(),
        owner: user.id,
        project: None,
        title: String::new(),
        mode: ApprovalMode::AskForDangerous,
        enabled_source_ids: None,
        epoch: ctx.mint(),
        default_for: None,
        created_at: ctx.now(),
        archived_at: None,
    };
    store::sessions::insert(tx, &new).await?;
    Ok(new.id)
}

/// What a caller is told of at all: as far as their token reaches; a member, what lists show to members,
/// and what their own calls would be told of.
fn sees(caller: &Caller, context: &Context) -> bool {
    let Some(server) = &context.server else { return true };
    let tool = context.tool.as_ref();
    let reached = caller.reach.covers_source(&server.server)
        && tool.is_none_or(|tool| caller.reach.covers_tool(&tool.agent_name));
    let selected = effective_selection(
        &context.tenant_sources,
        context.project_sources.as_deref(),
        context.session_sources.as_deref(),
    )
    .contains(&server.server);
    let left = server.own.is_some_and(|own| own.state != ConnectionState::Disconnected);
    let listed = server.enabled || left || selected;
    reached && (listed || caller.require_role(Role::Admin).is_ok())
}

fn token(holder: Option<&Option<Holder>>) -> Check {
    match holder {
        None => passed(Gate::Token, "no token was named: as far as the person reaches"),
        Some(None) => {
            let words = "the token is revoked, its time is over, or its person is disabled";
            check(Gate::Token, Err(Error::new(Code::Unauthenticated, words)))
        }
        Some(Some(holder)) if !holder.scopes.has(Scope::McpCall) => {
            let words = "this needs the scope mcp:call";
            check(Gate::Token, Err(Error::new(Code::Denied, words)))
        }
        Some(Some(_)) => passed(Gate::Token, "the token can be used for calls"),
    }
}

fn permission(context: &Context) -> Check {
    let Some(tool) = context.tool.as_ref().filter(|tool| !tool.removed) else {
        return not_reached(Gate::Permission);
    };
    let granted = context.grant.is_some();
    match gates::permission(tool.policy, context.mode, Origin::Gateway, granted) {
        Verdict::Settled(source) if source.allows() => {
            let words = match source {
                AuthorizationSource::AlwaysAllow => "the session allows everything",
                AuthorizationSource::PolicyAllow => "the tool's policy allows it",
                _ => "a grant of the session allows it",
            };
            passed(Gate::Permission, words)
        }
        Verdict::Settled(_) => check(Gate::Permission, Err(gates::denied_by_policy())),
        Verdict::Harmless | Verdict::Ask => Check {
            standing: Standing::Asks,
            mend: Some(
                "decide the question; to be asked no more allow it for the session, or let a superadmin \
                 set the policy",
            ),
            ..passed(Gate::Permission, "the person is asked before the call")
        },
    }
}

fn opens(
    ctx: &Ctx,
    subject: &Caller,
    server: &ContextServer,
    sealed: &Sealed,
) -> Result<(), Error> {
    let mode: AuthMode = server.auth_mode.parse()?;
    if !mode.is_personal() {
        return Ok(());
    }
    let name = CredentialName {
        tenant: subject.tenant,
        server: server.server.clone(),
        user: subject.user,
        generation: 0,
        version: 0,
    };
    Credential::open(&ctx.vault, &name, mode, sealed).map(|_| ())
}

fn check(gate: Gate, judged: Result<(), Error>) -> Check {
    match judged {
        Ok(()) => passed(gate, words(gate)),
        Err(error) => Check {
            standing: Standing::Refused,
            code: Some(error.code),
            reason: refusal(gate, error),
            mend: Some(mend(gate)),
            ..passed(gate, "")
        },
    }
}

fn passed(gate: Gate, reason: &str) -> Check {
    let (setting, changed_by) = decided(gate);
    Check {
        gate,
        standing: Standing::Passed,
        code: None,
        reason: reason.to_owned(),
        setting,
        changed_by,
        mend: None,
    }
}

fn not_reached(gate: Gate) -> Check {
    let reason = match gate {
        Gate::Credential => "no credential of a person is used, or none is stored",
        _ => "there is nothing to look at",
    };
    Check { standing: Standing::NotReached, ..passed(gate, reason) }
}

fn at_call(gate: Gate, reason: &str) -> Check {
    Check { standing: Standing::AtCall, ..passed(gate, reason) }
}

/// What a call is told is one and the same for all that a person does not see; here it is told apart.
fn refusal(gate: Gate, error: Error) -> String {
    match gate {
        Gate::Session => "the token does not reach the session".to_owned(),
        Gate::Tool => "no tool has this name, or its server offers it no more".to_owned(),
        Gate::Selection => "the session does not use this server".to_owned(),
        Gate::Reach => "the token does not reach this server or tool".to_owned(),
        _ => error.public,
    }
}

fn words(gate: Gate) -> &'static str {
    match gate {
        Gate::Token => "the token can be used for calls",
        Gate::Session => "the session can be reached",
        Gate::Account => "the account is active",
        Gate::Archived => "the session is open",
        Gate::Tool => "there is such a tool",
        Gate::Selection => "the session uses the server",
        Gate::Reach => "the token reaches server and tool",
        Gate::ServerSwitch => "the server is switched on",
        Gate::ToolSwitch => "the tool is switched on",
        Gate::Definition => "the definition is the approved one",
        Gate::Connection => "no account is needed, or it is connected",
        Gate::Configuration => "the server's values can be read and sent",
        Gate::Input => "the input fits",
        Gate::Permission => "it is allowed",
        Gate::Limits => "there is room",
        Gate::Credential => "the stored credential can be read",
    }
}

/// The setting that decides, and who may change it.
fn decided(gate: Gate) -> (&'static str, &'static str) {
    match gate {
        Gate::Token => ("scopes, end and revocation of the token", "the person, or an admin"),
        Gate::Session => ("`sessions` of the token", "the person, with another token"),
        Gate::Account => ("the status of the person", "an admin"),
        Gate::Archived => ("the session's archiving", "nobody: begin another session"),
        Gate::Tool => ("the server's list of tools", "a superadmin"),
        Gate::Selection => (
            "`enabledSourceIds` of session, project or tenant",
            "the person for session and project, a superadmin for the tenant",
        ),
        Gate::Reach => ("`sources` and `tools` of the token", "the person, with another token"),
        Gate::ServerSwitch => ("`enabled` of the server", "a superadmin"),
        Gate::ToolSwitch => ("`enabled` of the tool", "a superadmin"),
        Gate::Definition => ("the pin of the tool", "a superadmin"),
        Gate::Connection => ("the person's own connection to the server", "the person alone"),
        Gate::Configuration => (
            "the server's values, the tenant's variables, the operator's keys and programs",
            "a superadmin; the operator",
        ),
        Gate::Input => ("the tool's input schema", "the server's makers"),
        Gate::Permission => (
            "policy of the tool, approval mode and grants of the session",
            "a superadmin for the policy, the person for the session",
        ),
        Gate::Limits => ("`governance` of the server", "a superadmin"),
        Gate::Credential => ("the encryption keys", "the operator"),
    }
}

fn mend(gate: Gate) -> &'static str {
    match gate {
        Gate::Token => "use, or make, a token with mcp:call that is not over",
        Gate::Session => "use another session, or a token that is not limited to others",
        Gate::Account => "let an admin activate the person",
        Gate::Archived => "call in another session",
        Gate::Tool => "look at GET /api/mcp/servers/{id}/tools; refresh the server's tools",
        Gate::Selection => "add the server to the session's enabledSourceIds",
        Gate::Reach => "use a token that is not limited to other servers or tools",
        Gate::ServerSwitch => "let a superadmin switch the server on",
        Gate::ToolSwitch => "let a superadmin switch the tool on",
        Gate::Definition => "let a superadmin look at the change and approve it",
        Gate::Connection => "connect the account at /connections, or with `bailiwick connect`",
        Gate::Configuration => "mend what the reason names, then test the server",
        Gate::Input => "send what the schema asks for",
        Gate::Permission => "let a superadmin set another policy",
        Gate::Limits => "call later, or raise the server's limits",
        Gate::Credential => {
            "put the missing key back (`bailiwick keys status`), or connect the account anew"
        }
    }
}
