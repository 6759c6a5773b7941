mod edits;
mod forms;
mod urls;

use serde_json::{Value, json};

use super::*;
use crate::{Code, Error};

fn form(changes: &Value) -> ServerForm {
    let mut form = json!({
        "name": "Demo", "transport": "http", "url": "https://mcp.example.com/mcp", "authMode": "none",
    });
    for (name, value) in changes.as_object().unwrap() {
        form[name] = value.clone();
    }
    serde_json::from_value(form).unwrap()
}

fn validate(changes: &Value) -> Result<ValidServer, Error> {
    form(changes).validate(&UrlRules::default(), &Known::default())
}

fn valid(changes: &Value) -> ValidServer {
    validate(changes).unwrap()
}

/// The places of all mistakes.
fn paths(changes: &Value) -> Vec<String> {
    let error = validate(changes).unwrap_err();
    assert_eq!(error.code, Code::InvalidInput);
    let details = error.details.unwrap();
    let errors = details["errors"].as_array().unwrap().clone();
    errors.iter().map(|error| error["path"].as_str().unwrap().to_owned()).collect()
}
