//! Every rule of a server's form, every mistake at once.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    AuthMode, Known, RESERVED_SLUGS, SecretEdit, SecretEdits, ServerForm, Transport, UrlRules,
    ValidServer, edit_secrets, endpoint, governance, headers, is_custom_id, oauth,
};
use crate::{
    Code, Error,
    limits::{self, Limit},
};

/// Mistakes of a form, each at its place.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<Value>);

impl Mistakes {
    /// `path` is a JSON pointer into the form.
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push(json!({ "path": path, "message": message.into() }));
    }

    /// Whether the text is short enough; adds a mistake where it is not.
    pub(super) fn at_most(&mut self, path: &str, text: &str, limit: Limit) -> bool {
        let fits = text.chars().count() <= limit.size();
        if !fits {
            self.add(path, format!("must be at most {} {}", limit.default, limit.unit));
        }
        fits
    }

    fn refuse(self) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let words = match &self.0[..] {
            [one] => format!(
                "the server is not valid: {} {}",
                one["path"].as_str().unwrap_or_default(),
                one["message"].as_str().unwrap_or_default()
            ),
            many => format!("the server is not valid: {} mistakes", many.len()),
        };
        Err(Error::new(Code::InvalidInput, words).with_details(json!({ "errors": self.0 })))
    }
}

impl ServerForm {
    /// Checks the form against every rule.
    ///
    /// `known` is what the stored server has; [`Known::default`] for a new one.
    /// `INVALID_INPUT` with `details {"errors": [{"path", "message"}]}`, all of them at once.
    /// What needs a look at the tenant (a name or slug that is taken, the number of servers) is not
    /// checked here.
    pub fn validate(self, rules: &UrlRules, known: &Known) -> Result<ValidServer, Error> {
        let mut mistakes = Mistakes::default();
        let form = self.blank_what_does_not_apply();
        form.check_labels(&mut mistakes);
        let slug = slug(form.slug.as_deref(), known.slug.as_deref(), &mut mistakes);
        form.check_reach(rules, known, &mut mistakes);
        let timeout = timeout(form.timeout_seconds, &mut mistakes);
        if let Some(governance) = &form.governance {
            governance::check(governance, &mut mistakes);
        }
        let (oauth, client_secret) = match form.oauth {
            Some(form) => {
                let (settings, secret) = oauth::check(form, known, &mut mistakes);
                (Some(settings), secret)
            }
            None if known.client_secret => (None, SecretEdit::Delete),
            None => (None, SecretEdit::Absent),
        };
        // Names without a value to keep are among the mistakes already.
        let env = edit_secrets(&known.env, &form.env);
        let headers = edit_secrets(&known.headers, &form.headers);
        mistakes.refuse()?;
        let (env, headers): (SecretEdits, SecretEdits) = (env?, headers?);
        Ok(ValidServer {
            name: form.name,
            slug,
            description: form.description,
            icon: form.icon,
            tags: form.tags,
            transport: form.transport,
            url: form.url,
            command: form.command,
            args: form.args,
            cwd: form.cwd,
            env,
            headers,
            auth_mode: form.auth_mode,
            api_key_header: form.api_key_header,
            oauth,
            client_secret,
            timeout,
            enabled: form.enabled,
            governance: form.governance,
        })
    }

    /// Fields of the other transport and of other auth modes mean nothing, so they are not kept.
    fn blank_what_does_not_apply(self) -> Self {
        let mut form = self;
        form.name = form.name.trim().to_owned();
        form.icon = form.icon.filter(|icon| !icon.is_empty());
        if form.transport == Transport::Stdio {
            form.url = String::new();
            form.headers = super::SecretForm::default();
        } else {
            form.command = String::new();
            form.args = Vec::new();
            form.cwd = String::new();
            form.env = super::SecretForm::default();
        }
        if form.auth_mode != AuthMode::ApiKey {
            form.api_key_header = None;
        }
        form.oauth = match form.auth_mode {
            AuthMode::Oauth => Some(form.oauth.unwrap_or_default()),
            _ => None,
        };
        form
    }

    fn check_labels(&self, mistakes: &mut Mistakes) {
        if self.name.is_empty() {
            mistakes.add("/name", "is needed");
        }
        mistakes.at_most("/name", &self.name, limits::SERVER_NAME_CHARS);
        if self.name.chars().any(char::is_control) {
            mistakes.add("/name", "must hold no control characters");
        }
        mistakes.at_most("/description", &self.description, limits::SERVER_DESCRIPTION_CHARS);
        if self.description.contains('\0') {
            mistakes.add("/description", "must hold no NUL");
        }
        if let Some(icon) = &self.icon {
            mistakes.at_most("/icon", icon, limits::URL_CHARS);
            if icon.chars().any(char::is_control) {
                mistakes.add("/icon", "must hold no control characters");
            }
        }
        if self.tags.len() > limits::TAGS.size() {
            mistakes.add("/tags", format!("at most {} are allowed", limits::TAGS.default));
        }
        for (index, tag) in self.tags.iter().enumerate() {
            let path = format!("/tags/{index}");
            mistakes.at_most(&path, tag, limits::TAG_CHARS);
            if tag.trim().is_empty() || tag.chars().any(char::is_control) {
                mistakes.add(&path, "must be visible text");
            }
        }
    }

