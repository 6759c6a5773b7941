//! Code exchange, refresh and revocation, by `oauth2` over our HTTP.

use std::borrow::Cow;

use bytes::Bytes;
use domain::Error;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, StatusCode, header};
use oauth2::{
    AuthType, AuthorizationCode, ClientId, ClientSecret, EndpointNotSet, EndpointSet,
    ExtraTokenFields, HttpRequest, HttpResponse, PkceCodeVerifier, RedirectUrl, RefreshToken,
    RequestTokenError, RevocationUrl, StandardRevocableToken, StandardTokenResponse, TokenResponse,
    TokenUrl,
    basic::{
        BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse,
        BasicTokenType,
    },
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    AuthMethod, AuthorizationServer, Client, Denial, OAuthFailure, Tokens, answer, wire::Wire,
};

/// What a token endpoint gives besides (OpenID Connect Core, section 3.1.3.3).
#[derive(Debug, Serialize, Deserialize)]
struct Besides {
    id_token: Option<String>,
}

impl ExtraTokenFields for Besides {}

type Answered = StandardTokenResponse<Besides, BasicTokenType>;

type Oauth = oauth2::Client<
    BasicErrorResponse,
    Answered,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// One client at one authorization server.
pub(super) struct Grant<'a> {
    pub(super) wire: &'a Wire,
    pub(super) server: &'a AuthorizationServer,
    pub(super) client: &'a Client,
}

impl Grant<'_> {
    pub(super) async fn exchange(
        &self,
        redirect_uri: &Url,
        resource: Option<&str>,
        code: &SecretString,
        verifier: &SecretString,
    ) -> Result<Tokens, OAuthFailure> {
        let redirect = RedirectUrl::from_url(redirect_uri.clone());
        let oauth = self.oauth();
        let mut request = oauth
            .exchange_code(AuthorizationCode::new(code.expose_secret().to_owned()))
            .set_pkce_verifier(PkceCodeVerifier::new(verifier.expose_secret().to_owned()))
            .set_redirect_uri(Cow::Owned(redirect));
        if let Some(resource) = resource {
            request = request.add_extra_param("resource", resource);
        }
        let answered =
            request.request_async(&self.sender(&self.server.token_endpoint, false)).await;
        tokens(&answered.map_err(failed)?)
    }

    pub(super) async fn refresh(
        &self,
        resource: &str,
        refresh_token: &SecretString,
    ) -> Result<Tokens, OAuthFailure> {
        let oauth = self.oauth();
        let refresh_token = RefreshToken::new(refresh_token.expose_secret().to_owned());
        let answered = oauth
            .exchange_refresh_token(&refresh_token)
            .add_extra_param("resource", resource)
            .request_async(&self.sender(&self.server.token_endpoint, false))
            .await;
        tokens(&answered.map_err(failed)?)
    }

    pub(super) async fn revoke(&self, token: &SecretString) -> Result<(), OAuthFailure> {
        let endpoint = self.server.revocation_endpoint.as_ref();
        let endpoint = endpoint.ok_or(OAuthFailure::Malformed("it offers no revocation"))?;
        // The library insists on https here. Whether plain http will do is decided by `server::judge`, like for every
        // other endpoint, and the request goes to the endpoint as it is.
        let mut named = endpoint.clone();
        if named.scheme() == "http" && named.set_scheme("https").is_err() {
            return Err(OAuthFailure::Malformed("its revocation endpoint is no URL"));
        }
        let oauth = self.oauth().set_revocation_url(RevocationUrl::from_url(named));
        let token = RefreshToken::new(token.expose_secret().to_owned());
        let request = oauth
            .revoke_token(StandardRevocableToken::RefreshToken(token))
            .map_err(|error| OAuthFailure::Egress(Error::internal(error)))?;
        request.request_async(&self.sender(endpoint, true)).await.map_err(failed)
    }

    fn oauth(&self) -> Oauth {
        let client_id = ClientId::new(self.client.client_id.clone());
        let mut oauth = oauth2::Client::new(client_id)
            .set_token_uri(TokenUrl::from_url(self.server.token_endpoint.clone()))
            .set_auth_type(match self.client.auth_method {
                AuthMethod::Basic => AuthType::BasicAuth,
                AuthMethod::Post | AuthMethod::None => AuthType::RequestBody,
            });
        let secret = self.client.client_secret.as_ref();
        if let Some(secret) = secret.filter(|_| self.client.auth_method.needs_secret()) {
            oauth = oauth.set_client_secret(ClientSecret::new(secret.expose_secret().to_owned()));
        }
        oauth
    }

    /// Sends what the library wants sent. It owns all that it needs: a future that borrowed would not be
    /// `Send` for every lifetime that the library's trait asks for.
    fn sender(
        &self,
        endpoint: &Url,
        success_is_enough: bool,
    ) -> impl Fn(HttpRequest) -> BoxFuture<'static, Result<HttpResponse, OAuthFailure>> {
        let (wire, endpoint) = (self.wire.clone(), endpoint.clone());
        let destination = self.server.destination();
        move |request| {
            let (wire, endpoint, destination) =
                (wire.clone(), endpoint.clone(), destination.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = Bytes::from(body);
                let answered = wire.post(&endpoint, &destination, &parts.headers, body).await?;
                if success_is_enough && answered.status.is_success() {
                    return Ok(response(StatusCode::OK, Vec::new()));
                }
                answer::canonical(&answered)
            }
            .boxed()
        }
    }
}

/// An answer as `oauth2` reads it.
pub(super) fn response(status: StatusCode, body: Vec<u8>) -> HttpResponse {
    let mut response = HttpResponse::new(body);
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn tokens(answered: &Answered) -> Result<Tokens, OAuthFailure> {
    let secret = |text: &str| SecretString::from(text.to_owned());
    let access_token = answered.access_token().secret();
    // It goes into a header (RFC 6750, section 2.1).
    if access_token.is_empty() || !access_token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(OAuthFailure::Malformed("its access token cannot stand in a header"));
    }
    Ok(Tokens {
        access_token: secret(access_token),
        refresh_token: answered.refresh_token().map(|token| secret(token.secret())),
        id_token: answered.extra_fields().id_token.as_deref().map(secret),
        expires_in: answered.expires_in(),
        scopes: answered
            .scopes()
            .map(|scopes| scopes.iter().map(|scope| scope.to_string()).collect()),
    })
}

fn failed<T>(error: RequestTokenError<OAuthFailure, T>) -> OAuthFailure
where
    T: oauth2::ErrorResponse + Named + 'static,
{
    match error {
        RequestTokenError::Request(failure) => failure,
        RequestTokenError::ServerResponse(answer) => OAuthFailure::Refused(answer.denial()),
        // Either may hold a piece of the answer.
        RequestTokenError::Parse(..) | RequestTokenError::Other(_) => {
            OAuthFailure::Malformed("it is no answer of a token endpoint")
        }
    }
}

/// An error answer that names its code.
trait Named {
    fn denial(&self) -> Denial;
}

impl<T: oauth2::ErrorResponseType + AsRef<str>> Named for oauth2::StandardErrorResponse<T> {
    fn denial(&self) -> Denial {
        Denial::named(self.error().as_ref())
    }
}
