//! Servers as clients write them down: `{"mcpServers": {name: {…}}}`, and what VS Code makes of it.
//!
//! Shapes: Claude and Cursor (`mcpServers`, `type` left out where the rest says it), Windsurf
//! (`serverUrl`), Gemini CLI (`httpUrl`), VS Code (`servers`, `inputs`), and our own export.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    AuthMode, FormRules, GovernanceForm, Known, Part, SecretForm, SecretText, ServerForm,
    ValidServer, variables::variables,
};
use crate::{
    Code, Error,
    json::{self, Node},
    limits,
    tool::escaped,
};

/// What only a client can mean; it is named in the preview and takes no part.
const IGNORED: &[&str] = &[
    "enabled",
    "disabled",
    "isActive",
    "autoApprove",
    "alwaysAllow",
    "trust",
    "timeout",
    "gallery",
    "version",
];

/// One entry of an import.
#[derive(Debug, Clone)]
pub struct ImportEntry {
    /// Also the server's name.
    pub name: String,
    /// JSON pointer to it in the body.
    pub pointer: String,
    /// As far as it could be read; never enabled.
    pub form: ServerForm,
    /// Members that mean nothing to us.
    pub ignored: Vec<String>,
    mistakes: Vec<Value>,
    /// Path in the form → name as the entry has it.
    spelled: BTreeMap<&'static str, &'static str>,
}

/// The entries of an import, in their order.
///
/// `INVALID_INPUT` where there are none to speak of: no such object, both `mcpServers` and
/// `servers`, one name twice. What is wrong within an entry is told by [`ImportEntry::validate`].
pub fn read_import(raw: &str) -> Result<Vec<ImportEntry>, Error> {
    let body = json::parse(raw, limits::JSON_DEPTH.size())?;
    let refused = |path: &str, words: &str| {
        let errors = json!([{ "path": path, "message": words }]);
        Err(Error::new(Code::InvalidInput, format!("the import cannot be read: {words}"))
            .with_details(json!({ "errors": errors })))
    };
    let Node::Object(members) = &body else {
        return refused("", "the body must be an object with mcpServers");
    };
    let unknown = members
        .iter()
        .find(|(name, _)| !["mcpServers", "servers", "inputs", "$schema"].contains(&name.as_ref()));
    if let Some((name, _)) = unknown {
        return refused(&pointer("", name), "unknown member, expected mcpServers");
    }
    let (key, servers) = match (body.member("mcpServers"), body.member("servers")) {
        (Some(_), Some(_)) => {
            return refused("/servers", "mcpServers and servers exclude each other");
        }
        (Some(servers), None) => ("/mcpServers", servers),
        (None, Some(servers)) => ("/servers", servers),
        (None, None) => return refused("", "mcpServers is missing"),
    };
    let Node::Object(servers) = servers else {
        return refused(key, "must be an object of servers by their names");
    };
    if servers.is_empty() || servers.len() > limits::IMPORT_ENTRIES.size() {
        let words = format!("must name 1 to {} servers", limits::IMPORT_ENTRIES.default);
        return refused(key, &words);
    }
    Ok(servers.iter().map(|(name, entry)| Reader::read(key, name, entry)).collect())
}

impl ImportEntry {
    /// Checks it as a new server; every mistake with its place in the body.
    pub fn validate(&self, rules: &FormRules<'_>) -> Result<ValidServer, Vec<Value>> {
        if self.mistakes.iter().any(|mistake| mistake["path"] == self.pointer.as_str()) {
            // It is no entry at all.
            return Err(self.mistakes.clone());
        }
        let checked = self.form.clone().validate(rules, &Known::default());
        let mut mistakes = self.mistakes.clone();
        match checked {
            Ok(valid) if mistakes.is_empty() => return Ok(valid),
            Ok(_) => {}
            Err(error) => {
                let found = error.details.as_ref().map(|details| &details["errors"]);
                let found = found.and_then(Value::as_array).cloned().unwrap_or_default();
                for mistake in found {
                    let path = self.place(mistake["path"].as_str().unwrap_or_default());
                    // What could not be read is blank to the rules: one mistake, not two.
                    if !self.mistakes.iter().any(|known| known["path"] == path) {
                        mistakes.push(json!({ "path": path, "message": mistake["message"] }));
                    }
                }
            }
        }
        Err(mistakes)
    }