    fn check_reach(&self, rules: &UrlRules, known: &Known, mistakes: &mut Mistakes) {
        if self.auth_mode == AuthMode::Delegation {
            mistakes.add("/authMode", "delegation is for built-in servers alone");
        }
        match self.transport {
            Transport::Stdio => self.check_program(known, mistakes),
            Transport::Sse | Transport::Http => endpoint::check(&self.url, rules, mistakes),
        }
        match (self.auth_mode, self.api_key_header.as_deref()) {
            (AuthMode::ApiKey, None | Some("")) => {
                mistakes.add("/apiKeyHeader", "is needed for this auth mode");
            }
            (_, Some(header)) => headers::check_header_name("/apiKeyHeader", header, mistakes),
            _ => {}
        }
        let api_key = self.api_key_header.as_deref();
        headers::check_headers(&self.headers, &known.headers, self.auth_mode, api_key, mistakes);
        if headers::bytes(&self.env) + headers::bytes(&self.headers)
            > limits::HEADER_TOTAL_BYTES.size()
        {
            let path = if self.transport == Transport::Stdio { "/env" } else { "/headers" };
            let most = limits::HEADER_TOTAL_BYTES.default;
            mistakes.add(path, format!("must be at most {most} bytes together"));
        }
    }

    fn check_program(&self, known: &Known, mistakes: &mut Mistakes) {
        if self.auth_mode.is_personal() {
            mistakes.add("/authMode", "a program on our host has no personal connections");
        }
        if self.command.is_empty() {
            mistakes.add("/command", "is needed for this transport");
        }
        if self.args.len() > limits::ARGUMENTS.size() {
            mistakes.add("/args", format!("at most {} are allowed", limits::ARGUMENTS.default));
        }
        check_argument("/command", &self.command, limits::COMMAND_CHARS, mistakes);
        check_argument("/cwd", &self.cwd, limits::COMMAND_CHARS, mistakes);
        for (index, argument) in self.args.iter().enumerate() {
            let path = format!("/args/{index}");
            check_argument(&path, argument, limits::ARGUMENT_CHARS, mistakes);
        }
        headers::check_env(&self.env, &known.env, mistakes);
    }
}

fn check_argument(path: &str, text: &str, limit: Limit, mistakes: &mut Mistakes) {
    mistakes.at_most(path, text, limit);
    if text.contains('\0') {
        mistakes.add(path, "must hold no NUL");
    }
}

/// A slug never changes: agents, scripts and audit know it.
fn slug(submitted: Option<&str>, stored: Option<&str>, mistakes: &mut Mistakes) -> Option<String> {
    match (submitted, stored) {
        (Some(new), Some(stored)) if new != stored => mistakes.add("/slug", "cannot be changed"),
        (Some(new), None) => check_slug(new, mistakes),
        _ => {}
    }
    stored.or(submitted).map(ToOwned::to_owned)
}

/// `^[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}$`, and no name that is somebody else's.
fn check_slug(slug: &str, mistakes: &mut Mistakes) {
    let legal = slug.starts_with(|c: char| c.is_ascii_alphanumeric())
        && slug.len() <= limits::SLUG_CHARS.size()
        && slug.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !legal {
        let most = limits::SLUG_CHARS.default;
        let words = format!("must be 1 to {most} letters, digits, _ or -, a letter or digit first");
        mistakes.add("/slug", words);
    }
    let lower = slug.to_ascii_lowercase();
    if RESERVED_SLUGS.contains(&lower.as_str()) {
        mistakes.add("/slug", "is the name of a built-in source");
    }
    if is_custom_id(slug) {
        mistakes.add("/slug", "has the form of an id, which may be another server's");
    }
    // `mcp__<slug>__<tool>` must not read as another slug with another tool.
    if slug.contains("__") || slug.ends_with('_') {
        mistakes.add("/slug", "must hold no double underscore and not end with one");
    }
}

fn timeout(seconds: Option<f64>, mistakes: &mut Mistakes) -> Duration {
    let limit = limits::TOOL_TIMEOUT_SECONDS;
    let Some(seconds) = seconds else { return limit.seconds() };
    governance::whole(seconds, 1, limit.ceiling).map_or_else(
        || {
            let words = format!("must be a whole number from 1 to {} seconds", limit.ceiling);
            mistakes.add("/timeoutSeconds", words);
            limit.seconds()
        },
        Duration::from_secs,
    )
}
