//! Which server, for whom.

use domain::permission::ToolPolicy;
use serde_json::json;
use tests::peer::{Answer, Setup, tool};

use super::{Gateway, Through, as_pairs, everything, modern};
use crate::gateway::register;

fn names(result: &serde_json::Value) -> Vec<&str> {
    let tools = result["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn it_takes_exactly_one_source() {
    let through = Through::new(Setup::modern()).await;
    let (headers, body) = modern("tools/list", &json!({}), &json!({}), &json!({}));
    for (query, status) in [
        ("prefix=off", 422),
        ("prefix=off&sources=", 422),
        ("prefix=off&sources=demo,other", 422),
        ("prefix=off&sources=demo&sources=other", 422),
        ("prefix=none&sources=demo", 422),
        ("prefix=off&sources=nobody", 404),
        ("prefix=off&sources=demo", 200),
    ] {
        let path = format!("/mcp/{}?{query}", through.session);
        let reply = through.post_as(&through.token, &path, &as_pairs(&headers), body.clone()).await;
        assert_eq!(reply.status, status, "{query}: {reply:?}");
    }
    // By id as well as by slug.
    let path = format!("/mcp/{}?prefix=off&sources={}", through.session, through.server);
    let reply = through.post_as(&through.token, &path, &as_pairs(&headers), body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test]
async fn tools_have_the_servers_own_names_and_our_pins() {
    let tools = vec![tool("echo"), tool("a.dotted/name"), tool("changes"), tool("denied")];
    let through = Through::new(Setup { tools, ..Setup::modern() }).await;
    let (ctx, owner) = (&through.world.ctx, &through.owner);
    through.peer.change(|setup| {
        setup.tools[2] =
            r#"{"name":"changes","inputSchema":{"type":"object"},"description":"!"}"#.to_owned();
    });
    app::discovery::run(ctx, owner.tenant, &through.server, None).await.unwrap();
    let policy = app::servers::tools::ToolChange {
        policy: Some(ToolPolicy::Deny),
        ..app::servers::tools::ToolChange::default()
    };
    app::servers::tools::change(ctx, owner, "demo", &"denied".into(), policy).await.unwrap();

    let listed = through.modern("tools/list", json!({})).await.json();
    assert_eq!(names(&listed), ["a.dotted/name", "echo"]);
    let session = through.initialize(&json!({})).await;
    assert_eq!(
        names(&through.older(&session, "tools/list", &json!({})).await.json()),
        ["a.dotted/name", "echo"]
    );

    let call = |name: &str| json!({ "name": name, "arguments": {"n": 1} });
    let called = through.modern("tools/call", call("a.dotted/name")).await.json();
    assert_eq!(called["result"]["structuredContent"], json!({"n": 1}));
    for (name, code) in [("changes", "TOOL_CHANGED"), ("denied", "PERMISSION_DENIED")] {
        let refused = through.modern("tools/call", call(name)).await.json();
        let error = &refused["result"]["_meta"]["bailiwick/error"]["error"];
        assert_eq!(error["code"], code, "{refused}");
    }
    let unknown = through.modern("tools/call", call("mcp__demo__echo")).await;
    assert_eq!(unknown.fault(), -32602, "agents' names are of the other form");
    assert_eq!(through.peer.calls().len(), 1);
}

#[tokio::test]
async fn what_is_not_selected_or_switched_off_is_not_there() {
    let through = Through::new(Setup::older()).await;
    let other = tests::peer::Peer::start(Setup::older()).await;
    register(&through.world, &through.owner, "other", &other).await;
    let (headers, body) = modern("server/discover", &json!({}), &json!({}), &json!({}));
    let path = format!("/mcp/{}?prefix=off&sources=other", through.session);
    let reply = through.post_as(&through.token, &path, &as_pairs(&headers), body).await;
    assert_eq!(reply.status, 404, "enabled, and not of this session: {reply:?}");

    let session = through.initialize(&json!({})).await;
    app::servers::switch(&through.world.ctx, &through.owner, "demo", false).await.unwrap();
    let off = through.modern("tools/list", json!({})).await.json();
    assert_eq!(off["error"]["data"]["code"], "SOURCE_DISABLED");
    assert_eq!(through.begin(&json!({})).await.status, 409);
    let reply = through.older(&session, "tools/list", &json!({})).await;
    assert_eq!(reply.status, 404, "an older client begins anew");
}

#[tokio::test]
async fn a_session_of_one_form_is_none_of_the_other() {
    let through = Through::new(Setup::older()).await;
    let own = through.initialize(&everything()).await;
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    assert_eq!(Gateway::legacy(&through, &own, list).await.status, 404);
    let prefixed = Gateway::initialize(&through, "2025-11-25").await;
    assert_eq!(through.older(&prefixed, "tools/list", &json!({})).await.status, 404);

    let token = through.world.token(&through.person, "mcp:call").await;
    let headers = [("mcp-session-id", own.as_str())];
    let reply = through.post_as(&token, &through.path(), &headers, list).await;
    assert_eq!(reply.status, 404, "another token's");
}

#[tokio::test]
async fn the_server_says_nothing_of_itself() {
    let setup = Setup {
        capabilities: vec![
            r#""prompts":{"listChanged":true}"#,
            r#""resources":{"subscribe":true}"#,
            r#""completions":{}"#,
            r#""logging":{}"#,
            r#""tasks":{"list":{}}"#,
            r#""experimental":{"x":{}}"#,
        ],
        tells_changes: true,
        ..Setup::modern()
    };
    let expected = json!({
        "tools": {"listChanged": true}, "prompts": {"listChanged": true},
        "resources": {"subscribe": true}, "completions": {}, "logging": {},
    });
    let through = Through::new(setup.clone()).await;
    let discovered = through.modern("server/discover", json!({})).await.json()["result"].clone();
    assert_eq!(discovered["capabilities"], expected);
    assert_eq!(discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "bailiwick");
    assert_ne!(discovered["instructions"], "ask", "not the server's");

    let older = Through::new(Setup {
        capabilities: setup.capabilities,
        tells_changes: true,
        ..Setup::older()
    })
    .await;
    let begun = older.begin(&json!({})).await.json()["result"].clone();
    assert_eq!(begun["capabilities"], expected);
    assert_eq!(begun["serverInfo"]["name"], "bailiwick");
    assert_eq!(begun["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn a_token_that_does_not_reach_the_server_finds_none() {
    let through = Through::new(Setup::modern()).await;
    through.peer.answer("echo", Answer::Echo);
    let sql = "UPDATE api_tokens SET sources = '{custom-000000000000}' WHERE scopes = '{mcp:call}'";
    through.sql(sql).await;
    let reply = through.modern("tools/call", json!({"name": "echo"})).await;
    assert_eq!(reply.status, 404, "{reply:?}");
    assert!(through.peer.calls().is_empty());
    let [record] = &through.invocations().await[..] else { panic!("one row") };
    assert_eq!((record.error_code.as_deref(), &record.source), (Some("NOT_FOUND"), &None));
}
