//! `resource`, `issuer` and `iss` from the click to the call.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{
    authorization_server::{AuthorizationServer, Prm, ProtectedPeer},
    world::World,
};

use super::{Begun, Scene};

async fn at(issuer_path: &str) -> Scene {
    let provider = AuthorizationServer::start_at(issuer_path).await;
    let peer = ProtectedPeer::start(&provider).await;
    Scene::with(World::new().await, provider, peer, json!({ "authMode": "oauth" })).await
}

/// `details.step` of a start that fails.
async fn step(scene: &Scene) -> String {
    let body = json!({ "revision": scene.revision().await });
    let (status, problem) =
        scene.world.post(&scene.root.token, &scene.path("/oauth/start"), body).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("OAUTH_DISCOVERY_FAILED"))
    );
    problem["details"]["step"].as_str().unwrap().to_owned()
}

/// Connects, calls, refreshes, calls.
async fn all_of_it(scene: &Scene) {
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
    scene.peer.set(|door| door.reject_next = 1);
    assert!(scene.whoami(&scene.root).await.unwrap().contains("root"));
    assert_eq!(scene.provider.grants("refresh_token").len(), 1);
}

/// The `resource` of each step, which must be one.
fn resource(scene: &Scene, begun: &Begun) -> String {
    let asked = begun.authorization_url.query_pairs().find(|(name, _)| name == "resource");
    let asked = asked.unwrap().1.into_owned();
    for one in scene.provider.asked("/token") {
        assert_eq!(one.field("resource"), asked);
    }
    asked
}

#[tokio::test]
async fn the_resource_is_sent_byte_for_byte_as_the_server_names_it() {
    let scene = at("").await;
    let (url, origin) =
        (scene.peer.url().to_string(), scene.peer.url().origin().ascii_serialization());
    for named in [url.clone(), format!("{url}/"), origin.clone(), format!("{origin}/")] {
        scene.peer.set(|door| {
            door.patch_prm.insert("resource".to_owned(), json!(named));
        });
        scene.provider.set(|knobs| {
            knobs.require_resource = true;
            knobs.resources = Some(vec![named.clone()]);
        });
        let begun = scene.start(&scene.root).await;
        let result = scene.result(&begun, "root").await;
        assert_eq!(scene.confirm(&scene.root, &result).await.0, StatusCode::OK, "{named}");
        scene.discover().await;
        assert!(scene.whoami(&scene.root).await.unwrap().contains(&named), "{named}");
        scene.peer.set(|door| door.reject_next = 1);
        assert!(scene.whoami(&scene.root).await.is_ok(), "{named}");
        let last = scene.provider.grants("refresh_token").pop().unwrap();
        assert_eq!(last.field("resource"), named);
        assert!(begun.authorization_url.query_pairs().any(|(_, value)| value == named));
    }
}

#[tokio::test]
async fn a_resource_that_is_not_the_server_ends_the_start() {
    let scene = at("").await;
    let origin = scene.peer.url().origin().ascii_serialization();
    scene.peer.set(|door| door.prm = Prm::Wrong);
    assert_eq!(step(&scene).await, "resource_mismatch");
    scene.peer.set(|door| door.prm = Prm::Path);
    for wrong in [
        format!("{origin}/mc"),
        format!("{origin}/mcp/below"),
        format!("{origin}/MCP"),
        origin.replace("http:", "https:"),
        "http://127.0.0.1:9/mcp".to_owned(),
    ] {
        scene.peer.set(|door| {
            door.patch_prm.insert("resource".to_owned(), json!(wrong));
        });
        assert_eq!(step(&scene).await, "resource_mismatch", "{wrong}");
    }
    assert!(
        scene.provider.asked("/register").is_empty() && scene.provider.asked("/token").is_empty()
    );
}

