//! The rig of the house (`../shared/rig/oauthrig`): other people's authorization server and MCP SDK, where it runs.

use std::net::SocketAddr;

use outbound::{
    egress::{AllowRule, EgressRules},
    oauth::{DiscoverOptions, OAuthClient},
};
use tokio::net::TcpStream;
use url::Url;

use super::{callback, oauth_with, scopes};

async fn rig() -> Option<OAuthClient> {
    for port in [7200, 7210] {
        if TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await.is_err() {
            println!("the rig is not running (port {port}): nothing was checked");
            return None;
        }
    }
    let allow = vec![AllowRule::Host("localhost".to_owned())];
    Some(oauth_with(EgressRules { allow, own: Vec::new() }))
}

#[tokio::test]
async fn the_rig_is_found_and_registers_us_where_it_runs() {
    let Some(oauth) = rig().await else { return };
    for (path, url) in
        [("/mcp", "http://localhost:7210/mcp"), ("/sse", "http://localhost:7210/sse")]
    {
        let server: Url = url.parse().unwrap();
        let found = oauth.discover(&server, &DiscoverOptions::default()).await.unwrap();
        assert_eq!(found.resource, url, "{path}");
        assert_eq!(found.server.issuer, "http://localhost:7200");
        assert!(found.server.client_id_metadata_document_supported);
        let asked = scopes("mcp:read");
        oauth.register(&found.server, &callback(), "Bailiwick", &asked).await.unwrap();
    }
}
