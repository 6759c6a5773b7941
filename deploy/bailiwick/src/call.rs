//! Calls a tool through the gateway as a real MCP client, and puts the question, if there is one, to
//! whoever sits at this terminal.

mod questions;
pub(crate) mod rest;
mod show;

use std::process::ExitCode;

use domain::limits;
use rmcp::{
    RoleClient,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
        JsonObject, ProtocolVersion,
    },
    service::{
        ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RunningService, ServiceError,
    },
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use runtime::config::{self, Settings};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::{Host, Url};

use crate::{
    cli::Call,
    failure::Failure,
    installation::{self, Installation},
};
use questions::Questions;
use rest::Rest;

/// A gateway and the tokens for it.
struct Gateway {
    url: Url,
    /// Scope `mcp:call`.
    token: SecretString,
    /// Scope `approve`; without it others decide.
    approve_token: Option<SecretString>,
}

/// Exit code 0 for a result of the tool, 1 for a call that was refused or failed.
pub(crate) async fn run(settings: &Settings, args: Call) -> Result<ExitCode, Failure> {
    let input: JsonObject = serde_json::from_str(&args.input)
        .map_err(|error| Failure::usage(format!("the input is not a JSON object: {error}")))?;
    let gateway = Gateway::find(settings)?;
    let http = client(&gateway.url)?;
    let service = connect(&gateway, &http).await?;

    let rest = |token: &SecretString| Rest::new(&http, &gateway.url, token.clone());
    let decider = gateway.approve_token.as_ref().map(rest);
    let reader = decider.clone().unwrap_or_else(|| rest(&gateway.token));
    let mut questions = Questions::of_call(
        decider,
        &args.tool,
        input.clone().into(),
        args.answer,
        args.output.json,
    );
    questions.note_older().await;

    let request = CallToolRequestParams::new(args.tool.clone()).with_arguments(input);
    let called = tokio::select! {
        called = service.call_tool(request) => called,
        // Questions end with the call, which is held until they are answered.
        never = questions.answer() => match never {},
    };
    let result = called.map_err(refused)?;
    // The session of an older gateway is given back; a newer one has none.
    let _ = tokio::time::timeout(limits::CALL_FAREWELL_MS.millis(), service.cancel()).await;

    let invocation = invocation_id(&result);
    let record = match &invocation {
        Some(id) => reader.invocation(id, questions.session()).await,
        None => None,
    };
    let ok = result.is_error != Some(true);
    if args.output.json {
        show::json(&result, invocation.as_deref(), record.as_ref(), questions.decisions());
    } else {
        show::words(&result, invocation.as_deref(), record.as_ref());
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn connect(
    gateway: &Gateway,
    http: &reqwest::Client,
) -> Result<RunningService<RoleClient, ClientConfig>, Failure> {
    let endpoint = gateway
        .url
        .join("/mcp")
        .map_err(|error| Failure::because("the gateway's URL is not usable", error))?;
    let transport = StreamableHttpClientTransport::with_client(
        http.clone(),
        StreamableHttpClientTransportConfig::with_uri(endpoint.as_str())
            .auth_header(gateway.token.expose_secret()),
    );
    let me = Implementation::new("bailiwick-call", env!("CARGO_PKG_VERSION"));
    ClientConfig::new(ClientCapabilities::default(), me)
        .serve_with_lifecycle(
            transport,
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
        )
        .await
        .map_err(|error| unanswered(&error))
}

/// Why there is no connection, in words rather than in types of the client library.
fn unanswered(error: &ClientInitializeError) -> Failure {
    let words = "the gateway does not answer as one";
    match (error.auth_challenge(), error) {
        (Some(challenge), _) if challenge.contains("insufficient_scope") => {
            Failure::new("the token lacks the scope mcp:call")
        }
        (Some(_), _) => Failure::new("the token is unknown, revoked or expired"),
        (None, ClientInitializeError::TransportError { error, .. }) => {
            Failure::because_of(words, error.error.as_ref())
        }
        (None, error) => Failure::because_of(words, error),
    }
}

/// Why there is no result; a refusal has the code and the invocation beside its words.
fn refused(error: ServiceError) -> Failure {
    match error {
        ServiceError::McpError(refusal) => {
            let data = refusal.data.map(|data| format!(" {data}")).unwrap_or_default();
            Failure::new(format!("the gateway refused the call: {}{data}", refusal.message))
        }
        error => Failure::because("the call has no answer", error),
    }
}

/// In the result of a call that was made, and in the error of one that the gateway ended.
fn invocation_id(result: &CallToolResult) -> Option<String> {
    let meta = serde_json::to_value(result.meta.as_ref()?).ok();
    let of_meta = meta.as_ref().and_then(|meta| meta.get("bailiwick/invocationId"));
    let of_error = result.structured_content.as_ref().and_then(|error| error.get("invocationId"));
    of_meta.or(of_error).and_then(Value::as_str).map(str::to_owned)
}

impl Gateway {
    /// From the variables; what they leave out, from the data directory.
    fn find(settings: &Settings) -> Result<Self, Failure> {
        let variables: std::collections::HashMap<String, String> =
            config::environment().filter(|(_, value)| !value.is_empty()).collect();
        // A directory that was named means: that installation, whatever the variables say.
        let variable = |name: &str| match settings.data_dir {
            Some(_) => None,
            None => variables.get(name).cloned(),
        };
        if let Some(url) = variable("BAILIWICK_URL") {
            let token = variable("BAILIWICK_TOKEN")
                .ok_or_else(|| Failure::usage("BAILIWICK_URL needs BAILIWICK_TOKEN beside it"))?;
            let approve_token = variable("BAILIWICK_APPROVE_TOKEN").map(SecretString::from);
            return Ok(Self { url: parse(&url)?, token: token.into(), approve_token });
        }
        let installation = Installation::of(settings)?;
        let missing = || {
            Failure::new(format!(
                "no installation in {}: name its --data-dir, or set BAILIWICK_URL and BAILIWICK_TOKEN",
                installation.dir().display()
            ))
        };
        let url = installation.url()?.ok_or_else(missing)?;
        Ok(Self {
            url: parse(&url)?,
            token: installation.read(installation::AGENT_TOKEN)?.ok_or_else(missing)?,
            approve_token: installation.read(installation::ADMIN_TOKEN)?,
        })
    }
}

pub(crate) fn parse(url: &str) -> Result<Url, Failure> {
    let problem =
        || Failure::usage("the gateway's URL must be such as https://bailiwick.example.org");
    let url = Url::parse(url).map_err(|_| problem())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        Ok(url)
    } else {
        Err(problem())
    }
}

/// A proxy of the environment is for other machines.
pub(crate) fn client(url: &Url) -> Result<reqwest::Client, Failure> {
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let builder = reqwest::Client::builder().connect_timeout(limits::CONNECT_TIMEOUT_MS.millis());
    let builder = if loopback { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| Failure::because("no HTTP client", error))
}