    /// A mistake that a look at the tenant found; `path` is one in the form, `/name` the entry's key.
    #[must_use]
    pub fn mistake(&self, path: &str, words: &str) -> Value {
        json!({ "path": self.place(path), "message": words })
    }

    fn place(&self, path: &str) -> String {
        if path == "/name" {
            return self.pointer.clone();
        }
        let spelled = self.spelled.get(path).map(|name| format!("/{name}"));
        format!("{}{}", self.pointer, spelled.as_deref().unwrap_or(path))
    }
}

struct Reader {
    entry: ImportEntry,
    stated: Option<String>,
    has_url: bool,
    has_command: bool,
}

impl Reader {
    fn read(key: &str, name: &str, node: &Node<'_>) -> ImportEntry {
        let entry = ImportEntry {
            name: name.to_owned(),
            pointer: pointer(key, name),
            form: ServerForm { name: name.to_owned(), ..ServerForm::default() },
            ignored: Vec::new(),
            mistakes: Vec::new(),
            spelled: BTreeMap::new(),
        };
        let mut reader = Self { entry, stated: None, has_url: false, has_command: false };
        match node {
            Node::Object(members) => {
                for (name, value) in members {
                    reader.member(name, value);
                }
                reader.settle();
            }
            _ => reader.mistake("", "must be an object"),
        }
        reader.entry
    }

    fn mistake(&mut self, path: &str, words: impl Into<String>) {
        let path = format!("{}{path}", self.entry.pointer);
        self.entry.mistakes.push(json!({ "path": path, "message": words.into() }));
    }

    fn member(&mut self, name: &str, value: &Node<'_>) {
        let path = pointer("", name);
        match name {
            "type" | "transport" => {
                let stated = self.text(&path, value);
                let stated = match stated.as_str() {
                    "streamable-http" | "streamable_http" | "streamableHttp" => "http".to_owned(),
                    _ => stated,
                };
                if self.stated.as_ref().is_some_and(|other| *other != stated) {
                    self.mistake(&path, "type and transport say different things");
                }
                self.entry
                    .spelled
                    .insert("/transport", if name == "type" { "type" } else { "transport" });
                self.stated = Some(stated);
            }
            "url" | "serverUrl" | "httpUrl" => {
                if self.has_url {
                    self.mistake(&path, "an address stands there already");
                }
                self.has_url = true;
                let spelled = ["url", "serverUrl", "httpUrl"].into_iter().find(|one| *one == name);
                self.entry.spelled.extend(spelled.map(|name| ("/url", name)));
                self.entry.form.url = self.plain(&path, value);
            }
            "command" => {
                self.has_command = true;
                self.entry.form.command = self.plain(&path, value);
            }
            "cwd" => self.entry.form.cwd = self.plain(&path, value),
            "args" => self.entry.form.args = self.texts(&path, value),
            "env" => self.entry.form.env = self.secrets(&path, value),
            "headers" => self.entry.form.headers = self.secrets(&path, value),
            "slug" => self.entry.form.slug = Some(self.text(&path, value)),
            "description" => self.entry.form.description = self.text(&path, value),
            "icon" => self.entry.form.icon = Some(self.text(&path, value)),
            "tags" => self.entry.form.tags = self.texts(&path, value),
            "authMode" => self.entry.form.auth_mode = self.text(&path, value),
            "apiKeyHeader" => self.entry.form.api_key_header = Some(self.text(&path, value)),
            "timeoutSeconds" | "tool_call_timeout" => {
                if name == "tool_call_timeout" {
                    self.entry.spelled.insert("/timeoutSeconds", "tool_call_timeout");
                }
                self.entry.form.timeout_seconds = self.parsed(&path, value, "must be a number");
            }
            "governance" => {
                let words = "must be an object of the limits that a server may have";
                let governance: Option<GovernanceForm> = self.parsed(&path, value, words);
                if governance.and_then(|limits| limits.relay_sampling) == Some(true) {
                    // It lets a server spend the model of whoever calls it: no file that came from
                    // elsewhere says so.
                    let words =
                        "cannot be switched on by an import: do it where the server is edited";
                    self.mistake(&format!("{path}/relaySampling"), words);
                }
                self.entry.form.governance = governance;
            }
            "oauth" => {
                let words = "must be an object of the OAuth settings that a server may have";
                self.entry.form.oauth = self.parsed(&path, value, words);
            }
            _ if IGNORED.contains(&name) => self.entry.ignored.push(name.to_owned()),
            "envFile" => self.mistake(&path, "files of clients are not read here: write env"),
            _ => self.mistake(&path, "unknown member"),
        }
    }

