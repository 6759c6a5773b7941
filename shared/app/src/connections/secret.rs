//! Static secrets: a bearer token or an API key that a person brings along.

use domain::{
    Caller, Code, Error, Scope,
    connection::{CredentialKind, Grant},
    limits,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::connections::{CredentialName, Stored};

use super::{Shown, connected, credential::Credential, hold_own, list, personal, still_the_same};
use crate::{Ctx, audit};

/// Puts the person's own secret in, in the place of whatever was there. It is not tried out.
///
/// `CONFLICT` where the server takes no such secret, `REVISION_CONFLICT` where it was changed since the
/// form was loaded, `SOURCE_DISABLED`, `INVALID_INPUT` for what cannot stand in a header.
pub async fn put_secret(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    secret: SecretString,
    seen: i64,
) -> Result<Shown, Error> {
    caller.require_scope(Scope::Approve)?;
    check(&secret)?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = hold_own(&mut tx, caller, server).await?;
    let kind = personal(&server)?;
    if kind == CredentialKind::Oauth {
        let words = "this server is connected by signing in at its provider, not by a secret";
        return Err(Error::new(Code::Conflict, words));
    }
    still_the_same(&server, seen)?;
    let now = ctx.now();
    let mut connection = store::connections::lock(&mut tx, &server.id, caller.user, now).await?;
    connection.connect(Grant::secret(kind), now);
    let name = CredentialName {
        tenant: caller.tenant,
        server: server.id.clone(),
        user: caller.user,
        generation: connection.generation,
        version: connection.version,
    };
    let sealed = Credential::Secret(secret).seal(&ctx.vault, &name)?;
    store::connections::save(&mut tx, &connection, Stored::Put(&sealed)).await?;
    store::oauth_attempts::void_own(&mut tx, &server.id, caller.user).await?;
    connected(&mut tx, caller, &server, &connection).await?;
    let details = json!({ "kind": kind, "generation": connection.generation });
    audit::record(ctx, &mut tx, caller, "connection.made", server.id.as_str(), details).await?;
    tx.commit().await?;
    Ok(list::shown(ctx, &server, Some(connection), None, Some(&sealed)))
}

/// What can stand in a header as it is (RFC 9110, section 5.5), and is no more than a secret.
fn check(secret: &SecretString) -> Result<(), Error> {
    let text = secret.expose_secret();
    let refused = |words: String| {
        let errors = json!([{ "path": "/secret", "message": words }]);
        Err(Error::new(Code::InvalidInput, format!("the secret {words}"))
            .with_details(json!({ "errors": errors })))
    };
    if text.is_empty() {
        return refused("must not be empty".to_owned());
    }
    if text.len() > limits::CREDENTIAL_BYTES.size() {
        return refused(format!("has more than {} bytes", limits::CREDENTIAL_BYTES.default));
    }
    if !text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return refused("must consist of visible ASCII characters".to_owned());
    }
    if text.trim() != text {
        return refused("must not begin or end with a space".to_owned());
    }
    Ok(())
}
