//! What a peer's metadata can make us reach.

use outbound::{
    egress::{AllowRule, EgressRules},
    oauth::{DiscoverOptions, OAuthFailure},
};
use serde_json::{Map, Value, json};
use tests::peer::{Answer, Peer, Setup};
use url::Url;

use super::{Connected, Scene, callback, oauth_with, scopes, step};

fn members(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else { panic!("an object") };
    members
}

/// An address of `peer` under another of this machine's loopback addresses: another host, a listed network.
fn trap(peer: &Peer) -> Url {
    format!("http://127.0.0.2:{}/plain", peer.address().port()).parse().unwrap()
}

fn refused<T>(result: &Result<T, OAuthFailure>) -> bool {
    matches!(
        result,
        Err(OAuthFailure::Egress(_) | OAuthFailure::Discovery { step: "insecure_url" })
    )
}

#[tokio::test]
async fn no_endpoint_of_the_metadata_leads_to_another_host_of_ours() {
    let scene = Scene::start().await;
    let intranet = Peer::start(Setup::modern()).await;
    for endpoint in
        ["authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"]
    {
        for address in [
            trap(&intranet).as_str(),
            "http://169.254.169.254/latest",
            "https://169.254.169.254/latest",
            "https://10.0.0.1/",
            "https://[fd00:ec2::254]/",
            "https://127.0.0.2/",
            "http://elsewhere.test/token",
            "https://user:password@a.test/",
            "https://a.test/#fragment",
            "javascript:alert(1)",
            " JavaScript:alert(1)",
            "/token",
            "",
        ] {
            scene.provider.set(|knobs| knobs.patch_metadata = members(json!({endpoint: address})));
            let found = scene.discover().await;
            assert!(refused(&found), "{endpoint} {address}");
        }
    }
    assert!(intranet.journal().is_empty());
}

#[tokio::test]
async fn a_stored_endpoint_is_judged_at_every_use() {
    let scene = Scene::start().await;
    let intranet = Peer::start(Setup::modern()).await;
    let mut connected = scene.connect().await;
    let server = &mut connected.found.server;
    server.token_endpoint = trap(&intranet);
    server.registration_endpoint = Some(trap(&intranet));
    server.revocation_endpoint = Some(trap(&intranet));
    assert!(refused(&scene.refresh(&connected).await));
    assert!(refused(&scene.register(&connected.found).await));
    let (server, token) = (&connected.found.server, connected.tokens.refresh_token.as_ref());
    assert!(refused(&scene.oauth.revoke(server, &connected.client, token.unwrap()).await));
    let exchanged = scene.exchange(&connected.found, &connected.client, "alice").await;
    assert!(refused(&exchanged));
    assert!(intranet.journal().is_empty());
}

#[tokio::test]
async fn the_operators_list_is_asked_again_when_it_changed() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    let strict = oauth_with(EgressRules::default());
    let token = connected.tokens.refresh_token.as_ref().unwrap();
    let found = &connected.found;
    let refreshed = strict.refresh(&found.server, &connected.client, &found.resource, token).await;
    assert!(refused(&refreshed));
    assert!(scene.provider.grants("refresh_token").is_empty());
}

#[tokio::test]
async fn neither_challenge_nor_metadata_lead_discovery_to_another_host_of_ours() {
    let scene = Scene::start().await;
    let intranet = Peer::start(Setup::modern()).await;
    for address in [trap(&intranet).as_str(), "http://169.254.169.254/", "https://10.0.0.1/x"] {
        scene.server.set(|gate| gate.points_to = Some(address.to_owned()));
        // Passed over or refused, but never asked.
        if let Ok(found) = scene.discover().await {
            assert_eq!(found.server.issuer, scene.provider.issuer());
        }
        scene.server.set(|gate| {
            gate.points_to = None;
            gate.patch_prm = members(json!({"authorization_servers": [address]}));
        });
        assert!(refused(&scene.discover().await), "{address}");
        scene.server.set(|gate| gate.patch_prm = Map::new());
    }
    assert!(intranet.journal().is_empty());
}

