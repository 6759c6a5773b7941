//! The questions that a held call waits for.

use std::{collections::HashSet, convert::Infallible, io::IsTerminal};

use domain::{limits, permission::Decision};
use runtime::terminal::escape;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time,
};

use super::rest::Rest;

/// Questions about one call that come up from now on.
pub(super) struct Questions {
    decider: Option<Rest>,
    tool: String,
    input: Value,
    answer: Option<Decision>,
    quiet: bool,
    seen: HashSet<String>,
    session: Option<String>,
    decisions: Vec<Value>,
}

impl Questions {
    pub(super) fn of_call(
        decider: Option<Rest>,
        tool: &str,
        input: Value,
        answer: Option<Decision>,
        quiet: bool,
    ) -> Self {
        Self {
            decider,
            tool: tool.to_owned(),
            input,
            answer,
            quiet,
            seen: HashSet::new(),
            session: None,
            decisions: Vec::new(),
        }
    }

    /// Questions that are there already belong to other calls.
    pub(super) async fn note_older(&mut self) {
        if let Some(decider) = &self.decider {
            let older = decider.questions().await.unwrap_or_default();
            self.seen.extend(older.iter().filter_map(|question| text(question, "id")));
        }
    }

    /// The session of the question that was answered.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    pub(super) fn decisions(&self) -> &[Value] {
        &self.decisions
    }

    /// Puts each new question and sends the answer, for as long as it is polled.
    pub(super) async fn answer(&mut self) -> Infallible {
        let Some(decider) = self.decider.clone() else {
            time::sleep(limits::QUESTION_POLL_MS.millis()).await;
            eprintln!(
                "the call goes on; if it needs a permission, it waits for an answer from elsewhere"
            );
            return std::future::pending().await;
        };
        let mut warned = false;
        loop {
            time::sleep(limits::QUESTION_POLL_MS.millis() / 4).await;
            match decider.questions().await {
                Ok(questions) => {
                    for question in questions {
                        self.settle(&decider, &question).await;
                    }
                }
                Err(failure) if !warned => {
                    warned = true;
                    eprint!("questions cannot be read; the call goes on: {failure}");
                }
                Err(_) => {}
            }
        }
    }

    async fn settle(&mut self, decider: &Rest, question: &Value) {
        let Some(id) = text(question, "id") else { return };
        if text(question, "state").as_deref() != Some("pending")
            || !self.concerns(question)
            || !self.seen.insert(id.clone())
        {
            return;
        }
        self.session = text(question, "sessionId");
        if !self.quiet {
            show(question);
        }
        let Some(decision) = self.decide().await else {
            eprintln!("  nobody can be asked here; the call waits for an answer from elsewhere");
            return;
        };
        match decider.decide(&id, decision).await {
            Ok(answer) => {
                if !self.quiet {
                    show_decision(decision, &answer);
                }
                self.decisions.push(answer);
            }
            // Somebody else was faster, or the question is gone: the call will say how it ended.
            Err(failure) => eprint!("the decision was not taken: {failure}"),
        }
    }

    /// A question names server and tool (`<server>/<tool>`), the call `mcp__<source>__<tool>`; the
    /// input is the same unless it was too long to be shown. Another agent's call of the same tool
    /// with another input is none of ours to answer.
    fn concerns(&self, question: &Value) -> bool {
        let resource = text(question, "resource").unwrap_or_default();
        let tool = resource.rsplit('/').next().unwrap_or_default();
        let shown = &question["input"];
        self.tool.ends_with(&format!("__{tool}")) && (!shown.is_object() || *shown == self.input)
    }

    async fn decide(&self) -> Option<Decision> {
        if self.answer.is_some() {
            return self.answer;
        }
        if !std::io::stdin().is_terminal() {
            return None;
        }
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        loop {
            eprint!("  allow [o]nce, allow [m]atching, [d]eny? ");
            match lines.next_line().await.ok()??.trim() {
                "o" | "once" | "allow_once" => return Some(Decision::AllowOnce),
                "m" | "matching" | "allow_matching" => return Some(Decision::AllowMatching),
                "d" | "deny" => return Some(Decision::Deny),
                _ => {}
            }
        }
    }
}

/// On stderr, so that stdout holds the result alone.
fn show(question: &Value) {
    let line = |name: &str, field: &str| {
        if let Some(text) = text(question, field) {
            eprintln!("  {name:<9} {}", escape(&text));
        }
    };
    eprintln!("question: {}", escape(&text(question, "words").unwrap_or_default()));
    line("tool", "resource");
    if let Some(input) = question.get("input") {
        let input = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
        eprintln!("  {:<9} {}", "input", escape(&input));
    }
    line("class", "resourceClass");
    line("also", "example");
    line("question", "id");
}

fn show_decision(decision: Decision, decided: &Value) {
    eprintln!("decision: {}", decision.as_str());
    let id = |name: &str| decided.get(name).and_then(|part| text(part, "id"));
    if let Some(id) = id("authorization") {
        eprintln!("  authorization {}", escape(&id));
    }
    if let Some(id) = id("grant") {
        eprintln!("  grant         {}", escape(&id));
    }
}

fn text(value: &Value, field: &str) -> Option<String> {
    value.get(field)?.as_str().map(str::to_owned)
}
