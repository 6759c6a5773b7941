use std::{fmt::Write as _, time::Instant};

use super::*;

fn compiled(schema: &Value) -> Schema {
    let (schema, warnings) = Schema::compile(&schema.to_string()).unwrap();
    assert_eq!(warnings, [], "no warnings");
    schema
}

fn refused(schema: &Value) -> SchemaProblem {
    Schema::compile(&schema.to_string()).unwrap_err()
}

fn violations(schema: &Value, input: &Value) -> Vec<(String, String)> {
    let found = compiled(schema).check(input).unwrap_err();
    found.into_iter().map(|violation| (violation.path, violation.words)).collect()
}

fn pair(path: &str, words: &str) -> (String, String) {
    (path.to_owned(), words.to_owned())
}

#[test]
fn each_mistake_is_named_at_its_place_and_no_value_is_repeated() {
    let schema = json!({
        "type": "object",
        "properties": {
            "count": { "type": "integer", "minimum": 1 },
            "mode": { "enum": ["fast", "slow"] },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 3 } },
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let input =
        json!({ "count": 0, "mode": "my secret", "tags": ["ok", "another secret"], "extra": 1 });
    let found = violations(&schema, &input);
    assert!(found.contains(&pair("", "lacks the required member \"query\"")));
    assert!(found.contains(&pair("", "has members that the tool does not know: extra")));
    assert!(found.contains(&pair("/count", "must be at least 1")));
    assert!(found.contains(&pair("/mode", "must be one of \"fast\", \"slow\"")));
    assert!(found.contains(&pair("/tags/1", "must have at most 3 characters")));
    assert_eq!(found.len(), 5);
    assert!(!format!("{found:?}").contains("secret"));

    let error = invalid_input(&compiled(&schema).check(&input).unwrap_err());
    assert_eq!(error.code, Code::InvalidInput);
    assert_eq!(error.details.unwrap()["errors"].as_array().unwrap().len(), 5);
}

#[test]
fn an_input_that_fits_passes() {
    let schema = compiled(&json!({
        "properties": { "n": { "type": "integer" }, "any": true },
        "propertyNames": { "pattern": "^[a-z]+$" },
    }));
    assert_eq!(schema.check(&json!({ "n": 1.0, "any": { "deep": [null] } })), Ok(()));
    let huge: Value = serde_json::from_str(r#"{"n": 123456789012345678901234567890}"#).unwrap();
    assert_eq!(schema.check(&huge), Ok(()));
    assert!(schema.check(&json!({ "N": 1 })).is_err());
}

#[test]
fn mistakes_and_words_are_bounded() {
    let schema = json!({
        "properties": { "list": { "items": { "enum": ["x".repeat(5_000)] } } },
        "additionalProperties": false,
    });
    let found = violations(&schema, &json!({ "list": vec![0; 1_000] }));
    assert_eq!(found.len(), 20);
    assert!(found.iter().all(|(_, words)| words.chars().count() <= 201), "{found:?}");
    let found = violations(&schema, &json!({ "y\u{202e}".repeat(9_000): 1 }));
    assert!(
        found[0].1.chars().count() <= 201 && found[0].1.is_ascii() || found[0].1.ends_with('…')
    );
}

#[test]
fn drafts_are_used_as_declared() {
    // Up to draft 7, `items` may be a list; since 2020-12 that is `prefixItems`.
    let tuple = json!({ "items": [{ "type": "string" }, { "type": "integer" }] });
    let draft7 = |uri: &str| json!({ "$schema": uri, "properties": { "pair": tuple } });
    let schema = compiled(&draft7("http://json-schema.org/draft-07/schema#"));
    assert!(schema.check(&json!({ "pair": ["a", "b"] })).is_err());
    assert_eq!(schema.check(&json!({ "pair": ["a", 1] })), Ok(()));
    let newer = draft7("https://json-schema.org/draft/2020-12/schema");
    assert!(matches!(refused(&newer), SchemaProblem::Invalid(_)));
    let prefix =
        compiled(&json!({ "properties": { "pair": { "prefixItems": [{ "type": "string" }] } } }));
    assert!(prefix.check(&json!({ "pair": [1] })).is_err());
    for uri in
        ["http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2019-09/schema"]
    {
        compiled(&json!({ "$schema": uri, "type": "object" }));
    }
}

#[test]
fn an_unknown_dialect_is_read_as_2020_12_with_a_warning() {
    let raw =
        json!({ "$schema": "https://example.com/mine", "properties": { "a": { "type": "null" } } });
    let (schema, warnings) = Schema::compile(&raw.to_string()).unwrap();
    assert_eq!(warnings, [Warning("/$schema is not known and read as draft 2020-12".to_owned())]);
    assert!(schema.check(&json!({ "a": 1 })).is_err());
}

#[test]
fn a_format_is_an_annotation_in_every_draft() {
    let schema = compiled(&json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": { "when": { "type": "string", "format": "date-time" } },
    }));
    assert_eq!(schema.check(&json!({ "when": "tomorrow" })), Ok(()));
}

