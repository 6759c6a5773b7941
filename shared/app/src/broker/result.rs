//! Steps 11 to 13: size, raw bytes, normalised result.

use std::sync::Arc;

use backon::Retryable;
use bytes::Bytes;
use domain::{Code, Error, json::Sha256Digest, limits};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    record::{Record, backoff},
    resolve::Resolved,
    send::Answer,
};
use crate::Ctx;

/// What is looked at in a result; everything else passes unread.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    is_error: Option<bool>,
}

pub(super) async fn judge(
    ctx: &Ctx,
    resolved: &Resolved,
    record: &mut Record,
    raw: Bytes,
) -> Result<Answer, Error> {
    let (result, is_error) = {
        let text = std::str::from_utf8(&raw).map_err(not_a_result)?;
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(not_a_result)?;
        within_limit(&envelope, raw.len(), resolved.response_limit)?;
        let is_error = envelope.is_error.unwrap_or(false);
        if !is_error {
            record.warnings.extend(output_warnings(resolved, envelope.structured_content).await?);
        }
        (normalised(ctx, resolved, record, &envelope)?, is_error)
    };
    let mut answer = Answer {
        raw_digest: Sha256Digest::of(&raw),
        result_digest: Sha256Digest::of(&result),
        raw,
        result,
        is_error,
        stored: false,
    };
    if answer.raw.len().max(answer.result.len()) > limits::CAS_INLINE_BYTES.size() {
        let storing = || store_large(ctx, record, &answer);
        let stored = storing.retry(backoff()).when(|error| error.code == Code::Unavailable).await;
        // The tool ran: what could not be written down is not to be repeated for that.
        stored.map_err(|error| {
            Error::new(Code::Interrupted, "the tool answered and its result could not be stored")
                .because(error)
        })?;
        answer.stored = true;
    }
    Ok(answer)
}

/// Bytes first, then the note by which the reaper knows that the call succeeded.
async fn store_large(ctx: &Ctx, record: &Record, answer: &Answer) -> Result<(), Error> {
    crate::cas::put(ctx, record.tenant(), &answer.raw).await?;
    crate::cas::put(ctx, record.tenant(), &answer.result).await?;
    let mut tx = ctx.begin(record.tenant()).await?;
    let (raw, result) = (answer.raw_digest, answer.result_digest);
    store::calls::note_stored(&mut tx, record.name(), raw, result).await?;
    Ok(tx.commit().await?)
}

fn not_a_result(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Code::UpstreamFormat, "the server answered something that is no tool result")
        .because(error)
}

/// UTF-8 bytes of `JSON({content, structuredContent})`; white space between tokens does not count.
fn within_limit(envelope: &Envelope<'_>, raw: usize, limit: u64) -> Result<(), Error> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // What came is at least as long as what is counted.
    if raw <= limit {
        return Ok(());
    }
    let counted = |part: Option<&RawValue>, name: &str| -> Result<usize, Error> {
        let Some(part) = part else { return Ok(0) };
        let value: Value = serde_json::from_str(part.get()).map_err(not_a_result)?;
        Ok(name.len() + 4 + serde_json::to_string(&value).map_err(not_a_result)?.len())
    };
    let size = 1
        + counted(envelope.content, "content")?
        + counted(envelope.structured_content, "structuredContent")?;
    if size <= limit {
        return Ok(());
    }
    Err(Error::new(
        Code::ResponseTooLarge,
        format!("the result has more than {limit} bytes; what the tool did is not undone"),
    ))
}

/// A structured result that does not fit the pinned outputSchema is a warning for custom servers.
async fn output_warnings(
    resolved: &Resolved,
    structured: Option<&RawValue>,
) -> Result<Vec<Value>, Error> {
    if resolved.validators.output.is_none() {
        return Ok(Vec::new());
    }
    // Postgres stores no NUL, and the words may repeat the peer's.
    let warning = |words: String| json!({ "code": "OUTPUT_SCHEMA_MISMATCH", "message": words.replace('\0', "\u{fffd}") });
    let Some(structured) = structured else {
        return Ok(vec![warning("the tool promises structured content and sent none".to_owned())]);
    };
    let value: Value = serde_json::from_str(structured.get()).map_err(not_a_result)?;
    let validators = Arc::clone(&resolved.validators);
    let check = move || match &validators.output {
        Some(schema) => schema.check(&value).err().unwrap_or_default(),
        None => Vec::new(),
    };
    let violations = if structured.get().len() > limits::HEAVY_INPUT_BYTES.size() {
        tokio::task::spawn_blocking(check).await.map_err(Error::internal)?
    } else {
        check()
    };
    Ok(violations.into_iter().map(|one| warning(format!("{}: {}", one.path, one.words))).collect())
}

/// The result as our own runs and reviewers read it: what a custom server said is data, never evidence.
fn normalised(
    ctx: &Ctx,
    resolved: &Resolved,
    record: &Record,
    envelope: &Envelope<'_>,
) -> Result<Vec<u8>, Error> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Data<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        structured_content: Option<&'a RawValue>,
    }
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Normalised<'a> {
        records: [(); 0],
        warnings: [(); 0],
        data: Data<'a>,
        attribution: &'a str,
        license: &'a str,
        retrieved_at: domain::Timestamp,
        source_id: &'a str,
        tool_id: &'a str,
        untrusted: bool,
        invocation_id: domain::ids::InvocationId,
    }
    serde_json::to_vec(&Normalised {
        records: [],
        warnings: [],
        data: Data { content: envelope.content, structured_content: envelope.structured_content },
        attribution: &resolved.server_name,
        license: "unknown",
        retrieved_at: ctx.now(),
        source_id: resolved.entry.server.as_str(),
        tool_id: resolved.entry.tool.as_str(),
        untrusted: true,
        invocation_id: record.invocation(),
    })
    .map_err(Error::internal)
}
