//! What is done to a schema before it is compiled: measured, and freed of what we do not enforce.
//!
//! The tool's definition itself is never changed by this; it works on the copy that validates.

use std::collections::BTreeSet;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::{SchemaProblem, Warning};
use crate::{limits, tool};

pub(super) struct Prepared {
    pub(super) schema: Value,
    pub(super) patterns: u64,
    pub(super) warnings: Vec<Warning>,
}

/// Levels of objects and arrays.
pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Parts that the compiler enters within each other before it puts the next one off.
const NESTED_TARGETS: usize = 8;

/// Levels that compiling may stand in at once: the schema's own and those of the deepest parts that
/// it refers to.
pub(super) fn nesting(schema: &Value) -> usize {
    let whole = depth(schema);
    let mut references = BTreeSet::new();
    collect_references(schema, &mut references);
    let target = |reference: &str| {
        let pointer = reference.strip_prefix('#').filter(|pointer| pointer.starts_with('/'));
        // What a name stands for is not looked up: no part is deeper than the whole.
        pointer.and_then(|pointer| schema.pointer(pointer)).map_or(whole, depth)
    };
    let mut depths: Vec<usize> = references.into_iter().map(target).collect();
    depths.sort_unstable_by(|one, other| other.cmp(one));
    whole + depths.iter().take(NESTED_TARGETS).sum::<usize>()
}

fn collect_references<'a>(value: &'a Value, references: &mut BTreeSet<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, references)),
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if REFERENCES.contains(&name.as_str()) => {
                        references.insert(text);
                    }
                    value => collect_references(value, references),
                }
            }
        }
        _ => {}
    }
}

const REFERENCES: &[&str] = &["$dynamicRef", "$recursiveRef", "$ref"];

pub(super) fn prepare(
    mut schema: Value,
    pattern_fits: impl Fn(&str) -> bool,
) -> Result<Prepared, SchemaProblem> {
    let mut walk = Walk { pattern_fits, patterns: 0, resources: 0, warnings: Vec::new() };
    walk.schema(&mut schema, &mut String::new());
    if walk.patterns > limits::SCHEMA_PATTERNS.default {
        return Err(SchemaProblem::TooComplex("too many patterns"));
    }
    if walk.resources > limits::SCHEMA_RESOURCES.default {
        return Err(SchemaProblem::TooComplex("too many parts with an identifier of their own"));
    }
    Ok(Prepared { schema, patterns: walk.patterns, warnings: walk.warnings })
}

/// Keywords whose value is data, not a schema.
pub(crate) const DATA: &[&str] =
    &["const", "default", "enum", "example", "examples", "required", "type"];

/// Keywords whose value maps names to schemas.
pub(crate) const MAPS: &[&str] = &[
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

struct Walk<F> {
    pattern_fits: F,
    patterns: u64,
    resources: u64,
    warnings: Vec<Warning>,
}

impl<F: Fn(&str) -> bool> Walk<F> {
    fn schema(&mut self, schema: &mut Value, pointer: &mut String) {
        match schema {
            Value::Object(members) => self.members(members, pointer),
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.below(&index.to_string(), item, pointer);
                }
            }
            _ => {}
        }
    }

    fn members(&mut self, members: &mut Map<String, Value>, pointer: &mut String) {
        self.dialect(members, pointer);
        self.pattern(members, pointer);
        self.pattern_properties(members, pointer);
        look_before_branching(members);
        if members.get("$id").is_some_and(Value::is_string) {
            self.resources += 1;
        }
        for (keyword, value) in members.iter_mut() {
            if DATA.contains(&keyword.as_str()) {
                continue;
            }
            let Value::Object(named) = value else {
                self.below(keyword, value, pointer);
                continue;
            };
            if MAPS.contains(&keyword.as_str()) {
                let length = push(pointer, keyword);
                for (name, value) in named.iter_mut() {
                    self.below(name, value, pointer);
                }
                pointer.truncate(length);
            } else {
                self.below(keyword, value, pointer);
            }
        }
    }

    fn below(&mut self, segment: &str, value: &mut Value, pointer: &mut String) {
        let length = push(pointer, segment);
        self.schema(value, pointer);
        pointer.truncate(length);
    }

    /// A dialect that nobody here knows is read as the default one.
    fn dialect(&mut self, members: &mut Map<String, Value>, pointer: &str) {
        let Some(Value::String(uri)) = members.get("$schema") else { return };
        if Draft::from_schema_uri(uri) == Draft::Unknown {
            members.shift_remove("$schema");
            self.warn(&format!("{pointer}/$schema is not known and read as draft 2020-12"));
        }
    }

    fn pattern(&mut self, members: &mut Map<String, Value>, pointer: &str) {
        let Some(Value::String(pattern)) = members.get("pattern") else { return };
        self.patterns += 1;
        if !self.fits(pattern) {
            members.shift_remove("pattern");
            self.not_enforced(&format!("{pointer}/pattern"));
        }
    }

    fn pattern_properties(&mut self, members: &mut Map<String, Value>, pointer: &str) {
        let Some(Value::Object(patterns)) = members.get_mut("patternProperties") else { return };
        self.patterns += patterns.len() as u64;
        let refused: Vec<String> =
            patterns.keys().filter(|pattern| !self.fits(pattern)).cloned().collect();
        for pattern in &refused {
            patterns.shift_remove(pattern);
        }
        if !refused.is_empty() {
            // What the pattern let in must not be refused for want of it.
            members.shift_remove("additionalProperties");
            members.shift_remove("unevaluatedProperties");
        }
        for pattern in refused {
            let mut whole = format!("{pointer}/patternProperties");
            push(&mut whole, &pattern);
            self.not_enforced(&whole);
        }
    }

    /// Patterns beyond the bound are not compiled any more: the schema is refused for them.
    fn fits(&self, pattern: &str) -> bool {
        self.patterns > limits::SCHEMA_PATTERNS.default || (self.pattern_fits)(pattern)
    }

    fn not_enforced(&mut self, pointer: &str) {
        self.warn(&format!("{pointer} is not enforced: no linear-time engine takes this pattern"));
    }

    fn warn(&mut self, words: &str) {
        if self.warnings.len() < limits::VIOLATIONS.size() {
            self.warnings.push(Warning(tool::escaped(words, limits::VIOLATION_CHARS.size())));
        }
    }
}

/// Keywords that try schemas on the same value once more.
const BRANCHES: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "allOf",
    "anyOf",
    "dependencies",
    "dependentSchemas",
    "if",
    "not",
    "oneOf",
];

/// Adds an assertion that always holds and looks at the value, so that the meter sees each visit of
/// a schema that branches, even where all its leaves are `true` or `false`.
fn look_before_branching(members: &mut Map<String, Value>) {
    if BRANCHES.iter().any(|keyword| members.contains_key(*keyword)) {
        members.entry("minProperties").or_insert(Value::from(0));
    }
}

/// Adds one segment of a JSON pointer (RFC 6901) and returns the length before.
fn push(pointer: &mut String, segment: &str) -> usize {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&segment.replace('~', "~0").replace('/', "~1"));
    length
}
