use serde_json::{Value, json};

use super::super::*;
use crate::schema::SchemaProblem;

fn tool(definition: &Value) -> Definition {
    Definition::parse(&definition.to_string()).unwrap()
}

fn list(definition: &Definition) -> Value {
    serde_json::from_str(listed(definition, "mcp__demo__echo").get()).unwrap()
}

fn problem(definition: &Value) -> ToolProblem {
    Definition::parse(&definition.to_string()).unwrap_err().problem
}

fn plain() -> Value {
    json!({ "name": "echo", "inputSchema": { "type": "object" } })
}

fn with(name: &str, value: Value) -> Value {
    let mut definition = plain();
    definition[name] = value;
    definition
}

#[test]
fn the_hash_covers_everything_a_model_or_a_screen_sees() {
    let hash = tool(&plain()).hash;
    for (name, value) in [
        ("name", json!("echo2")),
        ("title", json!("Echo")),
        ("description", json!("says it")),
        ("inputSchema", json!({ "type": "object", "properties": { "a": {} } })),
        ("outputSchema", json!({ "type": "object" })),
        ("annotations", json!({ "readOnlyHint": true })),
        ("icons", json!([{ "src": "https://example.com/i.png" }])),
        ("_meta", json!({ "x": 1 })),
        ("unknownField", json!(1)),
    ] {
        assert_ne!(tool(&with(name, value)).hash, hash, "{name}");
    }
    let spaced = "{ \"inputSchema\":{\"type\" :\"object\"},\n \"name\":\"\\u0065cho\" }";
    assert_eq!(Definition::parse(spaced).unwrap().hash, hash);
}

#[test]
fn one_bad_definition_keeps_its_name_and_says_why() {
    let twice = r#"{"name":"echo","inputSchema":{"type":"object","type":"string"}}"#;
    let unusable = Definition::parse(twice).unwrap_err();
    assert_eq!(unusable.name.as_deref(), Some("echo"));
    assert_eq!(unusable.definition, None);
    assert!(unusable.problem.to_string().contains("\"type\" twice"), "{}", unusable.problem);

    let bad =
        with("inputSchema", json!({ "type": "object", "properties": { "a": { "type": 1 } } }));
    let unusable = Definition::parse(&bad.to_string()).unwrap_err();
    assert!(unusable.definition.is_some());
    assert!(matches!(unusable.problem, ToolProblem::InputSchema(SchemaProblem::Invalid(_))));

    assert_eq!(problem(&json!({ "inputSchema": {} })), ToolProblem::NoName);
    assert_eq!(problem(&with("name", json!("x".repeat(257)))), ToolProblem::NoName);
    assert_eq!(problem(&with("name", json!("x\0"))), ToolProblem::NoName);
    assert_eq!(problem(&json!({ "name": "echo" })), ToolProblem::Malformed("inputSchema"));
    assert_eq!(problem(&with("description", json!(1))), ToolProblem::Malformed("description"));
    assert_eq!(problem(&with("_meta", json!([]))), ToolProblem::Malformed("_meta"));
    assert_eq!(problem(&with("x", json!("x".repeat(1_048_576)))), ToolProblem::TooLarge);
    assert!(Definition::parse("[]").is_err());
    assert!(Definition::parse("{").is_err());
}

#[test]
fn a_list_keeps_what_the_server_wrote() {
    let raw = r#"{"name":"echo","x-custom":{"b":1,"a":12345678901234567890123},"description":"d",
        "inputSchema":{"properties":{"n":{"maximum":9007199254740993.00}},"type":"object"},
        "_meta":{"vendor":1e400}}"#;
    let definition = Definition::parse(raw).unwrap();
    assert_eq!(
        listed(&definition, "mcp__demo__echo").get(),
        r#"{"name":"mcp__demo__echo","x-custom":{"b":1,"a":12345678901234567890123},"description":"d","inputSchema":{"properties":{"n":{"maximum":9007199254740993.00}},"type":"object"},"_meta":{"vendor":1e400}}"#
    );
}

