//! What a server may ask of whoever calls it (MCP: Elicitation, Sampling, Roots), and how it is shown to
//! them.
//!
//! The rules are those of MCP 2026-07-28, Elicitation, "Security Considerations": a form never asks for
//! secrets, a person sees who asks and where a link leads. They hold for every protocol version.

mod form;
mod secrets;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use url::Url;

use crate::{
    Code, Error, limits,
    server::UrlRules,
    tool::{is_hidden, visible_text},
};

pub const ELICITATION: &str = "elicitation/create";
pub const SAMPLING: &str = "sampling/createMessage";
pub const ROOTS: &str = "roots/list";

/// What a client offers to be asked, as far as we pass it on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own in MCP")]
pub struct Askable {
    pub form: bool,
    pub url: bool,
    pub sampling: bool,
    /// Sampling with tools, and with the context of servers.
    pub sampling_tools: bool,
    pub sampling_context: bool,
    pub roots: bool,
    /// The client says when they change. Unknown of sessions that began with an earlier version.
    #[serde(default)]
    pub roots_changes: bool,
}

impl Askable {
    /// Reads `ClientCapabilities`. An `elicitation` without a mode means forms (MCP 2025-11-25).
    #[must_use]
    pub fn of(capabilities: &Value) -> Self {
        let elicitation = capabilities.get("elicitation").and_then(Value::as_object);
        let sampling = capabilities.get("sampling").and_then(Value::as_object);
        let has = |object: Option<&Map<String, Value>>, key: &str| {
            object.and_then(|object| object.get(key)).is_some_and(Value::is_object)
        };
        Self {
            form: has(elicitation, "form")
                || elicitation.is_some_and(|one| !one.contains_key("url")),
            url: has(elicitation, "url"),
            sampling: sampling.is_some(),
            sampling_tools: has(sampling, "tools"),
            sampling_context: has(sampling, "context"),
            roots: has(capabilities.as_object(), "roots"),
            roots_changes: capabilities
                .pointer("/roots/listChanged")
                .is_some_and(|told| told == &Value::Bool(true)),
        }
    }

    /// Sampling spends the client's model: it is passed on only where the superadmin says so.
    #[must_use]
    pub fn with_sampling(self, allowed: bool) -> Self {
        if allowed {
            return self;
        }
        Self { sampling: false, sampling_tools: false, sampling_context: false, ..self }
    }

    /// `ClientCapabilities` to declare to a server of this protocol version. URL elicitation and
    /// sampling with tools began with 2025-11-25; an older server gets the plain form of both.
    #[must_use]
    pub fn declared(self, version: &str) -> Value {
        let detailed = version >= "2025-11-25";
        let mut capabilities = Map::new();
        let modes =
            if detailed { [("form", self.form), ("url", self.url)] } else { [("", false); 2] };
        let offers = |parts: &[(&str, bool)]| {
            let parts = parts.iter().filter(|(_, offered)| *offered);
            Value::Object(parts.map(|(name, _)| ((*name).to_owned(), json!({}))).collect())
        };
        if self.form || (self.url && detailed) {
            capabilities.insert("elicitation".to_owned(), offers(&modes));
        }
        if self.sampling {
            let parts = [
                ("tools", self.sampling_tools && detailed),
                ("context", self.sampling_context && detailed),
            ];
            capabilities.insert("sampling".to_owned(), offers(&parts));
        }
        if self.roots {
            // 2026-07-28 has no notifications of clients.
            let changes = self.roots_changes && version < "2026-07-28";
            let roots = if changes { json!({ "listChanged": true }) } else { json!({}) };
            capabilities.insert("roots".to_owned(), roots);
        }
        Value::Object(capabilities)
    }

    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// Who asks, and by which rules of the operator.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The server's name here, which the person knows.
    pub server_name: &'a str,
    pub askable: Askable,
    pub urls: &'a UrlRules,
}

