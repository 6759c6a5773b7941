//! rmcp's client, in each way it can begin.

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt,
    model::{CallToolRequestParams, ClientConfig, ProtocolVersion},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::json;
use tests::peer::Setup;

use super::Gateway;

#[derive(Clone)]
struct Client(ProtocolVersion);

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.protocol_version = self.0.clone();
        info
    }
}

#[tokio::test]
async fn rmcps_client_gets_along_however_it_begins() {
    let gateway = Gateway::new(Setup::modern()).await;
    let modern = vec![ProtocolVersion::V_2026_07_28];
    let auto =
        ClientLifecycleMode::Auto { preferred_versions: modern.clone(), legacy_version: None };
    let discover = ClientLifecycleMode::Discover { preferred_versions: modern };
    for (lifecycle, version) in [
        (ClientLifecycleMode::Initialize, ProtocolVersion::V_2025_11_25),
        (ClientLifecycleMode::Initialize, ProtocolVersion::V_2025_06_18),
        (ClientLifecycleMode::Initialize, ProtocolVersion::V_2025_03_26),
        (discover, ProtocolVersion::V_2026_07_28),
        (auto, ProtocolVersion::V_2026_07_28),
    ] {
        for path in [gateway.path(), "/mcp".to_owned()] {
            let url = gateway.world.url.join(&path).unwrap();
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .auth_header(gateway.token.clone());
            let transport = StreamableHttpClientTransport::from_config(config);
            let client = Client(version.clone())
                .serve_with_lifecycle(transport, lifecycle.clone())
                .await
                .unwrap();
            let tools = client.list_all_tools().await.unwrap();
            if path == "/mcp" {
                // The default session inherits the tenant's selection, which is empty.
                let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
                assert_eq!(names, ["result_read"]);
            } else {
                assert_eq!(tools[0].name, "mcp__demo__echo");
                let arguments = json!({"n": 1}).as_object().unwrap().clone();
                let call = CallToolRequestParams::new("mcp__demo__echo").with_arguments(arguments);
                let result = client.call_tool(call).await.unwrap();
                let result = serde_json::to_value(result).unwrap();
                assert_eq!(result["structuredContent"], json!({"n": 1}), "{version}");
                assert!(result["_meta"]["bailiwick/invocationId"].is_string());
            }
            client.cancel().await.unwrap();
        }
    }
}
