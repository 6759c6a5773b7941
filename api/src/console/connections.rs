//! The person's own accounts at servers: their state, and what can be done about each.

use app::connections::{self, PageState, Revocation};
use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::{
    Code, Error,
    connection::{ConnectionState, CredentialKind},
    limits,
};
use serde::Deserialize;
use url::{Url, form_urlencoded};

use super::{
    Current, Shell, cookie,
    form::Form,
    html, see,
    text::{Moment, moment, shown, time},
    visitor::Visitor,
    words::{ENGLISH, Words, fill},
};
use crate::{
    Api,
    http::oauth,
    paths,
    problem::{self, Problem},
};

#[derive(Template)]
#[template(path = "connections.html")]
struct ConnectionsPage {
    shell: Shell,
    path: &'static str,
    /// What was done.
    notice: Option<String>,
    /// Why something was not done.
    problem: Option<String>,
    /// The address names a server that is not here.
    astray: bool,
    servers: Vec<Entry>,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts that a template asks for")]
struct Entry {
    server: String,
    name: String,
    slug: String,
    revision: i64,
    /// The one that the person was sent to.
    chosen: bool,
    enabled: bool,
    /// Of the style sheet; the words say the same.
    class: &'static str,
    state: &'static str,
    /// What the state means for the person.
    help: Option<String>,
    way: Way,
    connected: bool,
    /// Something is stored, or was and went: its owner can see to that.
    left: bool,
    /// The provider can be told of it.
    revocable: bool,
    pending: Option<String>,
    account: Option<String>,
    scopes: Vec<String>,
    needs_scopes: Vec<String>,
    connected_at: Option<Moment>,
    last_used: Option<Moment>,
    expires: Option<Moment>,
}

/// How a person connects.
enum Way {
    /// Not at all: the server needs nobody's account.
    Nothing,
    /// A secret, and what it is called.
    Secret(&'static str),
    Oauth,
}

#[derive(Template)]
#[template(path = "leave.html")]
struct LeavePage {
    shell: Shell,
    lead: String,
    go_on: String,
    url: String,
    encrypted: bool,
    until: String,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    /// Id or slug of the server that the person was sent to.
    server: Option<String>,
    done: Option<Done>,
}

/// What the page that follows a form says.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Done {
    Saved,
    Connected,
    Cancelled,
    Disconnected,
    Revoked,
    RevokeFailed,
    NotRevoked,
}

impl Done {
    fn as_str(self) -> &'static str {
        match self {
            Self::Saved => "saved",
            Self::Connected => "connected",
            Self::Cancelled => "cancelled",
            Self::Disconnected => "disconnected",
            Self::Revoked => "revoked",
            Self::RevokeFailed => "revoke_failed",
            Self::NotRevoked => "not_revoked",
        }
    }

    fn words(self, words: &Words) -> &'static str {
        match self {
            Self::Saved => words.done_saved,
            Self::Connected => words.done_connected,
            Self::Cancelled => words.done_cancelled,
            Self::Disconnected => words.done_disconnected,
            Self::Revoked => words.done_revoked,
            Self::RevokeFailed => words.done_revoke_failed,
            Self::NotRevoked => words.done_not_revoked,
        }
    }
}

impl From<Option<Revocation>> for Done {
    fn from(revocation: Option<Revocation>) -> Self {
        match revocation {
            None => Self::Disconnected,
            Some(Revocation::Revoked) => Self::Revoked,
            Some(Revocation::Failed) => Self::RevokeFailed,
            Some(Revocation::NotOffered) => Self::NotRevoked,
        }
    }
}

