//! `result_read` at the gateway: pages of what earlier calls of the session gave.

use app::sessions::NewSession;
use domain::{Role, permission::ApprovalMode};
use serde_json::{Value, json};
use tests::{
    peer::{Answer, Setup, tool},
    world::eventually,
};

use crate::gateway::{Gateway, as_pairs, modern, session};

async fn called(gateway: &Gateway, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    gateway.modern("tools/call", &params.to_string()).await.json()["result"].clone()
}

/// A call of `echo` whose result is this text, and its invocation.
async fn stored(gateway: &Gateway, text: &str) -> String {
    let result = json!({ "content": [{ "type": "text", "text": text }], "big": 1 });
    gateway.peer.answer("echo", Answer::Result(result.to_string()));
    invocation(&called(gateway, "mcp__demo__echo", json!({})).await)
}

fn invocation(result: &Value) -> String {
    result["_meta"]["bailiwick/invocationId"].as_str().unwrap().to_owned()
}

async fn read(gateway: &Gateway, arguments: Value) -> Value {
    called(gateway, "result_read", arguments).await
}

fn code(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    assert!(result.get("structuredContent").is_none(), "it has an output schema: {result}");
    result["_meta"]["bailiwick/error"]["error"]["code"].as_str().unwrap()
}

#[tokio::test]
async fn a_result_is_paged_to_its_end() {
    let gateway = Gateway::new(Setup::modern()).await;
    let text = "gruß ".repeat(20_000);
    let id = stored(&gateway, &text).await;
    let (mut whole, mut offset, mut pages) = (String::new(), json!(0), 0);
    loop {
        let page = read(
            &gateway,
            json!({ "invocationId": id, "pointer": "/data/content/0/text", "offset": offset }),
        )
        .await;
        let page = &page["structuredContent"];
        assert_eq!((&page["kind"], &page["total"]), (&json!("text"), &json!(100_000)), "{page}");
        assert_eq!((&page["untrusted"], &page["toolId"]), (&json!(true), &json!("echo")));
        whole.push_str(page["text"].as_str().unwrap());
        pages += 1;
        let left = page["left"].as_u64().unwrap();
        assert_eq!(left, 100_000 - u64::try_from(whole.chars().count()).unwrap());
        match page.get("nextOffset") {
            Some(next) => offset = next.clone(),
            None => break,
        }
    }
    assert_eq!((whole, pages), (text, 5));
}

#[tokio::test]
async fn the_whole_result_is_its_json_with_every_digit() {
    let gateway = Gateway::new(Setup::modern()).await;
    gateway.peer.answer("echo", Answer::Result(Answer::odd_result()));
    let id = invocation(&called(&gateway, "mcp__demo__echo", json!({})).await);
    let result = read(&gateway, json!({ "invocationId": id })).await;
    assert_eq!(result["isError"], false, "{result}");
    let page = &result["structuredContent"];
    let text = page["text"].as_str().unwrap();
    assert!(text.contains("123456789012345678901234567890") && text.contains("1.0e-400"), "{text}");
    assert_eq!((&page["kind"], &page["left"]), (&json!("json"), &json!(0)));
    let said: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(&said, page);
    let huge = json!({ "invocationId": id, "pointer": "/data/structuredContent/huge" });
    let huge = read(&gateway, huge).await;
    assert_eq!(huge["structuredContent"]["text"], "123456789012345678901234567890");
}

#[tokio::test]
async fn reading_is_an_event_and_no_call() {
    let gateway = Gateway::new(Setup::modern()).await;
    gateway.ask_first().await;
    let mode = ApprovalMode::AlwaysAllow;
    let (ctx, owner) = (&gateway.world.ctx, &gateway.owner);
    app::sessions::set_mode(ctx, owner, gateway.session, mode).await.unwrap();
    let id = stored(&gateway, "words").await;
    gateway.ask_first().await;
    // Nobody is asked for it.
    let page = read(&gateway, json!({ "invocationId": id, "length": 3 })).await;
    assert_eq!(page["structuredContent"]["length"], 3);
    assert_eq!(gateway.invocations().await.len(), 1);
    let token = gateway.world.full_token(&gateway.person).await;
    let path = format!("/api/sessions/{}/events?limit=200", gateway.session);
    let read = eventually("the event can be read", async || {
        let (_, events) = gateway.world.get(&token, &path).await;
        let events = events["items"].as_array().unwrap();
        events.iter().find(|event| event["type"] == "result.read").cloned()
    })
    .await;
    assert_eq!((&read["data"]["invocationId"], &read["data"]["length"]), (&json!(id), &json!(3)));
}

