//! What the server has: as JSON, because that is how the suite reads it.

use rmcp::model::{
    ErrorData, GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate, Tool,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A red pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
/// A sound of no samples.
pub(super) const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

pub(super) const WATCHED: &str = "test://watched-resource";

/// `value` as the type of rmcp that it is written as.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("our own JSON is what the protocol says")
}

/// `value` as a result that is not to be continued; older clients never see the mark, rmcp takes it out.
pub(super) fn complete<T: DeserializeOwned>(mut value: Value) -> T {
    value["resultType"] = json!("complete");
    read(value)
}

pub(super) fn text(words: impl Into<String>) -> Value {
    json!({ "type": "text", "text": words.into() })
}

pub(super) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn tool(name: &str, description: &str, properties: &Value, required: &[&str]) -> Tool {
    read(json!({
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": properties, "required": required },
    }))
}

pub(super) fn tools() -> Vec<Tool> {
    let plain = [
        ("test_simple_text", "Answers a text"),
        ("test_image_content", "Answers an image"),
        ("test_audio_content", "Answers a sound"),
        ("test_embedded_resource", "Answers an embedded resource"),
        ("test_multiple_content_types", "Answers a text, an image and a resource"),
        ("test_tool_with_logging", "Logs three lines"),
        ("test_tool_with_progress", "Reports progress three times"),
        ("test_error_handling", "Answers an error"),
        ("test_elicitation_sep1034_defaults", "Asks with a default for each field"),
        ("test_elicitation_sep1330_enums", "Asks for choices in each form of an enum"),
        ("test_missing_capability", "Needs a client that can sample"),
        ("test_streaming_elicitation", "Answers on a stream"),
        ("test_logging_tool", "Logs where the request asks for it"),
        ("test_trigger_tool_change", "Says that the list of tools changed"),
        ("test_trigger_prompt_change", "Says that the list of prompts changed"),
        ("test_trigger_resource_change", "Says that the watched resource changed"),
        ("test_input_required_result_elicitation", "Needs a name"),
        ("test_input_required_result_sampling", "Needs a sample"),
        ("test_input_required_result_list_roots", "Needs the roots"),
        ("test_input_required_result_request_state", "Needs its state again"),
        ("test_input_required_result_multiple_inputs", "Needs a name, a sample and the roots"),
        ("test_input_required_result_multi_round", "Needs a name, then a colour"),
        ("test_input_required_result_tampered_state", "Refuses a state that is not its own"),
        ("test_input_required_result_capabilities", "Needs what the client can give"),
    ];
    let mut tools: Vec<Tool> =
        plain.map(|(name, what)| tool(name, what, &json!({}), &[])).into_iter().collect();
    let word = |what: &str| json!({ "type": "string", "description": what });
    tools.push(tool(
        "test_sampling",
        "Asks the client for a sample",
        &json!({ "prompt": word("what the model is asked") }),
        &["prompt"],
    ));
    tools.push(tool(
        "test_elicitation",
        "Asks the user",
        &json!({ "message": word("what the user is asked") }),
        &["message"],
    ));
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    tools.push(tool(
        "test_custom_header",
        "Has an argument that travels in a header too",
        &json!({ "region": region }),
        &["region"],
    ));
    tools.push(read(json!({
        "name": "json_schema_2020_12_tool",
        "description": "Has an input schema of many keywords",
        "inputSchema": schema_2020_12(),
    })));
    tools
}

fn schema_2020_12() -> Value {
    let word = json!({ "type": "string" });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": word, "city": word },
        } },
        "properties": {
            "name": word,
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": word,
            "email": word,
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

pub(super) fn resources() -> Vec<Resource> {
    read(json!([
        { "uri": "test://static-text", "name": "static-text", "title": "Text",
          "description": "A text that stays as it is", "mimeType": "text/plain" },
        { "uri": "test://static-binary", "name": "static-binary", "title": "Binary",
          "description": "An image that stays as it is", "mimeType": "image/png" },
        { "uri": WATCHED, "name": "watched-resource", "title": "Watched",
          "description": "A text that can be subscribed to", "mimeType": "text/plain" },
    ]))
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    read(json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "title": "Template",
        "description": "What the URI says",
        "mimeType": "application/json",
    }]))
}

pub(super) fn resource(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let templated = || uri.strip_prefix("test://template/")?.strip_suffix("/data");
    let content = if uri == "test://static-text" {
        json!({ "uri": uri, "mimeType": "text/plain", "text": "A text that stays as it is." })
    } else if uri == "test://static-binary" {
        json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })
    } else if uri == WATCHED {
        json!({ "uri": uri, "mimeType": "text/plain", "text": "A watched text." })
    } else if let Some(id) = templated() {
        let data = json!({ "id": id, "templateTest": true, "data": format!("Data for {id}") });
        json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
    } else {
        let which = Some(json!({ "uri": uri }));
        return Err(ErrorData::resource_not_found("there is no such resource", which));
    };
    Ok(complete(json!({ "contents": [content] })))
}

pub(super) fn prompts() -> Vec<Prompt> {
    let argument = |name: &str| json!({ "name": name, "description": name, "required": true });
    read(json!([
        { "name": "test_simple_prompt", "description": "A text" },
        { "name": "test_prompt_with_arguments", "description": "Its arguments in a text",
          "arguments": [argument("arg1"), argument("arg2")] },
        { "name": "test_prompt_with_embedded_resource", "description": "A resource",
          "arguments": [argument("resourceUri")] },
        { "name": "test_prompt_with_image", "description": "An image" },
        { "name": "test_input_required_result_prompt", "description": "Needs a context" },
    ]))
}

/// A prompt that needs nothing but its arguments.
pub(super) fn prompt(name: &str, arguments: &Value) -> Result<GetPromptResult, ErrorData> {
    let argument = |which: &str| {
        arguments[which].as_str().ok_or_else(|| {
            ErrorData::invalid_params(format!("the argument {which:?} is missing"), None)
        })
    };
    let contents = match name {
        "test_simple_prompt" => vec![text("A simple prompt.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1")?, argument("arg2")?);
            vec![text(format!("arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument("resourceUri")?, "mimeType": "text/plain", "text": "An embedded text.",
            });
            vec![json!({ "type": "resource", "resource": resource }), text("Please read it.")]
        }
        "test_prompt_with_image" => vec![image(), text("Please look at it.")],
        _ => return Err(ErrorData::invalid_params("there is no such prompt", None)),
    };
    let messages: Vec<Value> =
        contents.into_iter().map(|content| json!({ "role": "user", "content": content })).collect();
    Ok(complete(json!({ "messages": messages })))
}
