//! JSON-RPC errors: faults of the protocol, and what kept a request from being answered.

use axum::http::StatusCode;
use domain::{Code, Error, Retry, limits};
use rmcp::model::ErrorCode;
use serde_json::{Value, json};

use super::message::RequestId;

/// A JSON-RPC error and the HTTP status of an answer that holds nothing else.
#[derive(Debug)]
pub(super) struct Fault {
    pub status: StatusCode,
    /// Left out where the id of the message could not be read.
    pub id: Option<RequestId>,
    pub code: ErrorCode,
    pub message: String,
    pub data: Option<Value>,
}

impl Fault {
    /// HTTP 200: the error is the answer.
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { status: StatusCode::OK, id: None, code, message: message.into(), data: None }
    }

    pub(super) fn of(mut self, id: Option<RequestId>) -> Self {
        self.id = id;
        self
    }

    /// What a use case answered in place of a result. `data.code` is the code that REST would give;
    /// HTTP stays 200, since clients of every era read a JSON-RPC error there.
    pub(super) fn from_error(error: &Error, id: Option<RequestId>) -> Self {
        let code = match error.code {
            Code::InvalidInput | Code::NotFound => ErrorCode::INVALID_PARAMS,
            Code::SessionArchived | Code::Denied | Code::Unauthenticated | Code::Conflict => {
                ErrorCode::INVALID_REQUEST
            }
            _ => ErrorCode::INTERNAL_ERROR,
        };
        let mut data = json!({ "code": error.code, "retryable": error.retryable() });
        if let Retry::After(wait) = error.retry {
            data["retryAfterMs"] = json!(millis(wait));
        }
        Self { data: Some(data), ..Self::new(code, bounded(&error.public)).of(id) }
    }

    /// The JSON-RPC response.
    pub(super) fn json(&self) -> String {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        match &self.id {
            Some(id) => format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.json()),
            None => format!(r#"{{"jsonrpc":"2.0","error":{error}}}"#),
        }
    }
}

/// The JSON-RPC response with this result, which must be JSON.
pub(super) fn response(id: &RequestId, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.json())
}

/// What an agent reads of one error.
pub(super) fn bounded(words: &str) -> String {
    words.chars().take(limits::ERROR_MESSAGE_CHARS.size()).collect()
}

pub(super) fn millis(wait: std::time::Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_known_id_has_none() {
        let fault = Fault::new(ErrorCode::PARSE_ERROR, "the body is no JSON");
        assert_eq!(
            fault.json(),
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"the body is no JSON"}}"#
        );
    }

    #[test]
    fn an_archived_session_is_told_by_its_code() {
        let error = Error::new(Code::SessionArchived, "the session is archived");
        assert_eq!(
            Fault::from_error(&error, None).json(),
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"the session is archived","data":{"code":"SESSION_ARCHIVED","retryable":false}}}"#
        );
    }
}
