//! From the resource metadata to the authorization server (RFC 8414, OpenID Connect Discovery).

use outbound::oauth::{DiscoverOptions, Discovered, OAuthFailure};
use serde_json::{Map, Value, json};
use tests::authorization_server::{AuthorizationServer, ProtectedPeer};

use super::{Scene, oauth, step};

fn members(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else { panic!("an object") };
    members
}

impl Scene {
    fn metadata(&self, patch: Value) {
        self.provider.set(|knobs| knobs.patch_metadata = members(patch));
    }

    fn lists(&self, servers: &[&str]) {
        self.server.set(|gate| {
            gate.patch_prm = members(json!({"authorization_servers": servers}));
        });
    }

    async fn with_issuer(&self, issuer: &str) -> Result<Discovered, OAuthFailure> {
        let issuer = Some(issuer.to_owned());
        let options = DiscoverOptions { issuer, ..DiscoverOptions::default() };
        self.oauth.discover(&self.server.url(), &options).await
    }
}

#[tokio::test]
async fn a_provider_with_openid_discovery_alone_is_found() {
    let scene = Scene::start().await;
    scene.provider.set(|knobs| knobs.hide_oauth_metadata = true);
    scene.discover().await.unwrap();
    let asked: Vec<String> = scene.provider.journal().into_iter().map(|one| one.path).collect();
    let (first, second) =
        ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration");
    assert_eq!(asked, [first, second]);
}

#[tokio::test]
async fn an_issuer_with_a_path_is_asked_in_the_order_of_the_specification() {
    let provider = AuthorizationServer::start_at("/tenant/1").await;
    let server = ProtectedPeer::start(&provider).await;
    let options = DiscoverOptions::default();
    let found = oauth().discover(&server.url(), &options).await.unwrap();
    assert_eq!(found.server.issuer, provider.issuer());
    let asked = || provider.journal().into_iter().map(|one| one.path).collect::<Vec<String>>();
    assert_eq!(asked(), ["/.well-known/oauth-authorization-server/tenant/1"]);
    provider.set(|knobs| {
        knobs.hide_oauth_metadata = true;
        knobs.hide_oidc_metadata = true;
    });
    assert_eq!(
        step(oauth().discover(&server.url(), &options).await),
        "authorization_server_metadata"
    );
    let expected = [
        "/.well-known/oauth-authorization-server/tenant/1",
        "/.well-known/openid-configuration/tenant/1",
        "/tenant/1/.well-known/openid-configuration",
    ];
    assert_eq!(asked()[1..4], expected);
}

#[tokio::test]
async fn metadata_that_is_refused_is_an_error_and_nothing_is_guessed() {
    let scene = Scene::start().await;
    for status in [401, 403, 404] {
        scene.provider.set(|knobs| knobs.metadata_status = Some(status));
        assert_eq!(scene.fails_at().await, "authorization_server_metadata", "{status}");
    }
    scene.provider.set(|knobs| knobs.metadata_status = Some(502));
    assert!(scene.discover().await.unwrap_err().retryable());
    let journal = scene.provider.journal();
    assert!(journal.iter().all(|one| one.path.contains("/.well-known/")));
}

#[tokio::test]
async fn the_first_listed_server_is_taken_and_a_configured_one_must_be_listed() {
    let scene = Scene::start().await;
    let other = AuthorizationServer::start().await;
    let (ours, theirs) = (scene.provider.issuer(), other.issuer());
    scene.lists(&[&theirs, &ours]);
    assert_eq!(scene.discover().await.unwrap().server.issuer, theirs);
    assert_eq!(scene.with_issuer(&ours).await.unwrap().server.issuer, ours);
    assert_eq!(scene.with_issuer(&format!("{ours}/")).await.unwrap().server.issuer, ours);
    for unlisted in ["https://elsewhere.test", &format!("{ours}/t"), &ours.to_uppercase()] {
        assert_eq!(step(scene.with_issuer(unlisted).await), "issuer_not_listed", "{unlisted}");
    }
    other.set(|knobs| knobs.metadata_status = Some(404));
    assert_eq!(scene.fails_at().await, "authorization_server_metadata", "no second choice");
}

