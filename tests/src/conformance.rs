//! An MCP server with the tools, resources and prompts that MCP's conformance suite calls, in both eras of the
//! protocol on one URL. What each must do stands in the descriptions of the suite's scenarios
//! (github modelcontextprotocol/conformance, src/scenarios/server).

mod catalogue;
mod rounds;
mod server;
mod tools;

use std::{net::SocketAddr, sync::Arc};

use axum::serve::ListenerExt;
use rmcp::{
    model::ProtocolVersion,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio::{net::TcpListener, task::JoinHandle};
use url::Url;

pub use server::Peer;

/// Where browsers may come from: the suite plays one on this machine.
const ORIGINS: [&str; 3] = ["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"];

/// Serves both eras on `listen` until the task is aborted; port 0 takes a free one.
pub async fn serve(listen: SocketAddr) -> (Url, JoinHandle<()>) {
    serve_versions(listen, ProtocolVersion::KNOWN_VERSIONS).await
}

/// The same, of a server that knows no other versions.
pub async fn serve_versions(
    listen: SocketAddr,
    versions: &'static [ProtocolVersion],
) -> (Url, JoinHandle<()>) {
    let listener = TcpListener::bind(listen).await.expect("the address is free");
    let address = listener.local_addr().expect("it is bound");
    let url = format!("http://{address}/mcp").parse().expect("an address is a host");
    let peer = Peer::new(versions);
    let service: StreamableHttpService<Peer, LocalSessionManager> = StreamableHttpService::new(
        move || Ok(peer.in_a_session()),
        Arc::default(),
        StreamableHttpServerConfig::default().with_allowed_origins(ORIGINS),
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    // Else each event waits 40 ms for the acknowledgement of the one before.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a socket"));
    let serving =
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    (url, serving)
}
