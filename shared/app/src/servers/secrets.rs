//! A server's secrets: which there are, and what a save does to them.

use domain::{
    Error,
    ids::ServerId,
    server::{Known, Place, SecretEdit, SecretEdits, SecretText, ValidServer, references},
};
use secrecy::SecretString;
use store::{
    Tx,
    servers::{SecretKind, Server},
    vault::{Purpose, RowName},
};

use crate::Ctx;

/// Where a stored server is, and the names of its secrets.
pub(super) async fn known(tx: &mut Tx, server: &Server) -> Result<Known, Error> {
    let reach = &server.reach;
    let place = Place::of(reach.transport, &reach.url, &reach.command, &reach.args, &reach.cwd);
    let mut known = Known { place, ..Known::default() };
    for secret in store::servers::secret_names(tx, std::slice::from_ref(&server.id)).await? {
        match secret.kind {
            SecretKind::Env => drop(known.env.insert(secret.name, secret.variables)),
            SecretKind::Header => drop(known.headers.insert(secret.name, secret.variables)),
            SecretKind::ClientSecret => known.client_secret = true,
        }
    }
    Ok(known)
}

/// Writes and deletes what the form says; what it keeps is not touched, not even opened.
pub(super) async fn save(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &ServerId,
    form: &ValidServer,
) -> Result<(), Error> {
    save_group(ctx, tx, server, SecretKind::Env, &form.env).await?;
    save_group(ctx, tx, server, SecretKind::Header, &form.headers).await?;
    match &form.client_secret {
        SecretEdit::Absent | SecretEdit::Keep => Ok(()),
        SecretEdit::Set(secret) => {
            put(ctx, tx, server, (SecretKind::ClientSecret, ""), secret).await
        }
        SecretEdit::Delete => {
            Ok(store::servers::delete_secret(tx, server, SecretKind::ClientSecret, "").await?)
        }
    }
}

async fn save_group(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &ServerId,
    kind: SecretKind,
    edits: &SecretEdits,
) -> Result<(), Error> {
    for name in &edits.delete {
        store::servers::delete_secret(tx, server, kind, name).await?;
    }
    for (name, secret) in &edits.set {
        put(ctx, tx, server, (kind, name), secret).await?;
    }
    Ok(())
}

async fn put(
    ctx: &Ctx,
    tx: &mut Tx,
    server: &ServerId,
    (kind, name): (SecretKind, &str),
    secret: &SecretText,
) -> Result<(), Error> {
    let purpose = match kind {
        SecretKind::Env => Purpose::ServerEnv,
        SecretKind::Header => Purpose::ServerHeader,
        SecretKind::ClientSecret => Purpose::ClientSecret,
    };
    let row = RowName { tenant: tx.tenant(), server: server.as_str(), name };
    let sealed = ctx.vault.seal(purpose, row, &SecretString::from(secret.expose()))?;
    // A client secret is no place for variables.
    let variables = match kind {
        SecretKind::Env | SecretKind::Header => references(secret.expose()),
        SecretKind::ClientSecret => Vec::new(),
    };
    Ok(store::servers::put_secret(tx, server, kind, name, &sealed, &variables).await?)
}
