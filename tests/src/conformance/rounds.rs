//! Requests that need something of the client before they are done (2026-07-28, multi round-trip).
//! <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr>

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, ErrorData, GetPromptResponse,
    InputRequiredResult, InputResponses,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::catalogue::{complete, read, text};

/// What was said so far, by the handle that the client holds as `requestState`: one that is not here is
/// not ours.
#[derive(Debug, Default)]
pub(super) struct States(Mutex<HashMap<String, Value>>);

impl States {
    fn keep(&self, said: Value) -> String {
        let handle = Uuid::new_v4().to_string();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.clone(), said);
        handle
    }

    fn find(&self, handle: &str) -> Result<Value, ErrorData> {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = states.get(handle).cloned();
        found.ok_or_else(|| ErrorData::invalid_params("requestState is not one of ours", None))
    }
}

/// What a request brings of the round before.
#[derive(Debug)]
pub(super) struct Round<'a> {
    pub(super) responses: Option<&'a InputResponses>,
    pub(super) state: Option<&'a str>,
    pub(super) capabilities: Option<ClientCapabilities>,
}

impl Round<'_> {
    /// The word that the user accepted with.
    fn accepted(&self, key: &str, field: &str) -> Option<Value> {
        let response = self.responses?.get(key)?;
        (response["action"] == "accept").then(|| response["content"].get(field).cloned())?
    }

    fn sampled(&self, key: &str) -> Option<String> {
        Some(self.responses?.get(key)?["content"]["text"].as_str()?.to_owned())
    }

    fn roots(&self, key: &str) -> Option<usize> {
        Some(self.responses?.get(key)?["roots"].as_array()?.len())
    }
}

fn elicit(message: &str, field: &str, kind: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "mode": "form",
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { field: { "type": kind } },
            "required": [field],
        },
    } })
}

fn sample(prompt: &str) -> Value {
    json!({ "method": "sampling/createMessage", "params": {
        "messages": [{ "role": "user", "content": text(prompt) }],
        "maxTokens": 100,
    } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

fn need(requests: Value, state: Option<String>) -> InputRequiredResult {
    InputRequiredResult::new(Some(read(requests)), state)
}

fn done(words: impl Into<String>) -> CallToolResponse {
    complete::<CallToolResult>(json!({ "content": [text(words)] })).into()
}

/// The answer of a tool that works in rounds; `None` for any other.
pub(super) fn tool(
    name: &str,
    round: &Round<'_>,
    states: &States,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let said = || round.state.map(|handle| states.find(handle)).transpose();
    let answer = match name.strip_prefix("test_input_required_result_")? {
        "elicitation" => match round.accepted("user_name", "name") {
            Some(Value::String(name)) => done(format!("Hello, {name}!")),
            _ => need(json!({ "user_name": elicit("What is your name?", "name", "string") }), None)
                .into(),
        },
        "sampling" => round.sampled("capital_question").map_or_else(
            || {
                let question = sample("What is the capital of France?");
                need(json!({ "capital_question": question }), None).into()
            },
            done,
        ),
        "list_roots" => match round.roots("client_roots") {
            Some(count) => done(format!("{count} roots")),
            None => need(json!({ "client_roots": roots() }), None).into(),
        },
        which @ ("request_state" | "tampered_state") => match said() {
            Err(error) => return Some(Err(error)),
            Ok(Some(kept))
                if kept["for"] == which && round.accepted("confirm", "ok") == Some(json!(true)) =>
            {
                done("state-ok")
            }
            Ok(_) => {
                let question = elicit("Please confirm", "ok", "boolean");
                let state = states.keep(json!({ "for": which }));
                need(json!({ "confirm": question }), Some(state)).into()
            }
        },
        "multiple_inputs" => match said() {
            Err(error) => return Some(Err(error)),
            Ok(kept) => several(round, kept.is_some(), states),
        },
        "multi_round" => match said() {
            Err(error) => return Some(Err(error)),
            Ok(kept) => name_then_colour(round, &kept.unwrap_or_default(), states),
        },
        "capabilities" => what_it_can(round, states),
        _ => return None,
    };
    Some(Ok(answer))
}

fn several(round: &Round<'_>, again: bool, states: &States) -> CallToolResponse {
    let name = round.accepted("user_name", "name");
    let greeting = round.sampled("greeting");
    let roots_given = round.roots("client_roots");
    if again
        && let (Some(Value::String(name)), Some(greeting), Some(roots)) =
            (name, greeting, roots_given)
    {
        return done(format!("{greeting} {name}, {roots} roots"));
    }
    let requests = json!({
        "user_name": elicit("What is your name?", "name", "string"),
        "greeting": sample("Write a greeting"),
        "client_roots": roots(),
    });
    need(requests, Some(states.keep(json!({})))).into()
}

fn name_then_colour(round: &Round<'_>, kept: &Value, states: &States) -> CallToolResponse {
    if let (Some(name), Some(Value::String(colour))) =
        (kept["name"].as_str(), round.accepted("step2", "color"))
    {
        return done(format!("{name} likes {colour}"));
    }
    if let Some(name) = round.accepted("step1", "name").filter(|_| kept["step"] == 1) {
        let question = elicit("Step 2: What is your favourite colour?", "color", "string");
        let state = states.keep(json!({ "step": 2, "name": name }));
        return need(json!({ "step2": question }), Some(state)).into();
    }
    let question = elicit("Step 1: What is your name?", "name", "string");
    need(json!({ "step1": question }), Some(states.keep(json!({ "step": 1 })))).into()
}

fn what_it_can(round: &Round<'_>, states: &States) -> CallToolResponse {
    if let Some(responses) = round.responses {
        return done(format!("{} given", responses.len()));
    }
    let mut requests = serde_json::Map::new();
    if round.capabilities.as_ref().is_some_and(|client| client.elicitation.is_some()) {
        requests.insert("elicited".to_owned(), elicit("A word?", "value", "string"));
    }
    if round.capabilities.as_ref().is_some_and(|client| client.sampling.is_some()) {
        requests.insert("sampled".to_owned(), sample("A word?"));
    }
    if requests.is_empty() {
        return done("the client can give nothing");
    }
    need(requests.into(), Some(states.keep(json!({})))).into()
}

/// The prompt that works in rounds.
pub(super) fn prompt(round: &Round<'_>) -> GetPromptResponse {
    let Some(Value::String(context)) = round.accepted("user_context", "context") else {
        let question = elicit("What context should the prompt use?", "context", "string");
        return need(json!({ "user_context": question }), None).into();
    };
    let message = json!({ "role": "user", "content": text(format!("Context: {context}")) });
    GetPromptResponse::Complete(complete(json!({ "messages": [message] })))
}
