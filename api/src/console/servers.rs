//! Servers and their state.

use std::collections::HashMap;

use app::{
    Ctx,
    servers::{self, Configured, Shown, Visible},
};
use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use domain::{
    Role,
    ids::ServerId,
    limits,
    server::{AuthMode, ServerStatus},
};

use super::{
    Current, Shell, html,
    text::{datetime, shown, time},
    visitor::Visitor,
    words::{ENGLISH, Words},
};
use crate::problem::Problem;

#[derive(Template)]
#[template(path = "servers.html")]
struct ServersPage {
    shell: Shell,
    configures: bool,
    servers: Vec<Entry>,
}

/// What everybody may see of a server, and for superadmins the rest.
struct Entry {
    name: String,
    slug: String,
    description: String,
    tags: Vec<String>,
    /// Of the style sheet; the words say the same.
    class: &'static str,
    state: &'static str,
    whose_rights: &'static str,
    inside: Option<Inside>,
}

/// For superadmins.
struct Inside {
    error: Option<String>,
    tools: i64,
    quarantined: i64,
    revision: i64,
    transport: &'static str,
    /// For machines and for people.
    checked: Option<(String, String)>,
}

/// All servers that the person may see, in the order of their names.
pub(super) async fn page(State(ctx): State<Ctx>, visitor: Visitor) -> Result<Response, Problem> {
    let words = &ENGLISH;
    let caller = &visitor.caller;
    let configures = caller.role == Role::Superadmin;
    let rows = i64::try_from(limits::PAGE_ITEMS.ceiling).unwrap_or(i64::MAX);
    let listed = servers::list(&ctx, caller, None, rows).await?;
    let quarantined =
        if configures { servers::quarantined(&ctx, caller).await? } else { HashMap::new() };
    let mut servers: Vec<Entry> = listed
        .into_iter()
        .map(|listed| match listed.shown {
            Shown::Configured(server) => configured(words, *server, &quarantined),
            Shown::Visible(server) => visible(words, &server),
        })
        .collect();
    servers.sort_by_key(|entry| entry.name.to_lowercase());
    let shell = visitor.shell(words.servers, Current::Servers);
    Ok(html(StatusCode::OK, &ServersPage { shell, configures, servers }))
}

fn visible(words: &Words, server: &Visible) -> Entry {
    let (class, state) =
        if server.enabled { ("good", words.state_enabled) } else { ("off", words.state_disabled) };
    Entry {
        name: shown(&server.name),
        slug: shown(&server.slug),
        description: shown(&server.description),
        tags: server.tags.iter().map(|tag| shown(tag)).collect(),
        class,
        state,
        whose_rights: whose_rights(words, server.auth_mode),
        inside: None,
    }
}

fn configured(
    words: &Words,
    configured: Configured,
    quarantined: &HashMap<ServerId, i64>,
) -> Entry {
    let server = configured.server;
    let (class, state) = match server.status {
        _ if !server.enabled => ("off", words.state_disabled),
        ServerStatus::Ready => ("good", words.state_ready),
        ServerStatus::Error => ("bad", words.state_error),
        ServerStatus::Untested | ServerStatus::Disabled => ("open", words.state_untested),
    };
    Entry {
        name: shown(&server.name),
        slug: shown(&server.slug),
        description: shown(&server.description),
        tags: server.tags.iter().map(|tag| shown(tag)).collect(),
        class,
        state,
        whose_rights: whose_rights(words, server.reach.auth_mode),
        inside: Some(Inside {
            error: server.status_error.as_deref().map(shown),
            tools: server.tool_count,
            quarantined: quarantined.get(&server.id).copied().unwrap_or_default(),
            revision: server.form_revision,
            transport: server.reach.transport.as_str(),
            checked: server.checked_at.map(|at| (datetime(at), time(at))),
        }),
    }
}

fn whose_rights(words: &Words, mode: AuthMode) -> &'static str {
    match mode {
        AuthMode::None => words.auth_none,
        AuthMode::SharedHeaders => words.auth_shared,
        _ => words.auth_own,
    }
}
