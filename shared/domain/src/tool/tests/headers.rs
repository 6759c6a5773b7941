use serde_json::{Value, json};

use super::super::*;

fn read(schema: &Value) -> Result<Definition, UnusableTool> {
    let definition = json!({ "name": "find", "inputSchema": schema });
    // It is a tool like any other where no headers are sent.
    Definition::parse(&definition.to_string()).unwrap();
    Definition::parse_with_headers(&definition.to_string())
}

fn object(properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

fn marked(kind: &str, header: &Value) -> Value {
    json!({ "type": kind, "x-mcp-header": header })
}

#[test]
fn legal_marks_are_taken_however_deep_they_stand() {
    read(&object(&json!({
        "region": marked("string", &json!("Region")),
        "count": marked("integer", &json!("X.count~1")),
        "inner": object(&json!({ "deep": marked("boolean", &json!("Deep")) })),
        // An argument of that name, and data, are no marks.
        "x-mcp-header": { "type": "string", "default": { "x-mcp-header": 1 } },
        "choice": { "enum": [{ "x-mcp-header": "" }] },
    })))
    .unwrap();
    read(&json!({ "type": "object" })).unwrap();
}

#[test]
fn an_illegal_mark_hides_the_tool_and_its_problem_names_the_header() {
    let one = |header: Value| object(&json!({ "a": marked("string", &header) }));
    let string = marked("string", &json!("Region"));
    for (schema, words) in [
        (one(json!("")), r#"input schema: the x-mcp-header "" is empty"#),
        (one(json!(7)), "input schema: the x-mcp-header 7 is no text"),
        (one(json!("a b")), r#"input schema: the x-mcp-header "a b" is no legal name of a header"#),
        (one(json!("a\r\nb")), r#"the x-mcp-header "a\r\nb" is no legal name"#),
        (one(json!("Größe")), r#"the x-mcp-header "Gr\u{f6}\u{df}e" is no legal name"#),
        (
            object(
                &json!({ "a": string, "b": object(&json!({ "c": marked("string", &json!("rEGION")) })) }),
            ),
            r#"the x-mcp-header "rEGION" is there twice"#,
        ),
        (
            object(&json!({ "a": marked("number", &json!("N")) })),
            r#""N" marks an argument that is no"#,
        ),
        (
            object(&json!({ "a": marked("object", &json!("N")) })),
            r#""N" marks an argument that is no"#,
        ),
        (object(&json!({ "a": { "x-mcp-header": "N" } })), r#""N" marks an argument that is no"#),
        (
            object(&json!({ "a": { "type": ["string", "null"], "x-mcp-header": "N" } })),
            r#""N" marks an argument that is no"#,
        ),
    ] {
        let unusable = read(&schema).unwrap_err();
        assert!(unusable.problem.to_string().contains(words), "{}", unusable.problem);
        assert_eq!(unusable.name.as_deref(), Some("find"));
        assert!(unusable.definition.is_some());
    }
}

#[test]
fn a_mark_that_is_not_reached_through_properties_alone_is_illegal() {
    let mark = marked("string", &json!("Region"));
    for schema in [
        json!({ "type": "object", "x-mcp-header": "Region" }),
        object(&json!({ "a": { "type": "array", "items": mark } })),
        object(&json!({ "a": { "type": "array", "prefixItems": [mark] } })),
        object(&json!({ "a": { "anyOf": [mark] } })),
        object(&json!({ "a": { "not": mark } })),
        json!({ "type": "object", "allOf": [object(&json!({ "a": mark }))] }),
        json!({ "type": "object", "if": object(&json!({ "a": mark })) }),
        json!({ "type": "object", "$defs": { "a": mark } }),
        json!({ "type": "object", "patternProperties": { "a": mark } }),
        json!({ "type": "object", "additionalProperties": mark }),
        json!({ "type": "object", "dependentSchemas": { "a": object(&json!({ "b": mark })) } }),
    ] {
        let problem = read(&schema).unwrap_err().problem.to_string();
        assert!(problem.contains(r#"the x-mcp-header "Region" does not stand"#), "{problem}");
    }
}
