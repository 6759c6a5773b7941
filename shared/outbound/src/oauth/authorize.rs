//! The authorization request (RFC 6749, section 4.1.1; RFC 7636; RFC 8707).

use oauth2::{
    AuthUrl, ClientId, CsrfToken, PkceCodeChallenge, RedirectUrl, Scope, basic::BasicClient,
};
use secrecy::SecretString;
use url::Url;

use super::{Authorization, AuthorizationServer, Client};

/// Bytes of state and verifier.
const RANDOM_BYTES: u32 = 32;

pub(super) fn authorize(
    server: &AuthorizationServer,
    client: &Client,
    redirect_uri: &Url,
    resource: Option<&str>,
    scopes: &[String],
) -> Authorization {
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256_len(RANDOM_BYTES);
    let oauth = BasicClient::new(ClientId::new(client.client_id.clone()))
        .set_auth_uri(AuthUrl::from_url(server.authorization_endpoint.clone()))
        .set_redirect_uri(RedirectUrl::from_url(redirect_uri.clone()));
    let mut request = oauth
        .authorize_url(|| CsrfToken::new_random_len(RANDOM_BYTES))
        .set_pkce_challenge(challenge)
        .add_scopes(scopes.iter().cloned().map(Scope::new));
    if let Some(resource) = resource {
        request = request.add_extra_param("resource", resource.to_owned());
    }
    if scopes.iter().any(|scope| scope == "offline_access") {
        // OpenID Connect Core, section 11: without it the scope is ignored.
        request = request.add_extra_param("prompt", "consent");
    }
    let (url, state) = request.url();
    Authorization {
        url,
        state: SecretString::from(state.into_secret()),
        verifier: SecretString::from(verifier.into_secret()),
    }
}
