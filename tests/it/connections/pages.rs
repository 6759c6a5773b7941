//! The pages of one's own connections, and how a refused call leads there.

use domain::Role;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    authorization_server::{AuthorizationServer, ProtectedPeer},
    browser::{Browser, Seen},
    world::World,
};

use super::{Scene, Someone};
use crate::{
    gateway::{Reply, as_pairs, modern},
    sign_in::{browser_of, person},
};

async fn scene(fields: Value) -> Scene {
    let provider = AuthorizationServer::start().await;
    let peer = ProtectedPeer::start(&provider).await;
    Scene::with(World::new().await, provider, peer, fields).await
}

async fn browser(scene: &Scene, email: &str) -> Browser {
    let person = person(&scene.world, &scene.tenant, email, Role::Member).await;
    browser_of(&scene.world, &person).await
}

/// A form of the page, as the page has it.
async fn press(browser: &mut Browser, scene: &Scene, action: &str, more: &[(&str, &str)]) -> Seen {
    let (server, revision) = (scene.server.to_string(), scene.revision().await.to_string());
    let mut fields = vec![("server", server.as_str()), ("revision", &revision), ("action", action)];
    fields.extend(more);
    browser.submit("/connections", &fields).await
}

/// The page that a form leads to.
async fn follow(browser: &mut Browser, seen: &Seen) -> Seen {
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{seen:?}");
    let page = browser.get(seen.header("location")).await;
    assert_eq!(page.status, StatusCode::OK, "{page:?}");
    page
}

/// The address of the provider, from the page that leads there.
fn leaves_for(page: &Seen) -> url::Url {
    let (_, link) = page.text.split_once("class=\"button\" href=\"").expect("a link");
    let (link, rest) = link.split_once('"').unwrap();
    assert!(rest.starts_with(" rel=\"noreferrer\">Continue to 127.0.0.1:"), "{rest}");
    link.replace("&#38;", "&").parse().unwrap()
}

fn has(page: &Seen, words: &[&str]) {
    for words in words {
        assert!(page.text.contains(words), "{words}: {}", page.text);
    }
}

/// From the click to the page that confirms; its result.
async fn come_back(browser: &mut Browser, scene: &Scene, account: &str) -> String {
    let leaving = press(browser, scene, "connect", &[]).await;
    assert_eq!(leaving.status, StatusCode::OK, "{leaving:?}");
    let callback = scene.provider.walk(&leaves_for(&leaving), account).await;
    let seen = browser.get(callback.as_str()).await;
    let place = format!("/connections/confirm?server={}#result=", scene.server);
    seen.header("location").strip_prefix(&place).expect("a result").to_owned()
}

async fn confirm(browser: &mut Browser, scene: &Scene, result: &str) -> Seen {
    let fields = [("server", scene.server.as_str()), ("result", result)];
    browser.submit("/connections/confirm", &fields).await
}

