//! Where a server's requests go: its address, and its headers opened and expanded.

use domain::{
    Code, Error,
    ids::{ServerId, TenantId},
    server::{AuthMode, expand},
};
use http::HeaderName;
use outbound::mcp::{ClientKey, Identity, Target};
use secrecy::{ExposeSecret, SecretString};
use store::vault::{Purpose, RowName, Sealed, Vault};
use url::Url;

/// A header as it is stored: name, sealed value, key id.
pub(crate) type SealedHeader = (String, String, String);

/// The one place that opens a server's headers.
///
/// `CREDENTIALS_UNREADABLE` where no key opens one; `SERVER_MISCONFIGURED` where a variable is
/// missing, or what is stored cannot be sent.
pub(crate) fn target(
    vault: &Vault,
    tenant: TenantId,
    server: &ServerId,
    url: &str,
    revision: i64,
    auth_mode: &str,
    headers: &[SealedHeader],
) -> Result<Target, Error> {
    let mode: AuthMode = auth_mode.parse()?;
    let identity = match mode {
        AuthMode::None => Identity::Anonymous,
        AuthMode::SharedHeaders => Identity::Shared,
        _ => return Err(misconfigured("the server's auth mode is not supported yet")),
    };
    let url = Url::parse(url).map_err(|_| misconfigured("the server's address is no URL"))?;
    let headers = headers.iter().map(|header| open(vault, tenant, server, header));
    Ok(Target {
        key: ClientKey { tenant, server: server.clone(), revision, identity },
        url,
        headers: headers.collect::<Result<_, _>>()?,
    })
}

fn open(
    vault: &Vault,
    tenant: TenantId,
    server: &ServerId,
    (name, token, key_id): &SealedHeader,
) -> Result<(HeaderName, SecretString), Error> {
    let row = RowName { tenant, server: server.as_str(), name };
    let sealed = Sealed { token: token.clone(), key_id: key_id.clone() };
    let stored = vault.open(Purpose::ServerHeader, row, &sealed)?;
    // No tenant has variables yet: `$$` is a dollar, a name is a missing one.
    let value = expand(stored.expose_secret(), |_| None).map(SecretString::from)?;
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| misconfigured("a header of the server has no legal name"))?;
    Ok((name, value))
}

fn misconfigured(words: &str) -> Error {
    Error::new(Code::ServerMisconfigured, words)
}
