//! What `call` prints. Every word of a peer passes the one escaping function.

use rmcp::model::{CallToolResult, ContentBlock};
use runtime::terminal::escape;
use serde_json::{Value, json};

/// One JSON object: the result, and the ids under which it is audited.
pub(super) fn json(
    result: &CallToolResult,
    invocation: Option<&str>,
    record: Option<&Value>,
    decisions: &[Value],
) {
    let object = json!({
        "ok": result.is_error != Some(true),
        "invocationId": invocation,
        "authorizationId": authorization(record),
        "result": result,
        "decisions": decisions,
    });
    println!("{}", escape(&object.to_string()));
}

/// The result on stdout, the ids on stderr.
pub(super) fn words(result: &CallToolResult, invocation: Option<&str>, record: Option<&Value>) {
    for block in &result.content {
        if let ContentBlock::Text(text) = block {
            for line in text.text.lines() {
                println!("{}", escape(line));
            }
        } else {
            // Pictures and the like are not for a terminal; their JSON shows what came.
            println!("{}", escape(&serde_json::to_string(block).unwrap_or_default()));
        }
    }
    if result.content.is_empty()
        && let Some(structured) = &result.structured_content
    {
        println!("{}", escape(&structured.to_string()));
    }
    let outcome =
        if result.is_error == Some(true) { "the call failed" } else { "the call succeeded" };
    eprintln!("{outcome}");
    if let Some(id) = invocation {
        eprintln!("  invocation    {}", escape(id));
    }
    if let Some(id) = authorization(record) {
        eprintln!("  authorization {}", escape(id));
    }
}

fn authorization(record: Option<&Value>) -> Option<&str> {
    record?.get("permissionAuthorizationId")?.as_str()
}
