//! The first step: find the provider, become its client, send the person there.

use domain::{
    Caller, Code, Error, Scope, Timestamp,
    connection::{ConnectionState, CredentialKind, union},
    ids::OauthAttemptId,
    limits,
    server::{OAuthSettings, Registration},
};
use outbound::oauth::{DiscoverOptions, Discovered, OAuthFailure};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use store::{Tx, oauth_attempts::NewAttempt, servers::Server};
use url::Url;

use super::{AttemptRow, Pending, client, digest_of, secret};
use crate::{
    Ctx, audit,
    connections::{hold_own, personal, still_the_same},
    idempotency,
};

/// Where the person goes now.
#[derive(Debug)]
pub struct Started {
    pub authorization_url: Url,
    pub expires_at: Timestamp,
    /// Of the cookie's name.
    pub cookie_suffix: String,
    /// The cookie's value: the callback counts from this browser alone.
    pub browser: SecretString,
}

/// Begins to connect the caller to a server, and answers where they consent. Whatever is connected stays
/// so until the new credential is confirmed.
///
/// `callback` is where the provider sends the browser back to, for exactly this server. `CONFLICT` where
/// the server is not connected by OAuth, `REVISION_CONFLICT`, `SOURCE_DISABLED`;
/// `OAUTH_DISCOVERY_FAILED` with `details.step`; `UPSTREAM_UNAVAILABLE`.
pub async fn start(
    ctx: &Ctx,
    caller: &Caller,
    server: &str,
    seen: i64,
    callback: impl Fn(&str) -> Result<Url, Error>,
) -> Result<Started, Error> {
    caller.require_scope(Scope::Approve)?;
    super::sweep(ctx, caller.tenant).await?;
    let mut tx = ctx.begin(caller.tenant).await?;
    let server = hold_own(&mut tx, caller, server).await?;
    if personal(&server)? != CredentialKind::Oauth {
        let words = "this server is connected by a secret of yours, not by signing in";
        return Err(Error::new(Code::Conflict, words));
    }
    still_the_same(&server, seen)?;
    let known = Known::load(&mut tx, caller, &server).await?;
    tx.commit().await?;

    // A registration that was forgotten must be so for the one who looks for it next.
    idempotency::before_an_effect(ctx).await?;
    let callback = callback(server.id.as_str())?;
    let settings = server.reach.oauth.clone().unwrap_or_else(no_settings);
    let url = Url::parse(&server.reach.url)
        .map_err(|_| Error::new(Code::ServerMisconfigured, "the server's address is no URL"))?;
    let options = DiscoverOptions { issuer: settings.issuer.clone(), ..Default::default() };
    let found = ctx.oauth.discover(&url, &options).await.map_err(|failure| fault(&failure))?;
    let scopes = known.scopes(&settings, &found);
    let us = client::of(ctx, caller.tenant, &server, &settings, &found.server, &callback, &scopes);
    let us = us.await?;
    let authorization =
        ctx.oauth.authorize(&found.server, &us, &callback, &found.resource, &scopes);

    let id: OauthAttemptId = ctx.mint();
    let (browser, browser_digest) = secret()?;
    let state = authorization.state.expose_secret();
    let pending = Pending {
        server: found.server,
        client: us,
        resource: found.resource,
        callback: callback.to_string(),
        scopes,
        verifier: authorization.verifier,
    };
    let row = AttemptRow { tenant: caller.tenant, server: &server.id, attempt: id };
    let sealed = pending.seal(ctx, &row)?;
    let now = ctx.now();
    let expires_at = now + limits::OAUTH_ATTEMPT_SECONDS.seconds();

    let mut tx = ctx.begin(caller.tenant).await?;
    // Server, connection, attempt: as everybody takes them.
    let present = hold_own(&mut tx, caller, server.id.as_str()).await?;
    if present.config_revision != server.config_revision || !present.enabled {
        let words = "the server was changed while the sign-in was prepared";
        return Err(Error::new(Code::RevisionConflict, words)
            .with_details(json!({ "revision": present.form_revision })));
    }
    let connection = store::connections::lock(&mut tx, &server.id, caller.user, now).await?;
    let attempt = NewAttempt {
        id,
        server: &server.id,
        user: caller.user,
        state: digest_of(state),
        browser: browser_digest,
        config_revision: server.config_revision,
        generation: connection.generation,
        issuer: &pending.server.issuer,
        callback: &pending.callback,
        sealed: &sealed,
        created_at: now,
        expires_at,
    };
    store::oauth_attempts::hold_person(&mut tx, caller.user).await?;
    store::oauth_attempts::insert(&mut tx, &attempt).await?;
    store::oauth_attempts::void_oldest(&mut tx, caller.user, limits::OAUTH_ATTEMPTS.default)
        .await?;
    let details = json!({ "attempt": id, "issuer": pending.server.issuer });
    audit::record(ctx, &mut tx, caller, "connection.started", server.id.as_str(), details).await?;
    tx.commit().await?;
    Ok(Started {
        authorization_url: authorization.url,
        expires_at,
        cookie_suffix: super::cookie_suffix(state),
        browser,
    })
}

