//! Questions whether a call may happen, and their answers.

use app::{
    Ctx,
    permissions::{self, Card, Question},
};
use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use domain::{
    Code,
    ids::PermissionRequestId,
    invocation::PseudoTool,
    limits,
    permission::{AuthorizationSource, Decision, OwnerKind, RequestState},
};
use serde::Deserialize;

use super::{
    Current, Shell,
    form::Form,
    html, see,
    text::{Moment, moment, on_lines, shown, time},
    visitor::Visitor,
    words::{ENGLISH, Words, fill},
};
use crate::{http::id::Id, paths, problem::Problem};

#[derive(Template)]
#[template(path = "questions.html")]
struct QuestionsPage {
    shell: Shell,
    questions: Vec<Entry>,
    /// Path of the next page.
    older: Option<String>,
}

struct Entry {
    path: String,
    tool: String,
    server: String,
    session: String,
    asked: Moment,
    expires: Option<Moment>,
}

#[derive(Template)]
#[template(path = "question.html")]
struct QuestionPage {
    shell: Shell,
    path: String,
    tool: String,
    agent_name: Option<String>,
    server: String,
    session: String,
    asked_by: &'static str,
    asked: Moment,
    expires: Option<Moment>,
    input: String,
    input_is_cut: bool,
    words_of_class: String,
    example: String,
    pending: bool,
    /// Of the style sheet; the words say the same.
    class: &'static str,
    state: &'static str,
    /// What came of it, sentence by sentence.
    outcome: Vec<String>,
    /// What became of an answer that changed nothing.
    late: Option<&'static str>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct After {
    after: Option<PermissionRequestId>,
}

/// The person's pending questions, newest first.
pub(super) async fn list(
    State(ctx): State<Ctx>,
    visitor: Visitor,
    query: Result<Query<After>, QueryRejection>,
) -> Result<Response, Problem> {
    let words = &ENGLISH;
    let after = query.map(|Query(after)| after).unwrap_or_default().after;
    let most = limits::PAGE_ITEMS.size();
    let rows = i64::try_from(most + 1).unwrap_or(i64::MAX);
    let mut cards = permissions::cards(&ctx, &visitor.caller, after, rows).await?;
    let more = cards.len() > most;
    cards.truncate(most);
    let last = cards.last().filter(|_| more);
    let older = last.map(|card| format!("{}?after={}", paths::QUESTIONS, card.question.id));
    let questions = cards.iter().map(|card| entry(words, card)).collect();
    let shell = visitor.shell(words.questions, Current::Questions);
    Ok(html(StatusCode::OK, &QuestionsPage { shell, questions, older }))
}

/// One question: whether it waits, or what came of it.
pub(super) async fn page(
    State(ctx): State<Ctx>,
    visitor: Visitor,
    Id(id): Id<PermissionRequestId>,
) -> Result<Response, Problem> {
    show(&ctx, &visitor, id, StatusCode::OK, None).await
}

/// Decides, and shows what came of it.
pub(super) async fn decide(
    State(ctx): State<Ctx>,
    visitor: Visitor,
    Id(id): Id<PermissionRequestId>,
    form: Form,
) -> Result<Response, Problem> {
    let decision: Decision = form.field("decision").parse()?;
    let late = match permissions::decide(&ctx, &visitor.caller, id, decision).await {
        Ok(_) => return Ok(see(&path(id))),
        Err(error) => match error.code {
            Code::PermissionAlreadyResolved => ENGLISH.too_late,
            Code::SessionArchived => ENGLISH.archived,
            _ => return Err(error.into()),
        },
    };
    show(&ctx, &visitor, id, StatusCode::CONFLICT, Some(late)).await
}

