//! `Idempotency-Key`: an unsafe request that is sent again is answered again, and done once.
//!
//! After draft-ietf-httpapi-idempotency-key-header: another request with the key is 422, one that comes
//! while the first still runs 409. A key is a person's through one token or web session; on a safe method
//! it is ignored. What was refused and changed nothing leaves its key free, so that the mended request may
//! use it.

use app::idempotency::{Answer, Begun, Claimed, Request as Once};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use domain::{Caller, Code, Error, limits};
use http_body::Body as _;
use utoipa::openapi::{
    ContentBuilder, ObjectBuilder, OpenApi, Ref, RefOr, Required, ResponseBuilder, Type,
    path::{Operation, ParameterBuilder, ParameterIn, PathItem},
};

use super::body;
use crate::{
    Api,
    caller::{self, Identified},
    problem::Problem,
};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// In the extensions of an answer: it holds a secret, and is given once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenOnce;

/// Answers a repeated request as it was answered, and lets every other one pass.
pub(crate) async fn once(State(api): State<Api>, request: Request, next: Next) -> Response {
    if request.method().is_safe() || !request.headers().contains_key(KEY) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let caller = match caller::identify(&parts, &api).await {
        Ok(caller) => caller,
        // The route refuses it in its own words.
        Err(error) if error.code == Code::Unauthenticated => {
            return next.run(Request::from_parts(parts, body)).await;
        }
        // It may do better in a moment, and then without its key.
        Err(error) => return refusal(error),
    };
    keyed(&api, &caller, parts, body, next).await.unwrap_or_else(|refused| refused)
}

async fn keyed(
    api: &Api,
    caller: &Caller,
    parts: Parts,
    body: Body,
    next: Next,
) -> Result<Response, Response> {
    let bytes = body::collect(body, limits::REQUEST_BODY_BYTES.size()).await?;
    let once = Once {
        key: key(&parts).map_err(refusal)?,
        method: parts.method.as_str(),
        path: parts.uri.path_and_query().map_or("/", |path| path.as_str()),
        body: &bytes,
    };
    let claimed = match app::idempotency::begin(&api.ctx, caller, once).await.map_err(refusal)? {
        Begun::First(claimed) => claimed,
        Begun::Again(answer) => return Ok(again(answer)),
    };
    let mut request = Request::from_parts(parts, Body::from(bytes));
    // Who asks is not found out within what is done once.
    request.extensions_mut().insert(Identified(caller.clone()));
    let response = claimed.run(next.run(request)).await;
    keep(claimed, response).await
}

/// Saves what the request changed together with its answer.
async fn keep(claimed: Claimed, response: Response) -> Result<Response, Response> {
    let (response, answer) = copied(response).await?;
    let status = response.status();
    let failed = status.is_client_error() || status.is_server_error();
    claimed.finish(failed, answer).await.map_err(refusal)?;
    Ok(response)
}

/// The answer and a copy of it; none of one with a secret, of a stream and of a very long one.
async fn copied(response: Response) -> Result<(Response, Option<Answer>), Response> {
    let most = limits::IDEMPOTENCY_ANSWER_BYTES.default;
    let whole = response.body().size_hint().exact().is_some_and(|bytes| bytes <= most);
    let secret = response.extensions().get::<GivenOnce>().is_some()
        || response.headers().contains_key(header::SET_COOKIE);
    if secret || !whole {
        return Ok((response, None));
    }
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX)
        .await
        .map_err(|error| refusal(Error::internal(error)))?;
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let answer = Answer {
        status: parts.status.as_u16(),
        content_type: content_type.and_then(|value| value.to_str().ok()).map(str::to_owned),
        body: bytes.to_vec(),
    };
    Ok((Response::from_parts(parts, Body::from(bytes)), Some(answer)))
}

fn again(answer: Answer) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or_default();
    let headers = response.headers_mut();
    if let Some(Ok(content_type)) = answer.content_type.map(HeaderValue::try_from) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// The one value of the header; its characters are checked where it is used.
fn key(parts: &Parts) -> Result<&str, Error> {
    let unreadable = || Error::new(Code::InvalidInput, "there is not one readable idempotency key");
    let mut values = parts.headers.get_all(KEY).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(unreadable()) };
    value.to_str().map_err(|_| unreadable())
}

fn refusal(error: Error) -> Response {
    Problem(error).into_response()
}

/// Says in the document what every unsafe route takes and may answer for it.
pub(crate) fn describe(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        for operation in unsafe_operations(item) {
            // Who is nobody, as at sign-in, has no keys.
            let open = operation.security.as_ref().is_some_and(|needs| {
                needs.iter().all(|need| {
                    serde_json::to_value(need).is_ok_and(|need| need == serde_json::json!({}))
                })
            });
            if !open {
                describe_one(operation);
            }
        }
    }
}

fn unsafe_operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten()
}

fn describe_one(operation: &mut Operation) {
    let most = limits::IDEMPOTENCY_KEY_CHARS.size();
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(most))
        .pattern(Some("^[!-~]([ -~]*[!-~])?$"));
    let parameter = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Makes the request safe to repeat for 24 hours."))
        .schema(Some(text))
        .build();
    operation.parameters.get_or_insert_default().push(RefOr::T(parameter));
    for (status, words) in [
        ("409", "The request with this key still runs, or its answer is not kept."),
        ("408", "The body did not arrive in time."),
        ("413", "The body is too large."),
        ("422", "The key was used for another request, or is none."),
    ] {
        let problem = Ref::from_schema_name("ProblemBody");
        let content = ContentBuilder::new().schema(Some(problem)).build();
        let response = ResponseBuilder::new()
            .description(words)
            .content("application/problem+json", content)
            .build();
        let responses = &mut operation.responses.responses;
        responses.entry(status.to_owned()).or_insert(RefOr::T(response));
    }
}
