//! How many ways lead through a schema that looks back at what it evaluated.
//!
//! For `unevaluatedProperties` and `unevaluatedItems` the validator builds a tree of everything that
//! applies to the same value, once for each way that leads there, before any input is seen. Neither
//! the meter nor its caches bound that, so such schemas are measured first.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    SchemaProblem,
    prepare::{DATA, MAPS},
};
use crate::limits;

const LOOKING_BACK: &[&str] = &["unevaluatedProperties", "unevaluatedItems"];

/// Refuses a schema that looks back and has too many ways, or whose ways cannot be followed here.
pub(super) fn check(schema: &Value) -> Result<(), SchemaProblem> {
    if !looks_back(schema) {
        return Ok(());
    }
    let mut ways = Ways { root: schema, known: HashMap::new() };
    ways.every(schema)
}

fn looks_back(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| LOOKING_BACK.contains(&name.as_str()) || looks_back(value)),
        Value::Array(items) => items.iter().any(looks_back),
        _ => false,
    }
}

/// Of one schema: how many schemas apply to the same value with it, counted once for each way, and
/// how long the longest way is.
#[derive(Clone, Copy)]
struct Extent {
    ways: u64,
    length: u64,
}

struct Ways<'a> {
    root: &'a Value,
    /// By address: `None` while it is being measured.
    known: HashMap<*const Value, Option<Extent>>,
}

impl<'a> Ways<'a> {
    /// Measures each schema below this one.
    fn every(&mut self, schema: &'a Value) -> Result<(), SchemaProblem> {
        match schema {
            Value::Object(members) => {
                self.extent(schema, 0)?;
                members.iter().filter(|(name, _)| !DATA.contains(&name.as_str())).try_for_each(
                    |(name, value)| match value {
                        Value::Object(named) if MAPS.contains(&name.as_str()) => {
                            named.values().try_for_each(|value| self.every(value))
                        }
                        _ => self.every(value),
                    },
                )
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.every(item)),
            _ => Ok(()),
        }
    }

    fn extent(&mut self, schema: &'a Value, depth: u64) -> Result<Extent, SchemaProblem> {
        let key = std::ptr::from_ref(schema);
        match self.known.get(&key) {
            Some(Some(extent)) => return Ok(*extent),
            Some(None) => return Err(complex("a part of it applies to the same value as itself")),
            None => {}
        }
        if depth > limits::SCHEMA_DEPTH.default {
            return Err(complex("too long a chain of references"));
        }
        self.known.insert(key, None);
        let mut extent = Extent { ways: 1, length: 1 };
        for part in self.parts(schema)? {
            let part = self.extent(part, depth + 1)?;
            extent.ways = extent.ways.saturating_add(part.ways);
            extent.length = extent.length.max(part.length + 1);
        }
        if extent.ways > limits::SCHEMA_WAYS.default {
            return Err(complex("too many ways through it"));
        }
        if extent.length > limits::SCHEMA_DEPTH.default {
            return Err(complex("too long a chain of references"));
        }
        self.known.insert(key, Some(extent));
        Ok(extent)
    }

    /// The schemas that apply to the same value.
    fn parts(&self, schema: &'a Value) -> Result<Vec<&'a Value>, SchemaProblem> {
        let Value::Object(members) = schema else { return Ok(Vec::new()) };
        let mut parts = Vec::new();
        for (name, value) in members {
            match (name.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(items)) => parts.extend(items),
                ("not" | "if" | "then" | "else", value) => parts.push(value),
                ("dependentSchemas" | "dependencies", Value::Object(named)) => {
                    parts.extend(named.values());
                }
                ("$ref", Value::String(reference)) => parts.extend(self.target(reference)?),
                ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                    return Err(complex("a dynamic reference beside unevaluated members"));
                }
                _ => {}
            }
        }
        Ok(parts)
    }

    /// A dangling reference is left for the compiler to name.
    fn target(&self, reference: &str) -> Result<Option<&'a Value>, SchemaProblem> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(complex("a reference by identifier beside unevaluated members"));
        };
        if !(pointer.is_empty() || pointer.starts_with('/')) || pointer.contains('%') {
            return Err(complex("a reference by name beside unevaluated members"));
        }
        Ok(self.root.pointer(pointer))
    }
}

fn complex(words: &'static str) -> SchemaProblem {
    SchemaProblem::TooComplex(words)
}
