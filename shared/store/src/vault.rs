//! Secrets at rest: Fernet tokens (github.com/fernet/spec) of a keyring.
//!
//! The first key seals, every key opens. What is sealed names its purpose and its row, so that a
//! value that was moved to another row, or to another column, does not open there.

use std::fmt;

use domain::{Code, Error, ids::TenantId, json::digest};
use fernet::Fernet;
use hkdf::Hkdf;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use zeroize::Zeroizing;

/// What a sealed value is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An environment variable of a stdio server.
    ServerEnv,
    /// A header that goes to a server.
    ServerHeader,
    /// The client secret of a server's OAuth settings.
    ClientSecret,
    /// A person's credential at a server; its row is the server and the person.
    Credential,
    /// A try to connect by OAuth; its row is the server and the attempt.
    OauthAttempt,
    /// What we are registered as at an authorization server; its row is the redirect URI, in the place of
    /// the server, and the issuer.
    OauthClient,
    /// The client secret of the tenant's company sign-in; the tenant has one.
    CompanySecret,
    /// A sign-in at the company's issuer; its row is the sign-in.
    CompanySignIn,
    /// A variable of the tenant; its row has no server.
    TenantVariable,
    /// The `Mcp-Session-Id` of an older MCP client; its row is a token and its person.
    GatewaySession,
    /// The `requestState` of a call that waits; its row is a token and its person.
    RequestState,
}

impl Purpose {
    /// Stands in what is sealed, and in the audit.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServerEnv => "server_env",
            Self::ServerHeader => "server_header",
            Self::ClientSecret => "client_secret",
            Self::Credential => "credential",
            Self::OauthAttempt => "oauth_attempt",
            Self::OauthClient => "oauth_client",
            Self::CompanySecret => "company_secret",
            Self::CompanySignIn => "company_sign_in",
            Self::TenantVariable => "tenant_variable",
            Self::GatewaySession => "gateway_session",
            Self::RequestState => "request_state",
        }
    }
}

/// The row that a sealed value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowName<'a> {
    pub tenant: TenantId,
    /// Server id.
    pub server: &'a str,
    /// The header's or variable's name, or the person's id; empty where the row has one value.
    pub name: &'a str,
}

/// A Fernet token and which key made it (the first 8 hex digits of the SHA-256 of its text).
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    pub token: String,
    pub key_id: String,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// Why a keyring cannot be used; never the keys themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("there is no key")]
    Empty,
    /// Counted from 1.
    #[error("key {0} is not 32 bytes in url-safe base64")]
    NotAKey(usize),
    /// Counted from 1.
    #[error("key {0} stands there twice")]
    Repeated(usize),
}

struct Key {
    id: String,
    fernet: Fernet,
    delegation: Zeroizing<[u8; 32]>,
}

/// The keyring.
pub struct Vault {
    keys: Vec<Key>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("key_ids", &self.key_ids()).finish_non_exhaustive()
    }
}

impl Vault {
    /// From comma-separated keys: the first seals, all open.
    pub fn new(keys: &SecretString) -> Result<Self, KeyringError> {
        let mut ring: Vec<Key> = Vec::new();
        let texts = keys.expose_secret().split(',').map(str::trim).filter(|key| !key.is_empty());
        for (index, text) in texts.enumerate() {
            let fernet = Fernet::new(text).ok_or(KeyringError::NotAKey(index + 1))?;
            let id = hex::encode(&digest(text.as_bytes())[..4]);
            if ring.iter().any(|key| key.id == id) {
                return Err(KeyringError::Repeated(index + 1));
            }
            ring.push(Key { id, fernet, delegation: delegation_key(text) });
        }
        if ring.is_empty() {
            return Err(KeyringError::Empty);
        }
        Ok(Self { keys: ring })
    }

    /// Opens and seals nothing: the service stays up without its keys.
    #[must_use]
    pub fn without_keys() -> Self {
        Self { keys: Vec::new() }
    }

    /// In the order of the keyring.
    #[must_use]
    pub fn key_ids(&self) -> Vec<&str> {
        self.keys.iter().map(|key| key.id.as_str()).collect()
    }

    /// What signs delegation tokens, with the id of the key that it comes from: the first signs, all
    /// verify. None without a keyring.
    pub fn delegation_keys(&self) -> impl Iterator<Item = (&str, &[u8; 32])> {
        self.keys.iter().map(|key| (key.id.as_str(), &*key.delegation))
    }

    /// Whether a key of the ring opens it, whatever it is for.
    #[must_use]
    pub fn can_open(&self, sealed: &Sealed) -> bool {
        self.keys.iter().any(|key| key.fernet.decrypt(&sealed.token).map(Zeroizing::new).is_ok())
    }

