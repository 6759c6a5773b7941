//! The protocol as the peer speaks it: just enough, on raw text.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    body::Body,
    extract::{ConnectInfo, State as Shared},
};
use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response, StatusCode, header::HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Answer, Era, Framing, Received, Setup, State, Step,
    answer::{compressed, content, empty, framed, respond, streamed},
    listener::Cut,
    lock,
};
use crate::{
    authorization_server::{Gate, Instead},
    stops::Moment,
};

#[derive(Default, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<Params<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    protocol_version: Option<String>,
}

pub(super) async fn handle(
    Shared(state): Shared<Arc<State>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return empty(StatusCode::BAD_REQUEST);
    };
    let body = String::from_utf8_lossy(&body).into_owned();
    let message: Message<'_> = serde_json::from_str(&body).unwrap_or_default();
    let params = message.params.unwrap_or_default();
    let raw = |value: Option<&RawValue>| value.map(|value| value.get().to_owned());
    let received = Received {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        rpc: message.method.clone(),
        id: raw(message.id),
        tool: params.name.clone(),
        arguments: raw(params.arguments),
        body: body.clone(),
    };
    lock(&state.journal).push(received.clone());
    let id = received.id.clone().unwrap_or_else(|| "null".to_owned());
    let method = received.rpc.clone().unwrap_or_default();

    let gate = lock(&state.gate).clone();
    let name = Gate::name(&received.path, &received.headers, received.rpc.as_deref());
    if let Some(gate) = &gate
        && name != "call"
    {
        gate.pass(name, Moment::Received).await;
    }
    if let Some(gate) = gate.as_ref().filter(|gate| !gate.passes(&method)) {
        let tool = received.tool.as_deref();
        let instead = gate.answer(&received.method, &received.path, &received.headers, tool);
        if let Some(Instead { status, headers, body }) = instead {
            let answer = Answer::Status { status, headers, body };
            let response = carry(&state, &cut, &received, &id, answer).await;
            if name != "call" {
                gate.pass(name, Moment::Done).await;
            }
            return response;
        }
        if name == "call" {
            gate.pass(name, Moment::Received).await;
        }
    }
    if let Some(answer) = State::next(&state.methods, &method) {
        return carry(&state, &cut, &received, &id, answer).await;
    }
    if received.method == Method::DELETE {
        lock(&state.sessions).remove(received.header("mcp-session-id"));
        return empty(StatusCode::OK);
    }
    if received.method == Method::GET {
        let last_event_id = received.header("last-event-id");
        let resumes = last_event_id.starts_with("event-");
        let kind = if resumes { "GET" } else { "LISTEN" };
        let Some(answer) = State::next(&state.methods, kind) else {
            return empty(StatusCode::METHOD_NOT_ALLOWED);
        };
        let id = last_event_id.rsplit('-').next().unwrap_or("null").to_owned();
        return carry(&state, &cut, &received, &id, answer).await;
    }
    let setup = lock(&state.setup).clone();
    if lost_session(&state, &setup, &received) {
        return empty(StatusCode::NOT_FOUND);
    }
    if received.id.is_none() || method.is_empty() {
        return empty(StatusCode::ACCEPTED);
    }
    let answer = match method.as_str() {
        "server/discover" if matches!(setup.era, Era::Modern) => Answer::Result(discovered(&setup)),
        "initialize" => return initialize(&state, &setup, &id, params.protocol_version.as_deref()),
        "tools/list" => Answer::Result(page(&setup, params.cursor.as_deref())),
        "tools/call" => {
            let tool = received.tool.as_deref().unwrap_or_default();
            let arguments = received.arguments.as_deref().unwrap_or("null");
            let arguments = serde_json::from_str(arguments).unwrap_or_default();
            let known =
                gate.as_ref().and_then(|gate| gate.call(&received.headers, tool, &arguments));
            if let Some((known, gate)) = known.zip(gate) {
                gate.pass("call", Moment::Done).await;
                return carry(&state, &cut, &received, &id, Answer::Result(known.to_string()))
                    .await;
            }
            State::next(&state.tools, tool).unwrap_or(Answer::Echo)
        }
        "ping" => Answer::Result("{}".to_owned()),
        _ => Answer::Error { code: -32601, message: "no such method".to_owned() },
    };
    carry(&state, &cut, &received, &id, answer).await
}

fn lost_session(state: &State, setup: &Setup, received: &Received) -> bool {
    let needed = setup.sessions
        && matches!(setup.era, Era::Older { .. })
        && !matches!(received.rpc.as_deref(), Some("initialize" | "server/discover"));
    needed && !lock(&state.sessions).contains(received.header("mcp-session-id"))
}

fn discovered(setup: &Setup) -> String {
    let capabilities = capabilities(setup);
    format!(
        r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{capabilities},"instructions":"ask","ttlMs":0,"cacheScope":"private","_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"peer","version":"1"}}}}}}"#
    )
}

