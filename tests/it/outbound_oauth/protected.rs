//! Tokens at MCP servers of both eras and of HTTP+SSE, as our MCP client brings them.

use domain::Code;
use http::header::AUTHORIZATION;
use outbound::{
    mcp::{CallFailure, McpClients, Reach, Target},
    oauth::{DiscoverOptions, OAuthClient},
};
use secrecy::ExposeSecret;
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer, ProtectedSsePeer, Served},
    children::said,
    upstream::{call, clients, headers, target, tool_call},
};
use url::Url;

use super::{callback, oauth, query, scopes};

/// An access token of `user` for the server at `url`.
async fn token(
    provider: &AuthorizationServer,
    oauth: &OAuthClient,
    url: &Url,
    user: &str,
    asked: &str,
) -> String {
    let found = oauth.discover(url, &DiscoverOptions::default()).await.unwrap();
    let (server, resource, back) = (&found.server, &found.resource, callback());
    let client = oauth.register(server, &back, "Bailiwick", &[]).await.unwrap();
    let authorization = oauth.authorize(server, &client, &back, resource, &scopes(asked));
    let code = query(&provider.walk(&authorization.url, user).await, "code").unwrap().into();
    let verifier = &authorization.verifier;
    let tokens = oauth.exchange(server, &client, &back, resource, &code, verifier).await.unwrap();
    tokens.access_token.expose_secret().to_owned()
}

fn bearing(mut target: Target, token: &str) -> Target {
    headers(&mut target).push((AUTHORIZATION, format!("Bearer {token}").into()));
    target
}

async fn asks(clients: &McpClients, target: &Target, tool: &str) -> Result<String, Code> {
    let answer = call(clients, target, tool_call(tool, r#"{"a":1,"b":2,"id":"x"}"#)).await;
    answer.map(|answer| said(&answer)).map_err(|CallFailure { error, .. }| error.code)
}

/// What a protected server does with a token, none and too small a one.
async fn checks(provider: &AuthorizationServer, bare: Target, served: impl Fn() -> Vec<Served>) {
    let oauth = oauth();
    let (Reach::Http { url, .. } | Reach::Sse { url, .. }) = bare.reach.clone() else {
        panic!("a program has no URL")
    };
    let small = token(provider, &oauth, &url, "alice", "mcp:read").await;
    let large = token(provider, &oauth, &url, "bob", "mcp:read mcp:admin").await;

    assert_eq!(asks(&clients(), &bare, "whoami").await, Err(Code::Unauthorized));
    let wrong = bearing(bare.clone(), "not-a-token");
    assert_eq!(asks(&clients(), &wrong, "whoami").await, Err(Code::Unauthorized));
    let (alice, bob) = (bearing(bare.clone(), &small), bearing(bare, &large));
    let (with_alice, with_bob) = (clients(), clients());
    let said = asks(&with_alice, &alice, "whoami").await.unwrap();
    assert!(said.contains(r#""sub":"alice""#) && said.contains(url.as_str()), "{said}");
    assert!(asks(&with_bob, &bob, "whoami").await.unwrap().contains(r#""sub":"bob""#));
    assert_eq!(asks(&with_alice, &alice, "add").await.as_deref(), Ok(r#"{"sum":3}"#));
    assert_eq!(asks(&with_alice, &alice, "admin_delete").await, Err(Code::InsufficientScope));
    assert_eq!(asks(&with_bob, &bob, "admin_delete").await.as_deref(), Ok(r#"{"deleted":"x"}"#));
    let of_bob = served().iter().filter(|one| one.subject == "bob").count();
    assert_eq!((served().len(), of_bob), (4, 2));
    provider.revoke_all_of("alice");
    assert_eq!(asks(&with_alice, &alice, "whoami").await, Err(Code::Unauthorized));
    assert!(asks(&with_bob, &bob, "whoami").await.is_ok());
}

#[tokio::test]
async fn a_server_of_the_newer_era_knows_whose_token_it_is() {
    let provider = AuthorizationServer::start().await;
    let server = ProtectedPeer::start(&provider).await;
    checks(&provider, target(&server.url()), || server.served()).await;
}

#[tokio::test]
async fn a_server_of_the_older_era_knows_whose_token_it_is() {
    let provider = AuthorizationServer::start().await;
    let server = ProtectedPeer::start_older(&provider).await;
    checks(&provider, target(&server.url()), || server.served()).await;
    assert!(server.shared_sessions().is_empty());
}

#[tokio::test]
async fn an_sse_server_knows_whose_token_it_is() {
    let provider = AuthorizationServer::start().await;
    let server = ProtectedSsePeer::start(&provider).await;
    let url = server.url();
    let bare =
        Target { reach: Reach::Sse { url: url.clone(), headers: Vec::new() }, ..target(&url) };
    checks(&provider, bare, || server.served()).await;
}

#[tokio::test]
async fn a_token_of_another_server_is_no_token() {
    let provider = AuthorizationServer::start().await;
    let (one, other) =
        (ProtectedPeer::start(&provider).await, ProtectedPeer::start(&provider).await);
    let of_one = token(&provider, &oauth(), &one.url(), "alice", "mcp:read").await;
    let at_one = bearing(target(&one.url()), &of_one);
    let at_other = bearing(target(&other.url()), &of_one);
    assert!(asks(&clients(), &at_one, "whoami").await.is_ok());
    assert_eq!(asks(&clients(), &at_other, "whoami").await, Err(Code::Unauthorized));
}
