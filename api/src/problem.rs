//! `domain::Error` as problem+json (RFC 9457).

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::{Code, Error, Retry};
use serde::Serialize;
use serde_json::Value;

const PROBLEM_JSON: &str = "application/problem+json";

/// What a handler answers when it cannot do what was asked.
#[derive(Debug)]
pub struct Problem(pub Error);

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

/// The body of every error answer (RFC 9457), media type `application/problem+json`.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemBody {
    /// The page that explains the code.
    #[schema(example = "/docs/errors/NOT_FOUND.md")]
    pub r#type: String,
    pub title: String,
    pub status: u16,
    #[schema(example = "NOT_FOUND")]
    pub code: String,
    pub detail: String,
    /// Also in the header `x-request-id`; names the request in our log.
    pub request_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<Value>,
}

/// For the OpenAPI document: what every route that takes a token may answer.
#[derive(Debug, utoipa::IntoResponses)]
pub enum Refused {
    /// No usable token.
    #[response(status = 401, content_type = PROBLEM_JSON)]
    Unauthenticated(ProblemBody),
    /// Not for this token, this person or this Origin.
    #[response(status = 403, content_type = PROBLEM_JSON)]
    Denied(ProblemBody),
    /// Host is not a name of this node.
    #[response(status = 421, content_type = PROBLEM_JSON)]
    Misdirected(ProblemBody),
    /// The database, or the key of the stored secrets, is out of reach.
    #[response(status = 503, content_type = PROBLEM_JSON)]
    Unavailable(ProblemBody),
}

/// For the OpenAPI document, of a route that names a thing.
#[derive(Debug, utoipa::IntoResponses)]
pub enum Missing {
    /// There is no such thing, or the caller may not know of it.
    #[response(status = 404, content_type = PROBLEM_JSON)]
    NotFound(ProblemBody),
}

/// For the OpenAPI document, of a route that what stands already can forbid.
#[derive(Debug, utoipa::IntoResponses)]
pub enum Conflicting {
    /// The state of things does not allow this.
    #[response(status = 409, content_type = PROBLEM_JSON)]
    Conflict(ProblemBody),
}

/// For the OpenAPI document, of a list.
#[derive(Debug, utoipa::IntoResponses)]
pub enum BadQuery {
    /// The query does not fit this route.
    #[response(status = 422, content_type = PROBLEM_JSON)]
    Invalid(ProblemBody),
}

/// For the OpenAPI document, of a route that takes a body.
#[derive(Debug, utoipa::IntoResponses)]
pub enum BadBody {
    /// The body did not arrive in time.
    #[response(status = 408, content_type = PROBLEM_JSON)]
    Late(ProblemBody),
    /// The body is too large.
    #[response(status = 413, content_type = PROBLEM_JSON)]
    TooLarge(ProblemBody),
    /// The body is not `application/json`.
    #[response(status = 415, content_type = PROBLEM_JSON)]
    NotJson(ProblemBody),
    /// The body does not fit.
    #[response(status = 422, content_type = PROBLEM_JSON)]
    Invalid(ProblemBody),
}

/// For the OpenAPI document, of a route that takes so many attempts and then makes one wait.
#[derive(Debug, utoipa::IntoResponses)]
pub enum TooMany {
    /// Too many attempts: `Retry-After` says when there is another.
    #[response(status = 429, content_type = PROBLEM_JSON)]
    Limited(ProblemBody),
}

/// For the OpenAPI document, of a route that makes calls.
#[derive(Debug, utoipa::IntoResponses)]
pub enum Busy {
    /// This node holds as many calls as it can.
    #[response(status = 429, content_type = PROBLEM_JSON)]
    Limited(ProblemBody),
}

/// For the OpenAPI document, of a route that asks an MCP server.
#[derive(Debug, utoipa::IntoResponses)]
pub enum Upstream {
    /// The server failed.
    #[response(status = 502, content_type = PROBLEM_JSON)]
    Failed(ProblemBody),
    /// The server did not answer in time.
    #[response(status = 504, content_type = PROBLEM_JSON)]
    TimedOut(ProblemBody),
}

/// The HTTP status of each code.
#[must_use]
pub fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidInput | Code::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied
        | Code::Denied
        | Code::BuiltIn
        | Code::ConnectionRequired
        | Code::ReconnectRequired
        | Code::InsufficientScope => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Gone => StatusCode::GONE,
        Code::SourceDisabled
        | Code::ServerChanged
        | Code::ToolChanged
        | Code::Conflict
        | Code::RevisionConflict
        | Code::PermissionAlreadyResolved
        | Code::SessionArchived
        | Code::OauthDiscoveryFailed
        | Code::ServerMisconfigured
        | Code::Cancelled
        | Code::Interrupted => StatusCode::CONFLICT,
        Code::RateLimitQueueFull
        | Code::RateLimitQueueTimeout
        | Code::RateLimited
        | Code::Limited => StatusCode::TOO_MANY_REQUESTS,
        Code::UpstreamUnavailable
        | Code::UpstreamFormat
        | Code::ToolError
        | Code::ResponseTooLarge
        | Code::NormalizationFailed
        | Code::Unauthorized => StatusCode::BAD_GATEWAY,
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Code::Unavailable | Code::CredentialsUnreadable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        render(&self.0, status(self.0.code))
    }
}

/// An error with a status that its code alone does not say (405, 413, 415, 421).
#[must_use]
pub fn render(error: &Error, status: StatusCode) -> Response {
    let request_id = crate::guard::request_id();
    if status.is_server_error() {
        tracing::error!(code = %error.code, request_id, error = error as &dyn std::error::Error, "something failed");
    } else {
        tracing::debug!(code = %error.code, request_id, detail = %error.public, "request refused");
    }
    let body = ProblemBody {
        r#type: format!("/docs/errors/{}.md", error.code),
        title: status.canonical_reason().unwrap_or("error").to_owned(),
        status: status.as_u16(),
        code: error.code.to_string(),
        detail: error.public.clone(),
        request_id,
        details: error.details.clone(),
    };
    let mut response = (status, Json(&body)).into_response();
    // A page says it in words.
    response.extensions_mut().insert(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    if let Retry::After(wait) = error.retry {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

pub(crate) async fn no_such_route() -> Problem {
    Problem(Error::new(Code::NotFound, "no such route"))
}

pub(crate) async fn method_not_allowed() -> Response {
    render(
        &Error::new(Code::InvalidInput, "this route does not take that method"),
        StatusCode::METHOD_NOT_ALLOWED,
    )
}

/// A bug of ours ends one request, not the process.
#[expect(clippy::needless_pass_by_value, reason = "the layer hands the panic over")]
pub(crate) fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words");
    Problem(Error::internal(format!("handler panicked: {words}"))).into_response()
}
