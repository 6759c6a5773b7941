//! An HTTP+SSE server (MCP 2024-11-05) written by hand, with the habits and faults of real ones.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, Method, Response, StatusCode, Uri, header},
    routing::{get, post},
};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::UnboundedReceiverStream;
use url::Url;

use crate::authorization_server::{Gate, Instead};

/// How a server behaves; may be changed while it runs.
#[derive(Debug, Clone)]
pub struct Habits {
    /// Data of the `endpoint` event; `$SESSION` is the session's id. Empty: no such event.
    pub endpoint: String,
    pub line_end: &'static str,
    /// Answers in the response to the POST instead of on the stream.
    pub answers_in_post: bool,
    /// Answers the POST only after its answer stands on the stream.
    pub posts_late: bool,
    /// Of each POST, if not 202.
    pub post_status: Option<u16>,
    pub get_status: Option<u16>,
    /// Where GET /moved leads.
    pub moved_to: String,
    /// Has resources, tells of changes, and asks its client.
    pub more: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            endpoint: "/messages?session=$SESSION".to_owned(),
            line_end: "\n",
            answers_in_post: false,
            posts_late: false,
            post_status: None,
            get_status: None,
            moved_to: "/sse".to_owned(),
            more: false,
        }
    }
}

/// A running server; stops when dropped.
pub struct SsePeer {
    address: SocketAddr,
    state: Arc<Served>,
    serving: JoinHandle<()>,
}

struct Served {
    habits: Mutex<Habits>,
    /// By session.
    streams: Mutex<HashMap<String, mpsc::UnboundedSender<String>>>,
    begun: AtomicUsize,
    received: Mutex<Vec<Value>>,
    /// Calls that wait for what their client says, by session.
    asking: Mutex<HashMap<String, Value>>,
    headers: Mutex<Vec<(String, HeaderMap)>>,
    gate: Mutex<Option<Arc<Gate>>>,
}

impl SsePeer {
    pub async fn start(habits: Habits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Served {
            habits: Mutex::new(habits),
            streams: Mutex::default(),
            begun: AtomicUsize::new(0),
            received: Mutex::default(),
            asking: Mutex::default(),
            headers: Mutex::default(),
            gate: Mutex::default(),
        });
        let router = Router::new()
            .route("/sse", get(open))
            .route("/moved", get(moved))
            .route("/messages", post(take))
            .fallback(other)
            .with_state(Arc::clone(&state));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, state, serving }
    }

    /// The address of the stream.
    #[must_use]
    pub fn url(&self, path: &str) -> Url {
        format!("http://{}{path}", self.address).parse().unwrap()
    }

    /// From now on nobody gets in without a token.
    pub(crate) fn guard(&self, gate: Arc<Gate>) {
        *self.state.gate.lock().unwrap() = Some(gate);
    }

    pub fn change(&self, change: impl FnOnce(&mut Habits)) {
        change(&mut self.state.habits.lock().unwrap());
    }

    /// Streams that were opened so far.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.state.begun.load(Ordering::SeqCst)
    }

    /// Messages of one method, in order.
    #[must_use]
    pub fn received(&self, method: &str) -> Vec<Value> {
        let received = self.state.received.lock().unwrap();
        received.iter().filter(|one| one["method"] == method).cloned().collect()
    }

    /// Everything that is no request or notification.
    #[must_use]
    pub fn replies(&self) -> Vec<Value> {
        let received = self.state.received.lock().unwrap();
        received.iter().filter(|one| one["method"].is_null()).cloned().collect()
    }

    /// Method of HTTP and headers of each request.
    #[must_use]
    pub fn headers(&self) -> Vec<(String, HeaderMap)> {
        self.state.headers.lock().unwrap().clone()
    }

    /// Ends every stream.
    pub fn cut(&self) {
        self.state.streams.lock().unwrap().clear();
    }
}

impl Drop for SsePeer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn moved(State(state): State<Arc<Served>>) -> Response<Body> {
    let to = state.habits.lock().unwrap().moved_to.clone();
    Response::builder().status(302).header(header::LOCATION, to).body(Body::empty()).unwrap()
}

/// Metadata, where the server is protected.
async fn other(State(state): State<Arc<Served>>, method: Method, uri: Uri) -> Response<Body> {
    let refused = state.refuse(&method, uri.path(), &HeaderMap::new(), None);
    refused.unwrap_or_else(|| status(StatusCode::NOT_FOUND, "nothing here"))
}

impl Served {
    /// What a guarded server answers instead.
    fn refuse(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        tool: Option<&str>,
    ) -> Option<Response<Body>> {
        let gate = self.gate.lock().unwrap().clone()?;
        let Instead { status, headers, body } = gate.answer(method, path, headers, tool)?;
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(name, value);
        }
        Some(response.body(Body::from(body)).unwrap())
    }
}

async fn open(State(state): State<Arc<Served>>, headers: HeaderMap) -> Response<Body> {
    state.headers.lock().unwrap().push(("GET".to_owned(), headers.clone()));
    if let Some(refused) = state.refuse(&Method::GET, "/sse", &headers, None) {
        return refused;
    }
    let habits = state.habits.lock().unwrap().clone();
    if let Some(status) = habits.get_status {
        return Response::builder().status(status).body(Body::from("go away")).unwrap();
    }
    let session = format!("s{}", state.begun.fetch_add(1, Ordering::SeqCst));
    let (sender, receiver) = mpsc::unbounded_channel();
    let end = habits.line_end;
    sender.send(format!(": welcome{end}{end}")).unwrap();
    if !habits.endpoint.is_empty() {
        let endpoint = habits.endpoint.replace("$SESSION", &session);
        sender.send(format!("event: endpoint{end}data: {endpoint}{end}{end}")).unwrap();
    }
    state.streams.lock().unwrap().insert(session, sender);
    let events = UnboundedReceiverStream::new(receiver).map(Ok::<_, Infallible>);
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")
        .body(Body::from_stream(events))
        .unwrap()
}

