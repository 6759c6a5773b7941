//! Authorization URL, code exchange, refresh, revocation.

use std::time::Duration;

use outbound::{
    http::Ran,
    oauth::{Authorization, Denial, OAuthFailure},
};
use secrecy::ExposeSecret;
use serde_json::json;
use tests::authorization_server::{Fault, WORDS};

use super::{CALLBACK, Scene, callback, query, scopes, words};

fn denial(failure: &OAuthFailure) -> Denial {
    words(failure);
    match failure {
        OAuthFailure::Refused(denial) => *denial,
        other => panic!("no refusal: {other:?}"),
    }
}

fn ran(failure: &OAuthFailure) -> Ran {
    words(failure);
    match failure {
        OAuthFailure::Unavailable { ran, .. } => *ran,
        other => panic!("no outage: {other:?}"),
    }
}

#[tokio::test]
async fn an_authorization_asks_for_everything_and_repeats_nothing() {
    let scene = Scene::start().await;
    let found = scene.discover().await.unwrap();
    let client = scene.register(&found).await.unwrap();
    let one = scene.authorize(&found, &client, "mcp:read mcp:write");
    let part = |name: &str| query(&one.url, name).unwrap_or_default();
    assert!(one.url.as_str().starts_with(found.server.authorization_endpoint.as_str()));
    assert_eq!(part("response_type"), "code");
    assert_eq!(part("client_id"), client.client_id);
    assert_eq!(part("redirect_uri"), CALLBACK);
    assert_eq!(part("resource"), found.resource);
    assert_eq!(part("scope"), "mcp:read mcp:write");
    assert_eq!(part("code_challenge_method"), "S256");
    assert_eq!(part("prompt"), "");
    // 256 bits as base64url.
    assert_eq!((one.state.expose_secret().len(), one.verifier.expose_secret().len()), (43, 43));
    assert!(!one.url.as_str().contains(one.verifier.expose_secret()));
    let other = scene.authorize(&found, &client, "mcp:read offline_access");
    assert_ne!(one.state.expose_secret(), other.state.expose_secret());
    assert_ne!(one.verifier.expose_secret(), other.verifier.expose_secret());
    assert_eq!(query(&other.url, "prompt").as_deref(), Some("consent"));
    let none = scene.oauth.authorize(&found.server, &client, &callback(), &found.resource, &[]);
    assert_eq!(query(&none.url, "scope"), None);
}

#[tokio::test]
async fn the_resource_is_in_every_request() {
    let scene = Scene::start().await;
    scene.provider.set(|knobs| {
        knobs.require_resource = true;
        knobs.resources = Some(vec![scene.server.url().to_string()]);
    });
    let connected = scene.connect().await;
    scene.refresh(&connected).await.unwrap();
    let mut foreign = connected.found.clone();
    foreign.resource = "https://elsewhere.test".to_owned();
    let authorization = scene.authorize(&foreign, &connected.client, "mcp:read");
    let back = scene.provider.walk(&authorization.url, "alice").await;
    assert_eq!(Denial::named(&query(&back, "error").unwrap()), Denial::InvalidTarget);
}

#[tokio::test]
async fn a_refresh_asks_for_no_scope_and_accepts_json() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    scene.refresh(&connected).await.unwrap();
    for sent in scene.provider.asked("/token") {
        assert_eq!(sent.header("accept"), "application/json");
        assert!(!sent.form.contains_key("scope"));
    }
}