    /// What the entry leaves to be understood.
    fn settle(&mut self) {
        self.entry.form.transport = match (self.stated.take(), self.has_command, self.has_url) {
            (Some(stated), _, _) => stated,
            (None, true, false) => "stdio".to_owned(),
            (None, false, true) => "http".to_owned(),
            (None, true, true) => {
                self.mistake("/transport", "there are a command and an address: say which by type");
                String::new()
            }
            (None, false, false) => {
                self.mistake("/transport", "there is neither a command nor an address");
                String::new()
            }
        };
        if self.entry.form.auth_mode.is_empty() {
            let shared = !self.entry.form.headers.is_empty();
            let mode = if shared { AuthMode::SharedHeaders } else { AuthMode::None };
            mode.as_str().clone_into(&mut self.entry.form.auth_mode);
        }
    }

    fn text(&mut self, path: &str, value: &Node<'_>) -> String {
        if let Some(text) = value.as_text() {
            return text.to_owned();
        }
        self.mistake(path, "must be a text");
        String::new()
    }

    /// A text that no client would expand.
    fn plain(&mut self, path: &str, value: &Node<'_>) -> String {
        let text = self.text(path, value);
        if text.contains("${") {
            self.mistake(path, "holds ${…}, which is not expanded here: write it out");
        }
        text
    }

    fn texts(&mut self, path: &str, value: &Node<'_>) -> Vec<String> {
        let Node::List(items) = value else {
            self.mistake(path, "must be a list of texts");
            return Vec::new();
        };
        let items = items.iter().enumerate();
        items.map(|(index, item)| self.plain(&format!("{path}/{index}"), item)).collect()
    }

    fn secrets(&mut self, path: &str, value: &Node<'_>) -> SecretForm {
        let Node::Object(members) = value else {
            self.mistake(path, "must be an object of texts");
            return SecretForm::default();
        };
        let secret = |(name, value): &(std::borrow::Cow<'_, str>, Node<'_>)| {
            let path = pointer(path, name);
            if *value == Node::NULL {
                // As an export has it: there is nothing to keep.
                self.mistake(&path, "needs its value, or $NAME of a tenant variable");
                return (name.to_string(), None);
            }
            let text = self.text(&path, value);
            let parts = variables(&text);
            if parts.iter().any(|part| matches!(part, Part::Literal(text) if text.contains("${"))) {
                let words =
                    "holds ${…}, which is not expanded here: write $NAME of a tenant variable";
                self.mistake(&path, words);
            }
            (name.to_string(), Some(SecretText::new(text)))
        };
        members.iter().map(secret).collect()
    }

    fn parsed<T: DeserializeOwned>(
        &mut self,
        path: &str,
        value: &Node<'_>,
        words: &str,
    ) -> Option<T> {
        let parsed = serde_json::from_str(&value.to_text()).ok();
        if parsed.is_none() {
            self.mistake(path, words);
        }
        parsed
    }
}

