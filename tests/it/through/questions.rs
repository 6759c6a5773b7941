//! Older clients: what the server asks during a call reaches them on the call's stream.

use domain::invocation::Status;
use serde_json::{Value, json};
use tests::{
    peer::{Answer, Setup, Step, tool},
    world::eventually,
};

use super::{Through, everything};

/// A server whose tool asks this once and answers with what it was told.
async fn asking(question: Value) -> Through {
    let through = Through::new(Setup { tools: vec![tool("ask")], ..Setup::older() }).await;
    let steps = vec![
        Step::Say(question.to_string()),
        Step::Reply("7"),
        Step::say(
            r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":$REPLY}}"#,
        ),
    ];
    through.peer.answer("ask", Answer::Talk(steps));
    through
}

fn question(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

fn form(field: &str) -> Value {
    question(
        "elicitation/create",
        &json!({
            "message": "Who are you?",
            "requestedSchema": {"type": "object", "properties": {field: {"type": "string"}}},
        }),
    )
}

const CALL: &str = "tools/call";

fn call() -> Value {
    json!({"name": "ask", "arguments": {}})
}

#[tokio::test]
async fn a_question_reaches_the_client_and_its_answer_the_server() {
    let through = asking(form("name")).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &call()).await;
    let asked = stream.next().await;
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "demo: Who are you?", "it says who asks");
    assert_ne!(asked["id"], 7, "ids of one server are not those of another");

    let answer = json!({"action": "accept", "content": {"name": "Ann"}});
    assert_eq!(through.answer(&session, &asked["id"], &answer).await, 202);
    let result = stream.next().await;
    assert_eq!(result["id"], 1);
    assert_eq!(result["result"]["structuredContent"]["result"], answer);
    assert!(stream.maybe_next().await.is_none());
    assert_eq!(through.calls().await, [(Status::Succeeded, 1)]);
    // Late, once more, and to nothing: taken, and without a consequence.
    assert_eq!(through.answer(&session, &asked["id"], &answer).await, 202);
    assert_eq!(through.answer(&session, &json!("made-up"), &answer).await, 202);
}

/// MCP 2025-03-26, Transports: "an array batching one or more responses".
#[tokio::test]
async fn a_client_of_2025_03_26_answers_in_a_batch_and_no_other_does() {
    let answer = json!({"roots": [{"uri": "file:///a"}]});
    let batch = |id: &Value| json!([{"jsonrpc": "2.0", "id": id, "result": answer}]).to_string();
    for (version, status) in [("2025-03-26", 202), ("2025-11-25", 400)] {
        let through = asking(question("roots/list", &json!({}))).await;
        let begun = through.begin_as(version, &everything()).await;
        let session = begun.header("mcp-session-id").to_owned();
        let headers = [("mcp-session-id", session.as_str())];
        let mut stream = through.open_older(&session, CALL, &call()).await;
        let asked = stream.next().await;
        let reply = through.post(&headers, batch(&asked["id"])).await;
        assert_eq!(reply.status, status, "{version}: {reply:?}");
        if status == 400 {
            assert_eq!(through.answer(&session, &asked["id"], &answer).await, 202);
        }
        // The server, which waits for it, had its answer.
        assert!(stream.next().await["result"].is_object(), "{version}");
    }
}

#[tokio::test]
async fn another_sessions_answer_is_none() {
    let through = asking(form("name")).await;
    let (mine, other) =
        (through.initialize(&everything()).await, through.initialize(&everything()).await);
    let mut stream = through.open_older(&mine, CALL, &call()).await;
    let asked = stream.next().await;
    let forged = json!({"action": "accept", "content": {"name": "Eve"}});
    assert_eq!(through.answer(&other, &asked["id"], &forged).await, 202);
    let answer = json!({"action": "decline"});
    assert_eq!(through.answer(&mine, &asked["id"], &answer).await, 202);
    assert_eq!(stream.next().await["result"]["structuredContent"]["result"], answer);
}

