//! A request that the server answers with questions of its own (MCP 2026-07-28: Multi Round-Trip
//! Requests).

use std::collections::BTreeMap;

use domain::{Code, Error, elicitation::Asker, limits};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// An `InputRequiredResult` as the client may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRequired {
    /// In the order of their keys; none: the client only asks again.
    pub requests: Vec<InputRequest>,
    /// The server's `requestState`, which nobody but it gets to see.
    pub state: Option<String>,
}

/// One question of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRequest {
    /// The server's name for it.
    pub key: String,
    pub method: String,
    /// JSON.
    pub params: Option<String>,
}

impl InputRequired {
    /// JSON of `inputRequests`; `None` where there is no question.
    #[must_use]
    pub fn requests_json(&self) -> Option<String> {
        if self.requests.is_empty() {
            return None;
        }
        let requests = self.requests.iter().map(|request| {
            let (key, method) = (Value::from(&*request.key), Value::from(&*request.method));
            match &request.params {
                Some(params) => format!(r#"{key}:{{"method":{method},"params":{params}}}"#),
                None => format!(r#"{key}:{{"method":{method}}}"#),
            }
        });
        Some(format!("{{{}}}", requests.collect::<Vec<_>>().join(",")))
    }
}

/// Reads and screens the questions of a result.
///
/// `UPSTREAM_FORMAT` for one that is malformed or asks for what the client did not offer,
/// `PERMISSION_DENIED` for one that nobody should be asked.
pub fn input_required(asker: &Asker<'_>, result: &[u8]) -> Result<InputRequired, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Result_<'a> {
        #[serde(borrow, default)]
        input_requests: Option<BTreeMap<String, Request<'a>>>,
        #[serde(default)]
        request_state: Option<String>,
    }
    #[derive(Deserialize)]
    struct Request<'a> {
        method: String,
        #[serde(borrow, default)]
        params: Option<&'a RawValue>,
    }
    let unfit = |words: &str| Error::new(Code::UpstreamFormat, words);
    let read: Result_<'_> = serde_json::from_slice(result)
        .map_err(|error| unfit("the server's questions are not readable").because(error))?;
    let questions = read.input_requests.unwrap_or_default();
    if questions.len() > limits::INPUT_REQUESTS.size() {
        return Err(unfit("the server asks too many questions at once"));
    }
    let state = read.request_state;
    if state.as_ref().is_some_and(|state| state.len() > limits::REQUEST_STATE_BYTES.size()) {
        return Err(unfit("the server's requestState is too long"));
    }
    if questions.is_empty() && state.is_none() {
        return Err(unfit("the server wants input and asks for none"));
    }
    let requests = questions.into_iter().map(|(key, request)| {
        let params = asker.screen(&request.method, request.params)?;
        Ok(InputRequest { key, method: request.method, params })
    });
    Ok(InputRequired { requests: requests.collect::<Result<_, Error>>()?, state })
}

#[cfg(test)]
mod tests {
    use domain::{elicitation::Askable, server::UrlRules};

    use super::*;

    fn read(result: &str) -> Result<InputRequired, Code> {
        let urls = UrlRules::default();
        let askable = Askable { form: true, ..Askable::default() };
        let asker = Asker { server_name: "Weather", askable, urls: &urls };
        input_required(&asker, result.as_bytes()).map_err(|error| error.code)
    }

    #[test]
    fn questions_are_screened_and_the_state_is_kept_apart() {
        let found = read(
            r#"{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}},"requestState":"s"}"#,
        )
        .unwrap();
        assert_eq!(found.state.as_deref(), Some("s"));
        let json: Value = serde_json::from_str(&found.requests_json().unwrap()).unwrap();
        assert_eq!(json["who"]["params"]["message"], "Weather: Name?");
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for result in [
            r#"{"resultType":"input_required"}"#,
            r#"{"inputRequests":{"a":7}}"#,
            r#"{"inputRequests":{"a":{"method":"roots/list"}}}"#,
            r#"{"inputRequests":{"a":{"method":"tools/call"}}}"#,
            r#"{"requestState":7}"#,
        ] {
            assert_eq!(read(result), Err(Code::UpstreamFormat), "{result}");
        }
    }

    #[test]
    fn a_server_may_want_nothing_but_to_be_asked_again() {
        let found = read(r#"{"requestState":"later"}"#).unwrap();
        assert_eq!(found.requests_json(), None);
    }
}
