//! Clients that call one after the other, side by side.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use futures::future::{join_all, try_join_all};
use rmcp::{
    RoleClient,
    model::{
        CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion,
    },
    service::{ClientLifecycleMode, ClientServiceExt, RunningService},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};
use url::Url;

use crate::{measured::Measured, wire::Connection};

/// A caller that failed this often is not asked again.
const MOST_ERRORS: u32 = 5;

/// Where and as whom a tool is called.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) url: Url,
    pub(crate) tool: String,
    pub(crate) token: Option<String>,
}

/// Makes every input of a run another one.
#[derive(Debug, Default)]
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// rmcp's client.
    Mcp,
    /// A kept connection and one write for each call: what is left of a call without a client.
    Raw,
}

/// One client with a connection of its own.
#[derive(Debug)]
pub(crate) enum Caller {
    Mcp(Box<RunningService<RoleClient, ClientConfig>>, String),
    Raw(Box<Connection>, Access),
}

pub(crate) fn arguments(number: u64) -> Value {
    json!({ "text": format!("this is call {number} of the bench"), "number": number })
}

pub(crate) async fn connect(
    access: &Access,
    kind: Kind,
    callers: usize,
) -> anyhow::Result<Vec<Caller>> {
    try_join_all((0..callers).map(|_| Caller::connect(access, kind))).await
}

/// Gives the connections back.
pub(crate) async fn end(callers: Vec<Caller>) {
    let ends = callers.into_iter().map(|caller| async {
        if let Caller::Mcp(service, _) = caller {
            let _ = tokio::time::timeout(Duration::from_secs(1), service.cancel()).await;
        }
    });
    join_all(ends).await;
}

/// Every caller calls until `time` is over, and finishes its last call.
pub(crate) async fn round(
    callers: Vec<Caller>,
    time: Duration,
    numbers: &Arc<Numbers>,
) -> (Measured, Vec<Caller>) {
    let until = Instant::now() + time;
    let tasks: Vec<_> = callers
        .into_iter()
        .map(|caller| tokio::spawn(caller.repeat(until, Arc::clone(numbers))))
        .collect();
    let (mut sum, mut again) = (Measured::default(), Vec::with_capacity(tasks.len()));
    for task in tasks {
        match task.await {
            Ok((measured, caller)) => {
                sum.beside(measured);
                again.push(caller);
            }
            Err(panic) => sum.fail(&panic.into()),
        }
    }
    (sum, again)
}

impl Caller {
    async fn connect(access: &Access, kind: Kind) -> anyhow::Result<Self> {
        if kind == Kind::Raw {
            let connection = Connection::open(&access.url).await?;
            return Ok(Self::Raw(Box::new(connection), access.clone()));
        }
        let mut config = StreamableHttpClientTransportConfig::with_uri(access.url.as_str());
        if let Some(token) = &access.token {
            config = config.auth_header(token.clone());
        }
        // A client of its own: callers are separate programs, with separate connections.
        let client = reqwest::Client::builder().no_proxy().build()?;
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let me = Implementation::new("bench", env!("CARGO_PKG_VERSION"));
        let modern = vec![ProtocolVersion::V_2026_07_28];
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions: modern };
        let service = ClientConfig::new(ClientCapabilities::default(), me)
            .serve_with_lifecycle(transport, lifecycle)
            .await
            .with_context(|| format!("{} does not answer as an MCP server", access.url))?;
        Ok(Self::Mcp(Box::new(service), access.tool.clone()))
    }

    async fn repeat(mut self, until: Instant, numbers: Arc<Numbers>) -> (Measured, Self) {
        let began = Instant::now();
        let mut latencies = Vec::new();
        let mut failed = Measured::default();
        while Instant::now() < until && failed.errors < MOST_ERRORS {
            let number = numbers.next();
            let asked = Instant::now();
            match self.call(number).await {
                Ok(()) => latencies.push(asked.elapsed()),
                Err(error) => failed.fail(&error),
            }
        }
        let mut measured = Measured::of(latencies, began.elapsed());
        measured.errors = failed.errors;
        measured.first_error = failed.first_error;
        (measured, self)
    }

    /// One call; fails unless the answer is the one to this input.
    async fn call(&mut self, number: u64) -> anyhow::Result<()> {
        match self {
            Self::Mcp(service, tool) => {
                let Value::Object(arguments) = arguments(number) else {
                    anyhow::bail!("arguments are an object");
                };
                let call = CallToolRequestParams::new(tool.clone()).with_arguments(arguments);
                let result = service.call_tool(call).await?;
                let said = result.structured_content.as_ref();
                let same = said.and_then(|said| said.get("number")?.as_u64()) == Some(number);
                ensure!(
                    same && result.is_error != Some(true),
                    "not the answer: {}",
                    said.map(Value::to_string).unwrap_or_default()
                );
            }
            Self::Raw(connection, access) => {
                let answer = connection.call_modern(access, number, &arguments(number)).await?;
                ensure!(
                    answer.contains(&format!("\"number\":{number}}}")),
                    "not the answer: {answer}"
                );
            }
        }
        Ok(())
    }
}