/// What the server is told when its question goes no further.
async fn refused(question: Value, capabilities: &Value) -> Value {
    let through = asking(question).await;
    let session = through.initialize(capabilities).await;
    let reply = through.older(&session, CALL, &call()).await.json();
    let told = reply["result"]["structuredContent"]["error"].clone();
    assert!(told.is_object(), "{reply}");
    told
}

#[tokio::test]
async fn what_the_client_did_not_offer_is_not_asked() {
    let none = json!({});
    for (asked, capabilities) in [
        (form("name"), none.clone()),
        (form("name"), json!({"elicitation": {"url": {}}})),
        (question("roots/list", &json!({})), none.clone()),
        (question("sampling/createMessage", &json!({"messages": [], "maxTokens": 1})), none),
        (question("tools/call", &json!({})), everything()),
    ] {
        assert_eq!(refused(asked, &capabilities).await["code"], -32600);
    }
}

#[tokio::test]
async fn secrets_and_open_links_are_not_asked_for() {
    for field in ["password", "apiKey", "card_number"] {
        let told = refused(form(field), &everything()).await;
        assert!(told["message"].as_str().unwrap().contains("secret"), "{told}");
    }
    for url in ["http://id.example.com/", "https://you@id.example.com/", "file:///etc/passwd"] {
        let params = json!({"mode": "url", "message": "m", "url": url, "elicitationId": "e"});
        refused(question("elicitation/create", &params), &everything()).await;
    }
}

#[tokio::test]
async fn nothing_hides_in_a_form_that_reaches_a_person() {
    let params = |name: &str, field: Value| {
        let schema = json!({"type": "object", "properties": {name: field}});
        json!({"message": "m\u{202e}", "requestedSchema": schema})
    };
    let city = json!({
        "type": "string", "title": "Ci\u{200b}ty", "description": "\u{e0041}where",
        "oneOf": [{"const": "k", "title": "Kö\u{2066}ln"}],
    });
    let through = asking(question("elicitation/create", &params("city", city))).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &call()).await;
    let asked = stream.next().await;
    let shown = json!({
        "type": "string", "title": "City", "description": "where",
        "oneOf": [{"const": "k", "title": "Köln"}],
    });
    assert_eq!(asked["params"]["message"], "demo: m");
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["city"], shown);

    for (name, field) in [
        ("ci\u{200b}ty", json!({"type": "string"})),
        ("city", json!({"type": "string", "enum": ["k\u{200b}"]})),
    ] {
        let told =
            refused(question("elicitation/create", &params(name, field)), &everything()).await;
        assert!(told["message"].as_str().unwrap().contains("hides"), "{told}");
    }
    let field = json!({"type": "string", "title": "Pass\u{200b}word"});
    let told =
        refused(question("elicitation/create", &params("value", field)), &everything()).await;
    assert!(told["message"].as_str().unwrap().contains("secret"), "{told}");
}

#[tokio::test]
async fn a_link_shows_where_it_leads() {
    let params = json!({"mode": "url", "message": "Sign in", "url": "https://id.example.com/a", "elicitationId": "e"});
    let through = asking(question("elicitation/create", &params)).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &call()).await;
    let asked = stream.next().await;
    assert_eq!(asked["params"]["message"], "demo (the page is on id.example.com): Sign in");
    assert_eq!(asked["params"]["url"], "https://id.example.com/a");
}

#[tokio::test]
async fn sampling_needs_the_superadmins_word() {
    let sampling = question("sampling/createMessage", &json!({"messages": [], "maxTokens": 1}));
    refused(sampling.clone(), &everything()).await;

    let through = asking(sampling).await;
    through.relay_sampling().await;
    let session = through.initialize(&everything()).await;
    let begun: Value =
        serde_json::from_str(&through.peer.received("initialize").last().unwrap().body).unwrap();
    assert_eq!(begun["params"]["capabilities"]["sampling"], json!({}));
    let mut stream = through.open_older(&session, CALL, &call()).await;
    let asked = stream.next().await;
    assert_eq!(asked["method"], "sampling/createMessage");
    let said =
        json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"});
    through.answer(&session, &asked["id"], &said).await;
    assert_eq!(stream.next().await["result"]["structuredContent"]["result"], said);
}

