//! Requests to authorization servers: judged, capped, timed, and never redirected with a secret.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU32},
};

use bytes::Bytes;
use domain::limits;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use url::Url;

use super::{OAuthFailure, server};
use crate::{
    egress::Destination,
    http::{Body, Failure, GuardedHttp, Origin, Ran, status_failure},
};

/// Keeps the clients of the origins that were asked lately: ten thousand refreshes of one provider share connections.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) http: GuardedHttp,
    origins: Arc<Mutex<HashMap<(String, Destination), Origin>>>,
}

/// An answer that was read whole.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Wire {
    pub(super) fn new(http: GuardedHttp) -> Self {
        Self { http, origins: Arc::default() }
    }

    /// A client for the origin of `url`; the egress rules judge the URL now and its addresses at each new connection.
    pub(super) fn origin(
        &self,
        url: &Url,
        destination: &Destination,
    ) -> Result<Origin, OAuthFailure> {
        self.http.rules().judge_url(url, destination).map_err(OAuthFailure::Egress)?;
        let key = (url.origin().ascii_serialization(), destination.clone());
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = origins.get(&key) {
            return Ok(origin.clone());
        }
        if origins.len() >= limits::OAUTH_ORIGINS.size() {
            // Rare, and it costs no more than new connections.
            origins.clear();
        }
        let origin = self.http.open(url, destination.clone()).map_err(OAuthFailure::Egress)?;
        origins.insert(key, origin.clone());
        Ok(origin)
    }

    /// A document. Redirects within its origin are followed; the request carries nothing of value.
    pub(super) async fn get(
        &self,
        url: &Url,
        destination: &Destination,
        headers: &HeaderMap,
    ) -> Result<Answered, OAuthFailure> {
        let origin = self.origin(url, destination)?;
        let asking = async {
            let (body, sent) = (Bytes::new(), AtomicU32::new(0));
            let reply = origin.send(&Method::GET, url, headers, &body, &sent).await?;
            read(reply.response).await
        };
        timed(asking).await
    }

    /// A request with a secret to an endpoint of an authorization server. Nothing is followed.
    ///
    /// [`OAuthFailure::Unavailable`] for 5xx, 408, 425 and 429; every other status is the caller's to judge.
    pub(super) async fn post(
        &self,
        url: &Url,
        destination: &Destination,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answered, OAuthFailure> {
        server::judge(url, destination, self.http.rules())?;
        let origin = self.origin(url, destination)?;
        let asking = async {
            let response = origin.send_once(&Method::POST, url, headers, &body).await?;
            read(response).await
        };
        let answered = timed(asking).await?;
        match unavailable(&answered) {
            Some(failure) => Err(OAuthFailure::unavailable(failure)),
            None => Ok(answered),
        }
    }
}

/// A status that says no more than that another time may be better.
pub(super) fn unavailable(answered: &Answered) -> Option<Failure> {
    let status = answered.status;
    let passing = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
    // Without its body: a provider's words do not leave this module.
    passing.then(|| {
        let mut failure = status_failure(status, &answered.headers, &[]);
        // A 503 may be a proxy's word for a connection that broke after the request was through.
        if status == StatusCode::TOO_MANY_REQUESTS {
            failure.ran = Ran::No;
        }
        failure
    })
}

pub(super) fn accept_json() -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))])
}

async fn read(response: reqwest::Response) -> Result<Answered, Failure> {
    let status = response.status();
    let headers = response.headers().clone();
    let body = Body::new(response, limits::OAUTH_DOCUMENT_BYTES.default).read().await?;
    Ok(Answered { status, headers, body })
}

async fn timed(
    asking: impl Future<Output = Result<Answered, Failure>>,
) -> Result<Answered, OAuthFailure> {
    match tokio::time::timeout(limits::OAUTH_REQUEST_MS.millis(), asking).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(OAuthFailure::late()),
    }
}
