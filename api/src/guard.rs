//! What every request passes before routing: a request id, our Host, our Origin; and the headers that
//! every answer carries.

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use domain::{Code, Error};
use url::Url;
use uuid::Uuid;

use crate::{Api, NodeSettings, problem};

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
    let mut response = REQUEST_ID.scope(id.clone(), next.run(request)).await;
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(X_REQUEST_ID, id);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A foreign Host is 421, a foreign Origin 403, both before authentication: neither a rebound name
/// nor another site's page gets further.
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
    next.run(request).await
}

impl NodeSettings {
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