#[tokio::test]
async fn a_code_is_good_once_and_with_its_verifier_alone() {
    let scene = Scene::start().await;
    let found = scene.discover().await.unwrap();
    let client = scene.register(&found).await.unwrap();
    let authorization = scene.authorize(&found, &client, "mcp:read");
    let code = scene.code(&authorization, "alice").await;
    let Authorization { verifier, .. } = &authorization;
    let with = async |verifier| {
        let (server, resource) = (&found.server, &found.resource);
        scene.oauth.exchange(server, &client, &callback(), resource, &code, verifier).await
    };
    let other = scene.authorize(&found, &client, "mcp:read").verifier;
    assert_eq!(denial(&with(&other).await.unwrap_err()), Denial::InvalidGrant);
    with(verifier).await.unwrap();
    assert_eq!(denial(&with(verifier).await.unwrap_err()), Denial::InvalidGrant);
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    for (code, expected) in [
        ("invalid_grant", Denial::InvalidGrant),
        ("invalid_client", Denial::InvalidClient),
        ("invalid_scope", Denial::InvalidScope),
        ("invalid_target", Denial::InvalidTarget),
        ("access_denied", Denial::AccessDenied),
        ("bad_refresh_token", Denial::InvalidGrant),
        ("interaction_required", Denial::InvalidGrant),
        ("unauthorized_client", Denial::InvalidClient),
        ("something_else", Denial::Other),
    ] {
        scene.provider.set(|knobs| knobs.fail_token(Fault::error(code)));
        assert_eq!(denial(&scene.refresh(&connected).await.unwrap_err()), expected, "{code}");
        let in_200 = Fault::json(200, json!({"error": code, "error_description": WORDS}));
        scene.provider.set(|knobs| knobs.fail_token(in_200));
        assert_eq!(
            denial(&scene.refresh(&connected).await.unwrap_err()),
            expected,
            "{code} in 200"
        );
    }
    scene.provider.forget_clients();
    assert_eq!(denial(&scene.refresh(&connected).await.unwrap_err()), Denial::InvalidClient);
}

#[tokio::test]
async fn a_page_of_a_firewall_says_nothing_about_the_grant() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    for status in [400, 401, 403, 404] {
        let body = format!("<h1>{WORDS}</h1>");
        let page = Fault::Answer { status, kind: "text/html", body };
        scene.provider.set(|knobs| knobs.fail_token(page));
        assert_eq!(
            denial(&scene.refresh(&connected).await.unwrap_err()),
            Denial::Other,
            "{status}"
        );
    }
    let page = Fault::Answer { status: 200, kind: "text/html", body: WORDS.to_owned() };
    scene.provider.set(|knobs| knobs.fail_token(page));
    let failure = scene.refresh(&connected).await.unwrap_err();
    assert!(matches!(failure, OAuthFailure::Malformed(_)), "{}", words(&failure));
    scene.refresh(&connected).await.unwrap();
}

#[tokio::test]
async fn an_outage_is_retryable_and_says_whether_the_token_may_be_spent() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    for status in [500, 502, 503, 504] {
        let fault = Fault::json(status, json!({"error": "invalid_grant"}));
        scene.provider.set(|knobs| knobs.fail_token(fault));
        assert_eq!(ran(&scene.refresh(&connected).await.unwrap_err()), Ran::Unknown, "{status}");
    }
    scene.provider.set(|knobs| knobs.fail_token(Fault::json(429, json!({"error": "slow_down"}))));
    assert_eq!(ran(&scene.refresh(&connected).await.unwrap_err()), Ran::No);
    scene.provider.set(|knobs| knobs.fail_token(Fault::CutBefore));
    assert_eq!(ran(&scene.refresh(&connected).await.unwrap_err()), Ran::Unknown);
    scene.provider.set(|knobs| knobs.fail_token(Fault::CutAfter));
    assert_eq!(ran(&scene.refresh(&connected).await.unwrap_err()), Ran::Unknown);
    // The answer was lost, the token was spent: the server takes the next use for theft.
    assert_eq!(denial(&scene.refresh(&connected).await.unwrap_err()), Denial::InvalidGrant);
    assert_eq!(scene.provider.families_lost_to_reuse(), 1);
}

#[tokio::test]
async fn a_server_that_is_gone_was_not_asked() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    let Scene { provider, oauth, .. } = scene;
    let address = provider.url("/").socket_addrs(|| None).unwrap()[0];
    drop(provider);
    // Until its port is closed.
    while tokio::net::TcpStream::connect(address).await.is_ok() {}
    let token = connected.tokens.refresh_token.as_ref().unwrap();
    let oauth = {
        let _old = oauth;
        super::oauth()
    };
    let found = &connected.found;
    let failure = oauth.refresh(&found.server, &connected.client, &found.resource, token).await;
    assert_eq!(ran(&failure.unwrap_err()), Ran::No);
}

