//! Every rule of a server's form, every mistake at once.

use std::time::Duration;

use serde_json::{Value, json};

use url::Url;

use super::{
    AuthMode, Destination, Known, Place, RESERVED_SLUGS, SecretEdit, SecretEdits, SecretForm,
    ServerForm, Transport, UrlRules, ValidServer, Variables, edit_secrets, endpoint, governance,
    headers, is_custom_id, oauth,
    stdio::{AllowedProgram, ArgPattern, Asked, StdioMode},
};
use crate::{
    Code, Error,
    limits::{self, Limit},
    tool::escaped,
};

/// Mistakes of a form, each at its place.
#[derive(Debug, Default)]
pub(crate) struct Mistakes(Vec<Value>);

impl Mistakes {
    /// `path` is a JSON pointer into the form.
    pub(crate) fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push(json!({ "path": path, "message": message.into() }));
    }

    /// Whether the text is short enough; adds a mistake where it is not.
    pub(crate) fn at_most(&mut self, path: &str, text: &str, limit: Limit) -> bool {
        let fits = text.chars().count() <= limit.size();
        if !fits {
            self.add(path, format!("must be at most {} {}", limit.default, limit.unit));
        }
        fits
    }

    /// Refuses `what` with all of them, where there is one.
    pub(crate) fn refuse(self, what: &str) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let words = match &self.0[..] {
            [one] => format!(
                "{what} is not valid: {} {}",
                one["path"].as_str().unwrap_or_default(),
                one["message"].as_str().unwrap_or_default()
            ),
            many => format!("{what} is not valid: {} mistakes", many.len()),
        };
        Err(Error::new(Code::InvalidInput, words).with_details(json!({ "errors": self.0 })))
    }
}

/// What operator and tenant allow a form to say.
#[derive(Debug, Clone, Copy)]
pub struct FormRules<'a> {
    pub urls: &'a UrlRules,
    pub stdio: &'a StdioMode,
    /// There is no other tenant.
    pub only_tenant: bool,
    pub variables: &'a Variables,
}

impl ServerForm {
    /// Checks the form against every rule.
    ///
    /// `known` is what the stored server has; [`Known::default`] for a new one.
    /// `INVALID_INPUT` with `details {"errors": [{"path", "message"}]}`, all of them at once.
    /// What needs a look at the tenant (a name or slug that is taken, the number of servers) is not
    /// checked here.
    pub fn validate(self, rules: &FormRules<'_>, known: &Known) -> Result<ValidServer, Error> {
        let mut mistakes = Mistakes::default();
        let transport =
            word("/transport", &self.transport, Transport::ALL, Transport::as_str, &mut mistakes);
        let auth_mode =
            word("/authMode", &self.auth_mode, AuthMode::ALL, AuthMode::as_str, &mut mistakes);
        let form = self.blank_what_does_not_apply(transport, auth_mode);
        form.check_labels(&mut mistakes);
        let slug = slug(form.slug.as_deref(), known.slug.as_deref(), &mut mistakes);
        Reach { form: &form, transport, auth_mode, rules, known }.check(&mut mistakes);
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
        mistakes.refuse("the server")?;
        let (env, headers): (SecretEdits, SecretEdits) = (env?, headers?);
        let (Some(transport), Some(auth_mode)) = (transport, auth_mode) else {
            return Err(Error::internal("an unknown word was no mistake"));
        };
        Ok(ValidServer {
            name: form.name,
            slug,
            description: form.description,
            icon: form.icon,
            tags: form.tags,
            transport,
            url: form.url,
            command: form.command,
            args: form.args,
            cwd: form.cwd,
            env,
            headers,
            auth_mode,
            api_key_header: form.api_key_header,
            oauth,
            client_secret,
            timeout,
            enabled: form.enabled,
            governance: form.governance,
        })
    }

    /// Fields of the other transport and of other auth modes mean nothing, so they are not kept.
    fn blank_what_does_not_apply(
        self,
        transport: Option<Transport>,
        auth_mode: Option<AuthMode>,
    ) -> Self {
        let mut form = self;
        form.name = form.name.trim().to_owned();
        form.icon = form.icon.filter(|icon| !icon.is_empty());
        match transport {
            Some(Transport::Stdio) => {
                form.url = String::new();
                form.headers = SecretForm::default();
            }
            Some(Transport::Sse | Transport::Http) => {
                form.command = String::new();
                form.args = Vec::new();
                form.cwd = String::new();
                form.env = SecretForm::default();
            }
            None => {}
        }
        if auth_mode != Some(AuthMode::ApiKey) {
            form.api_key_header = None;
        }
        form.oauth = match auth_mode {
            Some(AuthMode::Oauth) => Some(form.oauth.unwrap_or_default()),
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
}

/// Where a form's server is, and as whom it is called.
struct Reach<'a> {
    form: &'a ServerForm,
    /// `None`: an unknown word, which is a mistake already.
    transport: Option<Transport>,
    auth_mode: Option<AuthMode>,
    rules: &'a FormRules<'a>,
    known: &'a Known,
}

impl Reach<'_> {
    fn check(&self, mistakes: &mut Mistakes) {
        let form = self.form;
        if self.auth_mode == Some(AuthMode::Delegation) {
            mistakes.add("/authMode", "delegation is for built-in servers alone");
        }
        match self.transport {
            Some(Transport::Stdio) => self.check_program(mistakes),
            Some(Transport::Sse | Transport::Http) => {
                endpoint::check(&form.url, self.rules.urls, mistakes);
            }
            None => {}
        }
        match (self.auth_mode, form.api_key_header.as_deref()) {
            (Some(AuthMode::ApiKey), None | Some("")) => {
                mistakes.add("/apiKeyHeader", "is needed for this auth mode");
            }
            (_, Some(header)) => headers::check_header_name("/apiKeyHeader", header, mistakes),
            _ => {}
        }
        let destination = self.destination();
        let against = |known| headers::Against {
            known,
            variables: self.rules.variables,
            destination: destination.as_ref(),
            moved: self.moved(),
        };
        headers::check_headers(
            &form.headers,
            against(&self.known.headers),
            self.auth_mode,
            form.api_key_header.as_deref(),
            mistakes,
        );
        headers::check_env(&form.env, against(&self.known.env), mistakes);
        let (env, headers) = (headers::bytes(&form.env), headers::bytes(&form.headers));
        if env + headers > limits::HEADER_TOTAL_BYTES.size() {
            let path = if self.transport == Some(Transport::Stdio) { "/env" } else { "/headers" };
            let most = limits::HEADER_TOTAL_BYTES.default;
            mistakes.add(path, format!("must be at most {most} bytes together"));
        }
    }