#[test]
fn an_output_schema_that_breaks_a_clients_list_is_left_out_with_a_warning() {
    for bad in [
        json!({}),
        json!({ "type": "array" }),
        json!({ "type": "object", "required": 1 }),
        json!(true),
    ] {
        let definition = tool(&with("outputSchema", bad.clone()));
        assert_eq!(definition.output_schema, None);
        assert!(
            definition.warnings[0].to_string().starts_with("the output schema is left out"),
            "{bad}"
        );
        assert_eq!(list(&definition).get("outputSchema"), None);
    }
    let good = tool(&with("outputSchema", json!({ "type": "object", "properties": {} })));
    assert_eq!(good.warnings, []);
    assert_eq!(list(&good)["outputSchema"], json!({ "type": "object", "properties": {} }));
}

#[test]
fn what_else_breaks_a_clients_list_is_mended() {
    let mut definition = plain();
    definition["inputSchema"] = json!({ "properties": { "any": true, "none": false } });
    definition["title"] = Value::Null;
    definition["description"] = Value::Null;
    definition["annotations"] =
        json!({ "readOnlyHint": "yes", "destructiveHint": false, "title": 1 });
    definition["icons"] = json!([{ "url": "x" }]);
    definition["execution"] = json!({ "taskSupport": "required" });
    definition["_meta"] = json!({ "bailiwick/connectionRequired": true, "vendor": 1 });
    let definition = tool(&definition);
    assert_eq!(definition.description, None);
    assert_eq!(definition.warnings.len(), 1);
    assert_eq!(
        list(&definition),
        json!({
            "name": "mcp__demo__echo",
            "inputSchema": { "type": "object", "properties": { "any": {}, "none": { "not": {} } } },
            "annotations": { "destructiveHint": false },
            "_meta": { "vendor": 1 },
        })
    );
}

#[test]
fn icons_that_clients_do_not_take_are_left_out() {
    let src = "https://example.com/i.png";
    let list_of = |icon: &Value| {
        list(&tool(&with("icons", json!([{ "src": src }, icon])))).get("icons").cloned()
    };
    let good =
        json!({ "src": src, "sizes": ["48x48", "any"], "mimeType": "image/png", "theme": "dark" });
    assert_eq!(list_of(&good), Some(json!([{ "src": src }, good])));
    for bad in [
        json!({ "src": src, "sizes": "48x48" }),
        json!({ "src": src, "sizes": [48] }),
        json!({ "src": src, "mimeType": 7 }),
        json!({ "src": src, "theme": "blue" }),
        json!({ "src": 7 }),
        json!("icon"),
    ] {
        assert_eq!(list_of(&bad), None, "{bad}");
    }
}

#[test]
fn words_for_a_model_are_visible_wherever_they_stand() {
    let definition = tool(&json!({
        "name": "echo",
        "description": "a\u{e0041}b",
        "inputSchema": {
            "type": "object",
            "properties": {
                "description": { "type": "string", "description": "c\u{200b}d" },
                "choice": { "enum": ["e\u{200b}f"], "default": { "description": "g\u{200b}h" } },
            },
        },
    }));
    let listed = list(&definition);
    assert_eq!(listed["description"], "ab");
    let properties = &listed["inputSchema"]["properties"];
    assert_eq!(properties["description"]["description"], "cd");
    assert_eq!(properties["choice"]["enum"][0], "e\u{200b}f");
    assert_eq!(properties["choice"]["default"]["description"], "g\u{200b}h");
}

#[test]
fn a_pattern_that_is_not_enforced_is_a_warning_on_the_tool() {
    let schema = json!({ "type": "object", "properties": { "p": { "pattern": "(?=x)" } } });
    let definition = tool(&with("inputSchema", schema));
    assert_eq!(
        definition.warnings[0].to_string(),
        "input schema: /properties/p/pattern is not enforced: no linear-time engine takes this pattern"
    );
    assert_eq!(list(&definition)["inputSchema"]["properties"]["p"]["pattern"], "(?=x)");
}