#[tokio::test]
async fn token_answers_are_read_as_providers_write_them() {
    let scene = Scene::start().await;
    let found = scene.discover().await.unwrap();
    let client = scene.register(&found).await.unwrap();
    let life = |seconds| Some(Duration::from_secs(seconds));
    for (patch, expires_in, granted) in [
        (json!({"expires_in": "5250"}), life(5250), Some("mcp:read mcp:write")),
        (json!({"expires_in": null}), None, Some("mcp:read mcp:write")),
        (json!({"expires_in": 0}), None, Some("mcp:read mcp:write")),
        (json!({"expires_in": -5}), None, Some("mcp:read mcp:write")),
        (json!({"expires_in": 1e18}), life(315_360_000), Some("mcp:read mcp:write")),
        (json!({"scope": "a,b", "token_type": "user"}), life(60), Some("a b")),
        (json!({"scope": null, "token_type": null}), life(60), None),
    ] {
        scene.provider.set(|knobs| knobs.fail_token(Fault::patch(patch.clone())));
        let tokens = scene.exchange(&found, &client, "alice").await.unwrap();
        assert_eq!(tokens.expires_in, expires_in, "{patch}");
        assert_eq!(tokens.scopes, granted.map(scopes), "{patch}");
    }
    let form = "access_token=gho_1&scope=repo%2Cuser&token_type=bearer".to_owned();
    let kind = "application/x-www-form-urlencoded; charset=utf-8";
    scene.provider.set(|knobs| knobs.fail_token(Fault::Answer { status: 200, kind, body: form }));
    let tokens = scene.exchange(&found, &client, "alice").await.unwrap();
    assert_eq!(tokens.access_token.expose_secret(), "gho_1");
    assert_eq!((tokens.scopes, tokens.refresh_token.is_none()), (Some(scopes("repo user")), true));
}

#[tokio::test]
async fn a_token_that_cannot_be_used_is_refused() {
    let scene = Scene::start().await;
    let found = scene.discover().await.unwrap();
    let client = scene.register(&found).await.unwrap();
    for patch in [
        json!({"token_type": "DPoP"}),
        json!({"access_token": null}),
        json!({"access_token": ""}),
        json!({"access_token": "a\r\nx-evil: 1"}),
        json!({"access_token": "a b"}),
    ] {
        scene.provider.set(|knobs| knobs.fail_token(Fault::patch(patch.clone())));
        let failure = scene.exchange(&found, &client, "alice").await.unwrap_err();
        assert!(matches!(failure, OAuthFailure::Malformed(_)), "{patch}: {failure:?}");
    }
}

#[tokio::test]
async fn an_answer_without_a_refresh_token_leaves_the_old_one() {
    let scene = Scene::start().await;
    scene.provider.set(|knobs| knobs.rotate = false);
    let connected = scene.connect().await;
    for _ in 0..3 {
        let renewed = scene.refresh(&connected).await.unwrap();
        assert!(renewed.refresh_token.is_none());
    }
}

#[tokio::test]
async fn a_revoked_family_is_void_and_revoking_again_is_no_error() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    let (server, client) = (&connected.found.server, &connected.client);
    let token = connected.tokens.refresh_token.as_ref().unwrap();
    assert!(scene.provider.check(connected.tokens.access_token.expose_secret()).is_some());
    for _ in 0..2 {
        scene.oauth.revoke(server, client, token).await.unwrap();
    }
    assert!(scene.provider.check(connected.tokens.access_token.expose_secret()).is_none());
    let sent = scene.provider.asked("/revoke").pop().unwrap();
    assert_eq!(sent.field("token"), token.expose_secret());
    assert!(sent.header("authorization").starts_with("Basic "));
    assert_eq!(denial(&scene.refresh(&connected).await.unwrap_err()), Denial::InvalidGrant);
    scene.provider.forget_clients();
    let refused = scene.oauth.revoke(server, client, token).await.unwrap_err();
    assert_eq!(denial(&refused), Denial::InvalidClient);
    let mut without = server.clone();
    without.revocation_endpoint = None;
    let failure = scene.oauth.revoke(&without, client, token).await.unwrap_err();
    assert!(matches!(failure, OAuthFailure::Malformed(_)));
}

#[tokio::test]
async fn nothing_that_is_secret_is_printed() {
    let scene = Scene::start().await;
    let connected = scene.connect().await;
    let authorization = scene.authorize(&connected.found, &connected.client, "mcp:read");
    let printed = format!(
        "{:?} {:?} {:?} {:?} {:?}",
        connected.found, connected.client, connected.tokens, scene.oauth, authorization.verifier
    );
    for secret in scene.provider.secrets() {
        assert!(!printed.contains(&secret));
    }
    assert!(!printed.contains(authorization.verifier.expose_secret()));
}
