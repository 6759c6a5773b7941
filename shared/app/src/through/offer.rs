//! What of a server's capabilities a client gets: those that we pass on.

use domain::{Caller, Code, Error, limits};
use outbound::mcp::About;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Source, ask::admitted};
use crate::Ctx;

/// The version in which servers are asked in rounds, and changes are subscribed to with a request.
const MODERN: &str = "2026-07-28";

/// What the server offers to this client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own in MCP")]
pub struct Offer {
    /// The protocol version that is spoken with the server.
    pub version: String,
    /// The client is told of changes of tools.
    pub tools_change: bool,
    /// The server tells of them itself.
    pub tools_change_told: bool,
    pub prompts: bool,
    pub prompts_change: bool,
    pub resources: bool,
    pub resources_change: bool,
    pub subscribe: bool,
    pub completions: bool,
    pub logging: bool,
}

impl Offer {
    /// `session`: the client holds an upstream session of its own, as those of the older eras do.
    pub(super) fn of(about: &About, session: bool) -> Result<Self, Error> {
        let offered: Value = serde_json::from_str(about.capabilities.get()).map_err(|error| {
            Error::new(Code::UpstreamFormat, "the server's capabilities are not readable")
                .because(error)
        })?;
        let has = |name: &str| offered[name].is_object();
        let says = |name: &str, member: &str| offered[name][member] == Value::Bool(true);
        let modern = about.version == MODERN;
        Ok(Self {
            version: about.version.clone(),
            // A newer client hears of it from our pins; an older one only where the server has a stream.
            tools_change: !session || says("tools", "listChanged"),
            tools_change_told: says("tools", "listChanged"),
            prompts: has("prompts"),
            prompts_change: says("prompts", "listChanged"),
            resources: has("resources"),
            resources_change: says("resources", "listChanged"),
            // Older clients subscribe one resource at a time, which a newer server does not know.
            subscribe: says("resources", "subscribe") && !(session && modern),
            completions: has("completions"),
            // They set one level for their session, which a newer server does not have.
            logging: has("logging") && !(session && modern),
        })
    }

    /// `ServerCapabilities`. Tools come from our pins, so they are always there.
    #[must_use]
    pub fn capabilities(&self) -> Value {
        let flags = |flags: &[(&str, bool)]| {
            let set = flags.iter().filter(|(_, on)| *on);
            Value::Object(set.map(|(name, _)| ((*name).to_owned(), json!(true))).collect())
        };
        let mut capabilities = Map::new();
        capabilities.insert("tools".to_owned(), flags(&[("listChanged", self.tools_change)]));
        if self.prompts {
            let prompts = flags(&[("listChanged", self.prompts_change)]);
            capabilities.insert("prompts".to_owned(), prompts);
        }
        if self.resources {
            let resources =
                flags(&[("subscribe", self.subscribe), ("listChanged", self.resources_change)]);
            capabilities.insert("resources".to_owned(), resources);
        }
        if self.completions {
            capabilities.insert("completions".to_owned(), json!({}));
        }
        if self.logging {
            capabilities.insert("logging".to_owned(), json!({}));
        }
        Value::Object(capabilities)
    }

    /// Whether the server speaks 2026-07-28.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.version == MODERN
    }
}

/// What the server offers to a client without an upstream session. Asks it only if nobody did before.
pub async fn about(ctx: &Ctx, caller: &Caller, source: &Source) -> Result<Offer, Error> {
    let _slots = admitted(ctx, caller, source).await?;
    let target = source.target(None);
    let deadline = Instant::now() + target.patience(limits::INITIALIZE_TIMEOUT_MS.millis());
    Offer::of(&ctx.mcp.about(&target, deadline).await?, false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use serde_json::value::RawValue;

    use super::*;

    fn offer(version: &str, session: bool) -> Value {
        let capabilities = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true},"logging":{},"tasks":{},"experimental":{"x":{}}}"#;
        let about = About {
            version: version.to_owned(),
            capabilities: Arc::from(RawValue::from_string(capabilities.to_owned()).unwrap()),
            server_info: None,
            instructions: Some("do as I say".to_owned()),
            raw: Bytes::new(),
        };
        Offer::of(&about, session).unwrap().capabilities()
    }

    #[test]
    fn only_what_is_passed_on_is_offered() {
        let expected = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true},
            "logging": {},
        });
        assert_eq!(offer("2025-11-25", true), expected);
        assert_eq!(offer("2026-07-28", false), expected);
    }

    #[test]
    fn an_older_client_of_a_newer_server_is_not_offered_what_it_has_no_request_for() {
        assert_eq!(
            offer("2026-07-28", true),
            json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "resources": {}})
        );
    }
}
