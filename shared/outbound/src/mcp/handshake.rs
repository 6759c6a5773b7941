//! How a client and a server come to terms: `server/discover`, else `initialize`.
//!
//! The newer era is asked for first. A server that refuses it in whatever way, or stays silent for
//! [`limits::PROBE_TIMEOUT_MS`], is asked to initialize; what it answers then counts.

use std::sync::{Arc, atomic::AtomicBool};

use domain::{Code, Error, limits};
use http::StatusCode;
use rmcp::model::{
    ClientCapabilities, ErrorCode, Implementation, InitializeRequestParams, ProtocolVersion,
    RequestMetaObject,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};

use super::{
    exchange::{Answered, Fault, Link, Trail, Upstream},
    wire,
};
use crate::{
    http::{Failure, Ran},
    words,
};

/// What was agreed with a server.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: Link,
    pub(super) version: ProtocolVersion,
    /// The server offers tools.
    pub(super) tools: bool,
    pub(super) server: ServerInfo,
    /// `_meta` of every request: who we are, where no `initialize` told it.
    pub(super) meta: Map<String, Value>,
    /// The server may have forgotten it: begin anew before the next call.
    pub(super) suspect: AtomicBool,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ServerInfo {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) version: Option<String>,
}

/// Versions with `initialize`, newest first, in the order in which they are offered.
const OFFERED: [ProtocolVersion; 3] =
    [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_03_26];

/// No more of an answer to a handshake is read.
const CAP: u64 = limits::BODY_CAP_FLOOR_BYTES.default;

/// Comes to terms with a server that nothing is known about.
pub(super) async fn connect(upstream: &Arc<Upstream>, trail: &Trail) -> Result<Session, Error> {
    match discover(upstream, trail).await? {
        Probe::Modern(session) => Ok(*session),
        Probe::Older(first) => initialize(upstream, first, trail).await,
    }
}

enum Probe {
    Modern(Box<Session>),
    /// Offer this version first.
    Older(ProtocolVersion),
}

async fn discover(upstream: &Arc<Upstream>, trail: &Trail) -> Result<Probe, Error> {
    let version = ProtocolVersion::V_2026_07_28;
    let meta = client_context(&version)?;
    let params = json!({ "_meta": meta });
    let message = wire::message(Some(upstream.next_id()), "server/discover", Some(params))?;
    let link =
        Link { endpoint: upstream.url.clone(), version: Some(version.clone()), session: None };
    let request = upstream.request(&link, &message, CAP, trail);
    let Ok(answer) = tokio::time::timeout(limits::PROBE_TIMEOUT_MS.millis(), request).await else {
        return Ok(Probe::Older(newest_of(&[])?));
    };
    let answered = match answer {
        Ok(answered) => answered,
        Err(Fault::Rpc { error, .. })
            if error.code == i64::from(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0) =>
        {
            return Ok(Probe::Older(newest_of(&error.supported_versions())?));
        }
        Err(fault) => return decides_alone(fault).map(|()| Probe::Older(OFFERED[0].clone())),
    };
    let Ok(found) = serde_json::from_slice::<Discovered>(&answered.result) else {
        return Ok(Probe::Older(newest_of(&[])?));
    };
    if !found.supported_versions.iter().any(|supported| supported == version.as_str()) {
        return Ok(Probe::Older(newest_of(&found.supported_versions)?));
    }
    Ok(Probe::Modern(Box::new(Session {
        link: Link { endpoint: answered.endpoint, ..link },
        version,
        tools: found.capabilities.tools.is_some(),
        server: found.meta.server.unwrap_or_default(),
        meta,
        suspect: AtomicBool::new(false),
    })))
}

/// Whether a failed probe says that asking again is vain: the server cannot be reached, refuses the
/// credential, asks to slow down, or is down. Anything else may be an older server's surprise.
fn decides_alone(fault: Fault) -> Result<(), Error> {
    const DECISIVE: [StatusCode; 6] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    match fault {
        Fault::Failed { status, failure }
            if failure.ran == Ran::No || status.is_some_and(|is| DECISIVE.contains(&is)) =>
        {
            Err(failure.error)
        }
        _ => Ok(()),
    }
}

