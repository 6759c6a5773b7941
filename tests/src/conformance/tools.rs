//! What the tools do.

use std::time::Duration;

use rmcp::{
    RoleServer,
    model::{
        CallToolResult, CustomNotification, ErrorData, ProgressNotificationParam,
        ServerNotification, ServerRequest,
    },
    service::{RequestContext, ServiceError},
};
use serde_json::{Value, json};

use super::catalogue::{WAV, complete, image, read, text};

/// Between two notifications of one call: the suite's text says so.
const PAUSE: Duration = Duration::from_millis(50);

fn content(blocks: Vec<Value>) -> Value {
    json!({ "content": Value::Array(blocks) })
}

fn embedded(uri: &str, media_type: &str, words: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": media_type, "text": words } })
}

fn refused(error: &ServiceError) -> Value {
    json!({ "content": [text(format!("the client did not answer: {error}"))], "isError": true })
}

/// The result of a tool that is done in one round.
pub(super) async fn call(
    name: &str,
    arguments: &Value,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let result = match name {
        "test_simple_text" => content(vec![text("This is a simple text.")]),
        "test_image_content" => content(vec![image()]),
        "test_audio_content" => {
            content(vec![json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })])
        }
        "test_embedded_resource" => {
            content(vec![embedded("test://embedded-resource", "text/plain", "An embedded text.")])
        }
        "test_multiple_content_types" => content(vec![
            text("Several kinds:"),
            image(),
            embedded("test://mixed-content-resource", "application/json", r#"{"value":123}"#),
        ]),
        "test_error_handling" => {
            json!({ "content": [text("this tool always fails")], "isError": true })
        }
        "test_tool_with_logging" => {
            for words in ["started", "working", "finished"] {
                log(context, words).await;
                tokio::time::sleep(PAUSE).await;
            }
            content(vec![text("logged")])
        }
        "test_logging_tool" => {
            if context.meta.log_level().is_some() {
                log(context, "asked for").await;
            }
            content(vec![text("logged where it was asked for")])
        }
        "test_tool_with_progress" => {
            report(context).await;
            content(vec![text("reported")])
        }
        "test_sampling" => sample(context, arguments).await,
        "test_elicitation" => elicit(context, asked(arguments)).await,
        "test_elicitation_sep1034_defaults" => elicit(context, defaults()).await,
        "test_elicitation_sep1330_enums" => elicit(context, choices()).await,
        "test_missing_capability" => {
            if context.client_capabilities().is_none_or(|client| client.sampling.is_none()) {
                let needed = read(json!({ "sampling": {} }));
                return Err(ErrorData::missing_required_client_capability(needed));
            }
            content(vec![text("the client can sample")])
        }
        "test_streaming_elicitation" => content(vec![text("nothing needed to be asked")]),
        "json_schema_2020_12_tool" | "test_custom_header" => {
            content(vec![text(arguments.to_string())])
        }
        _ => return Err(ErrorData::invalid_params("there is no such tool", None)),
    };
    Ok(complete(result))
}

async fn log(context: &RequestContext<RoleServer>, words: &str) {
    let params = json!({ "level": "info", "logger": "conformance-peer", "data": words });
    let line = CustomNotification::new("notifications/message", Some(params));
    // A client that is gone hears nothing.
    let _ = context.peer.send_notification(ServerNotification::CustomNotification(line)).await;
}

async fn report(context: &RequestContext<RoleServer>) {
    for step in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let progress = ProgressNotificationParam::new(token, step).with_total(100.0);
            let _ = context.peer.notify_progress(progress).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks the client in the middle of the call, as servers before 2026-07-28 do.
async fn ask(
    context: &RequestContext<RoleServer>,
    method: &str,
    params: &Value,
) -> Result<Value, ServiceError> {
    let request: ServerRequest = read(json!({ "method": method, "params": params }));
    let answer = context.peer.send_request(request).await?;
    Ok(serde_json::to_value(answer).expect("it came as JSON"))
}

async fn sample(context: &RequestContext<RoleServer>, arguments: &Value) -> Value {
    let prompt = arguments["prompt"].as_str().unwrap_or_default();
    let message = json!({ "role": "user", "content": text(prompt) });
    let params = json!({ "messages": [message], "maxTokens": 100 });
    match ask(context, "sampling/createMessage", &params).await {
        Ok(answer) => content(vec![text(format!("The model says: {}", answer["content"]["text"]))]),
        Err(error) => refused(&error),
    }
}

async fn elicit(context: &RequestContext<RoleServer>, params: Value) -> Value {
    match ask(context, "elicitation/create", &params).await {
        Ok(answer) => {
            let (action, given) = (&answer["action"], &answer["content"]);
            content(vec![text(format!("The user says: action={action}, content={given}"))])
        }
        Err(error) => refused(&error),
    }
}

fn asked(arguments: &Value) -> Value {
    let word = json!({ "type": "string", "description": "What the user says" });
    json!({
        "message": arguments["message"],
        "requestedSchema": {
            "type": "object", "properties": { "username": word, "email": word }, "required": ["username", "email"],
        },
    })
}

fn defaults() -> Value {
    json!({
        "message": "Please look through the form",
        "requestedSchema": { "type": "object", "properties": {
            "name": { "type": "string", "description": "Name", "default": "John Doe" },
            "age": { "type": "integer", "description": "Age", "default": 30 },
            "score": { "type": "number", "description": "Score", "default": 95.5 },
            "status": {
                "type": "string", "description": "Status",
                "enum": ["active", "inactive", "pending"], "default": "active",
            },
            "verified": { "type": "boolean", "description": "Verified", "default": true },
        } },
    })
}

fn choices() -> Value {
    let titled = json!([
        { "const": "value1", "title": "First" },
        { "const": "value2", "title": "Second" },
        { "const": "value3", "title": "Third" },
    ]);
    let plain = json!(["option1", "option2", "option3"]);
    json!({
        "message": "Please choose",
        "requestedSchema": { "type": "object", "properties": {
            "untitledSingle": { "type": "string", "description": "One", "enum": plain },
            "titledSingle": { "type": "string", "description": "One of titles", "oneOf": titled },
            "legacyEnum": {
                "type": "string", "description": "One, the old way",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array", "description": "Several",
                "minItems": 1, "maxItems": 3, "items": { "type": "string", "enum": plain },
            },
            "titledMulti": {
                "type": "array", "description": "Several titles",
                "minItems": 1, "maxItems": 3, "items": { "anyOf": titled },
            },
        } },
    })
}