/// All servers that the person may connect to, or left something with.
pub(super) async fn page(
    State(api): State<Api>,
    visitor: Visitor,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Problem> {
    let asked = query.map(|Query(asked)| asked).unwrap_or_default();
    Ok(show(&api, &visitor, &asked, StatusCode::OK, None).await?)
}

/// Does what a form of the page asks, and says what came of it.
pub(super) async fn submit(
    State(api): State<Api>,
    visitor: Visitor,
    form: Form,
) -> Result<Response, Problem> {
    let server = form.field("server");
    match act(&api, &visitor, server, &form).await {
        Ok(response) => Ok(response),
        Err(error) => Ok(refused(&api, &visitor, server, error).await?),
    }
}

async fn act(api: &Api, visitor: &Visitor, server: &str, form: &Form) -> Result<Response, Error> {
    let (ctx, caller) = (&api.ctx, &visitor.caller);
    // No number: a page that is too old to have one.
    let revision = form.field("revision").parse().unwrap_or_default();
    match form.field("action") {
        "save" => {
            let secret = form.field("secret").into();
            connections::put_secret(ctx, caller, server, secret, revision).await?;
            Ok(done(server, Done::Saved))
        }
        "connect" => connect(api, visitor, server, revision).await,
        "cancel" => {
            connections::cancel(ctx, caller, server).await?;
            Ok(done(server, Done::Cancelled))
        }
        "disconnect" => {
            let revoke = !form.field("revoke").is_empty();
            let cleared = connections::clear(ctx, caller, server, revoke).await?;
            Ok(done(server, cleared.revocation.into()))
        }
        _ => Err(Error::new(Code::InvalidInput, "the form asks for nothing that can be done here")),
    }
}

/// The page that follows.
pub(super) fn done(server: &str, done: Done) -> Response {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("server", server).append_pair("done", done.as_str());
    see(&format!("{}?{}", paths::CONNECTIONS_PAGE, query.finish()))
}

/// A page with a link: our policy lets a form lead nowhere but to us, and a person sees where they go.
async fn connect(
    api: &Api,
    visitor: &Visitor,
    server: &str,
    revision: i64,
) -> Result<Response, Error> {
    let words = &ENGLISH;
    let begun = oauth::begin(api, &visitor.caller, server, revision).await?;
    let name = connections::one(&api.ctx, &visitor.caller, server).await?.name;
    let host = host(&begun.authorization_url);
    let page = LeavePage {
        shell: visitor.shell(words.connect, Current::Connections),
        lead: fill(words.leave_lead, &shown(&name)),
        go_on: fill(words.leave_for, &host),
        url: begun.authorization_url.to_string(),
        encrypted: begun.authorization_url.scheme() == "https",
        until: fill(words.leave_until, &time(begun.expires_at)),
    };
    let cookie = cookie::set_attempt(&api.node, &begun.cookie_suffix, &begun.browser);
    let mut response = html(StatusCode::OK, &page);
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// As an address bar shows it; names of other alphabets in ASCII.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The list, with why something of it was not done.
async fn refused(
    api: &Api,
    visitor: &Visitor,
    server: &str,
    error: Error,
) -> Result<Response, Error> {
    let Some(words) = why(&ENGLISH, &error) else { return Ok(Problem(error).into_response()) };
    show(api, visitor, &Asked::of(server), problem::status(error.code), Some(words)).await
}

/// In the words of the page; `None` where the page of errors says it.
fn why(words: &Words, error: &Error) -> Option<String> {
    let detail = |pointer| error.details.as_ref()?.pointer(pointer)?.as_str().map(shown);
    match error.code {
        Code::InvalidInput if detail("/errors/0/path").as_deref() == Some("/secret") => {
            Some(fill(words.secret_refused, &limits::CREDENTIAL_BYTES.default.to_string()))
        }
        Code::RevisionConflict => Some(words.connection_changed.to_owned()),
        Code::SourceDisabled => Some(words.connection_off.to_owned()),
        Code::Conflict => Some(words.connection_unfit.to_owned()),
        Code::OauthDiscoveryFailed => {
            Some(fill(words.provider_unusable, &detail("/step").unwrap_or_default()))
        }
        Code::UpstreamUnavailable => Some(words.provider_away.to_owned()),
        _ => None,
    }
}

/// With a problem already in words.
pub(super) async fn show(
    api: &Api,
    visitor: &Visitor,
    asked: &Asked,
    status: StatusCode,
    problem: Option<String>,
) -> Result<Response, Error> {
    let words = &ENGLISH;
    let listed = connections::list(&api.ctx, &visitor.caller).await?;
    let wanted = asked.server.as_deref();
    let mut servers: Vec<Entry> = listed
        .into_iter()
        .map(|shown| {
            let chosen = wanted == Some(&shown.slug) || wanted == Some(shown.server.as_str());
            entry(words, &shown, chosen)
        })
        .collect();
    // What the person was sent to; then what there is something to do about.
    servers.sort_by_key(|entry| (!entry.chosen, matches!(entry.way, Way::Nothing)));
    let found = servers.first().filter(|entry| entry.chosen);
    // A server that is switched off goes with its credential.
    let name = found.map_or_else(|| wanted.map(shown).unwrap_or_default(), |one| one.name.clone());
    let page = ConnectionsPage {
        shell: visitor.shell(words.connections, Current::Connections),
        path: paths::CONNECTIONS_PAGE,
        notice: asked.done.filter(|_| wanted.is_some()).map(|it| fill(it.words(words), &name)),
        problem,
        astray: wanted.is_some() && found.is_none() && asked.done.is_none(),
        servers,
    };
    Ok(html(status, &page))
}

impl Asked {
    pub(super) fn of(server: &str) -> Self {
        Self { server: Some(server.to_owned()), done: None }
    }
}

fn entry(words: &Words, of: &connections::Shown, chosen: bool) -> Entry {
    let needs_rights = of.kind == Some(CredentialKind::Oauth) && !of.needs_scopes.is_empty();
    let own = match of.state {
        PageState::NotRequired => None,
        PageState::Own(state) => Some(state),
    };
    let (class, state) = match own {
        None => ("off", words.not_required),
        Some(ConnectionState::Disconnected) => ("off", words.disconnected),
        Some(ConnectionState::ReconnectRequired) => ("bad", words.reconnect),
        Some(ConnectionState::Connected) if needs_rights => ("open", words.needs_rights),
        Some(ConnectionState::Connected) if of.kind == Some(CredentialKind::Oauth) => {
            ("good", words.authorized)
        }
        Some(ConnectionState::Connected) => ("good", words.configured),
    };
    let help = match own {
        _ if !of.enabled => Some(words.switched_off_help.to_owned()),
        None => Some(words.not_required_help.to_owned()),
        Some(ConnectionState::ReconnectRequired) => {
            of.reason.map(|reason| fill(words.reconnect_because, reason.words()))
        }
        Some(ConnectionState::Connected) if needs_rights => {
            Some(words.needs_rights_help.to_owned())
        }
        Some(_) => None,
    };
    let connected = own == Some(ConnectionState::Connected);
    Entry {
        server: of.server.to_string(),
        name: shown(&of.name),
        slug: shown(&of.slug),
        revision: of.revision,
        chosen,
        enabled: of.enabled,
        class,
        state,
        help,
        way: match of.kind {
            None => Way::Nothing,
            Some(CredentialKind::Bearer) => Way::Secret(words.bearer_token),
            Some(CredentialKind::ApiKey) => Way::Secret(words.api_key),
            Some(CredentialKind::Oauth) => Way::Oauth,
        },
        connected,
        left: own.is_some_and(|own| own != ConnectionState::Disconnected),
        revocable: of.revocable,
        pending: of.pending_until.map(|until| fill(words.attempt_pending, &time(until))),
        account: of.account.as_deref().map(shown),
        scopes: of.scopes.iter().filter(|_| connected).map(|scope| shown(scope)).collect(),
        needs_scopes: of.needs_scopes.iter().map(|scope| shown(scope)).collect(),
        connected_at: of.connected_at.map(moment),
        last_used: of.last_used_at.map(moment),
        expires: of.expires_at.map(moment),
    }
}
