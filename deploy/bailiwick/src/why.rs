//! `bailiwick why`: which gate stops a call of a tool, and what mends it.

use std::process::ExitCode;

use reqwest::Method;
use runtime::{config::Settings, terminal::escape};
use serde_json::Value;
use url::form_urlencoded;

use crate::{
    call::{self, rest::Rest},
    cli::Why,
    connect,
    failure::Failure,
};

/// Exit code 0 where a call would be sent or asked about, 1 where it would be refused.
pub(crate) async fn run(settings: &Settings, args: &Why) -> Result<ExitCode, Failure> {
    let (url, token) = connect::find(settings)?;
    let rest = Rest::new(&call::client(&url)?, &url, token);
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("tool", &args.tool);
    for (name, value) in [("user", &args.user), ("session", &args.session), ("token", &args.token)]
    {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let path = format!("/api/access/explain?{}", query.finish());
    let told = rest.send(Method::GET, &path, None).await?;
    if args.output.json {
        println!("{}", escape(&told.to_string()));
    } else {
        show(&told);
    }
    Ok(if told["stoppedBy"].is_string() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show(told: &Value) {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let none = Vec::new();
    let checks = told["checks"].as_array().unwrap_or(&none);
    let width = checks.iter().map(|check| text(check, "gate").len()).max().unwrap_or_default();
    for check in checks {
        let code = check["code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
        let (gate, result) = (text(check, "gate"), text(check, "result"));
        let line = format!("{result:<11}  {gate:<width$}  {}{code}", text(check, "reason"));
        println!("{}", escape(&line));
        if result == "refused" || result == "asks" {
            let (setting, by) = (text(check, "setting"), text(check, "changedBy"));
            println!("{}", escape(&format!("             decided by {setting}; changed by {by}")));
            println!("{}", escape(&format!("             → {}", text(check, "mend"))));
        }
    }
    let end = match told["stoppedBy"].as_str() {
        Some(gate) => format!("a call ends in {} at: {gate}", text(told, "code")),
        None if told["outcome"] == "asks" => "a call asks the person first".to_owned(),
        None => "a call would be sent".to_owned(),
    };
    println!("{}", escape(&end));
}
