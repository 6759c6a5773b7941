//! The protocol steps of an OAuth client against a real authorization server and real MCP servers.

mod discovery;
mod issuers;
mod protected;
mod reach;
mod registration;
mod rig;
mod tokens;

use outbound::{
    egress::{AllowRule, EgressRules},
    http::{GuardedHttp, HttpOptions},
    oauth::{
        Authorization, Client, DiscoverOptions, Discovered, OAuthClient, OAuthFailure, Tokens,
    },
};
use secrecy::{ExposeSecret, SecretString};
use tests::authorization_server::{AuthorizationServer, ProtectedPeer, WORDS};
use url::Url;

const CALLBACK: &str = "http://127.0.0.1:9/api/mcp/oauth/callback/custom-1";

/// A client whose operator listed the loopback network.
fn oauth() -> OAuthClient {
    let loopback = AllowRule::Network("127.0.0.0/8".parse().unwrap());
    oauth_with(EgressRules { allow: vec![loopback], own: Vec::new() })
}

fn oauth_with(rules: EgressRules) -> OAuthClient {
    OAuthClient::new(GuardedHttp::new(rules, &HttpOptions::default()).unwrap())
}

fn callback() -> Url {
    CALLBACK.parse().unwrap()
}

fn scopes(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A provider, a server behind it, and us.
struct Scene {
    provider: AuthorizationServer,
    server: ProtectedPeer,
    oauth: OAuthClient,
}

/// What someone who consented holds.
struct Connected {
    found: Discovered,
    client: Client,
    tokens: Tokens,
}

impl Scene {
    async fn start() -> Self {
        let provider = AuthorizationServer::start().await;
        let server = ProtectedPeer::start(&provider).await;
        Self { provider, server, oauth: oauth() }
    }

    async fn discover(&self) -> Result<Discovered, OAuthFailure> {
        self.oauth.discover(&self.server.url(), &DiscoverOptions::default()).await
    }

    /// The step at which discovery fails.
    async fn fails_at(&self) -> &'static str {
        step(self.discover().await)
    }

    async fn register(&self, found: &Discovered) -> Result<Client, OAuthFailure> {
        self.oauth.register(&found.server, &callback(), "Bailiwick", &scopes("mcp:read")).await
    }

    fn authorize(&self, found: &Discovered, client: &Client, asked: &str) -> Authorization {
        let asked = scopes(asked);
        self.oauth.authorize(&found.server, client, &callback(), &found.resource, &asked)
    }

    /// Consent of `user`, and the code of the callback.
    async fn code(&self, authorization: &Authorization, user: &str) -> SecretString {
        let back = self.provider.walk(&authorization.url, user).await;
        assert_eq!(query(&back, "state").as_deref(), Some(authorization.state.expose_secret()));
        query(&back, "code").expect("a code").into()
    }

    async fn exchange(
        &self,
        found: &Discovered,
        client: &Client,
        user: &str,
    ) -> Result<Tokens, OAuthFailure> {
        let authorization = self.authorize(found, client, "mcp:read mcp:write");
        let code = self.code(&authorization, user).await;
        let Authorization { verifier, .. } = authorization;
        let (server, resource) = (&found.server, &found.resource);
        self.oauth.exchange(server, client, &callback(), resource, &code, &verifier).await
    }

    /// All steps for `alice`.
    async fn connect(&self) -> Connected {
        let found = self.discover().await.unwrap();
        let client = self.register(&found).await.unwrap();
        let tokens = self.exchange(&found, &client, "alice").await.unwrap();
        Connected { found, client, tokens }
    }

    async fn refresh(&self, of: &Connected) -> Result<Tokens, OAuthFailure> {
        let token = of.tokens.refresh_token.as_ref().expect("a refresh token");
        self.oauth.refresh(&of.found.server, &of.client, &of.found.resource, token).await
    }
}

fn query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn step<T>(result: Result<T, OAuthFailure>) -> &'static str {
    match result.err().expect("it fails") {
        OAuthFailure::Discovery { step } => step,
        other => panic!("no failure of discovery: {other:?}"),
    }
}

/// The failure's words, which are ours alone.
fn words(failure: &OAuthFailure) -> String {
    let words = format!("{failure} {failure:?}");
    assert!(!words.contains(WORDS), "{words}");
    failure.to_string()
}

#[tokio::test]
async fn a_person_connects_calls_refreshes_and_calls_again() {
    let scene = Scene::start().await;
    let mut connected = scene.connect().await;
    let url = scene.server.url();
    assert_eq!(connected.found.resource, url.as_str());
    assert_eq!(connected.found.resource_scopes, scopes("mcp:read mcp:write"));
    assert_eq!(connected.found.server.issuer, scene.provider.issuer());
    let granted = scene.provider.check(connected.tokens.access_token.expose_secret()).unwrap();
    assert_eq!((granted.subject.as_str(), granted.audience.as_str()), ("alice", url.as_str()));
    assert_eq!(connected.tokens.scopes, Some(scopes("mcp:read mcp:write")));

    let before = connected.tokens.access_token.expose_secret().to_owned();
    let renewed = scene.refresh(&connected).await.unwrap();
    assert_ne!(renewed.access_token.expose_secret(), before);
    let spent = connected.tokens.refresh_token.replace(renewed.refresh_token.clone().unwrap());
    assert_ne!(spent.unwrap().expose_secret(), renewed.refresh_token.unwrap().expose_secret());
    scene.refresh(&connected).await.unwrap();
    assert_eq!(scene.provider.families_lost_to_reuse(), 0);
}