/// RFC 6901, bounded and escaped for our answer.
fn pointer(path: &str, name: &str) -> String {
    let name = name.replace('~', "~0").replace('/', "~1");
    format!("{path}/{}", escaped(&name, 100))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{UrlRules, Variables, stdio::StdioMode},
        *,
    };

    fn rules() -> (UrlRules, StdioMode, Variables) {
        let stdio = StdioMode::Any;
        (UrlRules::default(), stdio, Variables::default())
    }

    fn checked(raw: &Value) -> Vec<(ImportEntry, Result<ValidServer, Vec<Value>>)> {
        let (urls, stdio, variables) = rules();
        let rules =
            FormRules { urls: &urls, stdio: &stdio, only_tenant: true, variables: &variables };
        let entries = read_import(&raw.to_string()).unwrap();
        entries.into_iter().map(|entry| (entry.clone(), entry.validate(&rules))).collect()
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers read better")]
    fn valid(entry: Value) -> ValidServer {
        let (_, checked) = checked(&json!({ "mcpServers": { "One": entry } })).remove(0);
        checked.unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers read better")]
    fn paths(entry: Value) -> Vec<String> {
        let (_, checked) = checked(&json!({ "mcpServers": { "One": entry } })).remove(0);
        let mistakes = checked.unwrap_err();
        mistakes.iter().map(|mistake| mistake["path"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_clients_shape_is_understood() {
        let url = "https://mcp.example.com/mcp";
        for (entry, transport) in [
            (json!({ "url": url }), "http"),
            (json!({ "serverUrl": url }), "http"),
            (json!({ "httpUrl": url, "timeout": 5000, "trust": true }), "http"),
            (json!({ "type": "sse", "url": url }), "sse"),
            (json!({ "type": "streamable-http", "url": url }), "http"),
            (json!({ "transport": "streamable_http", "url": url }), "http"),
            (json!({ "type": "http", "transport": "streamableHttp", "url": url }), "http"),
            (json!({ "command": "/bin/x", "args": ["-y"], "env": { "A": "b" } }), "stdio"),
            (
                json!({ "type": "stdio", "command": "/bin/x", "disabled": false, "autoApprove": [] }),
                "stdio",
            ),
        ] {
            assert_eq!(valid(entry.clone()).transport.as_str(), transport, "{entry}");
        }
        let vs_code = json!({ "inputs": [], "servers": { "a": { "type": "http", "url": url } } });
        assert!(checked(&vs_code)[0].1.is_ok());
        let shared =
            valid(json!({ "url": url, "headers": { "X-Key": "k" }, "tool_call_timeout": 7 }));
        assert_eq!((shared.auth_mode.as_str(), shared.timeout.as_secs()), ("shared_headers", 7));
        assert!(!valid(json!({ "url": url, "enabled": true })).enabled);
    }

    #[test]
    fn every_mistake_has_its_place_in_the_body() {
        let found = paths(json!({
            "serverUrl": "ftp://x", "headers": { "Host": "x", "B": 1, "C": null, "D": "${input:key}", "E": "$${x}" },
            "tool_call_timeout": 0.5, "slug": "-", "colour": "red", "tags": "x",
        }));
        for path in [
            "/serverUrl",
            "/headers/Host",
            "/headers/B",
            "/headers/C",
            "/headers/D",
            "/tool_call_timeout",
            "/slug",
            "/colour",
            "/tags",
        ] {
            assert!(found.contains(&format!("/mcpServers/One{path}")), "{path}: {found:?}");
        }
        assert!(!found.iter().any(|path| path.ends_with("/E")), "{found:?}");
        assert_eq!(paths(json!({})), ["/mcpServers/One/transport"]);
        assert_eq!(
            paths(json!({ "url": "https://a.example/", "command": "/x" })),
            ["/mcpServers/One/transport"]
        );
        assert_eq!(paths(json!([])), ["/mcpServers/One"]);
        assert_eq!(
            paths(json!({ "type": "http", "transport": "sse", "url": "https://a.example/" })),
            ["/mcpServers/One/transport"]
        );
        assert_eq!(
            paths(json!({ "type": "ws", "url": "https://a.example/" })),
            ["/mcpServers/One/type"]
        );
    }

    #[test]
    fn what_is_no_import_is_refused_as_a_whole() {
        let many: serde_json::Map<String, Value> =
            (0..51).map(|index| (index.to_string(), json!({}))).collect();
        for body in [
            "[]".to_owned(),
            "{}".to_owned(),
            r#"{"mcpServers":{}}"#.to_owned(),
            r#"{"mcpServers":[]}"#.to_owned(),
            r#"{"mcpServers":{"a":{}},"servers":{}}"#.to_owned(),
            r#"{"mcpServers":{"a":{},"a":{}}}"#.to_owned(),
            r#"{"mcpServers":{"a":{"env":{"A":"1","A":"2"}}}}"#.to_owned(),
            r#"{"mcpServers":{"a":{}},"other":1}"#.to_owned(),
            json!({ "mcpServers": many }).to_string(),
        ] {
            assert_eq!(read_import(&body).unwrap_err().code, Code::InvalidInput, "{body}");
        }
    }
}