#[tokio::test]
async fn only_own_succeeded_calls_of_the_same_session_are_there() {
    let gateway = Gateway::new(Setup::modern()).await;
    let id = stored(&gateway, "words").await;
    let failing = r#"{"isError":true,"content":[]}"#;
    gateway.peer.answer("echo", Answer::Result(failing.to_owned()));
    let failed = invocation(&called(&gateway, "mcp__demo__echo", json!({})).await);

    // Of another session of the same person, and of somebody else.
    let (world, owner) = (&gateway.world, &gateway.owner);
    let mode = ApprovalMode::AlwaysAllow;
    let second = session(world, owner, &gateway.server, mode).await;
    let bob = world.user(&gateway.person.tenant, "bob@acme.test", Role::Superadmin).await;
    let bobs = crate::gateway::caller(world, &world.full_token(&bob).await).await;
    let theirs = app::sessions::create(&world.ctx, &bobs, NewSession::default()).await.unwrap().id;
    let bob_token = world.token(&bob, "mcp:call").await;
    let globex = world.tenant("globex").await;
    let gus = world.user(&globex, "gus@globex.test", Role::Superadmin).await;
    let gus_token = world.token(&gus, "mcp:call").await;
    let asked = async |token: &str, path: &str, id: &str| {
        let params = json!({ "name": "result_read", "arguments": { "invocationId": id } });
        let (headers, body) = modern("tools/call", &params.to_string());
        gateway.post_as(token, path, &as_pairs(&headers), body).await.json()["result"].clone()
    };
    for (token, path, id) in [
        (&gateway.token, format!("/mcp/{second}"), id.as_str()),
        (&bob_token, format!("/mcp/{theirs}"), &id),
        (&gus_token, "/mcp".to_owned(), &id),
        (&gateway.token, gateway.path(), &failed),
        (&gateway.token, gateway.path(), "00000000-0000-7000-8000-000000000000"),
        (&gateway.token, gateway.path(), "nothing"),
    ] {
        let result = asked(token, &path, id).await;
        assert_eq!(code(&result), "NOT_FOUND", "{path} {id}");
    }
    let own = asked(&gateway.token, &gateway.path(), &id).await;
    assert_eq!(own["isError"], false, "{own}");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_its_place() {
    let gateway = Gateway::new(Setup::modern()).await;
    let id = stored(&gateway, "words").await;
    for arguments in [
        json!({}),
        json!({ "invocationId": 7 }),
        json!({ "invocationId": id, "offset": -1 }),
        json!({ "invocationId": id, "length": 0 }),
        json!({ "invocationId": id, "length": 100_001 }),
        json!({ "invocationId": id, "pointer": "x".repeat(2_000) }),
        json!({ "invocationId": id, "mode": "fast" }),
        json!({ "invocationId": id, "pointer": "/nothing" }),
        json!({ "invocationId": id, "pointer": "data" }),
    ] {
        let result = read(&gateway, arguments.clone()).await;
        assert_eq!(code(&result), "INVALID_INPUT", "{arguments}");
    }
    let beyond = read(&gateway, json!({ "invocationId": id, "offset": 1_000_000_000 })).await;
    assert_eq!(beyond["structuredContent"]["text"], "");
    assert_eq!(beyond["structuredContent"]["left"], 0);
}

#[tokio::test]
async fn the_reach_of_a_token_and_the_named_sources_limit_it() {
    let tools = vec![tool("echo"), tool("other")];
    let gateway = Gateway::new(Setup { tools, ..Setup::modern() }).await;
    let echo = stored(&gateway, "words").await;
    let other = invocation(&called(&gateway, "mcp__demo__other", json!({})).await);
    let mint = async |tools: Value| {
        let form = json!({ "name": "t", "scopes": ["api:read"], "tools": tools });
        let full = gateway.world.full_token(&gateway.person).await;
        let (_, minted) = gateway.world.post(&full, "/api/tokens", form).await;
        // Nobody who may approve can mint a calling token by REST; the operator can.
        let owner = gateway.world.owner().await;
        sqlx::query("UPDATE api_tokens SET scopes = '{mcp:call}' WHERE token_id = $1::uuid")
            .bind(minted["id"].as_str().unwrap())
            .execute(&owner)
            .await
            .unwrap();
        minted["token"].as_str().unwrap().to_owned()
    };
    let ask = async |token: &str, query: &str, method: &str, params: &Value| {
        let (headers, body) = modern(method, &params.to_string());
        let path = format!("{}{query}", gateway.path());
        gateway.post_as(token, &path, &as_pairs(&headers), body).await.json()
    };
    let names = |list: &Value| -> Vec<String> {
        let tools = list["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let reading = |id: &str| json!({ "name": "result_read", "arguments": { "invocationId": id } });

    let one = mint(json!(["mcp__demo__echo", "result_read"])).await;
    let list = ask(&one, "", "tools/list", &json!({})).await;
    assert_eq!(names(&list), ["mcp__demo__echo", "result_read"]);
    let own = ask(&one, "", "tools/call", &reading(&echo)).await;
    assert_eq!(own["result"]["isError"], false, "{own}");
    let beyond = ask(&one, "", "tools/call", &reading(&other)).await;
    assert_eq!(code(&beyond["result"]), "NOT_FOUND");

    let without = mint(json!(["mcp__demo__echo"])).await;
    let list = ask(&without, "", "tools/list", &json!({})).await;
    assert_eq!(names(&list), ["mcp__demo__echo"]);
    let unknown = ask(&without, "", "tools/call", &reading(&echo)).await;
    assert_eq!(unknown["error"]["data"]["code"], "NOT_FOUND");

    let token = &gateway.token;
    let list = ask(token, "?sources=demo", "tools/list", &json!({})).await;
    assert_eq!(names(&list), ["mcp__demo__echo", "mcp__demo__other"]);
    let unknown = ask(token, "?sources=demo", "tools/call", &reading(&echo)).await;
    assert_eq!(unknown["error"]["data"]["code"], "NOT_FOUND");
    let both = ask(token, "?sources=demo,bailiwick", "tools/call", &reading(&echo)).await;
    assert_eq!(both["result"]["isError"], false, "{both}");
    let alone = ask(token, "?sources=bailiwick", "tools/call", &reading(&echo)).await;
    assert_eq!(code(&alone["result"]), "NOT_FOUND", "it reads of no server here");
}

#[tokio::test]
async fn a_servers_tool_of_that_name_is_another_tool() {
    let gateway = Gateway::new(Setup { tools: vec![tool("result_read")], ..Setup::modern() }).await;
    let theirs = called(&gateway, "mcp__demo__result_read", json!({ "n": 1 })).await;
    assert_eq!(theirs["structuredContent"], json!({ "n": 1 }));
    let ours = read(&gateway, json!({ "n": 1 })).await;
    assert_eq!(code(&ours), "INVALID_INPUT");
    assert_eq!(gateway.peer.calls().len(), 1);
}

#[tokio::test]
async fn an_archived_session_is_not_read_and_older_clients_read_too() {
    let gateway = Gateway::new(Setup::older()).await;
    let id = stored(&gateway, "words").await;
    let mcp = gateway.initialize("2025-06-18").await;
    let call = json!({
        "jsonrpc": "2.0", "id": 5, "method": "tools/call",
        "params": { "name": "result_read", "arguments": { "invocationId": id } },
    });
    let reply = gateway.legacy(&mcp, &call.to_string()).await.json();
    assert_eq!(reply["result"]["isError"], false, "{reply}");
    assert!(reply["result"].get("resultType").is_none());
    let (ctx, owner) = (&gateway.world.ctx, &gateway.owner);
    app::sessions::archive(ctx, owner, gateway.session).await.unwrap();
    let reply = gateway.legacy(&mcp, &call.to_string()).await.json();
    assert_eq!(reply["error"]["data"]["code"], "SESSION_ARCHIVED", "{reply}");
}