impl Asker<'_> {
    /// The params of a server's request as the client gets them; `None` where the request has none.
    ///
    /// `UPSTREAM_FORMAT` for what the client did not offer, or what is malformed; `PERMISSION_DENIED`
    /// for a form that asks for a secret or hides something, or a link that nobody should follow.
    pub fn screen(&self, method: &str, params: Option<&RawValue>) -> Result<Option<String>, Error> {
        match method {
            ELICITATION => self.elicitation(params).map(Some),
            SAMPLING if self.askable.sampling => self.sampling(params).map(Some),
            ROOTS if self.askable.roots => Ok(params.map(|params| params.get().to_owned())),
            SAMPLING => Err(not_offered("to use the client's model")),
            ROOTS => Err(not_offered("for the client's roots")),
            _ => Err(not_offered("for something that no client is asked")),
        }
    }

    fn elicitation(&self, params: Option<&RawValue>) -> Result<String, Error> {
        let mut members = members(params)?;
        let mode: Option<Value> = members.get("mode").map(|mode| parsed(mode)).transpose()?;
        let message: Value = members.get("message").map_or(Ok(Value::Null), |one| parsed(one))?;
        let Value::String(message) = message else {
            return Err(malformed("the server's question has no words"));
        };
        let host = match mode.as_ref().map_or(Some("form"), Value::as_str) {
            Some("form") if self.askable.form => {
                let schema = members.get("requestedSchema");
                let schema = schema.ok_or_else(|| malformed("the server's form has no fields"))?;
                let shown = form::screened(schema)?;
                members.insert("requestedSchema".to_owned(), shown);
                None
            }
            Some("url") if self.askable.url => {
                let url: Value = members.get("url").map_or(Ok(Value::Null), |one| parsed(one))?;
                Some(self.host(url.as_str().unwrap_or_default())?)
            }
            Some("form") => return Err(not_offered("a person to fill in a form")),
            Some("url") => return Err(not_offered("a person to open a page")),
            _ => return Err(malformed("the server's question is of an unknown mode")),
        };
        let words = Value::String(self.words(&message, host.as_deref()));
        let words = serde_json::value::to_raw_value(&words).map_err(Error::internal)?;
        members.insert("message".to_owned(), words);
        serde_json::to_string(&members).map_err(Error::internal)
    }

    /// The server's words after its name, and the host that a link leads to.
    fn words(&self, message: &str, host: Option<&str>) -> String {
        let name = visible_text(self.server_name);
        let message = visible_text(message);
        match host {
            Some(host) => format!("{name} (the page is on {host}): {message}"),
            None => format!("{name}: {message}"),
        }
    }

    /// The host of a link that a person may be sent to: https, or plain http on this machine or a host
    /// that the operator listed.
    fn host(&self, text: &str) -> Result<String, Error> {
        let refused = |words: &str| Err(Error::new(Code::PermissionDenied, words));
        if text.len() > limits::URL_CHARS.size()
            || text.chars().any(|c| c.is_control() || is_hidden(c) || c == '\\')
        {
            return refused("the server sends people to an address that is no URL");
        }
        let Ok(url) = Url::parse(text) else {
            return refused("the server sends people to an address that is no URL");
        };
        let Some(host) = url.host() else {
            return refused("the server sends people to an address without a host");
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refused("the server sends people to an address with a user name in it");
        }
        match url.scheme() {
            "https" => {}
            "http" if self.urls.lists(&host) => {}
            _ => return refused("the server sends people to a page without encryption"),
        }
        Ok(match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        })
    }

    fn sampling(&self, params: Option<&RawValue>) -> Result<String, Error> {
        let members = members(params)?;
        let with_tools = members.contains_key("tools") || members.contains_key("toolChoice");
        if with_tools && !self.askable.sampling_tools {
            return Err(not_offered("the client's model to use tools"));
        }
        let context = members.get("includeContext").map(|one| parsed(one)).transpose()?;
        let wants = context.as_ref().and_then(Value::as_str).is_some_and(|wanted| wanted != "none");
        if wants && !self.askable.sampling_context {
            return Err(not_offered("for the context of other servers"));
        }
        Ok(params.map_or_else(|| "{}".to_owned(), |params| params.get().to_owned()))
    }
}

/// Members in their alphabetical order, values as they were written.
fn members(params: Option<&RawValue>) -> Result<BTreeMap<String, Box<RawValue>>, Error> {
    let params = params.map_or("{}", RawValue::get);
    serde_json::from_str(params).map_err(|error| malformed(WORDS).because(error))
}

fn parsed(raw: &RawValue) -> Result<Value, Error> {
    serde_json::from_str(raw.get()).map_err(|error| malformed(WORDS).because(error))
}

const WORDS: &str = "the server's question is not readable";

fn malformed(words: &str) -> Error {
    Error::new(Code::UpstreamFormat, words)
}

