//! A server's refusal in protocol, passed on in protocol.

use app::through::Rpc;
use axum::http::StatusCode;
use domain::{
    Code,
    elicitation::{Asker, ELICITATION},
    ids::InvocationId,
};
use rmcp::model::ErrorCode;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::gateway::{
    eras::Era,
    fault::{Fault, bounded},
    message::RequestId,
    raw::INVOCATION_KEY,
};

/// MCP 2025-11-25 and before: resource not found; the newer version says -32602.
const RESOURCE_NOT_FOUND: i32 = -32_002;
/// MCP 2025-11-25 alone: pages must be seen first.
const URL_ELICITATION_REQUIRED: i32 = -32_042;

/// The refusal of the server under the client's id. Codes keep their meaning in the client's version.
/// `asker` screens the pages that a refusal may send people to.
pub(super) fn passed_on(
    rpc: &Rpc,
    id: &RequestId,
    invocation: Option<InvocationId>,
    era: Era,
    asker: &Asker<'_>,
) -> Fault {
    let code = i32::try_from(rpc.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
    if code == URL_ELICITATION_REQUIRED && era == Era::Legacy {
        let pages = pages(rpc, asker);
        let mut fault = match &pages {
            Some(_) => Fault::new(ErrorCode(code), bounded(&rpc.message)),
            None => {
                Fault::new(ErrorCode::INTERNAL_ERROR, "the server wants a page to be seen first")
            }
        };
        fault.data = pages;
        return fault.of(Some(id.clone()));
    }
    let code = match (code, era) {
        (RESOURCE_NOT_FOUND, Era::Modern) => ErrorCode::INVALID_PARAMS.0,
        // What only the other version knows.
        (URL_ELICITATION_REQUIRED, Era::Modern) | (-32_099..=-32_020, Era::Legacy) => {
            ErrorCode::INTERNAL_ERROR.0
        }
        _ => code,
    };
    let mut fault = Fault::new(ErrorCode(code), bounded(&rpc.message)).of(Some(id.clone()));
    fault.status = match (ErrorCode(code), era) {
        (ErrorCode::METHOD_NOT_FOUND, Era::Modern) => StatusCode::NOT_FOUND,
        (ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY, Era::Modern) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    fault.data = Some(data(rpc, invocation));
    fault
}

/// `{"elicitations": […]}` as the client may see them; `None` where one of them may not be shown.
fn pages(rpc: &Rpc, asker: &Asker<'_>) -> Option<Value> {
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        elicitations: Vec<&'a RawValue>,
    }
    let data: Data<'_> = serde_json::from_str(rpc.data.as_ref()?.get()).ok()?;
    let shown = data.elicitations.iter().map(|page| {
        let page = asker.screen(ELICITATION, Some(page)).ok()??;
        serde_json::from_str::<Value>(&page).ok().filter(|page| page["mode"] == "url")
    });
    Some(json!({ "elicitations": shown.collect::<Option<Vec<Value>>>()? }))
}

/// The server's own data; an object gets what is ours besides.
fn data(rpc: &Rpc, invocation: Option<InvocationId>) -> Value {
    let theirs = rpc.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok());
    let mut data: Value = theirs.unwrap_or_else(|| json!({}));
    if let Some(members) = data.as_object_mut() {
        members.entry("code").or_insert_with(|| json!(Code::ToolError));
        if let Some(invocation) = invocation {
            members.insert(INVOCATION_KEY.to_owned(), json!(invocation));
        }
    }
    data
}
