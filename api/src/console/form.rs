//! What a form of ours sends.

use axum::{
    extract::{FromRequest, Request},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use domain::{Code, Error, limits};
use url::form_urlencoded;

use crate::{http::body, problem};

/// The fields of a form; of a name that is there twice the first counts.
#[derive(Debug)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Its text; empty where it is not there.
    pub(super) fn field(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value)
    }
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        if !is_form(&request) {
            let error = Error::new(Code::InvalidInput, "a form must be sent as one");
            return Err(problem::render(&error, StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let bytes = body::read(request, limits::FORM_BODY_BYTES.size()).await?;
        Ok(Self(form_urlencoded::parse(&bytes).into_owned().collect()))
    }
}

fn is_form(request: &Request) -> bool {
    let media_type = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let bare = media_type.and_then(|value| value.split(|byte| *byte == b';').next());
    bare.is_some_and(|bare| {
        bare.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    })
}
