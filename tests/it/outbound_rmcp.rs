//! Calls of rmcp's own server, in both eras and each way it can be run.

use std::{borrow::Cow, sync::Arc, time::Instant};

use axum::serve::ListenerExt;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
        PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tests::upstream::{call, clients, soon, target, text, tool_call};
use url::Url;

#[derive(Clone)]
struct Echo {
    versions: &'static [ProtocolVersion],
}

const OLDER: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_03_26];

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.versions)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = serde_json::json!({"type": "object"});
        let schema = Arc::new(schema.as_object().cloned().unwrap_or_default());
        Ok(ListToolsResult::with_all_items(vec![Tool::new("echo", "says it back", schema)]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let said = serde_json::Value::Object(request.arguments.unwrap_or_default());
        Ok(CallToolResult::success(vec![ContentBlock::text(said.to_string())]).into())
    }
}

async fn serve(versions: &'static [ProtocolVersion], config: StreamableHttpServerConfig) -> Url {
    let service: StreamableHttpService<Echo, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(Echo { versions }), Arc::default(), config);
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("it is bound"));
    // Else each event waits 40 ms for the acknowledgement of the one before.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a socket"));
    tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    url.parse().expect("an address is a host")
}

#[tokio::test]
async fn rmcps_server_is_called_in_both_eras_however_it_is_run() {
    let config = StreamableHttpServerConfig::default;
    for (versions, config, agreed) in [
        (ProtocolVersion::KNOWN_VERSIONS, config(), "2026-07-28"),
        (ProtocolVersion::KNOWN_VERSIONS, config().with_json_response(true), "2026-07-28"),
        (OLDER, config(), "2025-11-25"),
        (OLDER, config().with_legacy_session_mode(false), "2025-11-25"),
        (OLDER, config().with_legacy_session_mode(false).with_json_response(true), "2025-11-25"),
    ] {
        let url = serve(versions, config).await;
        let (clients, target) = (clients(), target(&url));
        let found = clients.discover(&target, false, soon()).await.unwrap();
        assert_eq!(found.protocol_version, agreed);
        assert_eq!(found.tools.len(), 1);
        let answer = call(&clients, &target, tool_call("echo", r#"{"a":[1,2]}"#)).await.unwrap();
        assert_eq!(answer.upstream_requests, 1);
        assert!(text(&answer).contains(r#"{\"a\":[1,2]}"#), "{}", text(&answer));
        let mut times: Vec<_> = Vec::new();
        for _ in 0..50 {
            let started = Instant::now();
            call(&clients, &target, tool_call("echo", "{}")).await.unwrap();
            times.push(started.elapsed());
        }
        times.sort();
        println!("{agreed}: p50 of a warm call {:?}", times[25]);
        clients.close_all(soon()).await;
    }
}
