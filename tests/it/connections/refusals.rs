//! What servers say no with: 401 in each phase, 403, and demands for more rights.

use domain::{Code, limits};
use reqwest::StatusCode;
use serde_json::json;
use tests::{
    authorization_server::Fault,
    peer::{Answer, Peer, Setup},
};

use super::{Scene, lab::keyed};

/// Names of the tools that are known of the server.
async fn tools(scene: &Scene) -> Vec<String> {
    let (status, list) = scene.world.get(&scene.root.token, &scene.path("/tools")).await;
    assert_eq!(status, StatusCode::OK, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    items.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn discovered(scene: &Scene) -> Result<(), Code> {
    let user = Some(scene.root.person.id);
    let (ctx, tenant) = (&scene.world.ctx, scene.tenant.id);
    let found = app::discovery::run(ctx, tenant, &scene.server, user).await;
    found.map(|_| ()).map_err(|error| error.code)
}

async fn was_refused(scene: &Scene) {
    let connection = scene.connection(&scene.root).await;
    let (state, reason) = (&connection["state"], &connection["reason"]);
    assert_eq!((state, reason), (&json!("reconnect_required"), &json!("refused")));
}

#[tokio::test]
async fn a_401_is_an_error_on_the_handshake_on_a_list_and_on_a_call() {
    for (setup, handshake) in [(Setup::modern(), "server/discover"), (Setup::older(), "initialize")]
    {
        let (scene, peer) = keyed(setup).await;
        for method in [handshake, "tools/list"] {
            peer.script_method(method, [Answer::status(401)]);
            scene.put_secret(&scene.root, "sesame-2").await;
            assert_eq!(discovered(&scene).await, Err(Code::ReconnectRequired), "{method}");
            was_refused(&scene).await;
            assert_eq!(tools(&scene).await, ["echo"], "a refusal is no empty list: {method}");
            peer.script_method(method, []);
        }
        // A call that has to shake hands first, and one that does not.
        for method in [handshake, "tools/call"] {
            scene.put_secret(&scene.root, "sesame-3").await;
            peer.script_method(method, [Answer::status(401)]);
            let code = scene.code(&scene.root, "echo").await;
            // A server of the newer era is not asked again what it is.
            if (handshake, method) != ("server/discover", "server/discover") {
                assert_eq!(code, Err(Code::ReconnectRequired), "{method}");
                was_refused(&scene).await;
            }
            peer.script_method(method, []);
        }
        // The catalog of before is good again with the next credential, and nobody lists for that.
        scene.put_secret(&scene.root, "sesame-4").await;
        let lists = peer.received("tools/list").len();
        assert_eq!(scene.code(&scene.root, "echo").await, Ok(()));
        assert_eq!(peer.received("tools/list").len(), lists);
    }
}

#[tokio::test]
async fn a_401_on_a_list_is_refreshed_for_once_like_any_other() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    let known = tools(&scene).await;
    let refused = scene.peer.refused();
    scene.peer.set(|door| door.reject_next = 1);
    assert_eq!(discovered(&scene).await, Ok(()));
    assert_eq!(scene.peer.refused(), refused + 1);
    assert_eq!(scene.provider.grants("refresh_token").len(), 1);
    scene.peer.set(|door| door.reject_next = 100);
    assert_eq!(discovered(&scene).await, Err(Code::ReconnectRequired));
    assert_eq!(tools(&scene).await, known);
}

#[tokio::test]
async fn an_empty_catalog_is_an_answer_that_lasts_until_the_next_list() {
    let (scene, peer) = keyed(Setup { tools: Vec::new(), ..Setup::modern() }).await;
    assert_eq!(tools(&scene).await, Vec::<String>::new());
    let (_, server) = scene.world.get(&scene.root.token, &scene.path("")).await;
    assert_eq!(server["status"], "ready", "{server}");
    // Connecting again asks for no list: the empty one is known.
    let lists = peer.received("tools/list").len();
    let ann = scene.member("ann@acme.test").await;
    scene.put_secret(&ann, "sesame-of-ann").await;
    assert_eq!(scene.code(&ann, "echo").await, Err(Code::NotFound));
    assert_eq!(peer.received("tools/list").len(), lists);
    peer.change(|setup| setup.tools = vec![tests::peer::tool("echo")]);
    assert_eq!(discovered(&scene).await, Ok(()));
    assert_eq!(tools(&scene).await, ["echo"]);
}

#[tokio::test]
async fn a_403_keeps_the_credential() {
    let (scene, peer) = keyed(Setup::modern()).await;
    let challenge = |words: &str| Answer::Status {
        status: 403,
        headers: vec![("www-authenticate", words.to_owned())],
        body: String::new(),
    };
    for answer in [
        Answer::status(403),
        challenge(r#"Bearer error="invalid_token""#),
        challenge(r#"Bearer error="access_denied", error_description="insufficient_scope""#),
    ] {
        peer.script_method("tools/call", [answer]);
        assert_eq!(scene.code(&scene.root, "echo").await, Err(Code::Unauthorized));
        let connection = scene.connection(&scene.root).await;
        assert_eq!(
            (&connection["state"], &connection["needsScopes"]),
            (&json!("connected"), &json!([]))
        );
    }
    peer.script_method("tools/call", []);
    assert_eq!(scene.code(&scene.root, "echo").await, Ok(()));
}

#[tokio::test]
async fn a_late_401_clears_nothing_that_came_after() {
    let (scene, peer) = keyed(Setup::modern()).await;
    peer.answer("echo", Answer::status(401).held());
    let replace = async {
        peer.until("holding", |peer| peer.held() == 1).await;
        scene.put_secret(&scene.root, "sesame-2").await;
        peer.release();
    };
    let (code, ()) = futures::join!(scene.code(&scene.root, "echo"), replace);
    assert_eq!(code, Err(Code::ServerChanged));
    assert_eq!(scene.state(&scene.root).await, "connected");
    peer.answer("echo", Answer::Echo);
    assert_eq!(scene.code(&scene.root, "echo").await, Ok(()));
    assert_eq!(peer.calls().last().unwrap().header("authorization"), "Bearer sesame-2");
}

#[tokio::test]
async fn a_late_401_of_refreshed_tokens_clears_nothing() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    // Both are refused; one refresh serves both, and neither clears what the other had refreshed.
    scene.peer.set(|door| door.reject_next = 2);
    scene.provider.set(|knobs| knobs.token_delay = std::time::Duration::from_millis(300));
    let both = futures::join!(scene.whoami(&scene.root), scene.whoami(&scene.root));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    assert_eq!(scene.state(&scene.root).await, "connected");
    assert_eq!(scene.provider.families_lost_to_reuse(), 0);
}

#[tokio::test]
async fn what_a_server_may_ask_for_is_bounded() {
    let scene = Scene::new().await;
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    let most = limits::OAUTH_SCOPES.size();
    let needs = async || {
        let connection = scene.connection(&scene.root).await;
        let needs = connection["needsScopes"].as_array().unwrap().iter();
        needs.map(|scope| scope.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for round in 0..3 {
        let scopes: Vec<String> =
            (0..most - 1).map(|number| format!("s{round}-{number}")).collect();
        let words = format!(
            r#"Bearer error="insufficient_scope", scope="{} {} k\\\\x", error_description="scope=evil""#,
            scopes.join(" "),
            "l".repeat(limits::OAUTH_SCOPE_CHARS.size() + 1)
        );
        let headers = vec![("www-authenticate", words)];
        let answer = Answer::Status { status: 403, headers, body: String::new() };
        scene.peer.peer.script_method("tools/call", [answer]);
        assert_eq!(scene.whoami(&scene.root).await, Err(Code::InsufficientScope));
        let needs = needs().await;
        assert_eq!(needs.len(), (most - 1).min(most) + usize::from(round > 0), "{needs:?}");
        assert!(needs.iter().all(|scope| scope.starts_with('s')), "{needs:?}");
    }
    assert_eq!(needs().await[0], "s0-0");
}

#[tokio::test]
async fn a_header_of_the_server_never_stands_beside_the_credential() {
    let (scene, _peer) = keyed(Setup::modern()).await;
    let form = |mode: &str, header: &str| {
        let mut form = json!({
            "name": header, "transport": "http", "url": scene.peer.url(), "enabled": false,
            "authMode": mode, "headers": { header: "shared" },
        });
        if mode == "api_key" {
            form["apiKeyHeader"] = json!("X-Api-Key");
        }
        form
    };
    for (mode, header) in [
        ("bearer", "Authorization"),
        ("oauth", "aUTHORIZATION"),
        ("api_key", "authorization"),
        ("api_key", "x-api-KEY"),
        ("api_key", "X-Api-Key"),
    ] {
        let made =
            scene.world.post(&scene.root.token, "/api/mcp/servers", form(mode, header)).await;
        assert_eq!(made.0, StatusCode::UNPROCESSABLE_ENTITY, "{mode} {header}: {}", made.1);
    }
    // Nor does it come about later.
    let shared = form("shared_headers", "AUTHORIZATION");
    let (status, made) = scene.world.post(&scene.root.token, "/api/mcp/servers", shared).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let mut changed = form("bearer", "AUTHORIZATION");
    changed["revision"] = made["revision"].clone();
    changed["headers"]["AUTHORIZATION"] = json!(null);
    let path = format!("/api/mcp/servers/{}", made["id"].as_str().unwrap());
    let (status, refused) = scene.world.put(&scene.root.token, &path, changed).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
}

#[tokio::test]
async fn a_person_tries_their_own_connection_out() {
    let (scene, peer) = keyed(Setup::modern()).await;
    let ann = scene.member("ann@acme.test").await;
    let test = scene.path("/connection/test");
    let status = async || {
        let (_, server) = scene.world.get(&scene.root.token, &scene.path("")).await;
        server["status"].clone()
    };
    let before = status().await;
    scene.put_secret(&ann, "sesame-of-ann").await;
    let (code, tried) = scene.world.post(&ann.token, &test, json!({})).await;
    assert_eq!((code, &tried["status"]), (StatusCode::OK, &json!("ready")), "{tried}");
    assert_eq!(last_bearer(&peer), "Bearer sesame-of-ann");
    assert!(peer.calls().is_empty());
    peer.script_method("tools/list", [Answer::status(401)]);
    let (code, tried) = scene.world.post(&scene.root.token, &test, json!({})).await;
    assert_eq!((code, &tried["status"]), (StatusCode::OK, &json!("error")), "{tried}");
    was_refused(&scene).await;
    assert_eq!(scene.state(&ann).await, "connected");
    assert_eq!(status().await, before, "it says nothing about the server");
    let url = json!({ "authMode": "none", "url": peer.url() });
    scene.configure(url).await;
    let (code, refused) = scene.world.post(&scene.root.token, &test, json!({})).await;
    assert_eq!((code, &refused["code"]), (StatusCode::CONFLICT, &json!("CONFLICT")));
}

fn last_bearer(peer: &Peer) -> String {
    peer.journal().last().unwrap().header("authorization").to_owned()
}

#[tokio::test]
async fn a_refresh_never_asks_for_more() {
    let scene = Scene::new().await;
    scene.provider.set(|knobs| knobs.grant_scope = Some(vec!["mcp:read".to_owned()]));
    scene.connect(&scene.root, "root").await;
    scene.discover().await;
    let called = scene.call(&scene.root, "admin_delete", "{}").await;
    assert_eq!(called.outcome.unwrap_err().code, Code::InsufficientScope);
    scene.age(&scene.root, true).await;
    scene.provider.set(|knobs| {
        knobs.fail_grant("refresh_token", Fault::patch(json!({ "scope": "mcp:read" })));
    });
    assert!(scene.whoami(&scene.root).await.is_ok());
    let refresh = &scene.provider.grants("refresh_token")[0];
    assert_eq!(refresh.field("scope"), "");
    let connection = scene.connection(&scene.root).await;
    assert_eq!(connection["needsScopes"], json!(["mcp:read", "mcp:admin"]), "{connection}");
}
