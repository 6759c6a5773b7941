//! Our registration with an authorization server.

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::AuthorizationServer;

/// How a client shows the token endpoint who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// `client_secret_basic`, id and secret url-encoded (RFC 6749, section 2.3.1).
    Basic,
    /// `client_secret_post`.
    Post,
    /// `none`: the id alone, in the body.
    None,
}

impl AuthMethod {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "client_secret_basic" => Some(Self::Basic),
            "client_secret_post" => Some(Self::Post),
            "none" => Some(Self::None),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::None => "none",
        }
    }

    pub(super) fn needs_secret(self) -> bool {
        self != Self::None
    }
}

/// A client as one authorization server knows it; never to be used with another.
#[derive(Debug, Clone)]
pub struct Client {
    pub client_id: String,
    pub client_secret: Option<SecretString>,
    pub auth_method: AuthMethod,
    /// When the secret ends (`client_secret_expires_at`), in seconds since 1970; `None`: never.
    pub expires_at_epoch: Option<i64>,
}

impl Client {
    /// A client that a person registered with the authorization server and configured here.
    #[must_use]
    pub fn preregistered(
        server: &AuthorizationServer,
        client_id: &str,
        client_secret: Option<SecretString>,
    ) -> Self {
        Self {
            client_id: client_id.to_owned(),
            auth_method: server.auth_method(client_secret.is_some()),
            client_secret,
            expires_at_epoch: None,
        }
    }

    /// A client whose id is the URL of its metadata document (Client ID Metadata Documents). Only where the server's
    /// `client_id_metadata_document_supported` is set.
    #[must_use]
    pub fn metadata_document(document: &Url) -> Self {
        Self {
            client_id: document.to_string(),
            client_secret: None,
            auth_method: AuthMethod::None,
            expires_at_epoch: None,
        }
    }

    /// The form that is sealed and stored. It holds the secret in clear.
    #[must_use]
    pub fn expose(&self) -> ExposedClient {
        ExposedClient {
            client_id: self.client_id.clone(),
            client_secret: self.client_secret.as_ref().map(|one| one.expose_secret().to_owned()),
            auth_method: self.auth_method,
            expires_at_epoch: self.expires_at_epoch,
        }
    }
}

/// A [`Client`] with its secret in clear: to be sealed at once. Has no `Debug` on purpose.
#[derive(Clone, Serialize, Deserialize)]
pub struct ExposedClient {
    client_id: String,
    client_secret: Option<String>,
    auth_method: AuthMethod,
    expires_at_epoch: Option<i64>,
}

impl From<ExposedClient> for Client {
    fn from(exposed: ExposedClient) -> Self {
        Self {
            client_id: exposed.client_id,
            client_secret: exposed.client_secret.map(SecretString::from),
            auth_method: exposed.auth_method,
            expires_at_epoch: exposed.expires_at_epoch,
        }
    }
}
