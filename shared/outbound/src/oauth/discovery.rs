//! From an MCP server to its authorization server.
//!
//! rmcp walks the places where documents may be, in the order of the MCP specification. What each answer is worth is
//! decided here, between rmcp and the network ([`Walk`]): which addresses may be asked, which 200 is the document, whose
//! metadata it is, and which of the listed authorization servers is taken.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::limits;
use http::StatusCode;
use oauth2::HttpResponse;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadataSource, OAuthHttpClient,
    OAuthHttpClientFuture, OAuthHttpRequest,
};
use serde_json::{Value, json};
use url::Url;

use super::{
    AuthorizationServer, Challenge, DiscoverOptions, Discovered, OAuthFailure,
    grant::response,
    probe, server, step,
    wire::{Answered, Wire, unavailable},
};
use crate::egress::Destination;

const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";

pub(super) async fn discover(
    wire: &Wire,
    server: &Url,
    options: &DiscoverOptions,
) -> Result<Discovered, OAuthFailure> {
    let challenge = match &options.challenge {
        Some(text) => Challenge::parse(text),
        None => probe::challenge(wire, server).await?,
    };
    let challenge = challenge.unwrap_or_default();
    let advertised = challenge.resource_metadata.as_deref().and_then(|url| server.join(url).ok());
    let walk = Arc::new(Walk {
        wire: wire.clone(),
        server: server.clone(),
        advertised: advertised.clone(),
        issuer: options.issuer.clone(),
        seen: Mutex::default(),
    });
    // Written anew, so that rmcp's reading of the header is ours: the URL and nothing besides.
    let told = advertised.map(|url| format!(r#"Bearer resource_metadata="{url}""#));
    let client: Arc<dyn OAuthHttpClient> = Arc::<Walk>::clone(&walk);
    let walking = async {
        let rmcp =
            AuthorizationManager::new_with_oauth_http_client(server.as_str(), client).await?;
        rmcp.resolve_metadata_from_challenge(told.as_deref()).await
    };
    let walked = walking.await;
    let seen = std::mem::take(&mut *walk.seen());
    if let Some(failure) = seen.failure {
        return Err(failure);
    }
    let found = walked.map_err(|error| step_of(&error)).and_then(|resolved| {
        let nothing = resolved.source == AuthorizationMetadataSource::LegacyEndpointFallback;
        if nothing { Err(step::DISCOVERED_NOTHING) } else { Ok(resolved.metadata) }
    });
    let metadata = match found {
        Ok(metadata) => metadata,
        Err(step) => {
            let passing = seen.passing.map(OAuthFailure::unavailable);
            return Err(passing.unwrap_or(OAuthFailure::Discovery { step }));
        }
    };
    let chosen = seen.resource.as_ref().map(|resource| resource.issuer.as_str());
    let asked = chosen.or(options.issuer.as_deref());
    let named = metadata.issuer.as_deref().unwrap_or_default();
    if asked.is_some_and(|asked| !server::same_issuer(named, asked)) {
        let step = if chosen.is_some() { step::ISSUER_MISMATCH } else { step::ISSUER_NOT_LISTED };
        return Err(OAuthFailure::at(step));
    }
    let configured_host = walk.configured_host();
    let found = AuthorizationServer::new(metadata, configured_host, wire.http.rules())?;
    let (resource, resource_scopes) = match seen.resource {
        Some(resource) => (resource.identifier, resource.scopes),
        None => (server.to_string(), Vec::new()),
    };
    Ok(Discovered { resource, server: found, challenge_scopes: challenge.scopes, resource_scopes })
}

/// Stands between rmcp and the network for one discovery.
struct Walk {
    wire: Wire,
    server: Url,
    /// Where the challenge says that the resource metadata is.
    advertised: Option<Url>,
    /// The configured one.
    issuer: Option<String>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// What ended the walk, where it was not rmcp.
    failure: Option<OAuthFailure>,
    /// A 429 or the like: passed over like any 4xx, but it is why nothing was found.
    passing: Option<crate::http::Failure>,
    resource: Option<Resource>,
    /// Some document described another resource: what follows is no ground to send a person anywhere.
    mismatched: bool,
    /// rmcp asks some addresses twice.
    answers: HashMap<Url, HttpResponse>,
}

/// What was taken from the resource metadata.
struct Resource {
    identifier: String,
    issuer: String,
    scopes: Vec<String>,
}

impl OAuthHttpClient for Walk {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let asked = request.request.uri().to_string();
            match self.answer(&asked, request.request.headers()).await {
                Ok(response) => Ok(response),
                Err(failure) => {
                    let words = failure.to_string();
                    self.seen().failure.get_or_insert(failure);
                    Err(words.into())
                }
            }
        })
    }
}