#[tokio::test]
async fn a_secret_is_put_in_replaced_and_taken_out_and_never_shown() {
    let scene = scene(json!({ "authMode": "bearer" })).await;
    let mut ann = browser(&scene, "ann@acme.test").await;
    let page = ann.get("/connections?server=tickets").await;
    has(&page, &["card chosen", "Disconnected", "Your token at this server", "type=\"password\""]);
    assert!(!page.text.contains("value=\"disconnect\""), "{}", page.text);

    let refused = press(&mut ann, &scene, "save", &[("secret", "with\nline")]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    has(&refused, &["role=\"alert\">That cannot be sent as a secret"]);
    let longest = "a".repeat(domain::limits::CREDENTIAL_BYTES.size());
    for secret in [longest.as_str(), "sesame % open"] {
        let saved = press(&mut ann, &scene, "save", &[("secret", secret)]).await;
        let page = follow(&mut ann, &saved).await;
        has(&page, &["Your secret for tickets is saved.", "Configured (static)", "Replace it"]);
        assert!(!page.text.contains(secret), "{}", page.text);
    }
    // Of another configuration than the page showed.
    let fields =
        [("server", "tickets"), ("revision", "0"), ("action", "save"), ("secret", "other")];
    let stale = ann.submit("/connections", &fields).await;
    assert_eq!(stale.status, StatusCode::CONFLICT);
    has(&stale, &["The server was changed since this page was loaded.", "Configured (static)"]);

    let switch = json!({ "enabled": false });
    let (status, _) = scene.world.put(&scene.root.token, &scene.path("/status"), switch).await;
    assert_eq!(status, StatusCode::OK);
    let page = ann.get("/connections").await;
    has(&page, &["A superadmin switched this server off", "value=\"disconnect\""]);
    assert!(!page.text.contains("value=\"save\""), "{}", page.text);
    let gone = press(&mut ann, &scene, "disconnect", &[]).await;
    let page = follow(&mut ann, &gone).await;
    has(&page, &["is disconnected.", "There is no server that you may use yet."]);
}

#[tokio::test]
async fn a_person_connects_confirms_and_disconnects() {
    let scene = Scene::new().await;
    let mut ann = browser(&scene, "ann@acme.test").await;
    has(&ann.get("/connections").await, &["Disconnected", "value=\"connect\""]);
    let result = come_back(&mut ann, &scene, "alice").await;
    assert!(ann.attempts.is_empty(), "the cookie of the attempt went with it");
    let place = format!("/connections/confirm?server={}", scene.server);
    let page = ann.get(&place).await;
    has(
        &page,
        &["<bdi>tickets</bdi>", "<bdi>ann@acme.test</bdi>", "<bdi>acme</bdi>", "<noscript>"],
    );
    assert!(page.header("content-security-policy").contains("script-src 'self';"), "{page:?}");
    let script = ann.get("/assets/confirm.js").await;
    assert!(script.header("content-type").starts_with("text/javascript"), "{script:?}");
    // No other page runs anything.
    let others = ann.get("/connections").await;
    assert!(!others.header("content-security-policy").contains("script-src"), "{others:?}");

    let confirmed = confirm(&mut ann, &scene, &result).await;
    let page = follow(&mut ann, &confirmed).await;
    has(&page, &["tickets is connected with your account.", "Authorized (OAuth)", "mcp:read"]);
    // Used.
    let again = confirm(&mut ann, &scene, &result).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    has(&again, &["This sign-in cannot be confirmed", "Authorized (OAuth)"]);

    let gone = press(&mut ann, &scene, "disconnect", &[("revoke", "yes")]).await;
    let page = follow(&mut ann, &gone).await;
    has(&page, &["its provider revoked the grant", "Disconnected"]);
    assert_eq!(scene.provider.asked("/revoke").len(), 1);
}

#[tokio::test]
async fn a_result_of_somebody_else_is_refused_and_spent() {
    let scene = Scene::new().await;
    let mut ann = browser(&scene, "ann@acme.test").await;
    let mut eve = browser(&scene, "eve@acme.test").await;
    let result = come_back(&mut ann, &scene, "alice").await;
    for browser in [&mut eve, &mut ann] {
        let refused = confirm(browser, &scene, &result).await;
        assert_eq!(refused.status, StatusCode::CONFLICT);
        has(&refused, &["it is late, used, or not yours. Nothing was connected", "Disconnected"]);
    }
    let place = format!("/connections/confirm?server={}", scene.server);
    let seen = Browser::at(&scene.world.url).get(&place).await;
    let next = format!("/t/acme/sign-in?next=%2Fconnections%2Fconfirm%3Fserver%3D{}", scene.server);
    assert_eq!((seen.status.as_u16(), seen.header("location")), (303, next.as_str()));
}

#[tokio::test]
async fn an_attempt_is_shown_cancelled_and_denied() {
    let scene = Scene::new().await;
    let mut ann = browser(&scene, "ann@acme.test").await;
    let leaving = press(&mut ann, &scene, "connect", &[]).await;
    has(&ann.get("/connections").await, &["A sign-in at the provider was begun here."]);
    let cancelled = press(&mut ann, &scene, "cancel", &[]).await;
    let page = follow(&mut ann, &cancelled).await;
    has(&page, &["The sign-in of tickets is cancelled."]);
    assert!(!page.text.contains("was begun here"), "{}", page.text);
    let callback = scene.provider.walk(&leaves_for(&leaving), "alice").await;
    assert_eq!(ann.get(callback.as_str()).await.status, StatusCode::BAD_REQUEST);

    let leaving = press(&mut ann, &scene, "connect", &[]).await;
    let callback = scene.provider.refuse(&leaves_for(&leaving), "alice").await;
    let told = ann.get(callback.as_str()).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    has(&told, &["The provider says that access was not allowed.", "href=\"/connections\""]);
}

#[tokio::test]
async fn a_sign_in_that_cannot_be_found_names_its_step() {
    let scene = Scene::new().await;
    scene.provider.set(|knobs| {
        knobs.patch_metadata.insert("code_challenge_methods_supported".into(), json!(["plain"]));
    });
    let mut ann = browser(&scene, "ann@acme.test").await;
    let seen = press(&mut ann, &scene, "connect", &[]).await;
    assert_eq!(seen.status, StatusCode::CONFLICT, "{seen:?}");
    has(&seen, &["cannot be used: pkce_s256_not_listed. Tell a superadmin", "Disconnected"]);
}

async fn at_the_gateway(scene: &Scene, by: &Someone, method: &str, params: &str) -> Value {
    let (headers, body) = modern(method, params);
    let path = format!("/mcp/{}", by.session.unwrap());
    let url = scene.world.url.join(&path).unwrap();
    let mut request = scene.world.client().post(url).bearer_auth(&by.agent).body(body);
    request = request.header("content-type", "application/json");
    request = request.header("accept", "application/json, text/event-stream");
    for (name, value) in as_pairs(&headers) {
        request = request.header(name, value);
    }
    Reply::of(request.send().await.unwrap()).await.json()["result"].clone()
}

#[tokio::test]
async fn a_refused_call_and_a_listed_tool_say_where_to_connect() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    let ann = scene.member("ann@acme.test").await;
    let marks = async |by: &Someone| {
        let listed = at_the_gateway(&scene, by, "tools/list", "{}").await;
        let tools = listed["tools"].as_array().unwrap().clone();
        let whoami = tools.into_iter().find(|tool| tool["name"] == "mcp__tickets__whoami");
        whoami.expect("it is listed to everybody")["_meta"]["bailiwick/connectionRequired"].clone()
    };
    assert_eq!(marks(&scene.root).await, Value::Null);
    assert_eq!(marks(&ann).await, json!(true));

    let params = r#"{"name":"mcp__tickets__whoami","arguments":{}}"#;
    let result = at_the_gateway(&scene, &ann, "tools/call", params).await;
    let error = &result["_meta"]["bailiwick/error"]["error"];
    let page = format!("{}connections?server={}", scene.world.url, scene.server);
    assert_eq!(error["code"], "CONNECTION_REQUIRED", "{result}");
    assert_eq!(error["details"]["connectUrl"], page);
    assert!(error["message"].as_str().unwrap().ends_with(&format!("; open {page}")), "{error}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains(&page), "{result}");
}

#[tokio::test]
async fn a_revocation_is_offered_where_it_can_be_had() {
    let scene = Scene::new().await;
    let mut ann = browser(&scene, "ann@acme.test").await;
    let connect = async |ann: &mut Browser| {
        let result = come_back(ann, &scene, "alice").await;
        let confirmed = confirm(ann, &scene, &result).await;
        follow(ann, &confirmed).await
    };
    assert!(connect(&mut ann).await.text.contains("name=\"revoke\""));
    scene.provider.set(|knobs| {
        knobs.patch_metadata.insert("revocation_endpoint".into(), Value::Null);
    });
    let page = connect(&mut ann).await;
    has(&page, &["value=\"disconnect\""]);
    assert!(!page.text.contains("name=\"revoke\""), "{}", page.text);
}
