//! The only place that builds HTTP clients.
//!
//! [`GuardedHttp::open`] gives an [`Origin`]: a client that can reach one scheme, host and port and
//! nothing else. Each new connection resolves the name, judges every address and connects to
//! judged ones only, so a name that changes its address between two looks gains nothing.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use domain::{Code, Error, limits};
use http::{HeaderMap, Method, StatusCode, header};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use url::Url;

use crate::egress::{Destination, EgressRules, Refused};
use names::Judge;

mod body;
mod failure;
mod names;

pub(crate) use body::{Body, drain, too_large};
pub(crate) use failure::status_failure;
pub use failure::{Failure, Ran};
pub use names::{Names, System};

/// Shared by everything that leaves the machine. Cheap to clone.
#[derive(Clone)]
pub struct GuardedHttp {
    rules: Arc<EgressRules>,
    names: Arc<dyn Names>,
    tls: rustls::ClientConfig,
    user_agent: String,
}

/// What the operator sets beside the egress rules.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// PEM file whose certificates are trusted beside the system's.
    pub extra_ca: Option<PathBuf>,
    /// Where the operator can be reached, for the User-Agent.
    pub contact: Option<String>,
    /// Who answers for names.
    pub names: Arc<dyn Names>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { extra_ca: None, contact: None, names: Arc::new(System) }
    }
}

impl GuardedHttp {
    /// Fails where `extra_ca` cannot be read, holds no certificate, or the contact is no header text.
    pub fn new(rules: EgressRules, options: &HttpOptions) -> Result<Self, Error> {
        let version = env!("CARGO_PKG_VERSION");
        let user_agent = match &options.contact {
            Some(contact) => format!("bailiwick/{version} (+{contact})"),
            None => format!("bailiwick/{version}"),
        };
        http::HeaderValue::from_str(&user_agent)
            .map_err(|error| setting("the contact cannot stand in a header", error))?;
        let names = Arc::clone(&options.names);
        Ok(Self { rules: Arc::new(rules), names, tls: tls(options)?, user_agent })
    }

    #[must_use]
    pub fn rules(&self) -> &EgressRules {
        &self.rules
    }

    /// A client for the origin of `url`. No network yet.
    ///
    /// Refused with `SERVER_MISCONFIGURED` where [`EgressRules::judge_url`] refuses.
    pub fn open(&self, url: &Url, destination: Destination) -> Result<Origin, Error> {
        self.rules.judge_url(url, &destination)?;
        let (host, port) = url.host_str().zip(url.port_or_known_default()).ok_or(Refused::Form)?;
        let resolver = Judge {
            rules: Arc::clone(&self.rules),
            names: Arc::clone(&self.names),
            host: host.to_owned(),
            port,
            destination,
        };
        #[expect(clippy::cast_possible_truncation, reason = "64 KiB")]
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .dns_resolver(Arc::new(resolver))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(&self.user_agent)
            .connect_timeout(limits::CONNECT_TIMEOUT_MS.millis())
            .pool_idle_timeout(limits::CONNECTION_IDLE_MS.millis())
            .http2_max_header_list_size(limits::HEADER_BYTES.size() as u32)
            .build()
            .map_err(Error::internal)?;
        Ok(Origin { client, url: url.clone() })
    }
}

impl std::fmt::Debug for GuardedHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardedHttp").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A client that reaches one origin. Keeps its connections; cheap to clone.
#[derive(Debug, Clone)]
pub struct Origin {
    client: reqwest::Client,
    url: Url,
}

/// An answer whose body was not read yet.
pub struct Reply {
    pub response: reqwest::Response,
    /// Where it came from, after redirects within the origin.
    pub url: Url,
}

impl Origin {
    /// Sends one request; adds to `sent` for each request that goes out.
    ///
    /// Within the origin a GET follows any redirect and others 307 and 308, at most [`limits::REDIRECTS`] times; any other
    /// redirect is `UPSTREAM_FORMAT`, so that no header of ours ever reaches another origin.
    pub async fn send(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
        sent: &AtomicU32,
    ) -> Result<Reply, Failure> {
        let (mut url, mut redirects) = (url.clone(), 0);
        loop {
            sent.fetch_add(1, Ordering::Relaxed);
            let response = self.send_once(method, &url, headers, body).await?;
            match self.redirected(method, &url, &response, redirects)? {
                None => return Ok(Reply { response, url }),
                Some(next) => (url, redirects) = (next, redirects + 1),
            }
        }
    }

    /// Sends one request and follows nothing: a redirect is an answer like any other. For requests whose body is a secret.
    pub(crate) async fn send_once(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<reqwest::Response, Failure> {
        if url.origin() != self.url.origin() {
            return Err(Failure::not_run(Error::internal("request beyond the client's origin")));
        }
        let response = self
            .client
            .request(method.clone(), url.clone())
            .headers(headers.clone())
            .body(body.clone())
            .send()
            .await
            .map_err(Failure::from_reqwest)?;
        // Of HTTP/2 the client itself keeps that limit.
        if header_bytes(response.headers()) > limits::HEADER_BYTES.size() {
            return Err(failure::format("the server's headers are larger than the limit"));
        }
        Ok(response)
    }

    /// Where an answer redirects to, after `before` redirects; `None`: nowhere. For who sends each hop as a request of
    /// its own.
    pub(crate) fn redirected(
        &self,
        method: &Method,
        url: &Url,
        response: &reqwest::Response,
        before: u64,
    ) -> Result<Option<Url>, Failure> {
        let status = response.status();
        if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        if before >= limits::REDIRECTS.default {
            return Err(failure::format("the server redirects in a circle"));
        }
        let keeps_method = *method == Method::GET
            || matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        response
            .headers()
            .get(header::LOCATION)
            .and_then(|location| location.to_str().ok())
            .and_then(|location| url.join(location).ok())
            .filter(|next| keeps_method && next.origin() == self.url.origin())
            .map(Some)
            .ok_or_else(|| failure::format("the server redirects elsewhere"))
    }
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// One TLS configuration for all clients: the system's roots are read once.
fn tls(options: &HttpOptions) -> Result<rustls::ClientConfig, Error> {
    let extra: Vec<CertificateDer<'static>> = match &options.extra_ca {
        None => Vec::new(),
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| setting("the extra CA file cannot be read", error))?,
    };
    if options.extra_ca.is_some() && extra.is_empty() {
        return Err(Error::new(
            Code::ServerMisconfigured,
            "the extra CA file holds no certificate",
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Error::internal)?;
    let mut config = match rustls_platform_verifier::Verifier::new_with_extra_roots(extra, provider)
    {
        Ok(verifier) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth(),
        Err(error) => {
            // A slim container: plain http still works, every https connection will fail.
            tracing::warn!(%error, "this machine has no trusted certificates");
            builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn setting(words: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Code::ServerMisconfigured, words).because(error)
}
