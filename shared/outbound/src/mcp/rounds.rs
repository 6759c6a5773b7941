//! Whether a result is the end of its call, and what else it is (2026-07-28, basic/patterns/mrtr).

use std::{borrow::Cow, collections::HashMap};

use domain::limits;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Call, Input, What, handshake::Session};

/// What a result is to its call.
pub(super) enum Finished {
    Complete,
    /// The caller is asked something.
    Asks,
    /// Nobody is asked anything: the server wants the request once more, with this `requestState`.
    Again(String),
}

/// Checks of a result no more than the protocol needs: that it is an object, and finished or a
/// question that was allowed.
pub(super) fn finished(
    session: &Session,
    call: &Call,
    result: &[u8],
) -> Result<Finished, &'static str> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Peek<'a> {
        #[serde(borrow, default)]
        result_type: Option<Cow<'a, str>>,
    }
    let peek = match result.first() {
        Some(b'{') => serde_json::from_slice::<Peek<'_>>(result).ok(),
        _ => None,
    };
    let older = session.sender.is_none();
    match peek.as_ref().map(|peek| peek.result_type.as_deref()) {
        Some(Some("input_required")) if !older && call.may_be_asked() => {
            if call.capabilities.is_some() { Ok(Finished::Asks) } else { again(result) }
        }
        Some(Some("input_required")) => Err(NOT_OFFERED),
        Some(None | Some("complete")) => Ok(Finished::Complete),
        Some(Some(_)) if older => Ok(Finished::Complete),
        Some(Some(_)) => Err("the server answered with a kind of result that was not asked for"),
        None => Err("the server's result is not an object"),
    }
}

const NOT_OFFERED: &str = "the server asked for input that was not offered";

/// An `InputRequiredResult` for a caller that declared nothing: it must hold no question.
fn again(result: &[u8]) -> Result<Finished, &'static str> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Asked<'a> {
        #[serde(borrow, default)]
        input_requests: Option<HashMap<String, &'a RawValue>>,
        #[serde(default)]
        request_state: Option<String>,
    }
    let asked: Asked<'_> =
        serde_json::from_slice(result).map_err(|_| "the server's questions are not readable")?;
    if asked.input_requests.is_some_and(|questions| !questions.is_empty()) {
        return Err(NOT_OFFERED);
    }
    match asked.request_state {
        Some(state) if state.len() > limits::REQUEST_STATE_BYTES.size() => {
            Err("the server's requestState is too long")
        }
        Some(state) => Ok(Finished::Again(state)),
        None => Err("the server wants input and asks for none"),
    }
}

impl Call {
    /// Whether the server may answer with `input_required` (2026-07-28, basic/patterns/mrtr).
    fn may_be_asked(&self) -> bool {
        match &self.what {
            What::Tool { .. } => true,
            What::Request { method, .. } => {
                matches!(*method, "tools/call" | "prompts/get" | "resources/read")
            }
        }
    }

    /// The next round.
    pub(super) fn come_back(&mut self, state: String) {
        let (What::Tool { input, .. } | What::Request { input, .. }) = &mut self.what;
        *input = Some(Input { responses: None, state: Some(state) });
    }
}
