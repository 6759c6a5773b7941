//! The server that is called: MCP 2026-07-28 over streamable HTTP, as cheap as can be, on a thread of
//! its own. It counts requests.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

pub(crate) const TOOL: &str = "echo";

const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":3600000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}}"#;
const TOOLS: &str = r#"{"resultType":"complete","ttlMs":3600000,"cacheScope":"public","tools":[{"name":"echo","description":"Says it back","inputSchema":{"type":"object","properties":{"text":{"type":"string","maxLength":200},"number":{"type":"integer","minimum":0}},"required":["text","number"],"additionalProperties":false}}]}"#;

/// Runs until the process ends.
#[derive(Debug)]
pub(crate) struct Echo {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Echo {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let requests = Arc::<AtomicU64>::default();
        let router = Router::new().route("/mcp", post(answer)).with_state(Arc::clone(&requests));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("echo".to_owned()).spawn(move || {
            let served = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
                    // Without it a small answer may wait for the acknowledgement of the last one.
                    let _ = stream.set_nodelay(true);
                });
                axum::serve(listener, router).await
            });
            if let Err(error) = served {
                eprintln!("the echo server ended: {error}");
            }
        })?;
        Ok(Self { address, requests })
    }

    pub(crate) fn url(&self) -> Url {
        let url = format!("http://{}/mcp", self.address);
        Url::parse(&url).expect("an address and a port make a URL")
    }

    /// HTTP requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: &'a RawValue,
}

async fn answer(State(requests): State<Arc<AtomicU64>>, body: Bytes) -> Response {
    requests.fetch_add(1, Ordering::Relaxed);
    let Ok(request) = serde_json::from_slice::<Request<'_>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Some(id) = request.id else { return StatusCode::ACCEPTED.into_response() };
    let result = match request.method {
        "server/discover" => DISCOVERED.to_owned(),
        "tools/list" => TOOLS.to_owned(),
        "tools/call" => {
            let arguments = request.params.and_then(|params| params.arguments);
            let arguments = arguments.map_or("{}", RawValue::get);
            let Ok(Arguments { text }) = serde_json::from_str(arguments) else {
                return StatusCode::BAD_REQUEST.into_response();
            };
            format!(
                r#"{{"resultType":"complete","content":[{{"type":"text","text":{text}}}],"structuredContent":{arguments},"isError":false}}"#
            )
        }
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let json = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    ([(CONTENT_TYPE, "application/json")], json).into_response()
}
