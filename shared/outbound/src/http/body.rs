//! Receiving a body within a cap, after decompression.

use bytes::{Bytes, BytesMut};
use domain::{Code, Error};

use super::Failure;

/// A body that hands out at most `left` more bytes; more than that is an error, never a cut.
pub(crate) struct Body {
    response: reqwest::Response,
    left: u64,
}

impl Body {
    pub(crate) fn new(response: reqwest::Response, cap: u64) -> Self {
        Self { response, left: cap }
    }

    /// The next piece, or `None` at the end. `RESPONSE_TOO_LARGE` over the cap.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(chunk) = self.response.chunk().await.map_err(Failure::from_reqwest)? else {
            return Ok(None);
        };
        self.left = self.left.checked_sub(chunk.len() as u64).ok_or_else(too_large)?;
        Ok(Some(chunk))
    }

    /// All of it.
    pub(crate) async fn read(mut self) -> Result<Bytes, Failure> {
        // Absent where the body is compressed: then the pieces are counted.
        if self.response.content_length().is_some_and(|length| length > self.left) {
            return Err(too_large());
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.chunk().await? else { return Ok(first) };
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.chunk().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// How many bytes are left of the cap.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}

/// Reads a short body whose content does not matter, so that its connection can be used again.
pub(crate) async fn drain(response: reqwest::Response) {
    let body = Body::new(response, domain::limits::ERROR_BODY_BYTES.default);
    if let Err(failure) = body.read().await {
        tracing::debug!(error = %failure.error, "a body that nobody needs was not read");
    }
}

pub(crate) fn too_large() -> Failure {
    Failure::unknown(Error::new(
        Code::ResponseTooLarge,
        "the server's answer is larger than the limit",
    ))
}
