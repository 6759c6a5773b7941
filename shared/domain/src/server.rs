//! Servers as a superadmin configures them (design: connections, "Server configuration").

mod contact;
mod endpoint;
mod form;
mod governance;
mod headers;
mod import;
mod oauth;
mod secrets;
pub mod stdio;
mod validate;
mod variables;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use contact::Contact;
pub use endpoint::UrlRules;
pub(crate) use form::null_keeps;
pub use form::{OAuthForm, SecretForm, SecretText, ServerForm, SubmittedSecret};
pub use governance::{Governance, GovernanceForm};
pub use import::{ImportEntry, read_import};
pub use oauth::{OAuthSettings, Registration};
pub(crate) use oauth::{check_field, is_web_url, secret};
pub use secrets::{Known, KnownSecrets, Place, SecretEdit, SecretEdits, edit_secrets};
pub use validate::FormRules;
pub(crate) use validate::Mistakes;
pub use variables::{
    Destination, PROGRAMS, Part, ValidVariable, VariableForm, Variables, expand, is_variable_name,
    missing_variable, references, variable_elsewhere, variables,
};

use crate::{Code, Error, caller::names};

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A program on our host.
    Stdio,
    /// The HTTP with SSE of MCP 2024-11-05.
    Sse,
    /// Streamable HTTP.
    Http,
}

names!(Transport, "transport", Stdio => "stdio", Sse => "sse", Http => "http");

/// Whose identity a call carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMode {
    /// Nobody's.
    None,
    /// One for all, in the server's headers.
    SharedHeaders,
    /// The person's own secret, as `Authorization: Bearer`.
    Bearer,
    /// The person's own secret, verbatim in the server's header.
    ApiKey,
    /// The person's own grant.
    Oauth,
    /// Built-in servers only; no form can ask for it.
    Delegation,
}

names!(AuthMode, "auth mode", None => "none", SharedHeaders => "shared_headers", Bearer => "bearer",
    ApiKey => "api_key", Oauth => "oauth", Delegation => "delegation");

impl AuthMode {
    /// Whether each person has a credential of their own.
    #[must_use]
    pub fn is_personal(self) -> bool {
        matches!(self, Self::Bearer | Self::ApiKey | Self::Oauth)
    }
}

/// What is known of a server's health; `Ready` = connect and discovery passed, no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerStatus {
    Untested,
    Ready,
    Error,
    Disabled,
}

names!(ServerStatus, "status", Untested => "untested", Ready => "ready", Error => "error",
    Disabled => "disabled");

/// A form that passed every rule; only [`ServerForm::validate`] makes one.
///
/// Fields of the other transport, and of other auth modes, are blank.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ValidServer {
    pub name: String,
    /// `None`: the id. Of a stored server always its stored one.
    pub slug: Option<String>,
    pub description: String,
    pub icon: Option<String>,
    pub tags: Vec<String>,
    pub transport: Transport,
    /// As it was written; blank for stdio.
    pub url: String,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: String,
    pub env: SecretEdits,
    pub headers: SecretEdits,
    pub auth_mode: AuthMode,
    pub api_key_header: Option<String>,
    pub oauth: Option<OAuthSettings>,
    pub client_secret: SecretEdit,
    /// Of one tool call.
    pub timeout: Duration,
    pub enabled: bool,
    /// As it was asked for; [`Governance::resolve`] gives the limits.
    pub governance: Option<GovernanceForm>,
}

/// What decides where calls go and as whom. Two servers with the same reach are the same to a
/// credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReach {
    pub transport: Transport,
    pub url: String,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: String,
    pub auth_mode: AuthMode,
    pub api_key_header: Option<String>,
    pub oauth: Option<OAuthSettings>,
}

/// The reach of a server; secrets are no part of it, see [`reach_changed`].
#[must_use]
pub fn reach(server: &ValidServer) -> ServerReach {
    ServerReach {
        transport: server.transport,
        url: server.url.clone(),
        command: server.command.clone(),
        args: server.args.clone(),
        cwd: server.cwd.clone(),
        auth_mode: server.auth_mode,
        api_key_header: server.api_key_header.clone(),
        oauth: server.oauth.clone(),
    }
}

/// Whether `config_revision` advances: every connection is cleared then. Name, description, icon,
/// tags, time-out, switches and governance take no part.
///
/// `secrets_changed`: a value in env, headers or the client secret was set or deleted
/// ([`ValidServer::changes_secrets`]).
#[must_use]
pub fn reach_changed(old: &ServerReach, new: &ServerReach, secrets_changed: bool) -> bool {
    secrets_changed || old != new
}

impl ValidServer {
    /// Whether a secret is set anew (to whatever: values are not compared) or deleted.
    #[must_use]
    pub fn changes_secrets(&self) -> bool {
        self.env.changes_anything()
            || self.headers.changes_anything()
            || !matches!(self.client_secret, SecretEdit::Keep | SecretEdit::Absent)
    }
}

/// Ids of built-in sources: no slug of a custom server may be one.
pub const RESERVED_SLUGS: &[&str] = &[
    "arxiv",
    "bailiwick",
    "biorxiv",
    "chembl",
    "clinvar",
    "ensembl",
    "europe-pmc",
    "geo",
    "library",
    "medrxiv",
    "pdb",
    "pubmed",
    "reactome",
    "uniprot",
    "whoami",
];

/// Whether this has the form of a custom server's id: `custom-<12 hex>`.
#[must_use]
pub fn is_custom_id(text: &str) -> bool {
    text.strip_prefix("custom-").is_some_and(|digits| {
        digits.len() == 12 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests;
