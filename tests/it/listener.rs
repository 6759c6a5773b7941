//! Clients that take their time, and more of them than there is room for.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use api::listen::{self, Patience};
use axum::{Router, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::timeout,
};

struct Node {
    address: SocketAddr,
    /// Ends the requests to `/held`.
    release: Arc<Notify>,
    drain: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Node {
    async fn start(patience: Patience) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (drain, draining) = oneshot::channel();
        let release = Arc::new(Notify::new());
        let released = Arc::clone(&release);
        let hold = async move || {
            released.notified().await;
            "at last"
        };
        let router = Router::new().route("/", get(async || "here")).route("/held", get(hold));
        let draining = async { _ = draining.await };
        let serving = tokio::spawn(listen::serve(listener, router, patience, draining));
        Self { address, release, drain, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// The first bytes of the answer to a good request.
    async fn ask(&self) -> String {
        let mut stream = self.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

/// Whether the node ends the connection within 10 s.
async fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset is an end, too.
    timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn a_head_that_never_ends_is_not_waited_for() {
    let patience = Patience { head: Duration::from_millis(200), ..Patience::default() };
    let node = Node::start(patience).await;
    for beginning in ["", "G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: x\r\nx-slow: a"] {
        let mut stream = node.connect().await;
        stream.write_all(beginning.as_bytes()).await.unwrap();
        assert!(is_closed(stream).await, "{beginning:?} keeps its connection");
    }
    // Also not of the second request of a connection, and not if it grows now and then.
    let mut stream = node.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET /").await.unwrap();
    let (mut reads, mut writes) = stream.into_split();
    let drip = tokio::spawn(async move {
        while writes.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut answer = Vec::new();
    timeout(Duration::from_secs(10), reads.read_to_end(&mut answer)).await.unwrap().ok();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
    drip.abort();
    assert!(node.ask().await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn slow_clients_that_take_every_place_hold_up_nobody_for_long() {
    let patience = Patience { head: Duration::from_millis(300), connections: 4 };
    let node = Node::start(patience).await;
    let mut slow = Vec::new();
    for _ in 0..12 {
        let mut stream = node.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        slow.push(stream);
    }
    let answer = timeout(Duration::from_secs(10), node.ask()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    for stream in slow {
        assert!(is_closed(stream).await);
    }
}

#[tokio::test]
async fn draining_ends_idle_connections_and_waits_for_running_requests() {
    let node = Node::start(Patience::default()).await;
    let idle = node.connect().await;
    let mut kept = node.connect().await;
    kept.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 15];
    kept.read_exact(&mut first).await.unwrap();
    let mut running = node.connect().await;
    running.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    // It is answered in order: what came before it is there, so is the node's side of this one soon.
    assert!(node.ask().await.ends_with("here"));

    node.drain.send(()).unwrap();
    assert!(is_closed(idle).await, "an idle connection outlives the node");
    assert!(is_closed(kept).await, "a kept connection outlives the node");
    assert!(!node.serving.is_finished(), "a running request was dropped");
    node.release.notify_one();
    let mut answer = String::new();
    running.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("at last"), "{answer}");
    timeout(Duration::from_secs(10), node.serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(node.address).await.is_err(), "it still listens");
}