async fn take(
    State(state): State<Arc<Served>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    state.headers.lock().unwrap().push(("POST".to_owned(), headers.clone()));
    let message: Value = serde_json::from_slice(&body).unwrap();
    let tool = message["params"]["name"].as_str();
    if let Some(refused) = state.refuse(&Method::POST, "/messages", &headers, tool) {
        return refused;
    }
    state.received.lock().unwrap().push(message.clone());
    let habits = state.habits.lock().unwrap().clone();
    let stream = state.streams.lock().unwrap().get(&query["session"]).cloned();
    let Some(stream) = stream else { return status(StatusCode::NOT_FOUND, "no such session") };
    if let Some(given) = habits.post_status {
        return status(StatusCode::from_u16(given).unwrap(), "refused");
    }
    if habits.more && talks(&state, &query["session"], &message, &stream) {
        return status(StatusCode::ACCEPTED, "Accepted");
    }
    let Some(answer) = answer(&state, &headers, &message) else {
        return status(StatusCode::ACCEPTED, "Accepted");
    };
    if habits.answers_in_post {
        return Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(answer))
            .unwrap();
    }
    let end = habits.line_end;
    let event = format!(": ping{end}{end}event: message{end}data: {answer}{end}{end}");
    if stream.send(event).is_ok() && habits.posts_late {
        std::future::pending::<()>().await;
    }
    status(StatusCode::ACCEPTED, "Accepted")
}

/// What more than one message belongs to. True: everything was said.
fn talks(
    state: &Served,
    session: &str,
    message: &Value,
    stream: &mpsc::UnboundedSender<String>,
) -> bool {
    let say = |message: Value| {
        stream.send(format!("event: message\ndata: {message}\n\n")).unwrap();
    };
    let done = |id: &Value, text: &str| {
        let content = json!([{"type": "text", "text": text}]);
        say(json!({"jsonrpc": "2.0", "id": id, "result": {"content": content}}));
    };
    let changed = || say(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    let id = &message["id"];
    if message["method"].is_null() && id == "q" {
        let call = state.asking.lock().unwrap().remove(session).unwrap();
        done(&call, &json!({"result": message["result"], "error": null}).to_string());
        return true;
    }
    match message["params"]["name"].as_str().unwrap_or_default() {
        "ask" => {
            state.asking.lock().unwrap().insert(session.to_owned(), id.clone());
            let params = json!({"message": "who are you?",
                "requestedSchema": {"type": "object", "properties": {}}});
            say(
                json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}),
            );
        }
        "change" => {
            changed();
            done(id, "changed");
        }
        "change_later" => {
            done(id, "soon");
            changed();
        }
        _ => return false,
    }
    true
}

fn answer(state: &Served, headers: &HeaderMap, message: &Value) -> Option<String> {
    let gate = state.gate.lock().unwrap().clone();
    let id = message.get("id").filter(|_| message["method"].is_string())?;
    let more = state.habits.lock().unwrap().more;
    let (tool, arguments) = (&message["params"]["name"], &message["params"]["arguments"]);
    let known = gate.as_ref().zip(tool.as_str());
    let known = known.and_then(|(gate, tool)| gate.call(headers, tool, arguments));
    let result = match message["method"].as_str()? {
        "initialize" => {
            let capabilities = if more {
                json!({"tools": {"listChanged": true}, "resources": {"listChanged": true}})
            } else {
                json!({"tools": {}})
            };
            json!({"protocolVersion": "2024-11-05", "capabilities": capabilities,
                "serverInfo": {"name": "sse-peer", "version": "1"}})
        }
        "tools/list" => {
            let names = ["echo", "ask", "change", "change_later"];
            let names = if more { &names[..] } else { &names[..1] };
            let schema = json!({"type": "object"});
            let own = names.iter().map(|name| json!({"name": name, "inputSchema": schema}));
            let gated = gate.map(|_| Gate::tools()).unwrap_or_default();
            let gated = gated.iter().map(|tool| serde_json::from_str(tool).unwrap());
            json!({ "tools": own.chain(gated).collect::<Vec<Value>>() })
        }
        "resources/list" if more => json!({"resources": [{"uri": "demo://a", "name": "a"}]}),
        "resources/read" if more => {
            json!({"contents": [{"uri": message["params"]["uri"], "text": "A"}]})
        }
        "tools/call" if let Some(known) = known => known,
        "tools/call" => match message["params"]["name"].as_str()? {
            "never" => return None,
            "cut" => {
                state.streams.lock().unwrap().clear();
                return None;
            }
            "long" => json!({"content": [{"type": "text", "text": "a".repeat(10_000_000)}]}),
            "ask" => {
                let ask = json!({"jsonrpc": "2.0", "id": "q", "method": "ping"});
                let streams = state.streams.lock().unwrap();
                for stream in streams.values() {
                    stream.send(format!("data: {ask}\n\n")).unwrap();
                }
                json!({"content": []})
            }
            _ => json!({"content": [{"type": "text",
                "text": message["params"]["arguments"].to_string()}]}),
        },
        method => {
            let error = json!({"code": -32601, "message": format!("no method {method}")});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

fn status(status: StatusCode, words: &'static str) -> Response<Body> {
    Response::builder().status(status).body(Body::from(words)).unwrap()
}
