//! How people authorize us at a server.

use serde::{Deserialize, Serialize};
use url::Url;

use super::{Known, OAuthForm, SecretEdit, SubmittedSecret, validate::Mistakes};
use crate::limits;

/// How we become a client of the authorization server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registration {
    /// Whatever is there: preregistered, then a client metadata document, then dynamic.
    #[default]
    Auto,
    Preregistered,
    /// Client ID Metadata Document.
    Cimd,
    /// RFC 7591.
    Dcr,
}

/// The OAuth settings of a server, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthSettings {
    pub issuer: Option<String>,
    pub registration: Registration,
    /// Blank: none.
    pub client_id: String,
    pub scopes: Vec<String>,
    pub client_metadata_url: Option<String>,
}

/// More scopes than this no provider asks for; with the size of each it bounds the list.
const SCOPES: usize = 100;

pub(super) fn check(
    form: OAuthForm,
    known: &Known,
    mistakes: &mut Mistakes,
) -> (OAuthSettings, SecretEdit) {
    let issuer = form.issuer.filter(|issuer| !issuer.is_empty());
    let client_metadata_url = form.client_metadata_url.filter(|url| !url.is_empty());
    for (path, value) in [
        ("/oauth/issuer", issuer.as_deref()),
        ("/oauth/clientId", Some(form.client_id.as_str())),
        ("/oauth/clientMetadataUrl", client_metadata_url.as_deref()),
    ] {
        check_field(path, value.unwrap_or_default(), mistakes);
    }
    if issuer.as_deref().is_some_and(|issuer| !is_web_url(issuer)) {
        mistakes.add("/oauth/issuer", "must be an http or https URL");
    }
    if client_metadata_url.as_deref().is_some_and(|url| !is_metadata_url(url)) {
        mistakes.add("/oauth/clientMetadataUrl", "must be an https URL with a path");
    }
    if form.registration == Registration::Preregistered && form.client_id.is_empty() {
        mistakes.add("/oauth/clientId", "is needed where the client is preregistered");
    }
    if form.scopes.len() > SCOPES {
        mistakes.add("/oauth/scopes", format!("at most {SCOPES} are allowed"));
    }
    for (index, scope) in form.scopes.iter().enumerate() {
        check_field(&format!("/oauth/scopes/{index}"), scope, mistakes);
        // RFC 6749, 3.3.
        let legal = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if scope.is_empty() || !scope.bytes().all(legal) {
            mistakes.add(&format!("/oauth/scopes/{index}"), "is no scope");
        }
    }
    let client_secret =
        secret("/oauth/clientSecret", form.client_secret, known.client_secret, mistakes);
    if matches!(client_secret, SecretEdit::Keep | SecretEdit::Set(_)) && form.client_id.is_empty() {
        mistakes.add("/oauth/clientSecret", "needs a client id");
    }
    let settings = OAuthSettings {
        issuer,
        registration: form.registration,
        client_id: form.client_id,
        scopes: form.scopes,
        client_metadata_url,
    };
    (settings, client_secret)
}

/// What a save does to a client secret at `path`.
pub(crate) fn secret(
    path: &str,
    submitted: Option<SubmittedSecret>,
    exists: bool,
    mistakes: &mut Mistakes,
) -> SecretEdit {
    match submitted {
        None if exists => SecretEdit::Delete,
        None => SecretEdit::Absent,
        Some(SubmittedSecret::Keep) if exists => SecretEdit::Keep,
        Some(SubmittedSecret::Keep) => {
            mistakes.add(path, "there is no value to keep");
            SecretEdit::Absent
        }
        // `""` clears.
        Some(SubmittedSecret::Value(secret)) if secret.expose().is_empty() && exists => {
            SecretEdit::Delete
        }
        Some(SubmittedSecret::Value(secret)) if secret.expose().is_empty() => SecretEdit::Absent,
        Some(SubmittedSecret::Value(secret)) => {
            check_field(path, secret.expose(), mistakes);
            SecretEdit::Set(secret)
        }
    }
}

pub(crate) fn check_field(path: &str, value: &str, mistakes: &mut Mistakes) {
    mistakes.at_most(path, value, limits::OAUTH_FIELD_CHARS);
    if value.chars().any(char::is_control) {
        mistakes.add(path, "must hold no control characters");
    }
}

pub(crate) fn is_web_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none()
    })
}

fn is_metadata_url(text: &str) -> bool {
    is_web_url(text)
        && Url::parse(text).is_ok_and(|url| url.scheme() == "https" && url.path() != "/")
}
