//! Asking the person behind a client of 2026-07-28 in protocol: a call that waits for permission is
//! answered `input_required` with the page that decides it, and the client comes back with the state
//! that it was given (MCP 2026-07-28: Multi Round-Trip Requests; Elicitation, "URL Mode").
//!
//! ```text
//! call ──▶ input_required {url, state} ──▶ call + state, accept ──▶ held ──▶ result
//!                                                                     └────▶ input_required {state} ──▶ …
//! ```
//!
//! What a client says can end its own call; it decides nothing.

use std::time::Duration;

use app::broker::{Asking, Inquiry, Resume, Waiting};
use domain::{
    ids::{InvocationId, PermissionRequestId},
    limits,
};
use rmcp::model::ErrorCode;
use serde_json::{Value, json};

use super::{
    Scene,
    answer::Answer,
    eras::{Era, META_CAPABILITIES},
    fault::Fault,
    message::{Message, RequestId},
    raw::{self, INVOCATION_KEY},
};
use crate::paths;

/// The name of our one request among `inputRequests`. Servers have no such key.
pub(super) const PERMISSION: &str = "bailiwick.permission";

/// What a client can be asked, and what it answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Input {
    /// It shows a person the address of a page.
    by_url: bool,
    /// It comes back to a call.
    state: Option<String>,
    said: Said,
}

/// What it says of the page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Said {
    #[default]
    Nothing,
    /// A person has seen the address and is about to open it.
    Accept,
    /// Nobody is going to open it.
    Decline,
}

impl Input {
    /// Older eras have neither states nor answers: there, one that is sent is a mistake.
    pub(super) fn of(message: &Message<'_>, era: Era) -> Result<Self, Fault> {
        let invalid = |words: &str| message.fault(ErrorCode::INVALID_PARAMS, words);
        let state = message.params.get("requestState");
        if era == Era::Legacy {
            return match state {
                Some(_) => Err(invalid("requestState is not one of this server")),
                None => Ok(Self::default()),
            };
        }
        let state = match state {
            None => None,
            Some(state) => {
                let state = raw::string(state);
                Some(state.ok_or_else(|| invalid("params.requestState must be a string"))?)
            }
        };
        let answers = message.params.object("inputResponses");
        let action = answers
            .and_then(|answers| answers.object(PERMISSION))
            .and_then(|answer| answer.string("action"));
        Ok(Self {
            by_url: declares_url(message),
            state,
            said: match action.as_deref() {
                Some("accept") => Said::Accept,
                Some("decline" | "cancel") => Said::Decline,
                _ => Said::Nothing,
            },
        })
    }

    /// What becomes of the caller while a person is asked. A node without a key can seal no state, so
    /// there everybody is held.
    pub(super) fn asking(&self, scene: &Scene) -> Asking {
        let ctx = &scene.api.ctx;
        if scene.era == Era::Legacy {
            return Asking::Hold { attach: true };
        }
        let resume =
            self.state.clone().map(|state| Resume { state, declined: self.said == Said::Decline });
        let hold = match (&resume, self.by_url) {
            (None, true) if !ctx.vault.key_ids().is_empty() => Duration::ZERO,
            (None, _) => return Asking::Hold { attach: false },
            (Some(_), true) => limits::QUESTION_HOLD_MS.millis().min(ctx.permission_wait),
            // It declared more when it began; there is nothing that it could be asked now.
            (Some(_), false) => ctx.permission_wait,
        };
        Asking::Return { hold, resume }
    }

    /// The `InputRequiredResult` of a call that waits.
    ///
    /// A client that has just shown the page is not told of it again, only to ask again; one that came
    /// back without a word is.
    pub(super) fn required(
        &self,
        scene: &Scene,
        id: &RequestId,
        invocation: InvocationId,
        waiting: &Waiting,
    ) -> Answer {
        let mut result = json!({
            "resultType": "input_required",
            "requestState": waiting.state,
            "_meta": { INVOCATION_KEY: invocation },
        });
        if self.by_url && self.said != Said::Accept {
            result["inputRequests"] = json!({ PERMISSION: request(scene, waiting) });
        }
        Answer::result(id, &result.to_string())
    }
}