fn not_offered(what: &str) -> Error {
    Error::new(
        Code::UpstreamFormat,
        format!("the server asked {what}, which was not offered to it"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Askable = Askable {
        form: true,
        url: true,
        sampling: true,
        sampling_tools: true,
        sampling_context: true,
        roots: true,
        roots_changes: true,
    };

    fn screened(askable: Askable, method: &str, params: &Value) -> Result<Value, Code> {
        let urls = UrlRules { hosts: vec!["dev.test".to_owned()], networks: Vec::new() };
        let asker = Asker { server_name: "Weather", askable, urls: &urls };
        let params = serde_json::value::to_raw_value(params).unwrap();
        let screened = asker.screen(method, Some(&params)).map_err(|error| error.code)?;
        Ok(serde_json::from_str(&screened.unwrap()).unwrap())
    }

    fn form(field: &str, schema: &Value) -> Result<Value, Code> {
        let schema = json!({"type": "object", "properties": {field: schema}});
        let params = json!({"message": "Please", "requestedSchema": schema});
        screened(ALL, ELICITATION, &params)
    }

    #[test]
    fn a_question_says_who_asks() {
        let shown = form("city", &json!({"type": "string"})).unwrap();
        assert_eq!(shown["message"], "Weather: Please");
        assert_eq!(shown["requestedSchema"]["properties"]["city"]["type"], "string");
    }

    #[test]
    fn a_form_that_asks_for_a_secret_is_refused() {
        for name in ["password", "apiKey", "GITHUB_TOKEN", "client-secret", "card_number", "cvv"] {
            assert_eq!(
                form(name, &json!({"type": "string"})),
                Err(Code::PermissionDenied),
                "{name}"
            );
        }
        for schema in [
            json!({"type": "string", "format": "password"}),
            json!({"type": "string", "title": "Your API key"}),
            json!({"type": "string", "description": "The password of your bank"}),
        ] {
            assert_eq!(form("value", &schema), Err(Code::PermissionDenied), "{schema}");
        }
    }

    #[test]
    fn a_form_that_asks_for_something_else_is_not() {
        for name in
            ["name", "email", "maxTokens", "token_count", "secretary", "postcard", "keyboard"]
        {
            assert!(form(name, &json!({"type": "string"})).is_ok(), "{name}");
        }
        assert!(form("rotate_token", &json!({"type": "boolean"})).is_ok());
        assert!(form("token", &json!({"type": "string", "enum": ["keep", "rotate"]})).is_ok());
    }

    #[test]
    fn a_link_shows_its_host_and_is_encrypted() {
        let link = |url: &str| {
            let params = json!({"mode": "url", "message": "Sign in", "url": url});
            screened(ALL, ELICITATION, &params).map(|shown| shown["message"].clone())
        };
        assert_eq!(
            link("https://id.example.com/x").unwrap(),
            "Weather (the page is on id.example.com): Sign in"
        );
        assert!(link("http://dev.test:8080/").unwrap().as_str().unwrap().contains("dev.test:8080"));
        for url in [
            "http://id.example.com/",
            "javascript:alert(1)",
            "https://you@evil.test/",
            "https://a.test\\@b.test/",
            "https://id.example.com/\u{202e}x",
            "",
        ] {
            assert_eq!(link(url), Err(Code::PermissionDenied), "{url}");
        }
    }

    #[test]
    fn what_was_not_offered_is_not_asked() {
        let none = Askable::default();
        let urls_only = Askable { url: true, ..none };
        let question = json!({"message": "Please", "requestedSchema": {"properties": {}}});
        assert_eq!(screened(none, ELICITATION, &question), Err(Code::UpstreamFormat));
        assert_eq!(screened(urls_only, ELICITATION, &question), Err(Code::UpstreamFormat));
        assert_eq!(screened(none, SAMPLING, &json!({})), Err(Code::UpstreamFormat));
        assert_eq!(screened(none, ROOTS, &json!({})), Err(Code::UpstreamFormat));
        assert_eq!(screened(ALL, "logging/setLevel", &json!({})), Err(Code::UpstreamFormat));
        let plain = Askable { sampling: true, ..none };
        assert!(screened(plain, SAMPLING, &json!({"messages": []})).is_ok());
        assert_eq!(screened(plain, SAMPLING, &json!({"tools": []})), Err(Code::UpstreamFormat));
    }

    #[test]
    fn capabilities_are_read_and_declared_as_each_version_has_them() {
        let read = |value: Value| Askable::of(&value);
        assert!(read(json!({"elicitation": {}})).form);
        let url = read(json!({"elicitation": {"url": {}}}));
        assert!(url.url && !url.form);
        assert_eq!(url.declared("2025-11-25"), json!({"elicitation": {"url": {}}}));
        assert_eq!(url.declared("2025-06-18"), json!({}));
        assert_eq!(
            ALL.with_sampling(false).declared("2025-06-18"),
            json!({"elicitation": {}, "roots": {"listChanged": true}})
        );
        assert_eq!(
            ALL.declared("2026-07-28"),
            json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}})
        );
    }

    #[test]
    fn numbers_of_a_question_keep_their_digits() {
        let urls = UrlRules::default();
        let asker = Asker { server_name: "W", askable: ALL, urls: &urls };
        let raw = r#"{"message":"m","requestedSchema":{"properties":{"n":{"type":"integer","default":12345678901234567890123}}}}"#;
        let raw: &RawValue = serde_json::from_str(raw).unwrap();
        let shown = asker.screen(ELICITATION, Some(raw)).unwrap().unwrap();
        assert!(shown.contains("12345678901234567890123"), "{shown}");
    }
}
