//! Whom a server's configuration makes us contact, for a person who agrees to it.

use serde::Serialize;
use url::Url;

use super::{ServerForm, ServerReach, Transport, references};
use crate::{limits, tool::revealed};

/// What contacting a server means. Names of secrets, never their values; what hides in a text is
/// escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    /// As it is written, a known one or not.
    pub transport: String,
    /// Program and arguments, exactly; empty but for stdio.
    pub command_line: Vec<String>,
    /// Where the program runs; `None` where nothing is said, and but for stdio.
    pub cwd: Option<String>,
    /// `None` where there is none, or it would show a password.
    pub url: Option<String>,
    pub host: Option<String>,
    pub headers: Vec<String>,
    pub env: Vec<String>,
    /// Variables of the tenant whose values would be sent.
    pub variables: Vec<String>,
}

impl Contact {
    /// Of a form, valid or not.
    #[must_use]
    pub fn of_form(form: &ServerForm) -> Self {
        let secrets = form.env.iter().chain(form.headers.iter());
        let mut variables: Vec<String> = secrets
            .filter_map(|(_, value)| value.as_ref())
            .flat_map(|value| references(value.expose()))
            .collect();
        variables.sort_unstable();
        variables.dedup();
        Self::new(
            &form.transport,
            (&form.command, &form.args, &form.cwd),
            &form.url,
            form.env.iter().map(|(name, _)| name.as_str()),
            form.headers.iter().map(|(name, _)| name.as_str()),
            &variables,
        )
    }

    /// Of a stored server.
    #[must_use]
    pub fn of_stored(
        reach: &ServerReach,
        env: &[String],
        headers: &[String],
        variables: &[String],
    ) -> Self {
        Self::new(
            reach.transport.as_str(),
            (&reach.command, &reach.args, &reach.cwd),
            &reach.url,
            env.iter().map(String::as_str),
            headers.iter().map(String::as_str),
            variables,
        )
    }

    fn new<'a>(
        transport: &str,
        (command, args, cwd): (&String, &[String], &str),
        url: &str,
        env: impl Iterator<Item = &'a str>,
        headers: impl Iterator<Item = &'a str>,
        variables: &[String],
    ) -> Self {
        let shown = |text: &str| revealed(text, limits::ARGUMENT_CHARS.size());
        let is_program = transport == Transport::Stdio.as_str();
        let line =
            std::iter::once(command).chain(args).filter(|_| is_program && !command.is_empty());
        let parsed = Url::parse(url).ok();
        let shows_password = parsed
            .as_ref()
            .is_none_or(|url| !url.username().is_empty() || url.password().is_some());
        Self {
            transport: revealed(transport, 100),
            command_line: line.map(|word| shown(word)).collect(),
            cwd: (is_program && !cwd.is_empty()).then(|| shown(cwd)),
            url: (!is_program && !shows_password).then(|| shown(url)),
            host: parsed.filter(|_| !is_program).and_then(|url| Some(shown(url.host_str()?))),
            env: env.map(shown).collect(),
            headers: headers.map(shown).collect(),
            variables: variables.iter().map(|name| shown(name)).collect(),
        }
    }
}