async fn show(
    ctx: &Ctx,
    visitor: &Visitor,
    id: PermissionRequestId,
    status: StatusCode,
    late: Option<&'static str>,
) -> Result<Response, Problem> {
    let words = &ENGLISH;
    let card = permissions::card(ctx, &visitor.caller, id).await?;
    let question = &card.question;
    let entry = entry(words, &card);
    let pending = question.state == RequestState::Pending;
    let (class, state) = state(words, question.state);
    let title = if pending { words.question } else { state };
    let page = QuestionPage {
        shell: visitor.shell(title, Current::Questions),
        path: entry.path,
        tool: entry.tool,
        agent_name: card.names.agent_name.as_deref().map(shown),
        server: entry.server,
        session: entry.session,
        asked_by: asked_by(words, question.owner),
        asked: entry.asked,
        expires: entry.expires,
        input: shown(&on_lines(&question.input_shown)),
        input_is_cut: serde_json::from_str::<serde::de::IgnoredAny>(&question.input_shown).is_err(),
        words_of_class: shown(&question.words),
        example: shown(&question.example),
        pending,
        class,
        state,
        outcome: outcome(words, question),
        late,
    };
    Ok(html(status, &page))
}

fn path(id: PermissionRequestId) -> String {
    paths::QUESTION_PAGE.replace("{request}", &id.to_string())
}

fn entry(words: &Words, card: &Card) -> Entry {
    let Card { question, names } = card;
    let gone = |id: Option<&str>| {
        let id = id.map(shown).unwrap_or_default();
        format!("{id} ({})", words.gone)
    };
    let tool = question.tool.as_ref().map(|id| id.0.as_str());
    let server = question.server.as_ref().map(|id| id.0.as_str());
    // A question without a tool is about an action.
    let tool = match (&names.tool_name, tool) {
        (Some(name), _) => shown(name),
        // Reading a resource and its like is no tool, and is called by its own name.
        (None, Some(id)) if id.parse::<PseudoTool>().is_ok() => id.to_owned(),
        (None, Some(id)) => gone(Some(id)),
        (None, None) => shown(&question.resource),
    };
    Entry {
        path: path(question.id),
        tool,
        server: names.server_name.as_deref().map_or_else(|| gone(server), shown),
        session: shown(&names.session_title),
        asked: moment(question.created_at),
        expires: question.expires_at.map(moment),
    }
}

fn state(words: &Words, state: RequestState) -> (&'static str, &'static str) {
    match state {
        RequestState::Pending => ("open", words.pending),
        RequestState::Allowed => ("good", words.allowed),
        RequestState::Denied => ("bad", words.denied),
        RequestState::Cancelled => ("off", words.cancelled),
    }
}

fn asked_by(words: &Words, owner: OwnerKind) -> &'static str {
    match owner {
        OwnerKind::Gateway => words.by_gateway,
        OwnerKind::Run => words.by_run,
        OwnerKind::Inspector => words.by_inspector,
        OwnerKind::Plan => words.by_plan,
        OwnerKind::Host => words.by_host,
    }
}

/// Only what the row says.
fn outcome(words: &Words, question: &Question) -> Vec<String> {
    if question.state == RequestState::Pending {
        return Vec::new();
    }
    let Some(settled) = question.settled else { return vec![words.cancelled_long.to_owned()] };
    let said = match settled.source {
        AuthorizationSource::UserOnce => words.allowed_once,
        AuthorizationSource::UserGrant => words.allowed_matching,
        AuthorizationSource::ExistingGrant => words.allowed_by_grant,
        AuthorizationSource::AlwaysAllow => words.allowed_always,
        AuthorizationSource::PolicyAllow | AuthorizationSource::Inspector => {
            words.allowed_by_policy
        }
        AuthorizationSource::UserDeny => words.denied_by_you,
        AuthorizationSource::PolicyDeny => words.denied_by_policy,
    };
    let mut sentences = vec![said.to_owned()];
    if settled.source.allows() {
        sentences.push(match (question.used_at, question.detached_at, question.expires_at) {
            (Some(_), ..) => words.call_went_on.to_owned(),
            (None, Some(_), Some(until)) => fill(words.call_waits_for_caller, &time(until)),
            _ => words.call_goes_on.to_owned(),
        });
    }
    sentences.push(words.back_to_client.to_owned());
    sentences
}
