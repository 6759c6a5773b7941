//! How a client and a server come to terms: `server/discover`, else `initialize`.
//!
//! A shared client asks for the newer era first. A server that refuses it in whatever way, or stays
//! silent for [`limits::PROBE_TIMEOUT_MS`], is asked to initialize; what it answers then counts. One that
//! was silent and then refuses may have been starting: it is asked for the newer era once more. An own
//! session stands for a client of an older era, so it is the other way round.

use std::sync::{Arc, atomic::AtomicBool};

use bytes::Bytes;
use domain::{Code, Error, limits};
use http::StatusCode;
use rmcp::model::{ErrorCode, Implementation, ProtocolVersion};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use super::{
    About,
    channel::{Answered, Channel, Fault, Link, Trail},
    params::{Meta, Sender},
    wire::{self, RpcError},
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
    /// It tells when they change.
    pub(super) tells_changes: bool,
    pub(super) server: ServerInfo,
    /// Who we are, for every request, where no `initialize` told it.
    pub(super) sender: Option<Sender>,
    /// `None` in a session that was begun elsewhere.
    pub(super) about: Option<About>,
    /// The server may have forgotten it: to be tried before the next call.
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
pub(super) const OFFERED: [ProtocolVersion; 3] =
    [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_03_26];

/// No more of an answer to a handshake is read.
const CAP: u64 = limits::BODY_CAP_FLOOR_BYTES.default;

/// Comes to terms with a server that nothing is known about.
pub(super) async fn connect(channel: &Channel, trail: &Trail) -> Result<Session, Error> {
    match discover(channel, trail).await? {
        Probe::Modern(session) => Ok(*session),
        Probe::Older(first) => initialize(channel, first, None, trail).await,
        Probe::Silent => or_newer(channel, OFFERED[0].clone(), None, trail).await,
    }
}

/// Begins an own session for a client that declared `capabilities` and asked for `version`. A server
/// that does not know `initialize` is asked for the newer era.
pub(super) async fn open(
    channel: &Channel,
    capabilities: &RawValue,
    version: &str,
    trail: &Trail,
) -> Result<Session, Error> {
    let first = ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .find(|known| known.as_str() == version && known.has_initialize())
        .unwrap_or(&OFFERED[0]);
    or_newer(channel, first.clone(), Some(capabilities), trail).await
}

/// Asks for a session of the older era, and for the newer era where the server does not know that.
async fn or_newer(
    channel: &Channel,
    first: ProtocolVersion,
    capabilities: Option<&RawValue>,
    trail: &Trail,
) -> Result<Session, Error> {
    let refused = match initialize(channel, first, capabilities, trail).await {
        Ok(session) => return Ok(session),
        Err(refused) if refused.code != Code::UpstreamFormat && refused.code != Code::NotFound => {
            return Err(refused);
        }
        Err(refused) => refused,
    };
    match discover(channel, trail).await {
        Ok(Probe::Modern(session)) => Ok(*session),
        Ok(Probe::Older(_) | Probe::Silent) | Err(_) => Err(refused),
    }
}

/// An own session that was begun elsewhere: nothing is asked.
pub(super) fn resume(link: Link, version: &ProtocolVersion) -> Result<Session, Error> {
    Ok(Session {
        sender: sender(version)?,
        version: version.clone(),
        link,
        tools: true,
        tells_changes: false,
        server: ServerInfo::default(),
        about: None,
        suspect: AtomicBool::new(false),
    })
}

enum Probe {
    Modern(Box<Session>),
    /// Offer this version first.
    Older(ProtocolVersion),
    /// It said nothing in time.
    Silent,
}

async fn discover(channel: &Channel, trail: &Trail) -> Result<Probe, Error> {
    let version = ProtocolVersion::V_2026_07_28;
    let sender = sender(&version)?;
    let link = Link { version: Some(version.clone()), ..Link::default() };
    let ask = async || {
        let params = json!({ "_meta": Meta::of(sender.as_ref()) });
        let message = wire::message(Some(channel.next_id()), "server/discover", Some(params))?;
        channel.request(&link, &message, CAP, trail, None).await
    };
    let asking = async {
        let answer = ask().await;
        // A server that refuses a version and names it as supported was not ready for it.
        if matches!(&answer, Err(Fault::Rpc { error, .. }) if refuses_what_it_speaks(error, &version))
        {
            return ask().await;
        }
        answer
    };
    let answer = tokio::select! {
        biased;
        answer = asking => answer,
        () = trail.silence(limits::PROBE_TIMEOUT_MS.millis()) => return Ok(Probe::Silent),
    };
    let answered = match answer {
        Ok(answered) => answered,
        Err(Fault::Rpc { error, .. }) if refuses_version(&error) => {
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
    let Discovered { capabilities, instructions, meta, .. } = found;
    let about = about(&version, capabilities, meta.server, instructions, answered.result);
    let link = Link { endpoint: answered.endpoint, ..link };
    Ok(Probe::Modern(Box::new(session(link, version, sender, about))))
}

fn refuses_version(error: &RpcError) -> bool {
    error.code == i64::from(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0)
}

fn refuses_what_it_speaks(error: &RpcError, version: &ProtocolVersion) -> bool {
    refuses_version(error) && error.supported_versions().iter().any(|one| one == version.as_str())
}

fn session(link: Link, version: ProtocolVersion, sender: Option<Sender>, about: About) -> Session {
    let tools = serde_json::from_str::<Capabilities<'_>>(about.capabilities.get())
        .ok()
        .and_then(|capabilities| capabilities.tools);
    let told: Option<Tools> = tools.and_then(|tools| serde_json::from_str(tools.get()).ok());
    let server = about.server_info.as_deref();
    let server = server.and_then(|server| serde_json::from_str(server.get()).ok());
    let tools = tools.is_some();
    Session {
        link,
        version,
        tools,
        tells_changes: told.is_some_and(|told| told.list_changed),
        server: server.unwrap_or_default(),
        sender,
        about: Some(about),
        suspect: AtomicBool::new(false),
    }
}

fn about(
    version: &ProtocolVersion,
    capabilities: Option<Arc<RawValue>>,
    server_info: Option<Arc<RawValue>>,
    instructions: Option<String>,
    raw: Bytes,
) -> About {
    About {
        version: version.to_string(),
        capabilities: capabilities.unwrap_or_else(nothing),
        server_info,
        instructions,
        raw,
    }
}

/// `{}`.
pub(super) fn nothing() -> Arc<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON").into()
}

/// Whether a failed probe says that asking again is vain: the server cannot be reached, refuses the
/// credential, asks to slow down, or is down. Anything else may be an older server's surprise.
fn decides_alone(fault: Fault) -> Result<(), Error> {
    match fault {
        Fault::Failed { status, failure }
            if failure.ran == Ran::No
                || status.is_some_and(is_about_neither)
                || failure.error.code == Code::InsufficientScope =>
        {
            Err(failure.error)
        }
        _ => Ok(()),
    }
}

/// A status that says something of credentials, of rates or of who stands before the server: nothing
/// of versions or sessions.
pub(super) fn is_about_neither(status: StatusCode) -> bool {
    const DECISIVE: [StatusCode; 6] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    DECISIVE.contains(&status)
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
/// names, else the next one: for a shared session (`capabilities` is `None`) only older ones.
pub(super) async fn initialize(
    channel: &Channel,
    first: ProtocolVersion,
    capabilities: Option<&RawValue>,
    trail: &Trail,
) -> Result<Session, Error> {
    let any = capabilities.is_some();
    let mut left: Vec<ProtocolVersion> =
        OFFERED.into_iter().filter(|version| any || *version <= first).collect();
    let mut offer = first;
    loop {
        left.retain(|version| *version != offer);
        match offer_version(channel, &offer, capabilities, trail).await {
            Ok(answered) => return agree(channel, answered, trail).await,
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
    channel: &Channel,
    version: &ProtocolVersion,
    capabilities: Option<&RawValue>,
    trail: &Trail,
) -> Result<Answered, Fault> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        protocol_version: &'a str,
        capabilities: &'a RawValue,
        client_info: Implementation,
    }
    let none = nothing();
    let params = Params {
        protocol_version: version.as_str(),
        capabilities: capabilities.unwrap_or(&none),
        client_info: ourselves(),
    };
    let message = wire::message(Some(channel.next_id()), "initialize", Some(params))?;
    channel.request(&Link::default(), &message, CAP, trail, None).await
}

async fn agree(channel: &Channel, answered: Answered, trail: &Trail) -> Result<Session, Error> {
    let Answered { result, session: id, endpoint } = answered;
    let found: Initialized = serde_json::from_slice(&result).map_err(|error| {
        Error::new(Code::UpstreamFormat, "the server's answer to initialize cannot be read")
            .because(words::NotAsExpected::from(error))
    })?;
    let version = ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .find(|known| known.as_str() == found.protocol_version)
        .cloned()
        .ok_or_else(no_common_version)?;
    let link = Link { endpoint, version: Some(version.clone()), session: id };
    let initialized = wire::message(None, "notifications/initialized", None::<()>)?;
    channel.notify(&link, &initialized, trail).await.map_err(|Failure { error, .. }| error)?;
    let about = about(&version, found.capabilities, found.server_info, found.instructions, result);
    let sender = sender(&version)?;
    Ok(session(link, version, sender, about))
}

fn ourselves() -> Implementation {
    Implementation::new("bailiwick", env!("CARGO_PKG_VERSION"))
}

/// What each request says in the newer era; before it, `initialize` says it once.
fn sender(version: &ProtocolVersion) -> Result<Option<Sender>, Error> {
    if version.has_initialize() {
        return Ok(None);
    }
    let client = serde_json::value::to_raw_value(&ourselves()).map_err(Error::internal)?;
    Ok(Some(Sender { version: version.to_string(), client }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Option<Arc<RawValue>>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default, rename = "_meta")]
    meta: DiscoveredMeta,
}

#[derive(Default, Deserialize)]
struct DiscoveredMeta {
    #[serde(default, rename = "io.modelcontextprotocol/serverInfo")]
    server: Option<Arc<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: String,
    #[serde(default)]
    capabilities: Option<Arc<RawValue>>,
    #[serde(default)]
    server_info: Option<Arc<RawValue>>,
    #[serde(default)]
    instructions: Option<String>,
}

#[derive(Deserialize)]
struct Capabilities<'a> {
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tools {
    #[serde(default)]
    list_changed: bool,
}
