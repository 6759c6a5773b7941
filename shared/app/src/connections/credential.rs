//! A person's credential, sealed for its row and opened for one request.

use domain::{Error, server::AuthMode};
use secrecy::{ExposeSecret, SecretString};
use store::{
    connections::CredentialName,
    vault::{Purpose, RowName, Sealed, Vault},
};

use super::grant::OauthGrant;

/// What is sealed in a connection.
#[derive(Debug)]
pub(crate) enum Credential {
    /// As the person gave it.
    Secret(SecretString),
    Oauth(Box<OauthGrant>),
}

impl Credential {
    /// Seals it for exactly this server and person.
    pub(crate) fn seal(&self, vault: &Vault, name: &CredentialName) -> Result<Sealed, Error> {
        let person = name.user.to_string();
        let row = row(name, &person);
        match self {
            Self::Secret(secret) => vault.seal(Purpose::Credential, row, secret),
            Self::Oauth(grant) => vault.seal(Purpose::Credential, row, &grant.written()?),
        }
    }

    /// `CREDENTIALS_UNREADABLE` where no key opens it.
    pub(crate) fn open(
        vault: &Vault,
        name: &CredentialName,
        mode: AuthMode,
        sealed: &Sealed,
    ) -> Result<Self, Error> {
        let person = name.user.to_string();
        let opened = vault.open(Purpose::Credential, row(name, &person), sealed)?;
        Ok(match mode {
            AuthMode::Oauth => Self::Oauth(Box::new(OauthGrant::read(opened.expose_secret())?)),
            _ => Self::Secret(opened),
        })
    }

    /// What goes out.
    pub(crate) fn into_secret(self) -> SecretString {
        match self {
            Self::Secret(secret) => secret,
            Self::Oauth(grant) => grant.access_token,
        }
    }
}

fn row<'a>(name: &'a CredentialName, person: &'a str) -> RowName<'a> {
    RowName { tenant: name.tenant, server: name.server.as_str(), name: person }
}
