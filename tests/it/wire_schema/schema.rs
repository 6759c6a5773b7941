//! The protocol's own JSON schemas (tests/fixtures/mcp-schema), and whether a message is as they say.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jsonschema::Validator;
use serde_json::{Value, json};

use super::wiretap::{Seen, Side};

const TEXTS: [(&str, &str); 4] = [
    ("2025-03-26", include_str!("../../fixtures/mcp-schema/2025-03-26.json")),
    ("2025-06-18", include_str!("../../fixtures/mcp-schema/2025-06-18.json")),
    ("2025-11-25", include_str!("../../fixtures/mcp-schema/2025-11-25.json")),
    ("2026-07-28", include_str!("../../fixtures/mcp-schema/2026-07-28.json")),
];

/// One version's schema.
struct Schema {
    whole: Value,
    /// `$defs`, in older versions `definitions`.
    section: &'static str,
    /// Which definition a method's messages have.
    methods: BTreeMap<String, String>,
    validators: HashMap<String, Validator>,
}

/// All versions.
pub(super) struct Schemas(BTreeMap<&'static str, Schema>);

impl Schemas {
    pub(super) fn read() -> Self {
        Self(TEXTS.into_iter().map(|(version, text)| (version, Schema::of(text))).collect())
    }

    /// What is wrong with it; empty: nothing.
    pub(super) fn complaints(&mut self, seen: &Seen) -> Vec<String> {
        let Some(schema) = self.0.get_mut(seen.version.as_str()) else {
            return vec![format!("{seen}: {:?} is no version", seen.version)];
        };
        let definitions = match schema.definitions(seen) {
            Ok(definitions) => definitions,
            Err(why) => return vec![format!("{seen}: {why}")],
        };
        let mut complaints = Vec::new();
        for (definition, part) in definitions {
            for error in schema.validator(&definition).iter_errors(part) {
                complaints
                    .push(format!("{seen}: {definition}: {error} at {}", error.instance_path()));
            }
        }
        complaints
    }
}

impl Schema {
    fn of(text: &str) -> Self {
        let whole: Value = serde_json::from_str(text).unwrap();
        let section = if whole["$defs"].is_object() { "$defs" } else { "definitions" };
        let of_method = |(name, definition): (&String, &Value)| {
            let method = definition["properties"]["method"]["const"].as_str()?;
            Some((method.to_owned(), name.clone()))
        };
        let methods = whole[section].as_object().unwrap().iter().filter_map(of_method).collect();
        Self { whole, section, methods, validators: HashMap::new() }
    }

    fn has(&self, definition: &str) -> bool {
        self.whole[self.section].get(definition).is_some()
    }

    /// The first of these that this version has: some were renamed.
    fn one_of(&self, names: [&str; 2]) -> String {
        names.into_iter().find(|name| self.has(name)).unwrap().to_owned()
    }

    /// What that side may send; a version that lets it send nothing of the kind has no such union.
    fn union(&self, name: &str) -> BTreeSet<String> {
        let definition = &self.whole[self.section][name];
        let refer = |part: &Value| Some(part["$ref"].as_str()?.rsplit('/').next()?.to_owned());
        match definition["anyOf"].as_array() {
            Some(parts) => parts.iter().filter_map(refer).collect(),
            None => refer(definition)
                .or_else(|| self.has(name).then(|| name.to_owned()))
                .into_iter()
                .collect(),
        }
    }

    fn validator(&mut self, definition: &str) -> &Validator {
        let (whole, section) = (&self.whole, self.section);
        self.validators.entry(definition.to_owned()).or_insert_with(|| {
            let mut schema = json!({ "$ref": format!("#/{section}/{definition}") });
            schema["$schema"] = whole["$schema"].clone();
            schema[section] = whole[section].clone();
            jsonschema::validator_for(&schema).unwrap()
        })
    }

    /// Which definitions which parts of it must meet.
    fn definitions<'a>(&self, seen: &'a Seen) -> Result<Vec<(String, &'a Value)>, String> {
        let message = &seen.message;
        if let Some(method) = message["method"].as_str() {
            let kind = if message.get("id").is_some() { "Request" } else { "Notification" };
            let envelope = format!("JSONRPC{kind}");
            let Some(definition) = self.methods.get(method) else {
                // The script asks for one that nobody knows.
                return if method.starts_with("no/such") {
                    Ok(vec![(envelope, message)])
                } else {
                    Err(format!("{} has no {method}", seen.version))
                };
            };
            let may = self.union(&format!("{}{kind}", seen.from.name()));
            if !may.contains(definition) {
                return Err(format!("the {} may not send {method}", seen.from.name()));
            }
            return Ok(vec![(envelope, message), (definition.clone(), message)]);
        }
        if message.get("error").is_some() {
            let envelope = self.one_of(["JSONRPCErrorResponse", "JSONRPCError"]);
            return Ok(vec![(envelope, message)]);
        }
        let envelope = self.one_of(["JSONRPCResultResponse", "JSONRPCResponse"]);
        let method = seen.answers.as_deref().ok_or("it answers nothing that was asked")?;
        let request = self.methods.get(method).ok_or("it answers a method that nobody knows")?;
        let stem = request.trim_end_matches("Request");
        let whole = format!("{stem}ResultResponse");
        if self.has(&whole) {
            return Ok(vec![(envelope, message), (whole, message)]);
        }
        let result = self.one_of([&format!("{stem}Result"), "EmptyResult"]);
        Ok(vec![(envelope, message), (result, &message["result"])])
    }
}

#[test]
fn a_message_that_its_version_does_not_know_is_noticed() {
    let mut schemas = Schemas::read();
    let mut complaints = |version: &str, from: Side, answers: Option<&str>, message: Value| {
        let (version, answers) = (version.to_owned(), answers.map(str::to_owned));
        schemas.complaints(&Seen { hop: "here", version, from, answers, message }).len()
    };
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {
        "message": "?", "requestedSchema": {"type": "object", "properties": {}}}});
    assert_eq!(complaints("2025-11-25", Side::Server, None, ask.clone()), 0);
    assert_eq!(complaints("2025-11-25", Side::Client, None, ask.clone()), 1, "the wrong side");
    assert_eq!(complaints("2025-03-26", Side::Server, None, ask.clone()), 1, "too early");
    assert_eq!(complaints("2026-07-28", Side::Server, None, ask), 1, "too late");

    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": 1, "result": result});
    let text = json!([{"type": "text", "text": "x"}]);
    let call = Some("tools/call");
    let plain = answer(json!({ "content": text }));
    assert_eq!(complaints("2025-06-18", Side::Server, call, plain.clone()), 0);
    assert!(complaints("2026-07-28", Side::Server, call, plain) > 0, "resultType is missing");
    let complete = answer(json!({ "content": text, "resultType": "complete" }));
    assert_eq!(complaints("2026-07-28", Side::Server, call, complete), 0);
    let odd = answer(json!({ "content": [{"type": "text"}] }));
    assert!(complaints("2025-06-18", Side::Server, call, odd) > 0, "a text without a text");
}
