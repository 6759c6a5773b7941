//! An MCP server written by hand, without rmcp, so that nothing between the wire and the test knows
//! better. It answers what the test says, odd or broken, and keeps a journal of what it was sent.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::Router;
use http::HeaderMap;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use url::Url;

use crate::authorization_server::Gate;

mod answer;
pub(crate) mod listener;
mod serve;

pub use answer::{Answer, Framing, Step};

/// How a peer begins. Everything else is set while it runs.
#[derive(Debug, Clone)]
pub struct Setup {
    pub era: Era,
    /// Give out `Mcp-Session-Id` and answer 404 to an unknown one (older eras only).
    pub sessions: bool,
    /// Raw JSON of each definition, in order.
    pub tools: Vec<String>,
    pub page_size: usize,
    /// Every page but the first names the same next page.
    pub repeat_cursor: bool,
    /// `tools.listChanged`.
    pub tells_changes: bool,
    /// Raw JSON of further capabilities, each as `"name":{…}`.
    pub capabilities: Vec<&'static str>,
}

/// What a peer understands.
#[derive(Debug, Clone)]
pub enum Era {
    /// `server/discover` alone.
    Modern,
    /// `initialize` alone, in these versions; `strict` refuses others with -32602 instead of
    /// answering the first.
    Older { versions: Vec<&'static str>, strict: bool },
}

impl Setup {
    /// The newer era, with one tool named `echo`.
    #[must_use]
    pub fn modern() -> Self {
        Self {
            era: Era::Modern,
            sessions: false,
            tools: vec![tool("echo")],
            page_size: 100,
            repeat_cursor: false,
            tells_changes: false,
            capabilities: Vec::new(),
        }
    }

    /// A session-based server that speaks any of the older versions.
    #[must_use]
    pub fn older() -> Self {
        let versions = vec!["2025-11-25", "2025-06-18", "2025-03-26"];
        Self { era: Era::Older { versions, strict: false }, sessions: true, ..Self::modern() }
    }
}

/// A definition that takes anything.
#[must_use]
pub fn tool(name: &str) -> String {
    format!(r#"{{"name":"{name}","description":"a tool","inputSchema":{{"type":"object"}}}}"#)
}

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: http::Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
    /// `method` of the JSON-RPC message.
    pub rpc: Option<String>,
    /// Raw JSON of its `id`.
    pub id: Option<String>,
    /// `params.name`.
    pub tool: Option<String>,
    /// Raw JSON of `params.arguments`.
    pub arguments: Option<String>,
}

impl Received {
    /// A header's text, empty where there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A running peer; stops when dropped.
pub struct Peer {
    address: SocketAddr,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

struct State {
    setup: Mutex<Setup>,
    journal: Mutex<Vec<Received>>,
    framing: Mutex<Framing>,
    /// By tool.
    tools: Mutex<HashMap<String, VecDeque<Answer>>>,
    /// By JSON-RPC method, before anything else is looked at.
    methods: Mutex<HashMap<String, VecDeque<Answer>>>,
    sessions: Mutex<HashSet<String>>,
    sessions_begun: AtomicUsize,
    held: AtomicUsize,
    most_held: AtomicUsize,
    connections: Arc<AtomicUsize>,
    gate: Mutex<Option<Arc<Gate>>>,
    released: watch::Sender<bool>,
}

impl Peer {
    pub async fn start(setup: Setup) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        let listener = listener::Cuttable::new(listener);
        let state = Arc::new(State {
            setup: Mutex::new(setup),
            journal: Mutex::default(),
            framing: Mutex::new(Framing::Json),
            tools: Mutex::default(),
            methods: Mutex::default(),
            sessions: Mutex::default(),
            sessions_begun: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            most_held: AtomicUsize::new(0),
            connections: listener.accepted(),
            gate: Mutex::default(),
            released: watch::Sender::new(false),
        });
        let router = Router::new().fallback(serve::handle).with_state(Arc::clone(&state));
        let serving = tokio::spawn(async move {
            let service = router.into_make_service_with_connect_info::<listener::Cut>();
            axum::serve(listener, service).await.expect("it serves until it is stopped");
        });
        Self { address, state, serving }
    }

    /// The MCP endpoint.
    #[must_use]
    pub fn url(&self) -> Url {
        format!("http://{}/mcp", self.address).parse().expect("an address is a host")
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything received so far, oldest first.
    #[must_use]
    pub fn journal(&self) -> Vec<Received> {
        lock(&self.state.journal).clone()
    }

    /// What was received of one JSON-RPC method.
    #[must_use]
    pub fn received(&self, rpc: &str) -> Vec<Received> {
        self.journal().into_iter().filter(|one| one.rpc.as_deref() == Some(rpc)).collect()
    }

    /// What was received by one HTTP method.
    #[must_use]
    pub fn requests(&self, method: &http::Method) -> Vec<Received> {
        self.journal().into_iter().filter(|one| one.method == method).collect()
    }

    #[must_use]
    pub fn calls(&self) -> Vec<Received> {
        self.received("tools/call")
    }

    /// From now on calls of `tool` are answered so. Tools that nothing was said about echo.
    pub fn answer(&self, tool: &str, answer: Answer) {
        self.script(tool, [answer]);
    }

    /// Calls of `tool` are answered one by one; the last answer stays.
    pub fn script(&self, tool: &str, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.state.tools).insert(tool.to_owned(), answers.into_iter().collect());
    }

    /// The same for a whole JSON-RPC method, whatever the session.
    pub fn script_method(&self, method: &str, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.state.methods).insert(method.to_owned(), answers.into_iter().collect());
    }

    /// How results are carried from now on.
    pub fn frame(&self, framing: Framing) {
        *lock(&self.state.framing) = framing;
    }

    /// From now on nobody gets in without a token.
    pub(crate) fn guard(&self, gate: Arc<Gate>) {
        *lock(&self.state.gate) = Some(gate);
    }

    /// Changes what the peer is.
    pub fn change(&self, change: impl FnOnce(&mut Setup)) {
        change(&mut lock(&self.state.setup));
    }

    /// Forgets every session, as a restart would.
    pub fn lose_sessions(&self) {
        lock(&self.state.sessions).clear();
    }

    /// Sessions that are alive.
    #[must_use]
    pub fn sessions(&self) -> usize {
        lock(&self.state.sessions).len()
    }

    /// Calls that are held at this moment ([`Answer::Hold`]); one whose caller hung up is not.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state.held.load(Ordering::SeqCst)
    }

    /// The most that were ever held together.
    #[must_use]
    pub fn most_held(&self) -> usize {
        self.state.most_held.load(Ordering::SeqCst)
    }

    /// TCP connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Lets every held call go on, also those to come.
    pub fn release(&self) {
        self.state.released.send_replace(true);
    }

    /// Calls are held again.
    pub fn hold(&self) {
        self.state.released.send_replace(false);
    }

    /// Waits until the peer is in a state; panics after 10 s, naming it.
    pub async fn until(&self, state: &str, reached: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !reached(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        assert!(waited.is_ok(), "not reached in 10 s: {state}; journal: {:#?}", self.journal());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl State {
    /// The next answer of a script, the last one again and again.
    fn next(scripts: &Mutex<HashMap<String, VecDeque<Answer>>>, key: &str) -> Option<Answer> {
        let mut scripts = lock(scripts);
        let script = scripts.get_mut(key)?;
        if script.len() > 1 { script.pop_front() } else { script.front().cloned() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