fn capabilities(setup: &Setup) -> String {
    let tools =
        if setup.tells_changes { r#""tools":{"listChanged":true}"# } else { r#""tools":{}"# };
    let all: Vec<&str> = std::iter::once(tools).chain(setup.capabilities.iter().copied()).collect();
    format!("{{{}}}", all.join(","))
}

fn initialize(state: &State, setup: &Setup, id: &str, asked: Option<&str>) -> Response<Body> {
    let Era::Older { versions, strict } = &setup.era else {
        return content("application/json", error(id, -32601, "no such method"));
    };
    let version = match versions.iter().find(|version| Some(**version) == asked) {
        Some(version) => version,
        None if *strict => {
            let list = serde_json::json!(versions);
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"unsupported version","data":{{"supported":{list}}}}}}}"#
            );
            let mut response = content("application/json", body);
            *response.status_mut() = StatusCode::BAD_REQUEST;
            return response;
        }
        None => versions[0],
    };
    let capabilities = capabilities(setup);
    let result = format!(
        r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{"name":"peer","version":"1"}}}}"#
    );
    let mut response = framed(*lock(&state.framing), &success(id, &result));
    if setup.sessions {
        let session = format!("s{}", state.sessions_begun.fetch_add(1, Ordering::SeqCst));
        let header = HeaderValue::from_str(&session).expect("letters and digits");
        response.headers_mut().insert("mcp-session-id", header);
        lock(&state.sessions).insert(session);
    }
    response
}

fn page(setup: &Setup, cursor: Option<&str>) -> String {
    let page: usize = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let start = page * setup.page_size;
    let tools: Vec<&str> =
        setup.tools.iter().skip(start).take(setup.page_size).map(String::as_str).collect();
    let tools = tools.join(",");
    let next = if setup.repeat_cursor && page > 0 { page } else { page + 1 };
    if start + setup.page_size < setup.tools.len() || setup.repeat_cursor {
        return format!(r#"{{"tools":[{tools}],"nextCursor":"{next}"}}"#);
    }
    format!(r#"{{"tools":[{tools}]}}"#)
}

/// Puts an answer on the wire.
async fn carry(
    state: &Arc<State>,
    cut: &Cut,
    received: &Received,
    id: &str,
    mut answer: Answer,
) -> Response<Body> {
    while let Answer::Hold(inner) = answer {
        hold(state).await;
        answer = *inner;
    }
    let framing: Framing = *lock(&state.framing);
    let fill = |text: String| text.replace("$ID", id);
    let large = |length| {
        let text = "a".repeat(length);
        success(id, &format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#))
    };
    match answer {
        Answer::Echo => framed(framing, &success(id, &echo(received))),
        Answer::Result(result) => framed(framing, &success(id, &fill(result))),
        Answer::Error { code, message } => framed(framing, &error(id, code, &message)),
        Answer::Status { status, headers, body } => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(fill(body))).expect("the test gives legal headers")
        }
        Answer::Content { kind, body } => content(kind, fill(body)),
        Answer::Large(length) => framed(framing, &large(length)),
        Answer::Compressed(length) => compressed(&large(length)),
        Answer::Stream { pieces, broken } => {
            streamed(pieces.into_iter().map(fill).collect(), broken)
        }
        Answer::Talk(steps) => talk(state, id, steps),
        Answer::Resumable(later) => {
            lock(&state.methods).insert("GET".to_owned(), [*later].into());
            streamed(vec![format!("id: event-{id}\nretry: 10\ndata:\n\n")], false)
        }
        Answer::Cut | Answer::Hold(_) => {
            cut.cut();
            empty(StatusCode::OK)
        }
    }
}

/// A stream, step by step.
fn talk(state: &Arc<State>, id: &str, steps: Vec<Step>) -> Response<Body> {
    let begun = (Arc::clone(state), steps.into_iter(), "null".to_owned());
    let id = id.to_owned();
    let pieces = stream::unfold(begun, move |(state, mut steps, mut reply)| {
        let id = id.clone();
        async move {
            loop {
                let piece = match steps.next()? {
                    Step::Raw(text) => text,
                    Step::Say(text) => format!("data: {text}\n\n"),
                    Step::Reply(to) => {
                        reply = replied(&state, to).await;
                        continue;
                    }
                    Step::Release => {
                        hold(&state).await;
                        continue;
                    }
                    Step::Break => {
                        let broken = std::io::Error::other("broken on purpose");
                        return Some((Err(broken), (state, steps, reply)));
                    }
                };
                let piece = piece.replace("$ID", &id).replace("$REPLY", &reply);
                return Some((Ok(Bytes::from(piece)), (state, steps, reply)));
            }
        }
    });
    respond("text/event-stream", Body::from_stream(pieces))
}

/// What the client answered to a request of the peer.
async fn replied(state: &State, to: &str) -> String {
    loop {
        let of_ours = |one: &&Received| one.rpc.is_none() && one.id.as_deref() == Some(to);
        if let Some(found) = lock(&state.journal).iter().find(of_ours) {
            return found.body.clone();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Counts a call as held until it is released or its caller hangs up.
async fn hold(state: &Arc<State>) {
    struct Held<'a>(&'a State);
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.held.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let now = state.held.fetch_add(1, Ordering::SeqCst) + 1;
    let _held = Held(state);
    state.most_held.fetch_max(now, Ordering::SeqCst);
    let mut released = state.released.subscribe();
    let _ended = released.wait_for(|released| *released).await;
}

fn echo(received: &Received) -> String {
    let arguments = received.arguments.as_deref().unwrap_or("{}");
    let text = serde_json::Value::String(arguments.to_owned());
    format!(
        r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{arguments},"isError":false}}"#
    )
}

fn success(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn error(id: &str, code: i64, message: &str) -> String {
    let message = serde_json::Value::String(message.to_owned());
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}
