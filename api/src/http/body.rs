//! A JSON body: 415 for another type, 413 for too much, 422 with a pointer for another shape.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::{Code, Error, limits};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use crate::problem::{self, Problem};

/// The parsed body of a request.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        if !is_json(&request) {
            let error = Error::new(Code::InvalidInput, "the body must be application/json");
            return Err(problem::render(&error, StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let bytes = read(request, limits::REQUEST_BODY_BYTES.size()).await?;
        parse(&bytes).map(Body).map_err(|error| Problem(error).into_response())
    }
}

/// The parsed body of a request that may have none: then it is the default.
#[derive(Debug)]
pub struct Maybe<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for Maybe<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        let json = is_json(&request);
        let bytes = read(request, limits::REQUEST_BODY_BYTES.size()).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if !json {
            let error = Error::new(Code::InvalidInput, "the body must be application/json");
            return Err(problem::render(&error, StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        parse(&bytes).map(Self).map_err(|error| Problem(error).into_response())
    }
}

/// For a member that may be absent, null or a value: with `#[serde(default, deserialize_with)]`, the
/// outer `None` is absent and the inner one null.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// `application/json`, with whatever parameters.
pub(crate) fn is_json(request: &Request) -> bool {
    let media_type =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.is_some_and(|value| {
        value
            .split(';')
            .next()
            .is_some_and(|bare| bare.trim().eq_ignore_ascii_case("application/json"))
    })
}

/// The whole body, at most `most` bytes.
pub(crate) async fn read(request: Request, most: usize) -> Result<Bytes, Response> {
    collect(request.into_body(), most).await
}

/// The whole of `body`, at most `most` bytes. What breaks off or pauses too long is 408: a client that
/// still listens may send it again.
pub(crate) async fn collect(body: axum::body::Body, most: usize) -> Result<Bytes, Response> {
    axum::body::to_bytes(body, most).await.map_err(|error| {
        if is_too_long(&error) {
            let error =
                Error::new(Code::InvalidInput, format!("the body must have at most {most} bytes"));
            return problem::render(&error, StatusCode::PAYLOAD_TOO_LARGE);
        }
        let error = Error::new(Code::InvalidInput, "the body did not arrive").because(error);
        problem::render(&error, StatusCode::REQUEST_TIMEOUT)
    })
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    // A struct of serde takes an array, too, its members in their order.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::new(Code::InvalidInput, "the body must be a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let words = words(error.inner());
        let pointer = pointer(error.path());
        Error::new(Code::InvalidInput, format!("the body does not fit: {words}"))
            .with_details(serde_json::json!({ "errors": [{ "path": pointer, "message": words }] }))
    })?;
    deserializer
        .end()
        .map_err(|_| Error::new(Code::InvalidInput, "the body goes on after its JSON value"))?;
    Ok(parsed)
}

/// What does not fit, without the value: serde repeats it, and it may be a secret in the wrong place.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if !error.is_data() || text.starts_with("missing field ") {
        return text;
    }
    if let Some((_, expected)) = text.rsplit_once(", expected ") {
        let unknown = if text.starts_with("unknown field ") { "unknown member, " } else { "" };
        return format!("{unknown}expected {expected}");
    }
    let (line, column) = (error.line(), error.column());
    format!("a value is not one that can stand there at line {line} column {column}")
}

/// RFC 6901.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => format!("/{variant}"),
            Segment::Unknown => String::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Form {
        #[expect(dead_code, reason = "only read")]
        headers: BTreeMap<String, Option<String>>,
    }

    #[test]
    fn a_value_in_the_wrong_place_is_not_repeated() {
        for body in [
            r#"{"headers":"hunter2"}"#,
            r#"{"headers":"hunter2, expected hunter2"}"#,
            r#"{"headers":{"x":4815162342}}"#,
            r#""hunter2""#,
            r#"{"headers":{"x":"hunter2}"#,
        ] {
            let error = parse::<Form>(body.as_bytes()).unwrap_err();
            let shown = format!("{} {}", error.public, error.details.unwrap());
            for secret in ["hunter2", "4815162342"] {
                assert!(!shown.contains(secret), "{body}: {shown}");
            }
            assert!(shown.contains("line 1 column"), "{shown}");
        }
        let missing = parse::<Form>(b"{}").unwrap_err();
        assert!(missing.public.contains("missing field `headers`"), "{}", missing.public);
    }
}
