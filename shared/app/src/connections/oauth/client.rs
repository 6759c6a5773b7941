//! As which client we come to an authorization server.

use domain::{
    Code, Error, Timestamp,
    ids::TenantId,
    server::{OAuthSettings, Registration},
};
use outbound::oauth::{AuthorizationServer, Client, ExposedClient};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::{
    servers::{SecretKind, Server},
    vault::{Purpose, RowName, Sealed},
};
use url::Url;

use super::start::fault;
use crate::Ctx;

/// Preregistered, else our metadata document where it is taken, else registered by ourselves; or what
/// the settings insist on.
pub(super) async fn of(
    ctx: &Ctx,
    tenant: TenantId,
    server: &Server,
    settings: &OAuthSettings,
    at: &AuthorizationServer,
    callback: &Url,
    scopes: &[String],
) -> Result<Client, Error> {
    let document = document(settings, callback);
    let takes_documents = at.client_id_metadata_document_supported;
    match settings.registration {
        Registration::Auto | Registration::Preregistered if !settings.client_id.is_empty() => {
            let secret = client_secret(ctx, tenant, server).await?;
            Ok(Client::preregistered(at, &settings.client_id, secret))
        }
        Registration::Preregistered => Err(no_way("client_id_missing")),
        Registration::Auto if takes_documents && document.is_some() => {
            document.as_ref().map(Client::metadata_document).ok_or_else(|| no_way("no_document"))
        }
        Registration::Cimd => match document {
            Some(document) if takes_documents => Ok(Client::metadata_document(&document)),
            Some(_) => Err(no_way("client_metadata_document_not_supported")),
            None => Err(no_way("client_metadata_document_needs_https")),
        },
        Registration::Auto | Registration::Dcr => {
            registered(ctx, tenant, at, callback, scopes).await
        }
    }
}

/// The URL of our document: the configured one, else our own where we are reached by https.
fn document(settings: &OAuthSettings, callback: &Url) -> Option<Url> {
    if let Some(configured) = &settings.client_metadata_url {
        return Url::parse(configured).ok();
    }
    let server = callback.path_segments()?.next_back()?.to_owned();
    let mut document = callback.join("/.well-known/bailiwick-client.json").ok()?;
    document.query_pairs_mut().append_pair("server", &server);
    (document.scheme() == "https").then_some(document)
}

async fn client_secret(
    ctx: &Ctx,
    tenant: TenantId,
    server: &Server,
) -> Result<Option<SecretString>, Error> {
    let mut tx = ctx.db.begin(tenant).await?;
    let sealed = store::servers::secret(&mut tx, &server.id, SecretKind::ClientSecret, "").await?;
    tx.commit().await?;
    let row = RowName { tenant, server: server.id.as_str(), name: "" };
    sealed.map(|sealed| ctx.vault.open(Purpose::ClientSecret, row, &sealed)).transpose()
}

/// Our registration there for this callback: the one that is kept, else a new one.
async fn registered(
    ctx: &Ctx,
    tenant: TenantId,
    at: &AuthorizationServer,
    callback: &Url,
    scopes: &[String],
) -> Result<Client, Error> {
    let now = ctx.now();
    let mut tx = ctx.db.begin(tenant).await?;
    let kept = store::oauth_clients::find(&mut tx, &at.issuer, callback.as_str(), now).await?;
    tx.commit().await?;
    if let Some(kept) = kept {
        return open(ctx, tenant, &at.issuer, callback, &kept);
    }
    let registering = ctx.oauth.register(at, callback, "Bailiwick", scopes);
    let client = registering.await.map_err(|failure| fault(&failure))?;
    let sealed = seal(ctx, tenant, &at.issuer, callback, &client)?;
    let expires_at = client.expires_at_epoch.filter(|at| *at > 0);
    let expires_at = expires_at.and_then(|at| Timestamp::from_timestamp(at, 0));
    let mut tx = ctx.db.begin(tenant).await?;
    let (issuer, redirect) = (at.issuer.as_str(), callback.as_str());
    store::oauth_clients::put(&mut tx, issuer, redirect, &sealed, expires_at, now).await?;
    tx.commit().await?;
    Ok(client)
}

fn seal(
    ctx: &Ctx,
    tenant: TenantId,
    issuer: &str,
    callback: &Url,
    client: &Client,
) -> Result<Sealed, Error> {
    let text = serde_json::to_string(&client.expose()).map_err(Error::internal)?;
    let row = RowName { tenant, server: callback.as_str(), name: issuer };
    ctx.vault.seal(Purpose::OauthClient, row, &SecretString::from(text))
}

fn open(
    ctx: &Ctx,
    tenant: TenantId,
    issuer: &str,
    callback: &Url,
    sealed: &Sealed,
) -> Result<Client, Error> {
    let row = RowName { tenant, server: callback.as_str(), name: issuer };
    let opened = ctx.vault.open(Purpose::OauthClient, row, sealed)?;
    let exposed: ExposedClient = serde_json::from_str(opened.expose_secret())
        .map_err(|_| Error::internal("a sealed registration cannot be read"))?;
    Ok(exposed.into())
}

fn no_way(step: &str) -> Error {
    let words = format!("we cannot become a client of this server's provider: {step}");
    Error::new(Code::OauthDiscoveryFailed, words).with_details(json!({ "step": step }))
}
