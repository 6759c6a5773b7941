//! `result_read`: pages the stored result of an earlier call. A tool of ours: nothing leaves the
//! machine, nobody is asked, and it leaves an event of the session, no invocation (docs/decisions).

mod page;

use std::sync::LazyLock;

use domain::{
    Caller, Code, Error,
    ids::{InvocationId, ServerId, SessionId, ToolId},
    invocation::Status,
    json::Sha256Digest,
    limits,
    schema::{self, Schema},
};
use serde::{Deserialize, Serialize};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{Ctx, events, sessions};

/// The name of the tool, and its id. No server's tool is called so: their names begin with `mcp__`.
pub const NAME: &str = "result_read";

/// The source that our own tools belong to.
const SOURCE: &str = "bailiwick";

/// A page of a stored result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    pub invocation_id: InvocationId,
    pub source_id: ServerId,
    pub tool_id: ToolId,
    /// JSON pointer (RFC 6901) of the value that is paged; empty for the whole result.
    pub pointer: String,
    /// `text`: the value is a string, and its characters are paged; `json`: those of its JSON.
    pub kind: &'static str,
    /// Where this page begins, in characters (Unicode scalar values).
    pub offset: usize,
    /// Characters of this page.
    pub length: usize,
    /// Characters of the whole value.
    pub total: usize,
    /// Characters after this page.
    pub left: usize,
    /// Where the next page begins; left out on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<usize>,
    pub text: String,
    /// Always true: a server said this, not we.
    pub untrusted: bool,
}

/// Whether the caller may use it at all: a token of single tools must name it, and so must a request
/// that names its sources.
#[must_use]
pub fn is_offered(caller: &Caller, sources: Option<&[String]>) -> bool {
    caller.reach.covers_tool(NAME)
        && sources.is_none_or(|sources| sources.iter().any(|source| source == SOURCE))
}

/// The definition, as `tools/list` shows it.
#[must_use]
pub fn definition() -> &'static RawValue {
    static DEFINITION: LazyLock<Box<RawValue>> = LazyLock::new(|| {
        let definition = json!({
            "name": NAME,
            "title": "Read a stored result",
            "description": format!(
                "Pages the stored result of an earlier successful call of this session, named by \
                 the invocation id that came with it (_meta[\"bailiwick/invocationId\"]). Use it to \
                 read what did not fit. offset and length count characters; at most {} come at \
                 once. The answer says how many are left.",
                limits::RESULT_READ_CHARS.ceiling,
            ),
            "inputSchema": input_schema(),
            "outputSchema": output_schema(),
            "annotations": {
                "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true,
                "openWorldHint": false,
            },
        });
        to_raw_value(&definition).expect("a JSON value is JSON")
    });
    &DEFINITION
}

fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "invocationId": { "type": "string", "description": "which result" },
            "pointer": {
                "type": "string", "maxLength": limits::POINTER_CHARS.default,
                "description": "JSON pointer (RFC 6901) of the part to read, such as \
                                /data/content/0/text; the whole result without it",
            },
            "offset": { "type": "integer", "minimum": 0, "default": 0 },
            "length": {
                "type": "integer", "minimum": 1, "maximum": limits::RESULT_READ_CHARS.ceiling,
                "default": limits::RESULT_READ_CHARS.default,
            },
        },
        "required": ["invocationId"],
        "additionalProperties": false,
    })
}