/// The `InputRequiredResult` of a call whose server asks the client something.
pub(super) fn inquiry(id: &RequestId, invocation: InvocationId, inquiry: &Inquiry) -> Answer {
    let requests = inquiry.input.requests_json();
    let requests = requests.map(|json| format!(r#""inputRequests":{json},"#)).unwrap_or_default();
    let state = Value::from(inquiry.state.as_str());
    let result = format!(
        r#"{{"resultType":"input_required",{requests}"requestState":{state},"_meta":{{"{INVOCATION_KEY}":"{invocation}"}}}}"#
    );
    Answer::result(id, &result)
}

/// Our words, the server's name as the superadmin wrote it, and an id without odd characters; nothing
/// that the server or the agent wrote.
fn request(scene: &Scene, waiting: &Waiting) -> Value {
    let message = format!(
        "Bailiwick: may {} of {} be called? Open the page, sign in and decide; the call goes on by \
         itself.",
        waiting.tool, waiting.server_name,
    );
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "url", "message": message, "url": page(scene, waiting.question),
        },
    })
}

/// Where a question is decided. The address alone lets nobody in.
fn page(scene: &Scene, question: PermissionRequestId) -> String {
    let base = scene.api.node.public_url.as_str().trim_end_matches('/');
    format!("{base}{}", paths::QUESTION_PAGE.replace("{request}", &question.to_string()))
}

/// `elicitation.url` among the client's capabilities; `elicitation: {}` is form mode alone.
fn declares_url(message: &Message<'_>) -> bool {
    message
        .params
        .object("_meta")
        .and_then(|meta| meta.object(META_CAPABILITIES))
        .and_then(|capabilities| capabilities.object("elicitation"))
        .is_some_and(|elicitation| elicitation.object("url").is_some())
}

#[cfg(test)]
mod tests {
    use super::{
        super::message::{self, Body},
        *,
    };

    fn input(params: &Value, era: Era) -> Result<Input, Fault> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let body = body.to_string();
        let Ok(Body::One(message)) = message::parse(body.as_bytes()) else { panic!("{body}") };
        Input::of(&message, era)
    }

    fn capable(elicitation: &Value) -> Value {
        json!({ "_meta": { META_CAPABILITIES: { "elicitation": elicitation } } })
    }

    #[test]
    fn only_url_mode_can_show_a_page() {
        let by_url = |elicitation| input(&capable(&elicitation), Era::Modern).unwrap().by_url;
        assert!(by_url(json!({ "url": {} })) && by_url(json!({ "form": {}, "url": {} })));
        assert!(!by_url(json!({})) && !by_url(json!({ "form": {} })) && !by_url(json!(true)));
        assert!(!input(&capable(&json!({ "url": {} })), Era::Legacy).unwrap().by_url);
    }

    #[test]
    fn what_the_client_says_is_read_from_our_request_alone() {
        let said = |responses: Value| {
            let params = json!({ "requestState": "x", "inputResponses": responses });
            input(&params, Era::Modern).unwrap().said
        };
        assert_eq!(said(json!({ PERMISSION: { "action": "accept" } })), Said::Accept);
        assert_eq!(said(json!({ PERMISSION: { "action": "decline" } })), Said::Decline);
        assert_eq!(said(json!({ PERMISSION: { "action": "cancel" } })), Said::Decline);
        for nothing in [
            json!({}),
            json!({ "other": { "action": "accept" } }),
            json!({ PERMISSION: { "action": "allow_once" } }),
            json!({ PERMISSION: "accept" }),
            json!(7),
        ] {
            assert_eq!(said(nothing), Said::Nothing);
        }
    }

    #[test]
    fn a_state_must_be_text_and_is_none_of_the_older_eras() {
        for (state, era) in
            [(json!(7), Era::Modern), (json!(null), Era::Modern), (json!("x"), Era::Legacy)]
        {
            let fault = input(&json!({ "requestState": state }), era).unwrap_err();
            assert_eq!(fault.code, ErrorCode::INVALID_PARAMS);
        }
    }
}
