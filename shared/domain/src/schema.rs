//! A tool's JSON schema: compiled once, checked on every call.
//!
//! A schema comes from a peer and the input from a model, so neither may hang or crash us: no
//! reference leaves the document, patterns run in linear time, a check counts its steps and its
//! stack. Drafts are used as declared, 2020-12 where nothing (or nothing known) is declared, as
//! MCP says (specification 2025-11-25, "JSON Schema Usage"). `format` is an annotation in every
//! draft: what a peer calls a date is not ours to argue about.

mod metered;
mod prepare;
mod ways;
mod words;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use jsonschema::{
    Draft, PatternCache, PatternOptions, ReferencingError, ValidationError, Validator,
    error::ValidationErrorKind,
};
use serde_json::{Value, json};

use crate::{Code, Error, limits, tool};
use metered::{Exhausted, Meter, Metered};
use prepare::Prepared;
pub(crate) use prepare::{DATA, MAPS};

/// A compiled schema of an object.
pub struct Schema {
    validator: Validator<Metered>,
    /// What looking at one member of an object may cost: each pattern may be tried on it.
    member_cost: u64,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").finish_non_exhaustive()
    }
}

/// What a person should know about a definition that is used all the same; public words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a schema cannot be used; `Display` is public.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    #[error("the schema is larger than {} bytes", limits::SCHEMA_BYTES.default)]
    TooLarge,
    #[error("the schema nests deeper than {} levels", limits::SCHEMA_DEPTH.default)]
    TooDeep,
    #[error("the schema is no JSON")]
    NotJson,
    #[error("the schema does not describe an object")]
    NotAnObject,
    #[error("the schema refers to another document, which is never fetched")]
    RemoteReference,
    #[error("the schema refers to a part of itself that does not exist")]
    DanglingReference,
    /// It could take us too long, before or while an input is checked.
    #[error("the schema is too complex: {0}")]
    TooComplex(&'static str),
    /// At this JSON pointer.
    #[error("the schema is invalid at \"{0}\"")]
    Invalid(String),
}

/// One mistake of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the input; empty for the whole.
    pub path: String,
    /// At most [`limits::VIOLATION_CHARS`]; never repeats a value of the input.
    pub words: String,
}

impl Schema {
    /// Compiles a schema of an object (a missing `type` is accepted).
    ///
    /// The warnings name what is in it and will not be enforced.
    pub fn compile(raw: &str) -> Result<(Self, Vec<Warning>), SchemaProblem> {
        if raw.len() > limits::SCHEMA_BYTES.size() {
            return Err(SchemaProblem::TooLarge);
        }
        let schema: Value = serde_json::from_str(raw).map_err(|error| {
            // The reader's own bound is a deeper one than ours.
            let deep = error.to_string().starts_with("recursion limit");
            if deep { SchemaProblem::TooDeep } else { SchemaProblem::NotJson }
        })?;
        if prepare::depth(&schema) > limits::SCHEMA_DEPTH.size() {
            return Err(SchemaProblem::TooDeep);
        }
        if !describes_an_object(&schema) {
            return Err(SchemaProblem::NotAnObject);
        }
        if prepare::nesting(&schema) > limits::SCHEMA_NESTING.size() {
            return Err(SchemaProblem::TooComplex("deep parts refer to deep parts"));
        }
        ways::check(&schema)?;
        let patterns = PatternCache::new();
        let Prepared { schema, patterns: count, warnings } =
            prepare::prepare(schema, |pattern| pattern_fits(pattern, &patterns))?;
        let validator = jsonschema::options_for::<Metered>()
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(pattern_options())
            .with_pattern_cache(patterns)
            .build(&schema)
            .map_err(|error| problem(&error))?;
        Ok((Self { validator, member_cost: 1 + count / 4 }, warnings))
    }

