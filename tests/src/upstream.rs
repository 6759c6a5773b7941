//! What tests of the outbound side share: clients that may reach loopback, targets, calls.

use std::{sync::Arc, time::Duration};

use domain::ids::{ServerId, TenantId, UserId};
use http::HeaderName;
use outbound::{
    egress::{AllowRule, EgressRules},
    http::{GuardedHttp, HttpOptions},
    mcp::{
        Answer, Call, CallFailure, ClientKey, Identity, McpClients, Reach, SessionKey, Target, What,
    },
    stdio::Stdio,
};
use secrecy::SecretString;
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
    let http = GuardedHttp::new(rules, &HttpOptions::default()).expect("legal settings");
    McpClients::new(http, Stdio::off())
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
            session: None,
        },
        reach: Reach::Http { url: url.clone(), headers: Vec::new() },
        resume: None,
        parts: Vec::new(),
        authority: None,
    }
}

/// An upstream session of that number, of one and the same person.
#[must_use]
pub fn session(id: u128) -> SessionKey {
    SessionKey { id: Uuid::from_u128(id), person: UserId(Uuid::from_u128(1)) }
}

/// The headers that go with every request to an HTTP server.
pub fn headers(target: &mut Target) -> &mut Vec<(HeaderName, SecretString)> {
    match &mut target.reach {
        Reach::Http { headers, .. } | Reach::Sse { headers, .. } => headers,
        Reach::Own { .. } | Reach::Stdio(_) => panic!("it takes no headers"),
    }
}

#[must_use]
pub fn raw(json: &str) -> Arc<RawValue> {
    Arc::from(RawValue::from_string(json.to_owned()).expect("JSON"))
}

#[must_use]
pub fn tool_call(name: &str, arguments: &str) -> Call {
    request(What::Tool {
        name: name.to_owned(),
        arguments: raw(arguments),
        input_schema: None,
        input: None,
    })
}

/// A request with nothing besides.
#[must_use]
pub fn request(what: What) -> Call {
    Call {
        what,
        response_limit: 5_000_000,
        trace: None,
        relay: None,
        capabilities: None,
        progress: false,
        log_level: None,
        meta: None,
        pinned: None,
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
    call: Call,
) -> Result<Answer, CallFailure> {
    clients.call(target, call, soon(), CancellationToken::new()).await
}

/// The text of an answer.
#[must_use]
pub fn text(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.raw).expect("results are UTF-8")
}
