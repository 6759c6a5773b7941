//! What a client says beside its request: whether it wants to hear of progress and from which level of
//! log messages, and what it can be asked.

use std::sync::Arc;

use app::through::{Relay, Upstream};
use domain::elicitation::Askable;
use rmcp::model::ErrorCode;
use serde_json::{Value, value::RawValue};

use crate::gateway::{
    Scene,
    eras::{Era, META_CAPABILITIES},
    fault::Fault,
    message::Message,
    raw::{self, Members, Object},
};

/// From the least to the most severe (MCP: Logging, "Log Levels"; RFC 5424).
const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Members of `_meta` that are the protocol's: they go no further as they are.
const PROGRESS_TOKEN: &str = "progressToken";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Passed on; T for trace context (MCP: `_meta`, "OpenTelemetry trace context").
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// What one client wants of one request.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct Wish {
    /// JSON of its `progressToken`.
    pub(super) progress: Option<String>,
    pub(super) level: Option<Level>,
    pub(super) askable: Askable,
    meta: Option<Arc<RawValue>>,
}

/// A level of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(usize);

impl Level {
    pub(super) fn of(name: &str) -> Option<Self> {
        LEVELS.iter().position(|level| *level == name).map(Self)
    }
}

impl Wish {
    /// `INVALID_PARAMS` for a token or a level that is none.
    pub(in crate::gateway) fn of(scene: &Scene, message: &Message<'_>) -> Result<Self, Fault> {
        let invalid = |words: &str| message.fault(ErrorCode::INVALID_PARAMS, words);
        let meta = message.params.object("_meta").unwrap_or_default();
        let progress = match meta.get(PROGRESS_TOKEN) {
            None => None,
            Some(token) if is_token(token) => Some(token.get().to_owned()),
            Some(_) => {
                return Err(invalid("params._meta.progressToken must be a string or an integer"));
            }
        };
        let level = match meta.get(LOG_LEVEL).filter(|_| scene.era == Era::Modern) {
            None => None,
            Some(level) => {
                let level = raw::string(level).and_then(|name| Level::of(&name));
                let words = "params._meta names a log level that there is not";
                Some(level.ok_or_else(|| invalid(words))?)
            }
        };
        let askable = match (scene.era, &scene.own) {
            (_, Some(own)) => own.askable,
            (Era::Modern, None) => {
                let capabilities = meta.get(META_CAPABILITIES).map_or("{}", RawValue::get);
                Askable::of(&serde_json::from_str(capabilities).unwrap_or(Value::Null))
            }
            (Era::Legacy, None) => Askable::default(),
        };
        Ok(Self { progress, level, askable, meta: unreserved(&meta) })
    }

    /// Of a client that listens, and requests nothing.
    pub(super) fn standing(askable: Askable) -> Self {
        Self { askable, ..Self::default() }
    }

    /// Where many servers are behind one endpoint: progress, and what is nobody's in particular.
    pub(in crate::gateway) fn progress_alone(&self, relay: Relay) -> Upstream {
        let wanted = self.progress.is_some();
        Upstream {
            relay: wanted.then_some(relay),
            progress: wanted,
            meta: self.meta.clone(),
            ..Upstream::default()
        }
    }

    /// The same for the server.
    pub(super) fn upstream(&self, scene: &Scene, relay: Relay) -> Upstream {
        Upstream {
            relay: Some(relay),
            askable: self.askable,
            own: scene.own.as_deref().cloned(),
            progress: self.progress.is_some(),
            log_level: self.level.map(|Level(level)| LEVELS[level].to_owned()),
            meta: self.meta.clone(),
        }
    }
}

fn is_token(token: &RawValue) -> bool {
    let text = token.get();
    let digits = text.strip_prefix('-').unwrap_or(text);
    text.starts_with('"') || digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Trace context, and the keys that no specification reserves (MCP: `_meta`, "Key name format").
fn unreserved(meta: &Members<'_>) -> Option<Arc<RawValue>> {
    let mut object = Object::with_capacity(64);
    let mut any = false;
    for (key, value) in meta.iter() {
        let Some(name) = raw::string(key) else { continue };
        if TRACE.contains(&name.as_str()) || (name.contains('/') && !is_reserved(&name)) {
            object.member(key.get(), value.get());
            any = true;
        }
    }
    let object = any.then(|| RawValue::from_string(object.end()).ok()).flatten();
    object.map(Arc::from)
}

/// The second label of the prefix is the protocol's own, or the prefix is ours.
fn is_reserved(name: &str) -> bool {
    let prefix = name.split_once('/').map_or("", |(prefix, _)| prefix);
    let mut labels = prefix.split('.');
    let (first, second) = (labels.next().unwrap_or_default(), labels.next().unwrap_or_default());
    let ours = |label: &str| ["modelcontextprotocol", "mcp"].contains(&label);
    ours(second) || ours(first) || first == "bailiwick"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_meta_only_trace_context_and_vendors_keys_go_on() {
        let meta = r#"{"progressToken":1,"traceparent":"00-1","io.modelcontextprotocol/logLevel":"info","com.mcp.x/y":1,"com.example/k":{"n":1.50},"bailiwick/invocationId":"x","plain":1}"#;
        let meta = Members::parse(meta).unwrap();
        assert_eq!(
            unreserved(&meta).unwrap().get(),
            r#"{"traceparent":"00-1","com.example/k":{"n":1.50}}"#
        );
        assert!(unreserved(&Members::parse(r#"{"progressToken":1}"#).unwrap()).is_none());
    }

    #[test]
    fn levels_have_an_order() {
        assert!(
            Level::of("debug") < Level::of("info") && Level::of("alert") < Level::of("emergency")
        );
        assert_eq!(Level::of("loud"), None);
    }
}
