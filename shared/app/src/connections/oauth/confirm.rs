//! The last step: the person who began says that it was they.

use domain::{Caller, Code, Error, Scope, server::AuthMode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::connections::{CredentialName, Stored};

use super::{AttemptRow, digest_of};
use crate::{
    Ctx, audit,
    connections::{
        Shown, clear::can_revoke, connected, credential::Credential, grant::Brought, list, sees,
    },
};

/// Publishes the credential that a callback brought, for the person who began, if nothing was changed
/// since. A result is spent by the first who brings it, also where that is refused.
///
/// `CONFLICT`, in the same words, for another person's, a late and a used one, and where server or
/// connection were changed meanwhile.
pub async fn confirm(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    result: &SecretString,
) -> Result<Shown, Error> {
    caller.require_scope(Scope::Approve)?;
    let now = ctx.now();
    let mut tx = ctx.begin(caller.tenant).await?;
    let unknown = || Error::not_found("server");
    let server = store::servers::hold(&mut tx, server).await?.ok_or_else(unknown)?;
    let mut connection = store::connections::lock(&mut tx, &server.id, caller.user, now).await?;
    store::oauth_attempts::hold_person(&mut tx, caller.user).await?;
    let digest = digest_of(result.expose_secret());
    let spent = store::oauth_attempts::spend(&mut tx, &server.id, digest, now).await?;
    let own = spent.filter(|attempt| attempt.user == caller.user);
    // Spent first, judged then: what was refused once is good for nothing.
    if !caller.reach.covers_source(&server.id)
        || own.is_none() && !sees(caller, &server, &connection)
    {
        tx.commit().await?;
        return Err(unknown());
    }
    let Some(attempt) = own else {
        tx.commit().await?;
        return Err(refused());
    };
    let holds = server.enabled
        && server.reach.auth_mode == AuthMode::Oauth
        && attempt.config_revision == server.config_revision
        && attempt.generation == connection.generation;
    if !holds {
        tx.commit().await?;
        return Err(refused());
    }
    let row = AttemptRow { tenant: caller.tenant, server: &server.id, attempt: attempt.id };
    let brought = Brought::read(row.open(ctx, &attempt.sealed)?.expose_secret())?;
    connection.connect(brought.grant, now);
    let name = CredentialName {
        tenant: caller.tenant,
        server: server.id.clone(),
        user: caller.user,
        generation: connection.generation,
        version: connection.version,
    };
    let sealed = Credential::Oauth(Box::new(brought.oauth)).seal(&ctx.vault, &name)?;
    store::connections::save(&mut tx, &connection, Stored::Put(&sealed)).await?;
    store::oauth_attempts::void_own(&mut tx, &server.id, caller.user).await?;
    connected(&mut tx, caller, &server, &connection).await?;
    let details = json!({ "kind": "oauth", "generation": connection.generation,
        "issuer": connection.issuer, "scopes": connection.scopes.len() });
    audit::record(ctx, &mut tx, caller, "connection.made", server.id.as_str(), details).await?;
    let revocable = can_revoke(ctx, &mut tx, caller, &server.id).await?;
    tx.commit().await?;
    Ok(Shown { revocable, ..list::shown(ctx, &server, Some(connection), None, Some(&sealed)) })
}

fn refused() -> Error {
    let words = "this sign-in cannot be confirmed: it is late, used, or not yours; begin again";
    Error::new(Code::Conflict, words)
}