fn output_schema() -> Value {
    let (text, count) = (json!({ "type": "string" }), json!({ "type": "integer", "minimum": 0 }));
    json!({
        "type": "object",
        "properties": {
            "invocationId": text, "sourceId": text, "toolId": text, "pointer": text,
            "kind": { "type": "string", "enum": ["text", "json"] },
            "offset": count, "length": count, "total": count, "left": count, "nextOffset": count,
            "text": text, "untrusted": { "type": "boolean" },
        },
        "required": [
            "invocationId", "sourceId", "toolId", "pointer", "kind", "offset", "length", "total",
            "left", "text", "untrusted",
        ],
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    invocation_id: String,
    #[serde(default)]
    pointer: String,
    #[serde(default)]
    offset: usize,
    length: Option<usize>,
}

/// Reads a page of the result of a succeeded call in this session of the caller's, within the token's
/// reach.
///
/// `INVALID_INPUT` for other arguments than the schema's and for a pointer to nothing; `NOT_FOUND`
/// for every other invocation; `SESSION_ARCHIVED`.
pub async fn read(
    ctx: &Ctx,
    caller: &Caller,
    session: SessionId,
    arguments: &RawValue,
) -> Result<Page, Error> {
    let input = checked(arguments)?;
    let stored = find(ctx, caller, session, &input.invocation_id).await?;
    let bytes = crate::cas::get(ctx, caller.tenant, stored.digest).await?;
    let bytes = bytes.ok_or_else(|| Error::internal("the result of a call is not stored"))?;
    let length = input.length.unwrap_or(limits::RESULT_READ_CHARS.size());
    let (pointer, offset) = (input.pointer.clone(), input.offset);
    // A result may have megabytes.
    let cut = tokio::task::spawn_blocking(move || page::cut(&bytes, &pointer, offset, length));
    let cut = cut.await.map_err(Error::internal)??;
    let read = json!({
        "invocationId": stored.invocation, "offset": offset, "length": cut.length,
        "total": cut.total,
    });
    let mut tx = ctx.begin(caller.tenant).await?;
    events::append(ctx, &mut tx, session, "result.read", read).await?;
    tx.commit().await?;
    events::hint(ctx, session);
    let end = offset.saturating_add(cut.length);
    let left = cut.total.saturating_sub(end);
    Ok(Page {
        invocation_id: stored.invocation,
        source_id: stored.source,
        tool_id: stored.tool,
        pointer: input.pointer,
        kind: cut.kind,
        offset,
        length: cut.length,
        total: cut.total,
        left,
        next_offset: (left > 0).then_some(end),
        text: cut.text,
        untrusted: true,
    })
}

fn checked(arguments: &RawValue) -> Result<Input, Error> {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let (schema, _) =
            Schema::compile(&input_schema().to_string()).expect("our own schema is a good one");
        schema
    });
    let unreadable = |error: serde_json::Error| {
        Error::new(Code::InvalidInput, "the input is not readable").because(error)
    };
    let value: Value = serde_json::from_str(arguments.get()).map_err(unreadable)?;
    SCHEMA.check(&value).map_err(|violations| schema::invalid_input(&violations))?;
    serde_json::from_value(value).map_err(unreadable)
}

/// A result that the caller may read.
struct Stored {
    invocation: InvocationId,
    source: ServerId,
    tool: ToolId,
    digest: Sha256Digest,
}

async fn find(ctx: &Ctx, caller: &Caller, session: SessionId, id: &str) -> Result<Stored, Error> {
    let unknown = || Error::not_found("result: an invocation of this session that succeeded");
    let mut tx = ctx.begin(caller.tenant).await?;
    let own = sessions::readable(&mut tx, caller, session).await?;
    if own.archived_at.is_some() {
        return Err(sessions::archived());
    }
    let id: InvocationId = id.parse().map_err(|_| unknown())?;
    let found = store::invocations::find(&mut tx, session, id).await?;
    let found = found
        .filter(|call| call.status == Status::Succeeded && call.user == caller.user)
        .ok_or_else(unknown)?;
    let (Some(source), Some(tool), Some(digest)) = (found.source, found.tool, found.result) else {
        return Err(unknown());
    };
    if !caller.reach.covers_source(&source) {
        return Err(unknown());
    }
    if caller.reach.tools.is_some() {
        let name = store::requests::agent_name(&mut tx, &source, &tool).await?;
        if !name.is_some_and(|name| caller.reach.covers_tool(&name)) {
            return Err(unknown());
        }
    }
    tx.commit().await?;
    Ok(Stored { invocation: id, source, tool, digest })
}
