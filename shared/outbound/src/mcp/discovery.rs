//! All pages of `tools/list`, each definition as the server wrote it.

use std::collections::HashSet;

use domain::{Code, Error, limits};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Discovery, channel::Trail, client::Client, handshake::nothing};
use crate::words;

/// Asks until the last page, [`limits::TOOLS_PER_SERVER`] or [`limits::TOOL_PAGES`].
pub(super) async fn discover(client: &Client, trail: &Trail) -> Result<Discovery, Error> {
    let (tools, truncated) = if client.session().tools {
        Box::pin(list(client, trail)).await?
    } else {
        (Vec::new(), false)
    };
    // Listing may have begun a new session.
    let session = client.session();
    Ok(Discovery {
        protocol_version: session.version.to_string(),
        server_name: session.server.name.clone(),
        server_version: session.server.version.clone(),
        tools,
        truncated,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct Cursor<'a> {
    cursor: &'a str,
}

async fn list(client: &Client, trail: &Trail) -> Result<(Vec<Box<RawValue>>, bool), Error> {
    let mut tools: Vec<Box<RawValue>> = Vec::new();
    let mut seen = HashSet::new();
    let mut params = Some(nothing());
    // One budget for all pages: many small ones are no way round it.
    let mut left = limits::BODY_CAP_FACTOR.default * limits::RESPONSE_BYTES.default;
    for _ in 0..limits::TOOL_PAGES.default {
        let body = Box::pin(client.request("tools/list", params.take(), left, trail)).await?;
        left = left.saturating_sub(body.len() as u64);
        let page: Page<'_> = serde_json::from_slice(&body).map_err(|error| {
            unfit("the server's list of tools cannot be read")
                .because(words::NotAsExpected::from(error))
        })?;
        for tool in page.tools {
            if tools.len() == limits::TOOLS_PER_SERVER.size() {
                return Ok((tools, true));
            }
            tools.push(tool.to_owned());
        }
        // Some servers end with an empty cursor.
        let Some(cursor) = page.next_cursor.filter(|cursor| !cursor.is_empty()) else {
            return Ok((tools, false));
        };
        if !seen.insert(cursor.clone()) {
            return Err(unfit("the server's list of tools comes back to a page that was read"));
        }
        let next = serde_json::value::to_raw_value(&Cursor { cursor: &cursor });
        params = Some(next.map_err(Error::internal)?.into());
    }
    Ok((tools, true))
}

fn unfit(words: &str) -> Error {
    Error::new(Code::UpstreamFormat, words)
}
