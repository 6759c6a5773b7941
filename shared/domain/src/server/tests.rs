mod edits;
mod forms;
mod urls;

use serde_json::{Value, json};

use super::{stdio::StdioMode, *};
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
    against(changes, &Known::default(), &[])
}

/// Any program may run, and the tenant has these variables.
fn against(
    changes: &Value,
    known: &Known,
    variables: &[(&str, &[&str])],
) -> Result<ValidServer, Error> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let variables =
        Variables(variables.iter().map(|(name, to)| ((*name).to_owned(), owned(to))).collect());
    let stdio = StdioMode::Any;
    let urls = UrlRules::default();
    let rules = FormRules { urls: &urls, stdio: &stdio, only_tenant: true, variables: &variables };
    form(changes).validate(&rules, known)
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
