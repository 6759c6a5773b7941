//! What people read about the API: the OpenAPI document as a page, and the page of each error code.
//!
//! Both are for everybody, as the document is: they say how to ask, never what is stored here.

mod page;

use std::sync::LazyLock;

use axum::{
    Router,
    extract::Path,
    http::{HeaderName, header},
    response::IntoResponse,
    routing::get,
};
use domain::{Code, Error};

use crate::{Api, paths, problem::Problem};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(paths::DOCS, get(document))
        .route(paths::DOCS_STYLE, get(style))
        .route(paths::ERROR_PAGE, get(error_page))
}

/// Nothing but our own style sheet is loaded, and nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

const HTML: [(HeaderName, &str); 2] =
    [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];

static DOCUMENT: LazyLock<Result<String, String>> =
    LazyLock::new(|| page::render(&crate::openapi()).map_err(|error| error.to_string()));

async fn document() -> Result<impl IntoResponse, Problem> {
    let page = DOCUMENT.as_deref().map_err(|error| Error::internal(error.as_str()))?;
    Ok((HTML, page))
}

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("../assets/docs.css"))
}

/// `<CODE>.md`, as the `type` of a problem names it.
async fn error_page(path: Option<Path<String>>) -> Result<impl IntoResponse, Problem> {
    let code = path.as_ref().and_then(|Path(page)| Code::parse(page.strip_suffix(".md")?));
    let code = code.ok_or_else(|| Error::not_found("page"))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], words(code)))
}

macro_rules! pages {
    ($($code:ident = $file:literal,)*) => {
        fn words(code: Code) -> &'static str {
            match code {
                $(Code::$code => include_str!(concat!("../../docs/errors/", $file, ".md")),)*
            }
        }
    };
}

pages! {
    InvalidInput = "INVALID_INPUT",
    PermissionDenied = "PERMISSION_DENIED",
    SourceDisabled = "SOURCE_DISABLED",
    ServerChanged = "SERVER_CHANGED",
    ToolChanged = "TOOL_CHANGED",
    NotFound = "NOT_FOUND",
    ConnectionRequired = "CONNECTION_REQUIRED",
    ReconnectRequired = "RECONNECT_REQUIRED",
    CredentialsUnreadable = "CREDENTIALS_UNREADABLE",
    ServerMisconfigured = "SERVER_MISCONFIGURED",
    Unauthorized = "UNAUTHORIZED",
    InsufficientScope = "INSUFFICIENT_SCOPE",
    RateLimitQueueFull = "RATE_LIMIT_QUEUE_FULL",
    RateLimitQueueTimeout = "RATE_LIMIT_QUEUE_TIMEOUT",
    RateLimited = "RATE_LIMITED",
    Timeout = "TIMEOUT",
    UpstreamUnavailable = "UPSTREAM_UNAVAILABLE",
    UpstreamFormat = "UPSTREAM_FORMAT",
    ToolError = "TOOL_ERROR",
    ResponseTooLarge = "RESPONSE_TOO_LARGE",
    NormalizationFailed = "NORMALIZATION_FAILED",
    OauthDiscoveryFailed = "OAUTH_DISCOVERY_FAILED",
    Cancelled = "CANCELLED",
    Interrupted = "INTERRUPTED",
    Unauthenticated = "UNAUTHENTICATED",
    Denied = "DENIED",
    Conflict = "CONFLICT",
    RevisionConflict = "REVISION_CONFLICT",
    PermissionAlreadyResolved = "PERMISSION_ALREADY_RESOLVED",
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED",
    SessionArchived = "SESSION_ARCHIVED",
    BuiltIn = "BUILT_IN",
    Gone = "GONE",
    Limited = "LIMITED",
    Unavailable = "UNAVAILABLE",
    Internal = "INTERNAL",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_own_page() {
        for &code in Code::ALL {
            assert!(words(code).starts_with(&format!("# {code}\n")), "{code}");
        }
    }
}