    /// The same secret sealed anew by the first key. `None`: it is so already, by its key id and in truth.
    ///
    /// `CREDENTIALS_UNREADABLE` as [`open`](Self::open) says.
    pub fn renew(
        &self,
        purpose: Purpose,
        row: RowName<'_>,
        sealed: &Sealed,
    ) -> Result<Option<Sealed>, Error> {
        let secret = self.open(purpose, row, sealed)?;
        let first = self.keys.first().filter(|key| key.id == sealed.key_id);
        let opens = |key: &Key| key.fernet.decrypt(&sealed.token).map(Zeroizing::new).is_ok();
        if first.is_some_and(opens) {
            return Ok(None);
        }
        self.seal(purpose, row, &secret).map(Some)
    }

    /// Seals for one purpose and row. `CREDENTIALS_UNREADABLE` without a key.
    pub fn seal(
        &self,
        purpose: Purpose,
        row: RowName<'_>,
        plaintext: &SecretString,
    ) -> Result<Sealed, Error> {
        let Some(key) = self.keys.first() else {
            return Err(unreadable("no encryption key is configured"));
        };
        let label = label(purpose, row);
        let secret = plaintext.expose_secret();
        // The whole length from the start: growing would leave copies behind.
        let mut payload = Zeroizing::new(Vec::with_capacity(label.len() + secret.len()));
        payload.extend_from_slice(&label);
        payload.extend_from_slice(secret.as_bytes());
        Ok(Sealed { token: key.fernet.encrypt(&payload), key_id: key.id.clone() })
    }

    /// Opens what was sealed for this purpose and row.
    ///
    /// `CREDENTIALS_UNREADABLE` where no key fits, and for a value of another purpose or row.
    pub fn open(
        &self,
        purpose: Purpose,
        row: RowName<'_>,
        sealed: &Sealed,
    ) -> Result<SecretString, Error> {
        let payload = self
            .keys
            .iter()
            .find_map(|key| key.fernet.decrypt(&sealed.token).ok())
            .map(Zeroizing::new)
            .ok_or_else(|| unreadable("no encryption key opens a stored secret"))?;
        let secret = payload
            .strip_prefix(label(purpose, row).as_slice())
            .and_then(|secret| std::str::from_utf8(secret).ok())
            .ok_or_else(|| unreadable("a stored secret belongs to another row"))?;
        Ok(SecretString::from(secret))
    }
}

/// What stands before a secret: purpose and row as one JSON line, which no secret can imitate since
/// JSON text holds no line end.
fn label(purpose: Purpose, row: RowName<'_>) -> Vec<u8> {
    let tenant = row.tenant.to_string();
    let parts = ["bailiwick.1", purpose.as_str(), &tenant, row.server, row.name];
    let mut label = serde_json::to_vec(&parts).expect("strings are JSON");
    label.push(b'\n');
    label
}

/// HKDF (RFC 5869) of a key of the ring: whoever learns what signs learns nothing of what seals.
fn delegation_key(key: &str) -> Zeroizing<[u8; 32]> {
    let mut derived = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(None, key.as_bytes())
        .expand(b"bailiwick.1 delegation", derived.as_mut_slice())
        .expect("32 bytes are fewer than 255 digests");
    derived
}

