//! The door through which the requests of one client leave: each by the right of its authority.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError, atomic::Ordering},
};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{
    Behalf, Outgoing, Pass, Refusal, RefusalKind, SharedAuthority, Verdict, channel::Trail,
    exchange::shared_headers,
};
use crate::{
    http::{Failure, Origin, Ran, Reply, drain},
    oauth::{Challenge, asks_for_scope},
};

/// How many credentials that were lent to requests are remembered, to be masked in answers: one
/// is replaced while requests with the one before are still under way.
const LENT: usize = 8;

#[derive(Debug)]
pub(super) struct Door {
    origin: Origin,
    /// Of what the client does on its own account. `None`: whatever is sent may be.
    authority: Option<SharedAuthority>,
    /// Secrets that go out with every request.
    secrets: Vec<SecretString>,
    lent: Mutex<VecDeque<SecretString>>,
}

impl Door {
    pub(super) fn new(
        origin: Origin,
        authority: Option<SharedAuthority>,
        secrets: Vec<SecretString>,
    ) -> Self {
        Self { origin, authority, secrets, lent: Mutex::default() }
    }

    /// Asks the authority, sends, and where the credential is refused and another one is had, sends
    /// once more. A request that was refused so was not looked at.
    ///
    /// A redirect within the origin is a request of its own, with a right of its own; no redirect leads
    /// further.
    pub(super) async fn send(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
        trail: &Trail,
    ) -> Result<Reply, Failure> {
        let (authority, behalf) = match &trail.authority {
            Some(authority) => (Some(authority), Behalf::Caller(trail.pinned.as_ref())),
            None => (self.authority.as_ref(), Behalf::Client),
        };
        let Some(authority) = authority else {
            return self.origin.send(method, url, headers, body, &trail.requests).await;
        };
        let (mut url, mut again, mut redirects) = (url.clone(), false, 0);
        loop {
            let outgoing = Outgoing { method, url: &url, body, behalf };
            // What was redirected may have done something before.
            let ran = if redirects == 0 { Ran::No } else { Ran::Unknown };
            let refused = |error| Failure { error, ran };
            let pass = trail.asking(authority.authorize(outgoing)).await.map_err(refused)?;
            let headers = self.lend(headers, &pass)?;
            trail.requests.fetch_add(1, Ordering::Relaxed);
            let response = self.origin.send_once(method, &url, &headers, body).await?;
            if let Some(next) = self.origin.redirected(method, &url, &response, redirects)? {
                drain(response).await;
                (url, redirects) = (next, redirects + 1);
                continue;
            }
            let reply = Reply { response, url: url.clone() };
            let Some((kind, challenges)) = refusal(&reply) else { return Ok(reply) };
            let ran = if kind == RefusalKind::Unauthorized { Ran::No } else { Ran::Unknown };
            let refusal = Refusal { kind, challenges: &challenges, again };
            match trail.asking(authority.refused(&pass, refusal)).await {
                Ok(Verdict::Again) if !again => drain(reply.response).await,
                Ok(Verdict::Again | Verdict::Stands) => return Ok(reply),
                Err(error) => {
                    drain(reply.response).await;
                    return Err(Failure { error, ran });
                }
            }
            again = true;
        }
    }

    /// All that the server's words are masked of.
    pub(super) fn secrets(&self) -> Vec<SecretString> {
        let lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        self.secrets.iter().chain(lent.iter()).cloned().collect()
    }

    fn lend(&self, headers: &HeaderMap, pass: &Pass) -> Result<HeaderMap, Failure> {
        let mut all = headers.clone();
        if pass.headers.is_empty() {
            return Ok(all);
        }
        let own = shared_headers(&pass.headers).map_err(Failure::not_run)?;
        for name in own.keys() {
            all.remove(name);
        }
        all.extend(own);
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, secret) in &pass.headers {
            let bare = bare(secret);
            if lent.iter().all(|known| known.expose_secret() != bare) {
                lent.push_front(SecretString::from(bare));
                lent.truncate(LENT);
            }
        }
        Ok(all)
    }
}

/// A header's value without the scheme before it: that is what a server may repeat.
fn bare(value: &SecretString) -> &str {
    let value = value.expose_secret();
    value.strip_prefix("Bearer ").unwrap_or(value)
}

/// Whether the credential was refused, and with which challenges.
fn refusal(reply: &Reply) -> Option<(RefusalKind, Vec<Challenge>)> {
    let headers = reply.response.headers();
    let kind = match reply.response.status() {
        StatusCode::UNAUTHORIZED => RefusalKind::Unauthorized,
        StatusCode::FORBIDDEN if asks_for_scope(headers) => RefusalKind::InsufficientScope,
        _ => return None,
    };
    Some((kind, Challenge::all(headers)))
}