#[tokio::test]
async fn an_issuer_with_a_path_is_found_and_used() {
    let scene = at("/tenant/one").await;
    all_of_it(&scene).await;
    let begun = scene.start(&scene.root).await;
    assert_eq!(resource(&scene, &begun), scene.peer.url().as_str());
}

#[tokio::test]
async fn an_issuer_is_what_was_asked_for_but_for_the_slash_of_a_root() {
    let scene = at("/one").await;
    let issuer = scene.provider.issuer();
    let named = |issuer: &str| {
        let issuer = json!(issuer);
        scene.provider.set(|knobs| {
            knobs.patch_metadata.insert("issuer".to_owned(), issuer);
        });
    };
    for wrong in [
        format!("{issuer}/"),
        issuer.replace("/one", "/two"),
        issuer.replace("/one", ""),
        issuer.replace("/one", "/One"),
        issuer.replace("127.0.0.1", "localhost"),
    ] {
        named(&wrong);
        assert_eq!(step(&scene).await, "issuer_mismatch", "{wrong}");
    }
    named(&issuer);
    all_of_it(&scene).await;

    // At a root the slash makes no difference to who it is; callbacks say what the metadata says.
    let scene = at("").await;
    let slash = format!("{}/", scene.provider.issuer());
    scene.provider.set(|knobs| {
        knobs.patch_metadata.insert("issuer".to_owned(), json!(slash));
        knobs.wrong_iss = Some(slash.clone());
    });
    all_of_it(&scene).await;
}

/// What a callback is answered whose `iss` is this.
async fn with_iss(scene: &Scene, iss: Option<String>, promised: bool) -> StatusCode {
    scene.provider.set(|knobs| {
        knobs.omit_iss = iss.is_none();
        knobs.wrong_iss = iss;
        let name = "authorization_response_iss_parameter_supported".to_owned();
        knobs.patch_metadata.insert(name, if promised { json!(true) } else { Value::Null });
    });
    let begun = scene.start(&scene.root).await;
    let callback = scene.provider.walk(&begun.authorization_url, "root").await;
    scene.come_back(&callback, &begun.cookie).await.0
}

#[tokio::test]
async fn iss_is_compared_whether_or_not_it_was_promised() {
    let scene = at("/one").await;
    let issuer = scene.provider.issuer();
    assert_eq!(with_iss(&scene, None, false).await, StatusCode::SEE_OTHER);
    assert_eq!(with_iss(&scene, Some(issuer.clone()), false).await, StatusCode::SEE_OTHER);
    assert_eq!(with_iss(&scene, Some(issuer.clone()), true).await, StatusCode::SEE_OTHER);
    let codes = scene.provider.grants("authorization_code").len();
    assert_eq!(with_iss(&scene, None, true).await, StatusCode::BAD_REQUEST);
    for promised in [true, false] {
        for wrong in [
            "https://evil.example".to_owned(),
            format!("{issuer}/"),
            issuer.replace("/one", ""),
            issuer.to_uppercase(),
            String::new(),
        ] {
            let answered = with_iss(&scene, Some(wrong.clone()), promised).await;
            assert_eq!(answered, StatusCode::BAD_REQUEST, "{wrong} {promised}");
        }
    }
    assert_eq!(scene.provider.grants("authorization_code").len(), codes, "no code was used");
}

#[tokio::test]
async fn an_error_of_another_issuer_is_not_believed() {
    let scene = at("").await;
    let told = async |iss: Option<String>| {
        scene.provider.set(|knobs| knobs.wrong_iss = iss);
        let begun = scene.start(&scene.root).await;
        let callback = scene.provider.refuse(&begun.authorization_url, "root").await;
        let client = scene.world.client();
        let answer = client.get(callback).header("cookie", &begun.cookie).send().await.unwrap();
        answer.text().await.unwrap()
    };
    assert!(told(None).await.contains("access was not allowed"));
    assert!(
        !told(Some("https://evil.example".to_owned())).await.contains("access was not allowed")
    );
}
