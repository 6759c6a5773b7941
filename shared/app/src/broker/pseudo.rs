//! What is asked of a server that is no tool: `resources/read`, `prompts/get`, `completion/complete`.

use domain::{
    Error,
    ids::ServerId,
    invocation::PseudoTool,
    schema::{self, Violation},
};
use serde_json::Value;

/// `<serverId>/<pseudo-tool>`: what a permission is on, and its class.
fn class(server: &ServerId, tool: PseudoTool) -> String {
    format!("{server}/{}", tool.as_str())
}

/// The classes of which a grant covers this. Completing an argument helps to read a resource or to get
/// a prompt: whoever may do that with any argument may have the argument completed.
pub(super) fn classes(server: &ServerId, tool: PseudoTool, params: &str) -> Vec<String> {
    let mut classes = vec![class(server, tool)];
    if tool == PseudoTool::Completion {
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        match params["ref"]["type"].as_str() {
            Some("ref/prompt") => classes.push(class(server, PseudoTool::PromptGet)),
            Some("ref/resource") => classes.push(class(server, PseudoTool::ResourceRead)),
            _ => {}
        }
    }
    classes
}

/// How MCP calls it.
pub(super) fn method(tool: PseudoTool) -> &'static str {
    match tool {
        PseudoTool::ResourceRead => "resources/read",
        PseudoTool::PromptGet => "prompts/get",
        PseudoTool::Completion => "completion/complete",
    }
}

/// The members of the result that are the result, the first of them always there (MCP:
/// `ReadResourceResult`, `GetPromptResult`, `CompleteResult`).
pub(super) fn payload(tool: PseudoTool) -> &'static [&'static str] {
    match tool {
        PseudoTool::ResourceRead => &["contents"],
        PseudoTool::PromptGet => &["messages", "description"],
        PseudoTool::Completion => &["completion"],
    }
}

/// Refuses params without the members that MCP requires; what else there is passes.
pub(super) fn check(tool: PseudoTool, params: &Value) -> Result<(), Error> {
    let (path, words) = match tool {
        PseudoTool::ResourceRead if !params["uri"].is_string() => ("/uri", "must be a string"),
        PseudoTool::PromptGet if !params["name"].is_string() => ("/name", "must be a string"),
        PseudoTool::PromptGet if !are_strings(&params["arguments"]) => {
            ("/arguments", "must be an object of strings")
        }
        PseudoTool::Completion if !params["ref"]["type"].is_string() => {
            ("/ref/type", "must be a string")
        }
        PseudoTool::Completion if !params["argument"]["name"].is_string() => {
            ("/argument/name", "must be a string")
        }
        PseudoTool::Completion if !params["argument"]["value"].is_string() => {
            ("/argument/value", "must be a string")
        }
        _ => return Ok(()),
    };
    Err(schema::invalid_input(&[Violation { path: path.to_owned(), words: words.to_owned() }]))
}

fn are_strings(arguments: &Value) -> bool {
    match arguments {
        Value::Null => true,
        Value::Object(members) => members.values().all(Value::is_string),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_mcp_requires_must_be_there_and_the_rest_passes() {
        let fits = |tool, params: Value| check(tool, &params).is_ok();
        assert!(fits(PseudoTool::ResourceRead, json!({ "uri": "file:///a", "later": 1 })));
        assert!(!fits(PseudoTool::ResourceRead, json!({ "uri": 7 })));
        assert!(fits(PseudoTool::PromptGet, json!({ "name": "p", "arguments": { "a": "b" } })));
        assert!(fits(PseudoTool::PromptGet, json!({ "name": "p" })));
        assert!(!fits(PseudoTool::PromptGet, json!({ "name": "p", "arguments": { "a": 1 } })));
        let reference = json!({ "type": "ref/prompt", "name": "p" });
        let argument = json!({ "name": "a", "value": "" });
        let completion = json!({ "ref": reference, "argument": argument });
        assert!(fits(PseudoTool::Completion, completion));
        assert!(!fits(PseudoTool::Completion, json!({ "ref": reference })));
    }

    #[test]
    fn a_grant_for_prompts_covers_the_completion_of_their_arguments() {
        let server = ServerId::from("custom-1");
        let of = |params: &str| classes(&server, PseudoTool::Completion, params);
        assert_eq!(
            of(r#"{"ref":{"type":"ref/prompt"}}"#),
            ["custom-1/completion", "custom-1/prompt.get"]
        );
        assert_eq!(of(r#"{"ref":{"type":"ref/other"}}"#), ["custom-1/completion"]);
        assert_eq!(classes(&server, PseudoTool::PromptGet, "{}"), ["custom-1/prompt.get"]);
    }
}