fn unreadable(words: &str) -> Error {
    Error::new(Code::CredentialsUnreadable, words)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Key and token of the Fernet specification (generate.json); the token says "hello".
    const SPEC_KEY: &str = "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=";
    const SPEC_TOKEN: &str = "gAAAAAAdwJ6wAAECAwQFBgcICQoLDA0ODy021cpGVWKZ_eEwCGM4BLLF_5CV9dOPmrhuVUPgJobwOz7JcbmrR64jVmpU4IwqDA==";

    fn vault(keys: &str) -> Vault {
        Vault::new(&keys.into()).unwrap()
    }

    fn row<'a>(server: &'a str, name: &'a str) -> RowName<'a> {
        RowName { tenant: TenantId(Uuid::nil()), server, name }
    }

    #[test]
    fn a_token_of_the_specification_opens_with_its_key() {
        let key = &vault(SPEC_KEY).keys[0];
        assert_eq!(key.fernet.decrypt(SPEC_TOKEN).unwrap(), b"hello");
        assert_eq!(key.id, hex::encode(&digest(SPEC_KEY.as_bytes())[..4]));
    }

    #[test]
    fn a_token_of_the_specification_is_no_value_of_any_row() {
        let sealed = Sealed { token: SPEC_TOKEN.into(), key_id: "00000000".into() };
        let error =
            vault(SPEC_KEY).open(Purpose::ServerHeader, row("s", "n"), &sealed).unwrap_err();
        assert_eq!(error.code, Code::CredentialsUnreadable);
    }

    #[test]
    fn what_was_sealed_opens_in_its_own_row_only() {
        let vault = vault(SPEC_KEY);
        let sealed =
            vault.seal(Purpose::ServerHeader, row("custom-1", "X-Key"), &"a\nb".into()).unwrap();

        let opened = vault.open(Purpose::ServerHeader, row("custom-1", "X-Key"), &sealed).unwrap();
        assert_eq!(opened.expose_secret(), "a\nb");

        let tenant = TenantId(Uuid::max());
        for (purpose, row) in [
            (Purpose::ServerEnv, row("custom-1", "X-Key")),
            (Purpose::ServerHeader, row("custom-2", "X-Key")),
            (Purpose::ServerHeader, row("custom-1", "X-Other")),
            (Purpose::ServerHeader, RowName { tenant, ..row("custom-1", "X-Key") }),
        ] {
            let error = vault.open(purpose, row, &sealed).unwrap_err();
            assert_eq!(error.code, Code::CredentialsUnreadable, "{purpose:?} {row:?}");
        }
    }

    #[test]
    fn every_key_opens_and_the_first_one_seals() {
        let (old, new) = (Fernet::generate_key(), Fernet::generate_key());
        let sealed = vault(&old).seal(Purpose::ClientSecret, row("s", ""), &"old".into()).unwrap();

        let both = vault(&format!("{new}, {old}"));
        let opened = both.open(Purpose::ClientSecret, row("s", ""), &sealed).unwrap();
        assert_eq!(opened.expose_secret(), "old");
        let anew = both.seal(Purpose::ClientSecret, row("s", ""), &opened).unwrap();
        assert_eq!(anew.key_id, both.key_ids()[0]);
        assert_ne!(anew.key_id, sealed.key_id);

        let error = vault(&old).open(Purpose::ClientSecret, row("s", ""), &anew).unwrap_err();
        assert_eq!(error.code, Code::CredentialsUnreadable);
    }

    #[test]
    fn what_another_key_sealed_is_renewed_whatever_its_key_id_says() {
        let (old, new) = (Fernet::generate_key(), Fernet::generate_key());
        let (at, purpose) = (row("s", "n"), Purpose::ServerHeader);
        let sealed = vault(&old).seal(purpose, at, &"hush".into()).unwrap();
        let both = vault(&format!("{new},{old}"));
        let primary = both.key_ids()[0].to_owned();
        let mislabelled = Sealed { key_id: primary.clone(), ..sealed.clone() };
        for old in [sealed, mislabelled] {
            let anew = both.renew(purpose, at, &old).unwrap().unwrap();
            assert_eq!(anew.key_id, primary);
            let opened = vault(&new).open(purpose, at, &anew).unwrap();
            assert_eq!(opened.expose_secret(), "hush");
            assert_eq!(both.renew(purpose, at, &anew).unwrap(), None);
            assert!(both.renew(purpose, row("s", "other"), &old).is_err());
        }
    }

    #[test]
    fn a_vault_without_keys_refuses_both_ways() {
        let sealed = vault(SPEC_KEY).seal(Purpose::ServerEnv, row("s", "A"), &"x".into()).unwrap();
        let none = Vault::without_keys();
        let code = |error: Error| error.code;
        let opened = none.open(Purpose::ServerEnv, row("s", "A"), &sealed);
        assert_eq!(opened.map_err(code).unwrap_err(), Code::CredentialsUnreadable);
        let sealed = none.seal(Purpose::ServerEnv, row("s", "A"), &"x".into());
        assert_eq!(sealed.map_err(code).unwrap_err(), Code::CredentialsUnreadable);
    }

    #[test]
    fn an_unusable_keyring_is_refused_by_its_place() {
        let refused = |keys: &str| Vault::new(&keys.into()).unwrap_err();
        assert_eq!(refused(" , "), KeyringError::Empty);
        assert_eq!(refused(&format!("{SPEC_KEY},short")), KeyringError::NotAKey(2));
        assert_eq!(refused(&format!("{SPEC_KEY},{SPEC_KEY}")), KeyringError::Repeated(2));
    }

    #[test]
    fn each_key_of_the_ring_gives_one_that_signs_and_is_no_other() {
        let other = Fernet::generate_key();
        let both = vault(&format!("{other},{SPEC_KEY}"));
        let keys: Vec<_> = both.delegation_keys().collect();
        let alone = vault(SPEC_KEY);
        let (id, key) = alone.delegation_keys().next().unwrap();
        assert_eq!((keys.len(), keys[1]), (2, (id, key)));
        assert_ne!(keys[0].1, key);
        assert_ne!(key.as_slice(), digest(SPEC_KEY.as_bytes()));
        assert_eq!(Vault::without_keys().delegation_keys().count(), 0);
    }

    #[test]
    fn nothing_secret_can_be_printed() {
        let vault = vault(SPEC_KEY);
        let sealed = vault.seal(Purpose::ServerHeader, row("s", "n"), &"hush".into()).unwrap();
        let shown = format!("{vault:?} {sealed:?}");
        assert!(
            !shown.contains("hush") && !shown.contains(SPEC_KEY) && !shown.contains(&sealed.token)
        );
    }
}