impl Walk {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(
        &self,
        asked: &str,
        headers: &http::HeaderMap,
    ) -> Result<HttpResponse, OAuthFailure> {
        let url: Url = asked.parse().map_err(|_| OAuthFailure::at(step::INSECURE_URL))?;
        if url == self.server {
            // rmcp looks for a challenge by GET, which would open a stream at an HTTP+SSE server; we asked by ourselves.
            return Ok(response(StatusCode::METHOD_NOT_ALLOWED, Vec::new()));
        }
        if let Some(answer) = self.seen().answers.get(&url) {
            return Ok(answer.clone());
        }
        let describes_resource = self.advertised.as_ref() == Some(&url)
            || url.origin() == self.server.origin() && url.path().starts_with(RESOURCE_METADATA);
        let answer = if describes_resource {
            let document = self.document(&url, self.server_host(), headers).await?;
            document.map(|document| self.resource(&url, &document)).transpose()?.flatten()
        } else {
            if self.seen().mismatched {
                return Err(OAuthFailure::at(step::RESOURCE_MISMATCH));
            }
            // The server's own origin is configured, whatever the issuer is.
            let ours = url.origin() == self.server.origin();
            let host = if ours { self.server_host() } else { self.configured_host() };
            let document = self.document(&url, host, headers).await?;
            document.filter(is_server_metadata)
        };
        let answer = match answer {
            Some(document) => response(StatusCode::OK, document.to_string().into_bytes()),
            None => response(StatusCode::NOT_FOUND, Vec::new()),
        };
        self.seen().answers.insert(url, answer.clone());
        Ok(answer)
    }