    /// `None`: nobody can say, and the address has its own mistake.
    fn destination(&self) -> Option<Destination> {
        match self.transport? {
            Transport::Stdio => Some(Destination::Program),
            Transport::Sse | Transport::Http => {
                Url::parse(&self.form.url).ok().as_ref().and_then(Destination::of_url)
            }
        }
    }

    /// Whether stored secrets would go to somebody else than before.
    fn moved(&self) -> bool {
        let Some(transport) = self.transport else { return false };
        let form = self.form;
        let now = Place::of(transport, &form.url, &form.command, &form.args, &form.cwd);
        now.is_some() && self.known.place.is_some() && now != self.known.place
    }

    fn check_program(&self, mistakes: &mut Mistakes) {
        let form = self.form;
        if self.auth_mode.is_some_and(AuthMode::is_personal) {
            mistakes.add("/authMode", "a program on our host has no personal connections");
        }
        if form.command.is_empty() {
            mistakes.add("/command", "is needed for this transport");
        } else {
            self.check_permitted(mistakes);
        }
        if form.args.len() > limits::ARGUMENTS.size() {
            mistakes.add("/args", format!("at most {} are allowed", limits::ARGUMENTS.default));
        }
        mistakes.at_most("/command", &form.command, limits::COMMAND_CHARS);
        mistakes.at_most("/cwd", &form.cwd, limits::COMMAND_CHARS);
        for (index, argument) in form.args.iter().enumerate() {
            let path = format!("/args/{index}");
            mistakes.at_most(&path, argument, limits::ARGUMENT_CHARS);
        }
    }
}

impl Reach<'_> {
    /// What the operator permits; names it where it is a list.
    fn check_permitted(&self, mistakes: &mut Mistakes) {
        let (form, stdio) = (self.form, self.rules.stdio);
        if matches!(stdio, StdioMode::Any) && !self.rules.only_tenant {
            let words = "any program may run only while there is one tenant: the operator must list \
                         programs";
            mistakes.add("/transport", words);
            return;
        }
        let env: Vec<&str> = form.env.iter().map(|(name, _)| name.as_str()).collect();
        let asked = Asked { command: &form.command, args: &form.args, cwd: &form.cwd, env: &env };
        let Err(found) = stdio.check(&asked) else { return };
        let mut listed = match stdio {
            StdioMode::Allowlist(programs) => Some(listed(programs)),
            StdioMode::Off | StdioMode::Any => None,
        };
        for mistake in found {
            let listed = listed.take().map(|list| format!("; listed: {list}"));
            let words = format!("{}{}", mistake.words, listed.unwrap_or_default());
            mistakes.add(&mistake.path, words);
        }
    }
}

/// The operator's programs in words.
fn listed(programs: &[AllowedProgram]) -> String {
    if programs.is_empty() {
        return "none".to_owned();
    }
    let shown = programs.iter().map(|program| {
        let line = std::iter::once(program.command.clone()).chain(program.args.iter().map(shown));
        let line = line.collect::<Vec<_>>().join(" ");
        format!("{} ({})", escaped(&program.name, 60), escaped(&line, 300))
    });
    shown.collect::<Vec<_>>().join("; ")
}

/// An argument of a listed program as people read it.
fn shown(pattern: &ArgPattern) -> String {
    let regex = |pattern| {
        let written = serde_json::to_value(pattern).unwrap_or_default();
        format!("<{}>", written.as_str().unwrap_or_default())
    };
    match pattern {
        ArgPattern::Literal(literal) => literal.clone(),
        ArgPattern::Matching { matches } => regex(matches),
        ArgPattern::Rest { rest } => format!("{}…", regex(rest)),
    }
}

/// One of the words that may stand there.
fn word<T: Copy>(
    path: &str,
    text: &str,
    all: &[T],
    spelled: impl Fn(T) -> &'static str,
    mistakes: &mut Mistakes,
) -> Option<T> {
    let found = all.iter().copied().find(|one| spelled(*one) == text);
    if found.is_none() {
        // Not repeated: it may be a secret in the wrong place.
        let words: Vec<&str> = all.iter().map(|one| spelled(*one)).collect();
        mistakes.add(path, format!("must be one of {}", words.join(", ")));
    }
    found
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
    if matches!(slug, "import" | "export") {
        mistakes.add("/slug", "is a word of the interface's own paths");
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