#[tokio::test]
async fn a_server_learns_of_the_client_only_what_is_passed_on() {
    let through = Through::new(Setup::older()).await;
    let mut capabilities = everything();
    capabilities["experimental"] = json!({"x": {}});
    capabilities["tasks"] = json!({"list": {}});
    through.initialize(&capabilities).await;
    let begun: Value =
        serde_json::from_str(&through.peer.received("initialize").last().unwrap().body).unwrap();
    assert_eq!(
        begun["params"]["capabilities"],
        json!({"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": true}})
    );
    assert_eq!(begun["params"]["clientInfo"]["name"], "bailiwick");
}

#[tokio::test]
async fn a_question_that_the_server_takes_back_is_taken_back() {
    let through = Through::new(Setup { tools: vec![tool("ask")], ..Setup::older() }).await;
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let steps = vec![
        Step::Say(form("name").to_string()),
        Step::Release,
        Step::say(cancelled),
        Step::say(r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#),
    ];
    through.peer.answer("ask", Answer::Talk(steps));
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &call()).await;
    let asked = stream.next().await;
    through.peer.release();
    let first = stream.next().await;
    // The answer may be faster than the news that nobody needs the client's.
    if first["method"] == "notifications/cancelled" {
        assert_eq!(first["params"]["requestId"], asked["id"]);
        assert_eq!(stream.next().await["id"], 1);
    } else {
        assert_eq!(first["id"], 1);
    }
}

#[tokio::test]
async fn cancelling_the_call_cancels_it_with_the_server_under_its_id() {
    let through = asking(form("name")).await;
    let session = through.initialize(&everything()).await;
    let mut stream = through.open_older(&session, CALL, &call()).await;
    stream.next().await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let reply = through.post(&[("mcp-session-id", &session)], cancel.to_string()).await;
    assert_eq!(reply.status, 202);
    assert!(stream.maybe_next().await.is_none(), "nothing more is said");
    through
        .peer
        .until("the server is told", |peer| !peer.received("notifications/cancelled").is_empty())
        .await;
    let told: Value =
        serde_json::from_str(&through.peer.received("notifications/cancelled")[0].body).unwrap();
    let upstream = through.peer.calls()[0].id.clone().unwrap();
    assert_eq!(told["params"]["requestId"].to_string(), upstream);
    eventually("the record is closed", async || {
        (through.calls().await[0].0 == Status::Cancelled).then_some(())
    })
    .await;
}

#[tokio::test]
async fn pages_that_must_be_seen_first_are_shown_with_their_hosts() {
    let page = |url: &str| {
        let data = json!({"elicitations": [
            {"mode": "url", "elicitationId": "e", "url": url, "message": "Sign in"},
        ]});
        let error = json!({"code": -32042, "message": "first sign in", "data": data});
        let body = format!(r#"{{"jsonrpc":"2.0","id":$ID,"error":{error}}}"#);
        Answer::Content { kind: "application/json", body }
    };
    let through = Through::new(Setup::older()).await;
    let session = through.initialize(&everything()).await;
    through.peer.script("echo", [page("https://id.example.com/"), page("http://id.example.com/")]);
    let called = async || {
        let params = json!({"name": "echo", "arguments": {}});
        through.older(&session, CALL, &params).await.json()["error"].clone()
    };
    let shown = called().await;
    assert_eq!(shown["code"], -32042);
    assert_eq!(
        shown["data"]["elicitations"][0]["message"],
        "demo (the page is on id.example.com): Sign in"
    );
    let hidden = called().await;
    assert_eq!((&hidden["code"], hidden.get("data")), (&json!(-32603), None), "{hidden}");
}