/// The newest version that we offer and the server names; the newest of all where it names none.
fn newest_of(supported: &[String]) -> Result<ProtocolVersion, Error> {
    OFFERED
        .into_iter()
        .find(|offer| supported.is_empty() || supported.iter().any(|one| one == offer.as_str()))
        .ok_or_else(no_common_version)
}

fn no_common_version() -> Error {
    Error::new(Code::UpstreamFormat, "the server speaks no protocol version that is known here")
}

/// Opens a session of the older era. A server that refuses a version is offered those that it
/// names, else the next older one.
pub(super) async fn initialize(
    upstream: &Arc<Upstream>,
    first: ProtocolVersion,
    trail: &Trail,
) -> Result<Session, Error> {
    let mut left: Vec<ProtocolVersion> =
        OFFERED.into_iter().filter(|version| *version <= first).collect();
    let mut offer = first;
    loop {
        left.retain(|version| *version != offer);
        match offer_version(upstream, &offer, trail).await {
            Ok(answered) => return agree(upstream, answered, trail).await,
            Err(Fault::Rpc { error, .. }) => {
                let named = error.supported_versions();
                let next = left
                    .iter()
                    .find(|left| named.is_empty() || named.iter().any(|one| one == left.as_str()));
                let Some(next) = next else {
                    return Err(error.into_error(
                        Code::UpstreamFormat,
                        "the server refused to begin a session",
                    ));
                };
                offer = next.clone();
            }
            Err(Fault::Failed { status: Some(StatusCode::BAD_REQUEST), .. })
                if !left.is_empty() =>
            {
                offer = left[0].clone();
            }
            Err(Fault::Failed { failure, .. }) => return Err(failure.error),
            Err(Fault::Lost) => return Err(Error::internal("a session was lost before it began")),
        }
    }
}

async fn offer_version(
    upstream: &Arc<Upstream>,
    version: &ProtocolVersion,
    trail: &Trail,
) -> Result<Answered, Fault> {
    let params = InitializeRequestParams::new(ClientCapabilities::default(), ourselves())
        .with_protocol_version(version.clone());
    let message = wire::message(Some(upstream.next_id()), "initialize", Some(params))?;
    let link = Link { endpoint: upstream.url.clone(), version: None, session: None };
    upstream.request(&link, &message, CAP, trail).await
}

async fn agree(
    upstream: &Arc<Upstream>,
    answered: Answered,
    trail: &Trail,
) -> Result<Session, Error> {
    let Answered { result, session, endpoint } = answered;
    let found: Initialized = serde_json::from_slice(&result).map_err(|error| {
        Error::new(Code::UpstreamFormat, "the server's answer to initialize cannot be read")
            .because(words::NotAsExpected::from(error))
    })?;
    let version = ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .find(|known| known.as_str() == found.protocol_version)
        .cloned()
        .ok_or_else(no_common_version)?;
    let link = Link { endpoint, version: Some(version.clone()), session };
    let meta = if version.has_initialize() { Map::new() } else { client_context(&version)? };
    let initialized = wire::message(None, "notifications/initialized", None::<()>)?;
    upstream.notify(&link, &initialized, trail).await.map_err(|Failure { error, .. }| error)?;
    Ok(Session {
        link,
        version,
        tools: found.capabilities.tools.is_some(),
        server: found.server_info.unwrap_or_default(),
        meta,
        suspect: AtomicBool::new(false),
    })
}

fn ourselves() -> Implementation {
    Implementation::new("bailiwick", env!("CARGO_PKG_VERSION"))
}

/// We declare no capabilities: a server has nothing to ask us.
fn client_context(version: &ProtocolVersion) -> Result<Map<String, Value>, Error> {
    let context = RequestMetaObject::with_client_context(
        version.clone(),
        ourselves(),
        ClientCapabilities::default(),
    );
    match serde_json::to_value(context).map_err(Error::internal)? {
        Value::Object(map) => Ok(map),
        _ => Err(Error::internal("_meta is not an object")),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(default, rename = "_meta")]
    meta: DiscoveredMeta,
}

#[derive(Default, Deserialize)]
struct DiscoveredMeta {
    #[serde(default, rename = "io.modelcontextprotocol/serverInfo")]
    server: Option<ServerInfo>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: String,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(default)]
    server_info: Option<ServerInfo>,
}

#[derive(Default, Deserialize)]
struct Capabilities {
    #[serde(default)]
    tools: Option<IgnoredAny>,
}
