//! What somebody with bad intentions sends: to the REST API, to the gateway, as an upstream server.

mod peers;
mod requests;

use domain::server::ServerForm;
use runtime::config::{self, SettingsArgs};
use serde_json::{Value, json};
use store::Db;
use tests::{
    peer::Setup,
    world::{ENCRYPTION_KEY, World},
};

use crate::gateway::Gateway;

/// No spelling of our own address makes a server of it: we would answer our own requests.
#[tokio::test]
async fn our_own_listener_is_no_server_however_it_is_spelled() {
    let gateway = Gateway::new(Setup::modern()).await;
    let world = &gateway.world;
    let token = world.full_token(&gateway.person).await;
    let port = world.url.port().unwrap();
    for (number, host) in [
        "127.0.0.1",
        "127.0.0.1.",
        "localhost",
        "LOCALHOST.",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "①②⑦.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::1]",
        "[::]",
        "0.0.0.0",
        "0",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ]
    .into_iter()
    .enumerate()
    {
        let url = format!("http://{host}:{port}/mcp");
        let form = json!({
            "name": format!("ours {number}"), "slug": format!("ours-{number}"), "transport": "http",
            "url": url, "authMode": "none",
        });
        let (status, saved) = world.post(&token, "/api/mcp/servers", form).await;
        if status == 422 {
            continue;
        }
        assert_eq!(status, 201, "{url}: {saved}");
        let path = format!("/api/mcp/servers/ours-{number}/test");
        let (status, check) = world.post(&token, &path, json!({})).await;
        assert_eq!(status, 200, "{url}: {check}");
        // Had it been asked, it would have answered 401. A name may lead nowhere.
        let code = check["error"]["code"].as_str().unwrap_or_default();
        let nowhere = ["SERVER_MISCONFIGURED", "UPSTREAM_UNAVAILABLE"];
        assert!(nowhere.contains(&code), "{url}: {check}");
    }
}

/// A redirect of the upstream leads neither to us nor anywhere else.
#[tokio::test]
async fn a_redirect_leads_nowhere() {
    use tests::peer::{Answer, Peer};

    let gateway = Gateway::new(Setup::modern()).await;
    let elsewhere = Peer::start(Setup::modern()).await;
    for status in [301, 302, 303, 307, 308] {
        for url in
            [elsewhere.url().to_string(), gateway.world.url.join("/mcp").unwrap().to_string()]
        {
            gateway.peer.answer("echo", Answer::redirect(status, &url));
            let reply = gateway.modern("tools/call", r#"{"name":"mcp__demo__echo"}"#).await;
            let result = reply.json();
            let code = &result["result"]["_meta"]["bailiwick/error"]["error"]["code"];
            assert_eq!(code, "UPSTREAM_FORMAT", "{status} {url}: {result}");
        }
    }
    assert!(elsewhere.journal().is_empty());
}

#[tokio::test]
async fn nothing_that_is_printed_for_debugging_holds_a_secret() {
    let gateway = Gateway::new(Setup::modern()).await;
    let _ = gateway.modern("tools/call", r#"{"name":"mcp__demo__echo"}"#).await;
    let db = Db::connect_lazy("postgres://app:pl4nted-password@localhost/x", 1).unwrap();
    let environment = [
        ("BAILIWICK_ENCRYPTION_KEYS", ENCRYPTION_KEY),
        ("BAILIWICK_SEAL_KEY", "c2VhbC1rZXktc2VhbC1rZXktc2VhbC1rZXktMDAwMTI"),
        ("BAILIWICK_DATABASE_URL", "postgres://app:pl4nted-password@localhost/x"),
        ("BAILIWICK_OWNER_DATABASE_URL", "postgres://app:pl4nted-password@localhost/x"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let settings = config::load(&SettingsArgs::default(), environment.into_iter()).unwrap();
    let form: ServerForm = serde_json::from_value(json!({
        "name": "n", "transport": "http", "url": "http://x", "authMode": "shared_headers",
        "headers": { "X": "pl4nted-header" }, "env": { "Y": "pl4nted-variable" },
        "oauth": { "clientId": "i", "clientSecret": "pl4nted-client-secret" },
    }))
    .unwrap();
    let shown = format!("{:?} {db:?} {settings:?} {form:?} {:#?}", gateway.world.ctx, settings);
    let token = gateway.world.full_token(&gateway.person).await;
    for secret in [ENCRYPTION_KEY, "pl4nted", "c2VhbC1rZXkt", &gateway.token, &token] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}

/// Answers nothing but a refusal of the request itself, and works afterwards.
async fn refused(world: &World, what: &str, status: u16, answer: &Value) {
    assert!((400..500).contains(&status), "{what}: {status} {answer}");
    let (status, _) = world.get("", "/healthz").await;
    assert_eq!(status, 200, "after {what}");
}