#[tokio::test]
async fn a_resource_without_an_authorization_server_is_refused() {
    let scene = Scene::start().await;
    for list in [json!([]), json!(null), json!("x"), json!([7]), json!(["not a url"]), json!([""])]
    {
        scene.server.set(|gate| {
            gate.patch_prm = members(json!({"authorization_servers": list}));
        });
        assert_eq!(scene.fails_at().await, "no_authorization_server", "{list}");
    }
    assert!(scene.provider.journal().is_empty());
}

#[tokio::test]
async fn metadata_of_another_issuer_is_refused() {
    let scene = Scene::start().await;
    let ours = scene.provider.issuer();
    for issuer in [
        json!("https://evil.test"),
        json!(format!("{ours}/tenant")),
        json!(ours.replace("127.0.0.1", "localhost")),
        json!(""),
        json!(null),
    ] {
        scene.metadata(json!({"issuer": issuer}));
        assert_eq!(scene.fails_at().await, "issuer_mismatch", "{issuer}");
    }
    scene.metadata(json!({}));
    scene.lists(&[&ours.replace("http:", "HTTP:")]);
    assert_eq!(scene.fails_at().await, "issuer_mismatch", "the same URL in other bytes");
    scene.lists(&[&ours]);
    scene.metadata(json!({"issuer": format!("{ours}/")}));
    let found = scene.discover().await.unwrap();
    assert_eq!(found.server.issuer, format!("{ours}/"), "as the metadata writes it");
}

#[tokio::test]
async fn an_issuer_with_a_path_is_compared_with_its_slash() {
    let provider = AuthorizationServer::start_at("/tenant").await;
    let server = ProtectedPeer::start(&provider).await;
    let listed = format!("{}/", provider.issuer());
    server.set(|gate| gate.patch_prm = members(json!({"authorization_servers": [listed]})));
    let options = DiscoverOptions::default();
    assert_eq!(step(oauth().discover(&server.url(), &options).await), "issuer_mismatch");
    provider.set(|knobs| knobs.patch_metadata = members(json!({"issuer": listed})));
    assert_eq!(oauth().discover(&server.url(), &options).await.unwrap().server.issuer, listed);
}

#[tokio::test]
async fn s256_must_be_listed() {
    let scene = Scene::start().await;
    for methods in [json!(null), json!([]), json!(["plain"]), json!(["s256"])] {
        scene.metadata(json!({"code_challenge_methods_supported": methods}));
        assert_eq!(scene.fails_at().await, "pkce_s256_not_listed", "{methods}");
    }
    scene.metadata(json!({"code_challenge_methods_supported": ["plain", "S256"]}));
    scene.discover().await.unwrap();
}

#[tokio::test]
async fn what_the_metadata_offers_is_known() {
    let scene = Scene::start().await;
    let found = scene.discover().await.unwrap().server;
    assert!(found.client_id_metadata_document_supported);
    assert!(found.authorization_response_iss_parameter_supported);
    assert!(found.scopes_supported.contains(&"offline_access".to_owned()));
    assert_eq!(found.revocation_endpoint, Some(scene.provider.url("/revoke")));
    scene.provider.set(|knobs| {
        knobs.dcr = false;
        knobs.cimd = false;
        knobs.patch_metadata = members(json!({
            "revocation_endpoint": null,
            "scopes_supported": null,
            "authorization_response_iss_parameter_supported": null,
            "token_endpoint_auth_methods_supported": null,
        }));
    });
    let found = scene.discover().await.unwrap().server;
    assert_eq!((&found.registration_endpoint, &found.revocation_endpoint), (&None, &None));
    assert!(!found.client_id_metadata_document_supported);
    assert!(!found.authorization_response_iss_parameter_supported);
    assert!(found.scopes_supported.is_empty());
    let stored = serde_json::to_string(&found).unwrap();
    assert_eq!(
        serde_json::from_str::<outbound::oauth::AuthorizationServer>(&stored).unwrap(),
        found
    );
}
