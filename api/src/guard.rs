//! What every request passes before routing: a request id, our Host, our Origin; and the headers that
//! every answer carries.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
};

use axum::{
    extract::{ConnectInfo, FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use domain::{Code, Error, web_session::Network};
use url::Url;
use uuid::Uuid;

use crate::{Api, NodeSettings, console::cookie, problem};

tokio::task_local! {
    static REQUEST_ID: String;
}

/// The id of the request that this task serves; empty outside one.
#[must_use]
pub fn request_id() -> String {
    REQUEST_ID.try_with(Clone::clone).unwrap_or_default()
}

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Gives the request an id of ours and the answer its safety headers.
pub(crate) async fn stamp(request: Request, next: Next) -> Response {
    let id = Uuid::new_v4().to_string();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = REQUEST_ID.scope(id.clone(), next.run(request)).await;
    let (status, route) = (response.status(), route.as_ref().map(MatchedPath::as_str));
    if status.is_server_error() {
        tracing::info!(request_id = id, %method, route, status = status.as_u16(), "request failed");
    } else {
        tracing::debug!(request_id = id, %method, route, status = status.as_u16(), "request ended");
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(X_REQUEST_ID, id);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A foreign Host is 421, a foreign Origin 403, both before authentication: neither a rebound name
/// nor another site's page gets further. An unsafe request with the cookie of a browser session must
/// prove besides that a page of ours sent it.
pub(crate) async fn check_host_and_origin(
    State(api): State<Api>,
    request: Request,
    next: Next,
) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match hosts.next() {
        Some(host) => host.to_str().ok(),
        None => request.uri().authority().map(http::uri::Authority::as_str),
    };
    // Of two nobody knows which one whoever stands before us went by (RFC 9112, section 3.2).
    if hosts.next().is_some() || !host.is_some_and(|host| api.node.is_ours(host)) {
        let error = Error::new(Code::NotFound, "this node does not answer for that host");
        return problem::render(&error, StatusCode::MISDIRECTED_REQUEST);
    }
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    if !origins.all(|origin| origin.to_str().is_ok_and(|origin| api.node.is_our_origin(origin))) {
        let error = Error::new(Code::Denied, "requests from another origin are refused");
        return problem::render(&error, StatusCode::FORBIDDEN);
    }
    let by_cookie = cookie::sent(request.headers(), &api.node).is_some();
    if by_cookie && !request.method().is_safe() && !is_from_our_page(request.headers()) {
        return not_from_our_page();
    }
    next.run(request).await
}

/// For forms of pages, with or without a session: nobody is signed in as somebody else by another
/// site's form.
pub(crate) async fn forms_from_our_pages(request: Request, next: Next) -> Response {
    if !request.method().is_safe() && !is_from_our_page(request.headers()) {
        return not_from_our_page();
    }
    next.run(request).await
}

/// Whether a browser says that a page of our origin sent this. An Origin that is there was found to be
/// ours before. A browser that says neither (none of the last six years) is refused:
/// docs/decisions/0009.
fn is_from_our_page(headers: &HeaderMap) -> bool {
    match headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => headers.contains_key(header::ORIGIN),
    }
}

fn not_from_our_page() -> Response {
    let words = "a request of a browser session must come from a page of ours";
    problem::render(&Error::new(Code::Denied, words), StatusCode::FORBIDDEN)
}

/// Where a request comes from: the peer, or what the proxies before us say of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) network: Network,
}

impl FromRequestParts<Api> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let address = peer.map(|peer| api.node.client_of(peer, &parts.headers));
        Ok(Self { network: address.map_or(Network::UNKNOWN, Network::from) })
    }
}

impl NodeSettings {
    /// Each proxy appends whom it heard: the last that is no proxy of ours is the client. What stands
    /// before it anybody may have written.
    fn client_of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let forwarded: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .collect();
        for heard in forwarded.into_iter().rev() {
            if !self.trusted_proxies.iter().any(|proxies| proxies.contains(&client)) {
                return client;
            }
            let Ok(heard) = heard.trim().parse::<IpAddr>() else { return client };
            client = heard.to_canonical();
        }
        client
    }

    /// `host[:port]` as in Host; the port of the scheme may be left out.
    fn is_ours(&self, host: &str) -> bool {
        let host = host.trim().to_ascii_lowercase();
        authorities(&self.public_url).any(|ours| ours == host)
            || self.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&host))
    }

    fn is_our_origin(&self, origin: &str) -> bool {
        let Ok(origin) = Url::parse(origin) else { return false };
        origin.origin() == self.public_url.origin()
            || authorities(&origin).any(|one| {
                self.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&one))
            })
    }
}

/// `host` and `host:port`, as far as they mean this URL.
fn authorities(url: &Url) -> impl Iterator<Item = String> {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    let with_port = url.port_or_known_default().map(|port| format!("{host}:{port}"));
    let bare = url.port().is_none().then_some(host);
    bare.into_iter().chain(with_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_whom_the_last_proxy_of_ours_heard() {
        let node = NodeSettings {
            public_url: "https://bailiwick.example".parse().unwrap(),
            allowed_hosts: Vec::new(),
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
        };
        for (peer, forwarded, client) in [
            ("192.0.2.1", "", "192.0.2.1"),
            ("192.0.2.1", "198.51.100.1", "192.0.2.1"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
            ("::ffff:10.0.0.1", "203.0.113.9, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
            ("10.0.0.1", "198.51.100.1, unknown", "10.0.0.1"),
            ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
        ] {
            let mut headers = HeaderMap::new();
            if !forwarded.is_empty() {
                headers.insert("x-forwarded-for", forwarded.parse().unwrap());
            }
            let found = node.client_of(peer.parse().unwrap(), &headers);
            assert_eq!(found.to_string(), client, "{peer} {forwarded}");
        }
    }

    #[test]
    fn a_browser_says_whose_page_it_was() {
        let is_ours = |pairs: &[(&'static str, &str)]| {
            let pairs = pairs.iter();
            let headers =
                pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            is_from_our_page(&headers.collect())
        };
        let origin = ("origin", "https://bailiwick.example");
        assert!(is_ours(&[origin]));
        assert!(is_ours(&[("sec-fetch-site", "same-origin")]));
        assert!(is_ours(&[origin, ("sec-fetch-site", "same-origin")]));
        assert!(!is_ours(&[]));
        for site in ["none", "same-site", "cross-site", ""] {
            assert!(!is_ours(&[("sec-fetch-site", site)]), "{site}");
            assert!(!is_ours(&[origin, ("sec-fetch-site", site)]), "{site}");
        }
    }
}
