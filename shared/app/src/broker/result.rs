//! Steps 11 to 13: size, raw bytes, normalised result.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use backon::Retryable;
use bytes::Bytes;
use domain::{Code, Error, invocation::PseudoTool, json::Sha256Digest, limits};
use serde::{Deserialize, Serializer};
use serde_json::{Value, json, value::RawValue};

use super::{
    pseudo,
    record::{Record, backoff},
    resolve::Resolved,
    send::Answer,
};
use crate::{Ctx, definitions::Validators};

/// What is looked at in a tool's result; everything else passes unread.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    is_error: Option<bool>,
}

/// The members that are the result, in the order in which the normalised one has them.
type Data<'a> = Vec<(&'static str, &'a RawValue)>;

pub(super) async fn judge(
    ctx: &Ctx,
    resolved: &Resolved,
    record: &mut Record,
    raw: Bytes,
) -> Result<Answer, Error> {
    let (result, is_error) = {
        let text = std::str::from_utf8(&raw).map_err(not_a_result)?;
        let (data, is_error) = match resolved.pseudo {
            None => of_tool(resolved, record, text, raw.len()).await?,
            Some(pseudo) => {
                let data = of_pseudo(pseudo, text)?;
                within_limit(&data, raw.len(), resolved.response_limit)?;
                (data, false)
            }
        };
        (normalised(ctx, resolved, record, &data)?, is_error)
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

/// Bytes first, then the note by which the reaper knows that the call succeeded: none of a tool's error.
async fn store_large(ctx: &Ctx, record: &Record, answer: &Answer) -> Result<(), Error> {
    crate::cas::put(ctx, record.tenant(), &answer.raw).await?;
    crate::cas::put(ctx, record.tenant(), &answer.result).await?;
    if answer.is_error {
        return Ok(());
    }
    let mut tx = ctx.begin(record.tenant()).await?;
    let (raw, result) = (answer.raw_digest, answer.result_digest);
    store::calls::note_stored(&mut tx, record.name(), raw, result).await?;
    Ok(tx.commit().await?)
}

fn not_a_result(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Code::UpstreamFormat, "the server answered something that is no tool result")
        .because(error)
}

async fn of_tool<'a>(
    resolved: &Resolved,
    record: &mut Record,
    text: &'a str,
    raw: usize,
) -> Result<(Data<'a>, bool), Error> {
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(not_a_result)?;
    let (content, structured) = (envelope.content, envelope.structured_content);
    let data: Data<'_> = content
        .map(|content| ("content", content))
        .into_iter()
        .chain(structured.map(|structured| ("structuredContent", structured)))
        .collect();
    within_limit(&data, raw, resolved.response_limit)?;
    let is_error = envelope.is_error.unwrap_or(false);
    if !is_error && let Some(validators) = &resolved.validators {
        record.warnings.extend(output_warnings(validators, structured).await?);
    }
    Ok((data, is_error))
}

fn of_pseudo(pseudo: PseudoTool, text: &str) -> Result<Data<'_>, Error> {
    let members: HashMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(text).map_err(not_a_result)?;
    let payload = pseudo::payload(pseudo);
    if payload.first().is_none_or(|first| !members.contains_key(*first)) {
        return Err(not_a_result(format!("a result of {} without its member", pseudo.as_str())));
    }
    let data = payload.iter().filter_map(|name| Some((*name, *members.get(*name)?)));
    Ok(data.collect())
}

/// UTF-8 bytes of `JSON({content, structuredContent})` (of another result, its own members); white space between tokens does not count.
fn within_limit(data: &Data<'_>, raw: usize, limit: u64) -> Result<(), Error> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // What came is at least as long as what is counted.
    if raw <= limit {
        return Ok(());
    }
    let mut size = 1;
    for (name, part) in data {
        let value: Value = serde_json::from_str(part.get()).map_err(not_a_result)?;
        size += name.len() + 4 + serde_json::to_string(&value).map_err(not_a_result)?.len();
    }
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
    validators: &Arc<Validators>,
    structured: Option<&RawValue>,
) -> Result<Vec<Value>, Error> {
    if validators.output.is_none() {
        return Ok(Vec::new());
    }
    // Postgres stores no NUL, and the words may repeat the peer's.
    let warning = |words: String| json!({ "code": "OUTPUT_SCHEMA_MISMATCH", "message": words.replace('\0', "\u{fffd}") });
    let Some(structured) = structured else {
        return Ok(vec![warning("the tool promises structured content and sent none".to_owned())]);
    };
    let value: Value = serde_json::from_str(structured.get()).map_err(not_a_result)?;
    let validators = Arc::clone(validators);
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
    data: &Data<'_>,
) -> Result<Vec<u8>, Error> {
    fn members<S: Serializer>(data: &Data<'_>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(data.iter().map(|(name, value)| (name, value)))
    }
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Normalised<'a> {
        records: [(); 0],
        warnings: [(); 0],
        #[serde(serialize_with = "members")]
        data: &'a Data<'a>,
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
        data,
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
