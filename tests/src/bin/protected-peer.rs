//! `protected-peer`: an MCP server behind an authorization server that asks people for their consent, for `make
//! browser`. It prints `ready http://127.0.0.1:PORT/mcp` and serves until it is ended.

use tests::authorization_server::{AuthorizationServer, ProtectedPeer};

#[tokio::main]
async fn main() {
    let provider = AuthorizationServer::start().await;
    provider.set(|knobs| knobs.auto_consent = false);
    let peer = ProtectedPeer::start(&provider).await;
    println!("ready {}", peer.url());
    std::future::pending::<()>().await;
}