#[test]
fn nothing_is_fetched() {
    for reference in [
        "https://example.com/schema.json",
        "file:///etc/passwd",
        "other.json",
        "//example.com/x#/y",
        "http://json-schema.org/draft-07/schema#",
    ] {
        let schema = json!({ "properties": { "a": { "$ref": reference } } });
        assert_eq!(refused(&schema), SchemaProblem::RemoteReference, "{reference}");
    }
    let dangling = json!({ "properties": { "a": { "$ref": "#/$defs/none" } } });
    assert_eq!(refused(&dangling), SchemaProblem::DanglingReference);
}

#[test]
fn a_schema_is_an_object_of_bounded_size_and_depth() {
    for raw in ["true", "[]", r#"{"type":"string"}"#, r#"{"type":["object","null"]}"#] {
        assert_eq!(Schema::compile(raw).unwrap_err(), SchemaProblem::NotAnObject, "{raw}");
    }
    assert_eq!(Schema::compile("{").unwrap_err(), SchemaProblem::NotJson);
    let large = json!({ "description": "x".repeat(262_144) });
    assert_eq!(refused(&large), SchemaProblem::TooLarge);
    let nested = |levels: usize| {
        let open = r#"{"not":"#.repeat(levels);
        Schema::compile(&format!("{open}true{}", "}".repeat(levels)))
    };
    assert!(nested(64).is_ok());
    assert_eq!(nested(65).unwrap_err(), SchemaProblem::TooDeep);
    assert_eq!(nested(10_000).unwrap_err(), SchemaProblem::TooDeep);
    let invalid = json!({ "properties": { "a": { "type": "strin" } } });
    assert_eq!(refused(&invalid), SchemaProblem::Invalid("/properties/a/type".to_owned()));
}

#[test]
fn recursive_schemas_work() {
    let schema = compiled(&json!({
        "type": "object",
        "$ref": "#/$defs/node",
        "$defs": { "node": {
            "properties": { "next": { "$ref": "#/$defs/node" }, "value": { "type": "integer" } },
        } },
    }));
    assert_eq!(schema.check(&json!({ "next": { "next": { "value": 1 } } })), Ok(()));
    let found = schema.check(&json!({ "next": { "next": { "value": "x" } } })).unwrap_err();
    assert_eq!(found[0].path, "/next/next/value");
}

#[test]
fn a_pattern_beyond_linear_time_is_not_enforced_and_said() {
    let raw = json!({
        "properties": {
            "password": { "pattern": "^(?=.*[0-9]).{8,}$", "minLength": 2 },
            "twice": { "pattern": "(a)\\1" },
            "plain/er": { "pattern": "^[a-z]+$" },
            "pattern": { "type": "string" },
            "huge": { "pattern": "(([a-z]{1,99}){1,99}){1,99}" },
        },
        "patternProperties": { "^(?!x)": { "type": "integer" }, "^n": { "type": "integer" } },
        "additionalProperties": false,
        "default": { "pattern": "(?=data)" },
    });
    let (schema, warnings) = Schema::compile(&raw.to_string()).unwrap();
    let words: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), 4, "{words:#?}");
    for pointer in [
        "/properties/password/pattern is not",
        "/properties/twice/pattern is not",
        "/properties/huge/pattern is not",
        "/patternProperties/^(?!x) is not",
    ] {
        assert!(words.iter().any(|words| words.starts_with(pointer)), "{pointer}: {words:#?}");
    }
    assert_eq!(schema.check(&json!({ "password": "short", "other": 1 })), Ok(()));
    assert!(schema.check(&json!({ "password": "x" })).is_err());
    assert!(schema.check(&json!({ "plain/er": "ABC" })).is_err());
    assert!(schema.check(&json!({ "name": "text" })).is_err());
    assert!(schema.check(&json!({ "pattern": 1 })).is_err());
}