    /// Checks an input; at most [`limits::VIOLATIONS`] mistakes are listed.
    ///
    /// An input that costs more than [`limits::SCHEMA_STEPS`] or [`limits::SCHEMA_STACK_BYTES`] to
    /// check is refused too: that bound is what keeps a hostile schema from holding a thread.
    pub fn check(&self, input: &Value) -> Result<(), Vec<Violation>> {
        match self.metered(|meter| self.validator.is_valid(meter.node(input))) {
            Some(true) => Ok(()),
            Some(false) => Err(self.violations(input)),
            None => Err(vec![whole("checking the input against the tool's schema costs too much")]),
        }
    }

    fn violations(&self, input: &Value) -> Vec<Violation> {
        let found = self.metered(|meter| {
            let errors = self.validator.iter_errors(meter.node(input));
            errors
                .take(limits::VIOLATIONS.size())
                .map(|error| violation(&error))
                .collect::<Vec<_>>()
        });
        // Listing every branch of a nested choice may cost more than finding that none fits.
        match found {
            Some(violations) if !violations.is_empty() => violations,
            _ => vec![whole("the input does not fit the tool's schema")],
        }
    }

    /// Runs `check` with a fresh meter; `None` when it was exhausted.
    fn metered<T>(&self, check: impl FnOnce(&Meter) -> T) -> Option<T> {
        let meter = Meter::new(limits::SCHEMA_STEPS.default, self.member_cost);
        // Unwinding is the one way out of the validator's recursion: it has no budget of its own,
        // and an answer "invalid" would only send it to the next branch. Nothing outlives it: the
        // compiled schema is not written to, and the meter is dropped here.
        match catch_unwind(AssertUnwindSafe(|| check(&meter))) {
            Ok(result) => Some(result),
            Err(payload) if payload.is::<Exhausted>() => None,
            Err(payload) => resume_unwind(payload),
        }
    }
}

/// The error of an input that a tool's schema does not accept:
/// `details {"errors": [{"path", "message"}]}`.
#[must_use]
pub fn invalid_input(violations: &[Violation]) -> Error {
    let errors: Vec<Value> = violations
        .iter()
        .map(|violation| json!({ "path": violation.path, "message": violation.words }))
        .collect();
    let words = match violations.first() {
        Some(first) if !first.path.is_empty() => {
            format!("the input does not fit the tool's schema: {} {}", first.path, first.words)
        }
        Some(first) => format!("the input does not fit the tool's schema: {}", first.words),
        None => "the input does not fit the tool's schema".to_owned(),
    };
    Error::new(Code::InvalidInput, words).with_details(json!({ "errors": errors }))
}

fn describes_an_object(schema: &Value) -> bool {
    schema.as_object().is_some_and(|members| match members.get("type") {
        None => true,
        Some(kind) => kind == "object",
    })
}

fn pattern_options() -> PatternOptions<jsonschema::Regex> {
    let bytes = limits::REGEX_BYTES.size();
    PatternOptions::regex().size_limit(bytes).dfa_size_limit(bytes)
}

/// Whether the linear engine takes this pattern; asked of the engine itself, through the smallest
/// schema that holds it.
fn pattern_fits(pattern: &str, cache: &PatternCache) -> bool {
    jsonschema::options()
        .offline()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(pattern_options())
        .with_pattern_cache(cache.clone())
        .build(&json!({ "pattern": pattern }))
        .is_ok()
}

fn problem(error: &ValidationError<'_>) -> SchemaProblem {
    match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { .. }) => {
            SchemaProblem::RemoteReference
        }
        ValidationErrorKind::Referencing(
            ReferencingError::PointerToNowhere { .. } | ReferencingError::NoSuchAnchor { .. },
        ) => SchemaProblem::DanglingReference,
        _ => SchemaProblem::Invalid(tool::escaped(error.instance_path().as_str(), 120)),
    }
}

fn violation(error: &ValidationError<'_>) -> Violation {
    // A pointer is made of the input's own names, and these may be long.
    let path = tool::escaped(error.instance_path().as_str(), limits::VIOLATION_CHARS.size());
    Violation { path, words: words::of(error.kind()) }
}

fn whole(words: &str) -> Violation {
    Violation { path: String::new(), words: words.to_owned() }
}

#[cfg(test)]
mod tests;