    /// The JSON object at `url`; `None` for whatever means that the next place is tried.
    async fn document(
        &self,
        url: &Url,
        configured_host: String,
        headers: &http::HeaderMap,
    ) -> Result<Option<Value>, OAuthFailure> {
        let destination = Destination::Learned { configured_host };
        // The server's own origin is as secure as whoever configured it wants.
        if url.origin() != self.server.origin() {
            server::judge(url, &destination, self.wire.http.rules())?;
        }
        let mut headers = headers.clone();
        headers.extend(super::wire::accept_json());
        let answered = match self.wire.get(url, &destination, &headers).await {
            Ok(answered) => answered,
            // Too large, redirected elsewhere (to a page for signing in, say): not the document.
            Err(OAuthFailure::Malformed(_)) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let Answered { status, body, .. } = &answered;
        if let Some(failure) = unavailable(&answered) {
            if status.is_server_error() {
                return Err(OAuthFailure::unavailable(failure));
            }
            self.seen().passing.get_or_insert(failure);
        }
        if *status != StatusCode::OK {
            return Ok(None);
        }
        Ok(serde_json::from_slice(body).ok().filter(Value::is_object))
    }

    /// Resource metadata, with the one authorization server that is to be asked; `None` where it is another document.
    fn resource(&self, url: &Url, document: &Value) -> Result<Option<Value>, OAuthFailure> {
        let Some(identifier) = document.get("resource").and_then(Value::as_str) else {
            return Ok(None);
        };
        if !describes(identifier, &self.server) {
            if self.advertised.as_ref() == Some(url) {
                return Err(OAuthFailure::at(step::RESOURCE_MISMATCH));
            }
            self.seen().mismatched = true;
            return Ok(None);
        }
        let listed = document.get("authorization_servers").and_then(Value::as_array);
        let listed: Vec<&str> = listed
            .into_iter()
            .flatten()
            .take(limits::OAUTH_SERVERS_LISTED.size())
            .filter_map(Value::as_str)
            .collect();
        let issuer = match &self.issuer {
            _ if listed.is_empty() => return Err(OAuthFailure::at(step::NO_AUTHORIZATION_SERVER)),
            Some(issuer) => listed
                .into_iter()
                .find(|one| server::same_issuer(one, issuer))
                .ok_or(OAuthFailure::at(step::ISSUER_NOT_LISTED))?,
            None => listed[0],
        };
        let parsed: Url =
            issuer.parse().map_err(|_| OAuthFailure::at(step::NO_AUTHORIZATION_SERVER))?;
        let destination = Destination::Learned { configured_host: self.configured_host() };
        if parsed.query().is_some() {
            return Err(OAuthFailure::at(step::NO_AUTHORIZATION_SERVER));
        }
        server::judge(&parsed, &destination, self.wire.http.rules())?;
        let resource = Resource {
            identifier: identifier.to_owned(),
            issuer: issuer.to_owned(),
            scopes: server::strings(document.get("scopes_supported")),
        };
        // rmcp compares `resource` once more, with another idea of a slash at the end.
        let narrowed = json!({"resource": self.server, "authorization_servers": [issuer]});
        let mut seen = self.seen();
        seen.mismatched = false;
        seen.resource = Some(resource);
        Ok(Some(narrowed))
    }

    fn server_host(&self) -> String {
        self.server.host_str().unwrap_or_default().to_owned()
    }

    /// Whoever configured the issuer configured its host.
    fn configured_host(&self) -> String {
        let issuer = self.issuer.as_deref().and_then(|issuer| issuer.parse::<Url>().ok());
        issuer.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or(self.server_host())
    }
}

/// Whether a resource identifier means this server (RFC 9728, section 3.3; RFC 8707): its origin, and its path or a
/// path above it.
fn describes(identifier: &str, server: &Url) -> bool {
    let Ok(resource) = identifier.parse::<Url>() else { return false };
    let above = resource.path().trim_end_matches('/');
    let below = server.path().strip_prefix(above);
    resource.fragment().is_none()
        && resource.origin() == server.origin()
        && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Metadata of an authorization server names these two; another page that happens to be JSON does not.
fn is_server_metadata(document: &Value) -> bool {
    ["authorization_endpoint", "token_endpoint"].iter().all(|name| document[*name].is_string())
}

fn step_of(error: &AuthError) -> &'static str {
    match error {
        AuthError::AuthorizationServerMismatch { .. }
        | AuthError::AuthorizationServerMissingIssuer { .. } => step::ISSUER_MISMATCH,
        AuthError::AuthorizationServersUnavailable { .. } => step::AUTHORIZATION_SERVER_METADATA,
        AuthError::ProtectedResourceMetadataInvalid { .. } => step::RESOURCE_MISMATCH,
        _ => step::DISCOVERED_NOTHING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_describes_the_paths_below_it_segment_by_segment() {
        let server: Url = "https://a.test/mcp/tools".parse().unwrap();
        for identifier in [
            "https://a.test",
            "https://a.test/",
            "https://A.test:443/mcp",
            "https://a.test/mcp/",
            "https://a.test/mcp/tools",
            "https://a.test/mcp/tools/",
            "https://a.test/mcp?tenant=1",
        ] {
            assert!(describes(identifier, &server), "{identifier}");
        }
        for identifier in [
            "https://a.test/mc",
            "https://a.test/mcp/tools/more",
            "https://a.test/mcp/tool",
            "https://a.test/other",
            "http://a.test/mcp",
            "https://a.test:444/mcp",
            "https://b.test/mcp",
            "https://a.test/mcp#x",
            "mcp",
            "",
        ] {
            assert!(!describes(identifier, &server), "{identifier}");
        }
    }
}
