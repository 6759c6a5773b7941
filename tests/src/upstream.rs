//! What tests of the outbound side share: clients that may reach loopback, targets, calls.

use std::{sync::Arc, time::Duration};

use domain::ids::{ServerId, TenantId};
use outbound::{
    egress::{AllowRule, EgressRules},
    http::{GuardedHttp, HttpOptions},
    mcp::{CallFailure, ClientKey, Identity, McpClients, Target, ToolAnswer, ToolCall},
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

/// Clients whose operator listed the loopback network.
#[must_use]
pub fn clients() -> McpClients {
    let loopback = AllowRule::Network("127.0.0.0/8".parse().expect("a network"));
    clients_with(EgressRules { allow: vec![loopback], own: Vec::new() })
}

#[must_use]
pub fn clients_with(rules: EgressRules) -> McpClients {
    McpClients::new(GuardedHttp::new(rules, &HttpOptions::default()).expect("legal settings"))
}

/// A server of one tenant, in its first revision, called without a credential.
#[must_use]
pub fn target(url: &Url) -> Target {
    Target {
        key: ClientKey {
            tenant: TenantId(Uuid::from_u128(1)),
            server: ServerId::from("custom-000000000001"),
            revision: 1,
            identity: Identity::Anonymous,
        },
        url: url.clone(),
        headers: Vec::new(),
    }
}

#[must_use]
pub fn raw(json: &str) -> Arc<RawValue> {
    Arc::from(RawValue::from_string(json.to_owned()).expect("JSON"))
}

#[must_use]
pub fn tool_call(name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        name: name.to_owned(),
        arguments: raw(arguments),
        input_schema: None,
        response_limit: 5_000_000,
        trace: None,
    }
}

/// A deadline that no passing test reaches.
#[must_use]
pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A call that nobody cancels.
pub async fn call(
    clients: &McpClients,
    target: &Target,
    call: ToolCall,
) -> Result<ToolAnswer, CallFailure> {
    clients.call_tool(target, call, soon(), CancellationToken::new()).await
}

/// The text of an answer.
#[must_use]
pub fn text(answer: &ToolAnswer) -> &str {
    std::str::from_utf8(&answer.raw).expect("results are UTF-8")
}
