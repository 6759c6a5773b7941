//! Tokens of the company's issuer at the gateway.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::company_issuer::Sign;

use super::Scene;
use crate::gateway::modern;

struct Answer {
    status: StatusCode,
    challenge: String,
    body: Value,
}

async fn list(scene: &Scene, token: &str, path: &str) -> Answer {
    let (headers, body) = modern("tools/list", "{}");
    let url = scene.world.url.join(path).unwrap();
    let mut request = scene.world.client().post(url).bearer_auth(token).body(body);
    request = request
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let response = request.send().await.unwrap();
    let challenge = response.headers().get("www-authenticate");
    let challenge = challenge.map(|value| value.to_str().unwrap().to_owned());
    Answer {
        status: response.status(),
        challenge: challenge.unwrap_or_default(),
        body: response.json().await.unwrap(),
    }
}

fn audience(scene: &Scene) -> String {
    scene.world.url.join("/mcp").unwrap().to_string()
}

async fn scene() -> Scene {
    let scene = Scene::new(json!({ "gatewayTokens": true })).await;
    scene.person("ann@acme.test", "ann-at-acme").await;
    scene
}

#[tokio::test]
async fn the_metadata_names_the_issuer_and_its_token_is_taken_as_its_person() {
    let scene = scene().await;
    let path = "/.well-known/oauth-protected-resource/mcp";
    let (_, document) = scene.world.get("", path).await;
    assert_eq!(document["authorization_servers"], json!([scene.issuer.issuer()]));
    assert_eq!(document["resource"], audience(&scene));
    for sign in [Sign::Ec, Sign::Rsa] {
        scene.issuer.set(|knobs| knobs.sign = sign);
        let token = scene.issuer.access_token(&audience(&scene), &json!({}));
        let answer = list(&scene, &token, "/mcp").await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        assert!(answer.body["result"]["tools"].is_array(), "{}", answer.body);
        // The REST API is no resource of the issuer.
        assert_eq!(scene.world.get(&token, "/api/me").await.0, StatusCode::UNAUTHORIZED);
    }
    // One default session for all of the person's tokens.
    let owner = scene.world.owner().await;
    let sessions: Vec<String> = sqlx::query_scalar(
        "SELECT u.email FROM sessions s JOIN users u ON u.user_id = s.owner_user_id",
    )
    .fetch_all(&owner)
    .await
    .unwrap();
    assert_eq!(sessions, ["ann@acme.test"]);

    scene.save(json!({ "gatewayTokens": true, "gatewayAudiences": ["api://bailiwick"] })).await;
    let token = scene.issuer.access_token("api://bailiwick", &json!({}));
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_token_that_is_not_for_us_is_refused_in_one_and_the_same_way() {
    let scene = scene().await;
    let audience = audience(&scene);
    let good = scene.issuer.access_token(&audience, &json!({}));
    assert_eq!(list(&scene, &good, "/mcp").await.status, StatusCode::OK);
    let claims = [
        ("audience", json!({ "aud": "https://elsewhere.test/mcp" })),
        ("no audience", json!({ "aud": null })),
        ("issuer", json!({ "iss": "https://elsewhere.test" })),
        ("expired", json!({ "exp": 1_000_000 })),
        ("no expiry", json!({ "exp": null })),
        ("not yet", json!({ "nbf": 9_000_000_000_u64 })),
        ("ID token", json!({ "nonce": "n" })),
        ("another ID token", json!({ "at_hash": "h" })),
        ("nobody's", json!({ "sub": "a-stranger" })),
    ];
    let mut refused: Vec<(&str, String)> = Vec::new();
    for (name, changes) in claims {
        refused.push((name, scene.issuer.access_token(&audience, &changes)));
    }
    for sign in [Sign::Nothing, Sign::PublicKeyAsSecret, Sign::Altered, Sign::NewEc] {
        scene.issuer.set(|knobs| knobs.sign = sign);
        refused.push(("signature", scene.issuer.access_token(&audience, &json!({}))));
    }
    scene.issuer.set(|knobs| {
        knobs.sign = Sign::NewEc;
        knobs.header.insert("kid".to_owned(), json!("ec-1"));
        knobs.header.insert("jku".to_owned(), json!("https://elsewhere.test/keys"));
    });
    refused.push(("jku", scene.issuer.access_token(&audience, &json!({}))));
    scene.issuer.set(|knobs| {
        knobs.sign = Sign::Ec;
        knobs.header.clear();
        knobs.header.insert("typ".to_owned(), json!("dpop+jwt"));
    });
    refused.push(("another kind", scene.issuer.access_token(&audience, &json!({}))));
    refused.push(("no JWT", "a.b.c".to_owned()));
    let mut bodies = std::collections::BTreeSet::new();
    for (name, token) in refused {
        let answer = list(&scene, &token, "/mcp").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{name}: {}", answer.body);
        assert!(answer.challenge.contains("error=\"invalid_token\""), "{name}");
        bodies.insert(answer.body["detail"].as_str().unwrap().to_owned());
    }
    assert_eq!(bodies.len(), 1, "{bodies:?}");
}

#[tokio::test]
async fn a_token_without_the_scope_is_told_which_one_it_needs() {
    let scene = scene().await;
    for scopes in [json!({ "scope": null }), json!({ "scope": "openid" })] {
        let token = scene.issuer.access_token(&audience(&scene), &scopes);
        let answer = list(&scene, &token, "/mcp").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", answer.body);
        let wanted = "error=\"insufficient_scope\", scope=\"mcp:call\"";
        assert!(answer.challenge.contains(wanted), "{}", answer.challenge);
    }
    let entra = json!({ "scope": null, "scp": "mcp:call" });
    let token = scene.issuer.access_token(&audience(&scene), &entra);
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_is_switched_off_or_unlinked_counts_at_the_next_request() {
    let scene = scene().await;
    let token = scene.issuer.access_token(&audience(&scene), &json!({}));
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::OK);
    scene.save(json!({ "gatewayTokens": false })).await;
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::UNAUTHORIZED);
    let (_, document) = scene.world.get("", "/.well-known/oauth-protected-resource/mcp").await;
    assert_eq!(document.get("authorization_servers"), None);
    scene.save(json!({ "gatewayTokens": true })).await;
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::OK);

    let owner = scene.world.owner().await;
    let set = async |status: &'static str| {
        sqlx::query("UPDATE users SET status = $1 WHERE email = 'ann@acme.test'")
            .bind(status)
            .execute(&owner)
            .await
            .unwrap();
    };
    set("disabled").await;
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::UNAUTHORIZED);
    set("active").await;
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::OK);

    // While the issuer is away its keys are still known.
    scene.issuer.set(|knobs| knobs.down = Some(503));
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_session_of_the_path_is_its_owners_alone() {
    let scene = scene().await;
    let (_, session) = scene.world.post(&scene.token, "/api/sessions", json!({})).await;
    let path = format!("/mcp/{}", session["id"].as_str().unwrap());
    let here = scene.world.url.join(&path).unwrap().to_string();
    let token = scene.issuer.access_token(&here, &json!({}));
    let answer = list(&scene, &token, &path).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.body);
    let (_, document) =
        scene.world.get("", &format!("/.well-known/oauth-protected-resource{path}")).await;
    assert_eq!(document["authorization_servers"], json!([scene.issuer.issuer()]));
    // A token for one endpoint is none for another.
    assert_eq!(list(&scene, &token, "/mcp").await.status, StatusCode::UNAUTHORIZED);
}