#[tokio::test]
async fn a_listed_host_is_reached_because_a_person_configured_it_and_not_because_a_peer_named_it() {
    let scene = Scene::start().await;
    // The provider under another name than the server's: `localhost`, which the operator listed too.
    let issuer = scene.provider.issuer().replace("127.0.0.1", "localhost");
    scene.server.set(|gate| {
        gate.patch_prm = members(json!({"authorization_servers": [issuer]}));
    });
    let endpoint = |path: &str| format!("{issuer}{path}");
    scene.provider.set(|knobs| {
        knobs.patch_metadata = members(json!({
            "issuer": issuer,
            "authorization_endpoint": endpoint("/authorize"),
            "token_endpoint": endpoint("/token"),
            "registration_endpoint": endpoint("/register"),
            "revocation_endpoint": endpoint("/revoke"),
        }));
    });
    let allow = vec![
        AllowRule::Network("127.0.0.0/8".parse().unwrap()),
        AllowRule::Host("localhost".to_owned()),
    ];
    let oauth = oauth_with(EgressRules { allow, own: Vec::new() });
    let url = scene.server.url();
    assert!(refused(&oauth.discover(&url, &DiscoverOptions::default()).await));
    assert!(scene.provider.journal().is_empty());

    let options = DiscoverOptions { issuer: Some(issuer.clone()), ..DiscoverOptions::default() };
    let found = oauth.discover(&url, &options).await.unwrap();
    assert_eq!(found.server.configured_host, "localhost");
    oauth.register(&found.server, &callback(), "Bailiwick", &scopes("a")).await.unwrap();
}

#[tokio::test]
async fn our_own_listeners_are_reached_by_nobody() {
    let scene = Scene::start().await;
    let ours = Peer::start(Setup::modern()).await;
    let allow = vec![AllowRule::Network("127.0.0.0/8".parse().unwrap())];
    let oauth = oauth_with(EgressRules { allow, own: vec![ours.address()] });
    scene.provider.set(|knobs| {
        knobs.patch_metadata = members(json!({"token_endpoint": ours.url()}));
    });
    assert!(refused(&oauth.discover(&scene.server.url(), &DiscoverOptions::default()).await));
    assert!(ours.journal().is_empty());
}

#[tokio::test]
async fn a_request_with_a_secret_follows_no_redirect() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    let thief = Peer::start(Setup::modern()).await;
    let redirecting = Peer::start(Setup::modern()).await;
    let mut found = connected.found.clone();
    found.server.token_endpoint = redirecting.url();
    let token = connected.tokens.refresh_token.as_ref().unwrap();
    for status in [301, 302, 303, 307, 308] {
        for target in [thief.url(), redirecting.url().join("/inside").unwrap()] {
            redirecting.script_method("", [Answer::redirect(status, target.as_str())]);
            let refreshed =
                scene.oauth.refresh(&found.server, &connected.client, &found.resource, token).await;
            assert!(refreshed.is_err(), "{status}");
        }
    }
    assert!(thief.journal().is_empty());
    assert!(redirecting.journal().iter().all(|one| one.path == "/mcp"));
    assert_eq!(redirecting.journal().len(), 10);
}

#[tokio::test]
async fn plain_http_beyond_loopback_is_refused_whatever_is_listed() {
    let scene = Scene::start().await;
    let mut connected = scene.connect().await;
    let allow = vec![
        AllowRule::Network("127.0.0.0/8".parse().unwrap()),
        AllowRule::Host("as.test".to_owned()),
    ];
    let oauth = oauth_with(EgressRules { allow, own: Vec::new() });
    let issuer = "http://as.test".to_owned();
    scene.server.set(|gate| {
        gate.patch_prm = members(json!({"authorization_servers": [issuer]}));
    });
    let options = DiscoverOptions { issuer: Some(issuer), ..DiscoverOptions::default() };
    assert_eq!(step(oauth.discover(&scene.server.url(), &options).await), "insecure_url");

    // Nor where it was stored before.
    connected.found.server.configured_host = "as.test".to_owned();
    connected.found.server.token_endpoint = "http://as.test/token".parse().unwrap();
    let token = connected.tokens.refresh_token.as_ref().unwrap();
    let Connected { found, client, .. } = &connected;
    let refreshed = oauth.refresh(&found.server, client, &found.resource, token).await;
    assert_eq!(step(refreshed), "insecure_url");
}