/// What earlier connections tell.
struct Known {
    granted: Vec<String>,
    needed: Vec<String>,
}

impl Known {
    async fn load(tx: &mut Tx, caller: &Caller, server: &Server) -> Result<Self, Error> {
        store::oauth_attempts::forget_unanswered(tx, &server.id, caller.user).await?;
        let own = store::connections::find(tx, &server.id, caller.user).await?;
        let needed = own.as_ref().map(|own| own.needs_scopes.clone()).unwrap_or_default();
        let own = own.filter(|own| own.state == ConnectionState::Connected);
        Ok(Self { granted: own.map(|own| own.scopes).unwrap_or_default(), needed })
    }

    /// What the server's challenge names, else what is configured, else what the server lists; where the
    /// server asked for more than was granted, both together, and all that was granted (a step-up never
    /// loses a right).
    fn scopes(&self, settings: &OAuthSettings, found: &Discovered) -> Vec<String> {
        let base = [&found.challenge_scopes, &settings.scopes, &found.resource_scopes];
        let base = base.into_iter().find(|list| !list.is_empty()).cloned().unwrap_or_default();
        let mut scopes = if self.needed.is_empty() {
            base
        } else {
            let granted = union(&self.granted, base);
            union(&granted, self.needed.iter().cloned())
        };
        let offline = "offline_access";
        let offered = found.server.scopes_supported.iter().any(|scope| scope == offline);
        if offered && !scopes.is_empty() && !scopes.iter().any(|scope| scope == offline) {
            scopes.push(offline.to_owned());
        }
        scopes.truncate(limits::OAUTH_SCOPES.size());
        scopes
    }
}

fn no_settings() -> OAuthSettings {
    OAuthSettings {
        issuer: None,
        registration: Registration::Auto,
        client_id: String::new(),
        scopes: Vec::new(),
        client_metadata_url: None,
    }
}

/// What a person is told of a step that failed; nothing of what the provider said.
pub(super) fn fault(failure: &OAuthFailure) -> Error {
    let at = |step: &str| {
        let words = format!("the sign-in of this server cannot be used: {step}");
        Error::new(Code::OauthDiscoveryFailed, words).with_details(json!({ "step": step }))
    };
    match failure {
        OAuthFailure::Discovery { step } => at(step),
        OAuthFailure::Refused(denial) => at(&format!("registration_refused ({denial})")),
        OAuthFailure::Malformed(what) => {
            at("malformed_answer").because(Error::internal((*what).to_owned()))
        }
        OAuthFailure::Egress(error) => {
            let words = "the sign-in of this server is at an address that may not be reached";
            Error::new(Code::OauthDiscoveryFailed, words)
                .with_details(json!({ "step": "egress" }))
                .because(Error::internal(error.public.clone()))
        }
        OAuthFailure::Unavailable { error, .. } => Error::new(
            Code::UpstreamUnavailable,
            "the server or its provider cannot be reached now",
        )
        .with_details(json!({ "step": "unavailable" }))
        .because(Error::internal(error.public.clone())),
    }
}