#[test]
fn too_many_patterns_or_resources_are_refused() {
    let patterns: serde_json::Map<String, Value> = (0..300)
        .map(|index| (format!("p{index}"), json!({ "pattern": format!("^{index}$") })))
        .collect();
    assert!(matches!(refused(&json!({ "properties": patterns })), SchemaProblem::TooComplex(_)));
    let parts: serde_json::Map<String, Value> = (0..5)
        .map(|index| (format!("d{index}"), json!({ "$id": format!("urn:x:{index}") })))
        .collect();
    assert!(matches!(refused(&json!({ "$defs": parts })), SchemaProblem::TooComplex(_)));
}

/// Doubles at each of 60 levels: 2^60 ways through.
fn doubling(keyword: &str, leaf: &Value, step: impl Fn(Value) -> Value) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..60 {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        definitions.insert(format!("d{level}"), step(json!({ keyword: [next, next] })));
    }
    definitions.insert("d60".to_owned(), leaf.clone());
    json!({ "properties": { "x": { "$ref": "#/$defs/d0" } }, "$defs": definitions })
}

#[test]
fn an_exponential_schema_does_not_hang() {
    let began = Instant::now();
    for (keyword, leaf) in [
        ("allOf", json!({ "type": "integer" })),
        ("anyOf", json!(false)),
        ("oneOf", json!({ "type": "integer" })),
        ("anyOf", json!({ "type": "string" })),
        ("oneOf", json!(true)),
        ("oneOf", json!({})),
    ] {
        let schema = compiled(&doubling(keyword, &leaf, |choice| choice));
        let found = schema.check(&json!({ "x": 1 })).unwrap_err();
        assert_eq!(found.len(), 1, "{keyword}: {found:?}");
    }
    // Doubles at each level of the input.
    let down = |choice: Value| json!({ "properties": { "x": choice } });
    let mut input = json!({ "x": 1 });
    for _ in 0..60 {
        input = json!({ "x": input });
    }
    for keyword in ["anyOf", "oneOf"] {
        let schema = compiled(&doubling(keyword, &json!({ "type": "string" }), down));
        assert!(schema.check(&input).is_err());
    }
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn a_long_chain_of_references_does_not_overflow_the_stack() {
    for wrap in [r##"{"$ref":"#/$defs/d"##, r##"{"allOf":[{"$ref":"#/$defs/d"##] {
        let close = if wrap.contains("allOf") { "\"}]}" } else { "\"}" };
        let mut definitions = String::new();
        for level in 0..4_000 {
            write!(definitions, "\"d{level}\":{wrap}{}{close},", level + 1).unwrap();
        }
        let raw = format!(
            r##"{{"properties":{{"x":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{definitions}"d4000":true}}}}"##
        );
        on_a_small_stack(move || {
            let (schema, _) = Schema::compile(&raw).unwrap();
            let checked = schema.check(&json!({ "x": 1 }));
            assert!(checked.is_ok() || checked.unwrap_err()[0].words.contains("too much"));
        });
    }
}

#[test]
fn many_patterns_over_many_members_end() {
    let patterns: serde_json::Map<String, Value> =
        (0..200).map(|index| (format!("^(a|b)*{index}$"), json!(true))).collect();
    let schema = compiled(&json!({ "patternProperties": patterns, "additionalProperties": true }));
    let members: serde_json::Map<String, Value> =
        (0..100_000).map(|index| (format!("k{index}"), json!(0))).collect();
    assert!(schema.check(&Value::Object(members)).is_err());
    assert_eq!(schema.check(&json!({ "k": 1 })), Ok(()));
}

#[test]
fn a_large_honest_input_passes() {
    let schema = compiled(&json!({
        "properties": { "rows": { "type": "array", "uniqueItems": true, "items": {
            "type": "object",
            "properties": { "id": { "type": "integer" }, "name": { "type": "string" } },
            "required": ["id"],
        } } },
    }));
    let rows: Vec<Value> = (0..30_000).map(|id| json!({ "id": id, "name": "row" })).collect();
    assert_eq!(schema.check(&json!({ "rows": rows })), Ok(()));
}

#[test]
fn resources_that_refer_to_each_other_compile_in_time() {
    let began = Instant::now();
    let part = |index: usize| {
        let others = (0..4).map(|other| json!({ "$ref": format!("urn:x:{other}") }));
        json!({ "$id": format!("urn:x:{index}"), "anyOf": others.collect::<Vec<_>>(),
            "$dynamicAnchor": "node", "properties": { "x": { "$dynamicRef": "#node" } } })
    };
    let schema = json!({ "$defs": { "a": part(0), "b": part(1), "c": part(2), "d": part(3) },
        "properties": { "x": { "$ref": "urn:x:0" } } });
    let (schema, _) = Schema::compile(&schema.to_string()).unwrap();
    let _ = schema.check(&json!({ "x": { "x": { "x": {} } } }));
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

#[test]
fn a_schema_that_looks_back_is_measured_before_it_is_built() {
    let looking_back = |mut schema: Value| {
        schema["properties"]["x"]["unevaluatedProperties"] = json!(false);
        schema
    };
    let complex = |schema: Value| {
        let problem = refused(&looking_back(schema));
        assert!(matches!(problem, SchemaProblem::TooComplex(_)), "{problem}");
    };
    complex(doubling("allOf", &json!(true), |choice| choice));
    let next = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    complex(
        json!({ "properties": { "x": next("a") }, "$defs": { "a": { "allOf": [next("a")] } } }),
    );
    complex(json!({ "properties": { "x": { "$dynamicRef": "#a" } } }));
    complex(
        json!({ "properties": { "x": { "$ref": "#a" } }, "$defs": { "a": { "$anchor": "a" } } }),
    );
    let chain = move |length: usize| {
        let mut definitions = serde_json::Map::new();
        for level in 0..length {
            definitions.insert(format!("d{level}"), next(&format!("d{}", level + 1)));
        }
        definitions.insert(format!("d{length}"), json!(true));
        json!({ "properties": { "x": next("d0") }, "$defs": definitions })
    };
    complex(chain(4_000));
    on_a_small_stack(move || drop(compiled(&looking_back(chain(60)))));

    let honest = compiled(&json!({
        "$ref": "#/$defs/node",
        "$defs": {
            "base": { "properties": { "name": { "type": "string" } } },
            "node": {
                "allOf": [{ "$ref": "#/$defs/base" }],
                "properties": { "child": { "$ref": "#/$defs/node" } },
                "unevaluatedProperties": false,
            },
        },
    }));
    assert_eq!(honest.check(&json!({ "name": "a", "child": { "name": "b" } })), Ok(()));
    assert!(honest.check(&json!({ "child": { "other": 1 } })).is_err());
}

#[test]
fn nesting_over_references_is_bounded_so_that_compiling_fits_a_small_stack() {
    let chain = |targets: usize, levels: usize| {
        let mut definitions = serde_json::Map::new();
        for target in 0..targets {
            let mut nested = json!({ "$ref": format!("#/$defs/d{}", target + 1) });
            for _ in 0..levels {
                nested = json!({ "not": nested });
            }
            definitions.insert(format!("d{target}"), nested);
        }
        definitions.insert(format!("d{targets}"), json!({ "type": "integer" }));
        json!({ "properties": { "x": { "$ref": "#/$defs/d0" } }, "$defs": definitions })
    };
    assert!(matches!(refused(&chain(8, 60)), SchemaProblem::TooComplex(_)));
    for schema in [chain(3, 60), chain(100, 22), chain(1_000, 10)] {
        on_a_small_stack(move || {
            let checked = compiled(&schema).check(&json!({ "x": 1 }));
            assert!(checked.is_ok() || checked.unwrap_err()[0].words.contains("too much"));
        });
    }
}

/// As small as the stack of a worker thread.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    thread.spawn(work).unwrap().join().unwrap();
}
